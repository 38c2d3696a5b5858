"""`ridgebeam serve-point`: TTFT, TPOT and throughput of one replica at fixed concurrency."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from commands.arguments import (
    INFEASIBLE,
    OK,
    add_formats,
    add_hardware,
    add_profile,
    add_source,
    emit,
    inputs,
    tokens,
    verb,
)

if TYPE_CHECKING:
    from calc.result import Inputs
    from calc.scenario import Scenario


def add(verbs: Any) -> None:
    parser = verb(verbs, "serve-point", run, "TTFT, TPOT and throughput at fixed concurrency")
    add_source(parser)
    add_hardware(parser)
    add_formats(parser)
    parser.add_argument("--input", "--isl", type=tokens, required=True, help="prompt tokens")
    parser.add_argument("--output", "--osl", type=tokens, required=True, help="output tokens")
    parser.add_argument(
        "--concurrency", type=tokens, required=True, help="users who each wait for their answer"
    )
    add_profile(parser)
    parser.add_argument("--fidelity", default="expected", choices=("roofline", "expected"))


def run(arguments: argparse.Namespace) -> int:
    from calc import format as fmt
    from calc.engine import engine_named
    from calc.format_support import check_engine
    from calc.replica_model import replica_model

    asked = inputs(arguments, gpu=arguments.gpu)
    tokens_in, tokens_out = float(arguments.input), float(arguments.output)
    asked.spec.check_length(tokens_in + tokens_out, field="input and output")
    check_engine(arguments.engine, asked.offer.accelerator)
    layout = asked.scenario.layout
    memory = _memory(asked, replace(asked.scenario, input_tokens=tokens_in, output_tokens=tokens_out))
    users = arguments.concurrency
    running = min(users, memory["sequences"]) if memory and memory["fits"] and memory["sequences"] else users
    point = replica_model(asked, layout).serving(
        input_tokens=tokens_in, output_tokens=tokens_out, concurrency=float(running)
    )
    if running < users:
        point = point.shared_by(users / running, output_tokens=tokens_out)
    record: dict[str, Any] = {
        "model": asked.spec.id,
        "gpu": asked.offer.accelerator.id,
        "layout": layout.label,
        "engine": str(engine_named(arguments.engine)),
        "fidelity": arguments.fidelity,
        **point.as_json(),
        "running": running,
        "memory": memory,
    }
    if tokens_out <= 1:
        record["tpot_s"] = None
    lines = [
        f"TTFT          {_range(record['ttft_s'], fmt.seconds)}",
        f"TPOT          {_range(record['tpot_s'], fmt.seconds) if record['tpot_s'] else 'none: no token follows the first'}",
        f"tokens/s      {_range(record['tokens_per_s'], fmt.plain)}",
        f"per GPU       {_range(record['tokens_per_s_per_gpu'], fmt.plain)}",
        f"state         {record['state']}",
        f"evidence      {record['evidence']}",
        *_memory_lines(memory, arguments.concurrency),
        *(f"assumed       {text}" for text in (memory or {}).get("assumptions", [])),
    ]
    emit(arguments, record, lines)
    impossible = memory is not None and not memory["fits"]
    return INFEASIBLE if impossible or record["state"] == "saturated" else OK


def _memory(asked: Inputs, scenario: Scenario) -> dict[str, Any] | None:
    """Whether the engine starts, and how many such requests its cache holds; None where the memory is not known."""
    from calc.errors import InputError, MissingSpec
    from calc.expected import memory_of

    try:
        _, ledger, fit = memory_of(asked.spec, asked.offer.accelerator, scenario.layout, scenario)
    except MissingSpec:
        return None
    except InputError as refused:
        return {"fits": False, "reason": str(refused), "sequences": 0, "assumptions": []}
    return {
        "fits": ledger.verdict.fits,
        "reason": ledger.verdict.reason,
        "sequences": fit,
        "assumptions": list(ledger.assumptions),
    }


def _memory_lines(memory: dict[str, Any] | None, concurrency: int) -> list[str]:
    """What the cache holds, and a warning where that is not all of them."""
    from calc import format as fmt

    if memory is None:
        return []
    if not memory["fits"]:
        return [f"memory        does not fit: {memory['reason']}"]
    held = fmt.plural(memory["sequences"], "sequence")
    if concurrency > memory["sequences"]:
        return [f"memory        the cache holds {held}: the others wait for their first token"]
    return [f"memory        the cache holds {held}"]


def _range(record: Any, shown: Any) -> str:
    return f"{shown(record['best'])} ({shown(record['low'])} to {shown(record['high'])})"
