"""`ridgebeam step`: the time of one decode step and of one prefill."""

from __future__ import annotations

import argparse
from typing import Any

from commands.arguments import (
    OK,
    add_fidelity,
    add_formats,
    add_hardware,
    add_profile,
    add_source,
    emit,
    inputs,
    tokens,
    verb,
)


def add(verbs: Any) -> None:
    parser = verb(verbs, "step", run, "time of one decode step and of one prefill")
    add_source(parser)
    add_hardware(parser)
    add_formats(parser)
    parser.add_argument("--batch", type=tokens, default=1)
    parser.add_argument("--context", type=tokens, default=1024, help="cached tokens of each sequence")
    parser.add_argument("--prefill", type=tokens, help="also time the prefill of a prompt of that length")
    add_fidelity(parser)
    add_profile(parser)


def run(arguments: argparse.Namespace) -> int:
    from calc import contract
    from calc import format as fmt

    asked = inputs(arguments, gpu=arguments.gpu)
    record = contract.step_json(
        asked,
        batch=arguments.batch,
        context=arguments.context,
        prefill=arguments.prefill,
    )
    decode = record["decode"]
    lines = []
    if decode:
        lines = [
            f"decode step   {fmt.seconds(decode['s']['best'])} at batch {arguments.batch}, {decode['bound']}-bound",
            f"tokens/s      {fmt.plain(decode['tokens_per_s'])}",
            *(f"  {name:<14}{fmt.seconds(term)}" for name, term in decode["terms"].items()),
        ]
    if record["prefill"]:
        lines.append(
            f"prefill       {fmt.seconds(record['prefill']['s']['best'])} for {arguments.prefill} tokens"
        )
    lines += [f"warning       {text}" for text in record.get("warnings", ())]
    emit(arguments, record, lines)
    return OK
