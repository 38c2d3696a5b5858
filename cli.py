"""The command line: `ridgebeam VERB`. Thin: it parses, calls the same functions as the pages, and prints.

Exit codes: 0 ok, 2 bad input, 3 infeasible or saturated, 4 source or probe unavailable. With --json exactly one JSON
object is printed, errors included. Calculators are imported by the verb that needs them, so that --help stays quick.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from calc.errors import InputError, RidgebeamError
from calc.units import GIB

if TYPE_CHECKING:
    from calc.answer import Answer, Inputs
    from calc.scenario import Scenario
    from presets.sources import ModelSource

Verb = Callable[[argparse.Namespace], int]
ROOT = Path(__file__).resolve().parent
OK, BAD_INPUT, INFEASIBLE = 0, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; errors that a person can act on become a message and an exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = _parser().parse_args(words)
        run: Verb = arguments.run
        return run(arguments)
    except RidgebeamError as error:
        if "--json" in words:
            print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
        else:
            print(f"ridgebeam: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return OK
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are InputErrors, so that --json also covers them."""

    def error(self, message: str) -> NoReturn:
        raise InputError("arguments", " ".join(sys.argv[1:]), message, next_step=f"See {self.prog} --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="ridgebeam",
        description="LLM-serving capacity planner: which GPUs, how many, what users feel, what it costs.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    model = _verb(verbs, "model", _model, "parameters, stored bytes, KV and state of a model")
    _add_source(model)
    model.add_argument("--context", type=_tokens, help="also show the bytes of one sequence of that length")
    model.add_argument("--kv-dtype", default="bf16")

    fit = _verb(verbs, "fit", _fit, "does it fit, and how many KV tokens does the engine get")
    _add_source(fit)
    _add_hardware(fit)
    _add_formats(fit)
    fit.add_argument(
        "--device-memory-gib", type=_positive, help="the device's total, instead of the catalogue's"
    )
    fit.add_argument(
        "--available-kv-gib", type=_positive, help="skip the ledger: test the KV arithmetic alone"
    )
    fit.add_argument("--max-model-len", type=_tokens)
    fit.add_argument("--max-seqs", type=_tokens)

    step = _verb(verbs, "step", _step, "time of one decode step and of one prefill")
    _add_source(step)
    _add_hardware(step)
    _add_formats(step)
    step.add_argument("--batch", type=_tokens, default=1)
    step.add_argument("--context", type=_tokens, default=1024, help="cached tokens of each sequence")
    step.add_argument("--prefill", type=_tokens, help="also time the prefill of a prompt of that length")
    _add_fidelity(step)

    plan = _verb(verbs, "plan", _plan, "which GPUs, how many, what users feel, what it costs")
    _add_source(plan)
    plan.add_argument(
        "--gpu", action="append", metavar="ID", help="repeat to compare; default: all priced ones"
    )
    _add_layout(plan)
    _add_formats(plan)
    _add_traffic(plan)
    plan.add_argument(
        "--kv-bytes-per-gpu", type=_positive, help="room for the cache, instead of what is left"
    )
    plan.add_argument("--device-memory-gib", type=_positive)
    plan.add_argument("--no-paging", action="store_true", help="reserve --max-model-len for every sequence")
    plan.add_argument("--max-model-len", type=_tokens)
    plan.add_argument("--max-seqs", type=_tokens)
    plan.add_argument("--usd-per-gpu-hour", type=_not_negative, help="your own price")
    plan.add_argument("--top", type=_tokens, default=5)
    _add_fidelity(plan)

    app = _verb(verbs, "app", _app, "open the web app on 127.0.0.1")
    app.add_argument("--port", type=int, default=8501)
    return parser


# ---- arguments ------------------------------------------------------------------------------------------------


def _verb(verbs: Any, name: str, run: Verb, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    parser.set_defaults(run=run)
    if name != "app":
        parser.add_argument("--json", action="store_true", help="print exactly one JSON object")
    return parser


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source", metavar="SOURCE", help="hub id, preset id, config.json, folder, or .gguf file"
    )
    parser.add_argument("--revision", default="", help="branch, tag or commit on the hub")


def _add_layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=_tokens, help="GPUs per replica, by tensor parallelism (same as --tp)")
    for name in ("tp", "pp", "dp", "ep", "attention-dp", "nodes"):
        parser.add_argument(f"--{name}", type=_tokens)


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", required=True, metavar="ID")
    _add_layout(parser)


