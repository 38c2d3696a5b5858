"""Arguments that several verbs share, and the scenario and inputs that they describe."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calc.errors import InputError
from calc.json_text import json_of
from calc.units import GB, GIB

if TYPE_CHECKING:
    from calc.result import Answer, Inputs
    from calc.scenario import Scenario

Verb = Callable[[argparse.Namespace], int]
OK, INFEASIBLE, UNAVAILABLE = 0, 3, 4  # 2, bad input, comes from the errors themselves
MOST = 1_000_000_000


def verb(verbs: Any, name: str, run: Verb, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    parser.set_defaults(run=run)
    if name != "app":
        parser.add_argument("--json", action="store_true", help="print exactly one JSON object")
    return parser


def add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="hub id, preset id, config.json, folder, or .gguf file"
    )
    parser.add_argument("--revision", default="", help="branch, tag or commit on the hub")


def add_layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=tokens, help="GPUs per replica, by tensor parallelism (same as --tp)")
    for name in ("tp", "pp", "dp", "ep", "attention-dp", "nodes"):
        parser.add_argument(f"--{name}", type=tokens)


def add_hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", required=True, metavar="ID")
    add_layout(parser)


def add_formats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quantization",
        default="auto",
        type=str.lower,
        help="weight format; default: as the checkpoint is stored",
    )
    parser.add_argument("--kv-dtype", default="auto", help="KV cache format; default: 16 bit")
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--engine-version", default="")
    parser.add_argument("--memory-utilization", type=positive)


def add_traffic(parser: argparse.ArgumentParser) -> None:
    traffic = parser.add_mutually_exclusive_group(required=True)
    traffic.add_argument("--rate", type=not_negative, help="requests per second")
    traffic.add_argument("--concurrency", type=tokens, help="users who each wait for their answer")
    parser.add_argument("--arrival-cv", type=not_negative, default=1.0)
    parser.add_argument("--input", "--isl", type=tokens, help="mean prompt tokens")
    parser.add_argument("--output", "--osl", type=tokens, help="mean output tokens")
    parser.add_argument("--prefix-share", type=not_negative, default=0.0)
    parser.add_argument(
        "--reuse-after",
        type=positive,
        metavar="S",
        help="mean seconds until the text of --prefix-share comes back; default: it is always in the cache",
    )
    parser.add_argument(
        "--kv-offload",
        choices=("none", "host", "ssd"),
        default="none",
        help="where text waits beyond the card",
    )
    parser.add_argument(
        "--kv-offload-gb", type=positive, help="room behind each GPU; default: a usual server's"
    )
    parser.add_argument("--ttft", type=positive, metavar="S")
    parser.add_argument("--tpot", type=positive, metavar="S")
    parser.add_argument("--e2e", type=positive, metavar="S")
    parser.add_argument("--percentile", type=positive, metavar="P", help="default: targets are means")
    parser.add_argument("--headroom", type=not_negative, default=0.3)


def add_planned(parser: argparse.ArgumentParser) -> None:
    """All that describes one plan on one accelerator: what `planned` asks."""
    add_source(parser)
    add_hardware(parser)
    add_formats(parser)
    add_traffic(parser)
    parser.add_argument("--max-model-len", type=tokens)
    parser.add_argument("--max-seqs", type=tokens, help="sequences at once, of a replica")
    parser.add_argument("--kv-bytes-per-gpu", type=positive)
    parser.add_argument(
        "--pools",
        dest="disaggregated",
        action="store_true",
        help="prefill and decode on replicas of their own",
    )
    add_fidelity(parser)


def add_fidelity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fidelity",
        choices=("textbook", "roofline", "expected"),
        help="default: expected; textbook for the made-up models and accelerators of the lessons",
    )
    parser.add_argument(
        "--mfu", type=positive, default=0.5, help="share of the peak that a textbook prefill reaches"
    )


def add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="what `ridgebeam probe --out` wrote: its device's measured numbers in place of the fitted ones",
    )


def number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def positive(text: str) -> float:
    value = number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be a positive number")
    return value


def not_negative(text: str) -> float:
    value = number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be 0 or more")
    return value


def tokens(text: str) -> int:
    """A count from 1 to a thousand million: more than any prompt, batch or fleet, and still exact as a float."""
    value = positive(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number")
    if value > MOST:
        raise argparse.ArgumentTypeError(f"{text} must be at most {MOST:,}")
    return int(value)


def seed(text: str) -> int:
    """What random draws start from: a whole number that 64 bits hold."""
    value = not_negative(text)
    if value != int(value) or value >= 2**63:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number from 0 to 2^63 - 1")
    return int(value)


def refuse_alone(flag: str, value: object, *, useful: bool, without: str) -> None:
    """Refuse a flag that was given (`value` says something) where it would change nothing; raises `InputError`.

    `without`: what it needs, as "--prefix-share", to follow the word "without".
    """
    if value and not useful:
        raise InputError(
            flag, value, f"it changes nothing without {without}", next_step="Add that, or leave the flag out."
        )


def _refuse_cache_flags_alone(arguments: argparse.Namespace) -> None:
    given = vars(arguments)
    reuse, behind = given.get("reuse_after"), given.get("kv_offload", "none")
    refuse_alone("--reuse-after", reuse, useful=arguments.prefix_share > 0, without="--prefix-share above 0")
    kept = "" if behind == "none" else behind
    refuse_alone("--kv-offload", kept, useful=bool(reuse), without="--reuse-after")
    refuse_alone(
        "--kv-offload-gb", given.get("kv_offload_gb"), useful=bool(kept), without="--kv-offload host or ssd"
    )


def scenario(arguments: argparse.Namespace, *, gpu: str) -> Scenario:
    """The scenario that the arguments describe; what a verb has no argument for keeps a neutral value."""
    from calc.scenario import Scenario

    given = vars(arguments)
    gpus, tp = given.get("gpus"), given.get("tp")
    if gpus and tp and gpus != tp:
        raise InputError("--gpus", gpus, f"--tp says {tp}, and the two mean the same: give one of them")
    scenario = Scenario(
        model=arguments.source,
        revision=arguments.revision,
        gpu=gpu,
        quantization=given.get("quantization", "auto"),
        kv_dtype=given.get("kv_dtype", "auto"),
        engine=given.get("engine", "vllm"),
        engine_version=given.get("engine_version", ""),
        tp=tp or gpus or 0,
        pp=given.get("pp") or 1,
        dp=given.get("dp") or 1,
        ep=given.get("ep") or 0,
        attention_dp=given.get("attention_dp") or 1,
        nodes=given.get("nodes") or 1,
        memory_utilization=given.get("memory_utilization"),
        max_model_len=given.get("max_model_len"),
        max_seqs=given.get("max_seqs"),
        kv_bytes_per_gpu=given.get("kv_bytes_per_gpu"),
        paged=not given.get("no_paging", False),
        usd_per_gpu_hour=given.get("usd_per_gpu_hour"),
        fidelity=given.get("fidelity") or _default_fidelity(arguments.source, gpu),
        mfu=given.get("mfu", 0.5),
        tpot_s=None,
    )
    if given.get("device_memory_gib"):
        scenario = replace(scenario, device_memory_bytes=given["device_memory_gib"] * GIB)
    if given.get("available_kv_gib"):
        scenario = replace(scenario, kv_bytes_per_gpu=given["available_kv_gib"] * GIB)
    return scenario if "rate" not in given else _with_traffic(scenario, arguments)


def _with_traffic(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """The scenario with what `add_traffic` asks for."""
    given = vars(arguments)
    _refuse_cache_flags_alone(arguments)
    for flag, name in (("--pools", "disaggregated"), ("--reuse-after", "reuse_after")):
        refuse_alone(
            flag,
            given.get(name),
            useful=scenario.fidelity != "textbook",
            without="--fidelity expected or roofline",
        )
    closed = arguments.concurrency is not None
    return replace(
        scenario,
        traffic="users" if closed else "rate",
        users=arguments.concurrency if closed else scenario.users,
        rate_per_s=scenario.rate_per_s if closed else arguments.rate,
        arrival_cv=arguments.arrival_cv,
        input_tokens=float(arguments.input),
        output_tokens=float(arguments.output),
        prefix_share=arguments.prefix_share,
        reuse_after_s=given.get("reuse_after"),
        disaggregated=given.get("disaggregated", False),
        kv_offload=given.get("kv_offload", "none"),
        kv_offload_bytes=None if not given.get("kv_offload_gb") else given["kv_offload_gb"] * GB,
        ttft_s=arguments.ttft,
        tpot_s=arguments.tpot,
        e2e_s=arguments.e2e,
        percentile=arguments.percentile,
        headroom=arguments.headroom,
    )


def _default_fidelity(source: str, gpu: str) -> str:
    """What is made up for teaching states only totals, which the textbook's closed forms take."""
    from presets import accelerators
    from presets.textbook_models import TEXTBOOK_MODELS

    made_up = source in TEXTBOOK_MODELS or gpu in accelerators.made_up_ids()
    return "textbook" if made_up else "expected"


