"""`ridgebeam fit`: does it fit, and how many KV tokens does the engine get."""

from __future__ import annotations

import argparse
from typing import Any

from commands.arguments import (
    INFEASIBLE,
    OK,
    add_formats,
    add_hardware,
    add_source,
    emit,
    inputs,
    positive,
    tokens,
    verb,
)


def add(verbs: Any) -> None:
    parser = verb(verbs, "fit", run, "does it fit, and how many KV tokens does the engine get")
    add_source(parser)
    add_hardware(parser)
    add_formats(parser)
    parser.add_argument("--device-memory-gib", type=positive, help="the device's total, not the catalogue's")
    parser.add_argument("--available-kv-gib", type=positive, help="skip the ledger: only the KV arithmetic")
    parser.add_argument("--max-model-len", type=tokens)
    parser.add_argument("--max-seqs", type=tokens)


def run(arguments: argparse.Namespace) -> int:
    from calc import contract
    from calc import format as fmt

    record = contract.fit_json(inputs(arguments, gpu=arguments.gpu))
    per_gpu, kv, verdict = record["per_gpu"], record["kv"], record["verdict"]
    lines = [
        "fits" if record["fits"] else f"does not fit: {verdict['reason']}",
        f"per GPU       {fmt.binary_bytes(per_gpu['total_bytes'])} in all",
        f"  weights     {fmt.binary_bytes(per_gpu['weights_bytes'])}",
        f"  KV pool     {fmt.binary_bytes(max(0, per_gpu['kv_bytes']))}: {fmt.count(kv['tokens'])} tokens",
        *(f"  would fit:  {change['text']}" for change in verdict["nearest"]),
    ]
    emit(arguments, record, lines)
    return OK if record["fits"] else INFEASIBLE
