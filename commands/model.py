"""`ridgebeam model`: parameters, stored bytes, KV and state of a model."""

from __future__ import annotations

import argparse
from typing import Any

from commands.arguments import OK, add_source, emit, tokens, verb


def add(verbs: Any) -> None:
    parser = verb(verbs, "model", run, "parameters, stored bytes, KV and state of a model")
    add_source(parser)
    parser.add_argument("--context", type=tokens, help="also show the bytes of one sequence of that length")
    parser.add_argument("--kv-dtype", default="bf16")


def run(arguments: argparse.Namespace) -> int:
    from calc import format as fmt
    from calc.model_contract import model_json
    from presets import sources

    source = sources.read(arguments.source, revision=arguments.revision or None)
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
    emit(arguments, record, [*lines, *source.warnings])
    return OK