def inputs(arguments: argparse.Namespace, *, gpu: str) -> Inputs:
    from presets import profiles
    from presets.resolve import resolve

    found = resolve(scenario(arguments, gpu=gpu))
    path = getattr(arguments, "profile", None)
    if path is None or found.offer.profile is None:
        return found
    measured = profiles.read_over(found.offer.profile, path, accelerator_id=found.offer.accelerator.id)
    return replace(found, offer=replace(found.offer, profile=measured))


def planned(arguments: argparse.Namespace, verb_name: str) -> Answer:
    """The plan that the arguments of `add_planned` describe, whether it works or not."""
    from calc.answer import answer

    if arguments.input is None or arguments.output is None:
        raise InputError(verb_name, "no lengths", "a plan needs --input and --output")
    return answer(inputs(arguments, gpu=arguments.gpu))


def writable(flag: str, path: str | None) -> None:
    """Refuse a file that cannot be written before the work that would fill it; raises `InputError`."""
    if path is None:
        return
    file = Path(path).absolute()
    if file.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise InputError(
            flag, path, "it must be a file that can be written", next_step="Name one in a folder that exists."
        )


def write_file(flag: str, path: str, parts: Iterable[str]) -> None:
    """Write the file that a flag names, whole or not at all; raises InputError where it cannot be written."""
    from presets.whole_file import why, write_whole

    try:
        write_whole(Path(path), parts)
    except OSError as error:
        raise InputError(flag, path, f"it must be a file that can be written ({why(error)})") from error


def emit(arguments: argparse.Namespace, record: dict[str, Any], lines: list[str]) -> None:
    print(json_of(record) if arguments.json else "\n".join(lines))