def _add_formats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quantization", default="auto", help="weight format; default: as the checkpoint is stored"
    )
    parser.add_argument("--kv-dtype", default="auto", help="KV cache format; default: 16 bit")
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--engine-version", default="")
    parser.add_argument("--memory-utilization", type=_positive)


def _add_traffic(parser: argparse.ArgumentParser) -> None:
    traffic = parser.add_mutually_exclusive_group(required=True)
    traffic.add_argument("--rate", type=_not_negative, help="requests per second")
    traffic.add_argument("--concurrency", type=_tokens, help="users who each wait for their answer")
    parser.add_argument("--arrival-cv", type=_not_negative, default=1.0)
    parser.add_argument("--input", "--isl", type=_tokens, required=True, help="mean prompt tokens")
    parser.add_argument("--output", "--osl", type=_tokens, required=True, help="mean output tokens")
    parser.add_argument("--prefix-share", type=_not_negative, default=0.0)
    parser.add_argument("--ttft", type=_positive, metavar="S")
    parser.add_argument("--tpot", type=_positive, metavar="S")
    parser.add_argument("--e2e", type=_positive, metavar="S")
    parser.add_argument("--percentile", type=_positive, metavar="P", help="default: targets are means")
    parser.add_argument("--headroom", type=_not_negative, default=0.3)


def _add_fidelity(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fidelity", default="textbook", choices=("textbook", "roofline", "expected"))
    parser.add_argument(
        "--mfu", type=_positive, default=0.5, help="share of the peak that a textbook prefill reaches"
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _positive(text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be a positive number")
    return value


def _not_negative(text: str) -> float:
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} must be 0 or more")
    return value


def _tokens(text: str) -> int:
    value = _positive(text)
    if value != int(value):
        raise argparse.ArgumentTypeError(f"{text} must be a whole number")
    return int(value)


def _scenario(arguments: argparse.Namespace, *, gpu: str) -> Scenario:
    """The scenario that the arguments describe; what a verb has no argument for keeps a neutral value."""
    from calc.scenario import Scenario

    given = vars(arguments)
    scenario = Scenario(
        model=arguments.source,
        revision=arguments.revision,
        gpu=gpu,
        quantization=given.get("quantization", "auto"),
        kv_dtype=given.get("kv_dtype", "auto"),
        engine=given.get("engine", "vllm"),
        engine_version=given.get("engine_version", ""),
        tp=given.get("tp") or given.get("gpus") or 0,
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
        fidelity=given.get("fidelity", "textbook"),
        mfu=given.get("mfu", 0.5),
        tpot_s=None,
    )
    if given.get("device_memory_gib"):
        scenario = replace(scenario, device_memory_bytes=given["device_memory_gib"] * GIB)
    if given.get("available_kv_gib"):
        scenario = replace(scenario, kv_bytes_per_gpu=given["available_kv_gib"] * GIB)
    if "rate" not in given:
        return scenario
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
        ttft_s=arguments.ttft,
        tpot_s=arguments.tpot,
        e2e_s=arguments.e2e,
        percentile=arguments.percentile,
        headroom=arguments.headroom,
    )


# ---- verbs ----------------------------------------------------------------------------------------------------


def _emit(arguments: argparse.Namespace, record: dict[str, Any], lines: list[str]) -> None:
    print(json.dumps(record) if arguments.json else "\n".join(lines))


def _read_model(arguments: argparse.Namespace) -> ModelSource:
    from presets import sources

    return sources.read(arguments.source, revision=arguments.revision or None)


def _model(arguments: argparse.Namespace) -> int:
    from calc import format as fmt
    from calc.model_contract import model_json

    source = _read_model(arguments)
    stored = source.checkpoint.stored_bytes if source.checkpoint else None
    record = model_json(source.spec, context=arguments.context, kv_dtype=arguments.kv_dtype, stored=stored)
    lines = [
        f"{record['model']}  ({record['architecture']})  {source.origin}",
        f"parameters    {fmt.count(record['params']['total'])}, active {fmt.count(record['params']['active'])}",
        f"weights       {fmt.binary_bytes(record['weight_bytes']['stored'])}",
        f"KV per token  {fmt.binary_bytes(record['kv']['bytes_per_token'])} ({arguments.kv_dtype})",
    ]
    lines += [
        f"one sequence  {fmt.count(int(n))} tokens: {fmt.binary_bytes(size)}"
        for n, size in record["sequence_bytes"].items()
    ]
    _emit(arguments, record, [*lines, *source.warnings])
    return OK


def _fit(arguments: argparse.Namespace) -> int:
    from calc import contract
    from calc import format as fmt

    inputs = _inputs(arguments, gpu=arguments.gpu)
    record = contract.fit_json(inputs)
    per_gpu, kv, verdict = record["per_gpu"], record["kv"], record["verdict"]
    lines = [
        "fits" if record["fits"] else f"does not fit: {verdict['reason']}",
        f"per GPU       {fmt.binary_bytes(per_gpu['total_bytes'])} in all",
        f"  weights     {fmt.binary_bytes(per_gpu['weights_bytes'])}",
        f"  KV pool     {fmt.binary_bytes(max(0, per_gpu['kv_bytes']))}: {fmt.count(kv['tokens'])} tokens",
        *(f"  would fit:  {change['text']}" for change in verdict["nearest"]),
    ]
    _emit(arguments, record, lines)
    return OK if record["fits"] else INFEASIBLE


def _step(arguments: argparse.Namespace) -> int:
    from calc import contract
    from calc import format as fmt

    inputs = _inputs(arguments, gpu=arguments.gpu)
    record = contract.step_json(
        inputs, batch=arguments.batch, context=arguments.context, prefill=arguments.prefill
    )
    decode = record["decode"]
    lines = [
        f"decode step   {fmt.seconds(decode['s']['best'])} at batch {arguments.batch}, {decode['bound']}-bound",
        f"tokens/s      {fmt.plain(decode['tokens_per_s'])}",
        *(f"  {name:<12}{fmt.seconds(term)}" for name, term in decode["terms"].items()),
    ]
    if record["prefill"]:
        lines.append(
            f"prefill       {fmt.seconds(record['prefill']['s']['best'])} for {arguments.prefill} tokens"
        )
    _emit(arguments, record, lines)
    return OK


def _plan(arguments: argparse.Namespace) -> int:
    from calc import contract
    from calc.levers import lever_effects
    from calc.plan import rank

    offers = None
    if arguments.gpu:
        from presets import accelerators
        from presets.resolve import offer_of

        offers = tuple(offer_of(accelerators.load(gpu), arguments.usd_per_gpu_hour) for gpu in arguments.gpu)
    inputs = _inputs(arguments, gpu=arguments.gpu[0] if arguments.gpu else "a100-sxm4-80gb")
    ranking = rank(inputs, offers or inputs.catalogue)
    record = {
        "plans": [contract.plan_json(result) for result in ranking.plans[: arguments.top]],
        "levers": [],
        "rejected": [{"why": why, "count": count} for why, count in ranking.rejected],
    }
    shown: list[Answer] = list(ranking.plans[: arguments.top])
    if shown:
        record["levers"] = [contract.lever_json(effect) for effect in lever_effects(shown[0])]
    else:
        nearest = _nearest_failure(inputs, ranking.failed)
        record["nearest"] = [contract.plan_json(result) for result in nearest]
        shown = nearest
    from calc.answer import headline

    lines = [headline(result) for result in shown]
    lines += [f"rejected: {count} x {why}" for why, count in ranking.rejected]
    _emit(arguments, record, lines)
    return OK if ranking.plans else INFEASIBLE


def _nearest_failure(inputs: Inputs, failed: tuple[Answer, ...]) -> list[Answer]:
    """The failures that came nearest, each with the changes that would make it work."""
    from calc.answer import nearest_changes

    ordered = sorted(failed, key=lambda result: result.verdict.short_by)[:3]
    return [
        replace(
            result,
            verdict=replace(
                result.verdict,
                nearest=nearest_changes(replace(result.inputs, catalogue=inputs.catalogue), result),
            ),
        )
        for result in ordered
    ]


def _inputs(arguments: argparse.Namespace, *, gpu: str) -> Inputs:
    from presets.resolve import resolve

    return resolve(_scenario(arguments, gpu=gpu))


def _app(arguments: argparse.Namespace) -> int:
    """Serve the app in the foreground, on this machine only."""
    import subprocess

    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(ROOT / "app.py"),
        "--server.address",
        "127.0.0.1",
    ]
    command += ["--server.port", str(arguments.port)]
    try:
        return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own argv, no shell
    except KeyboardInterrupt:
        return OK


if __name__ == "__main__":
    sys.exit(main())
