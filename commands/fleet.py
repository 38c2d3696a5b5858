"""`ridgebeam fleet FILE`: several deployments on a shared stock of GPUs, from a CSV table."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.arguments import INFEASIBLE, OK, add_fidelity, emit, positive, verb

if TYPE_CHECKING:
    from calc.fleet import Fleet, FleetRow
    from calc.result import Answer


def add(verbs: Any) -> None:
    parser = verb(verbs, "fleet", run, "several deployments on one stock of GPUs, from a CSV table")
    parser.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="CSV: model, input_tokens, output_tokens, rate_per_s or users; further columns: name, region, gpu, ttft_s, "
        "tpot_s, e2e_s, percentile, quantization, kv_dtype, engine, adapters, adapter_rank, prefix_share, reuse_after_s, "
        "kv_offload, headroom",
    )
    parser.add_argument(
        "--gpu", action="extend", nargs="+", metavar="ID", help="kinds for rows that name none", default=[]
    )
    parser.add_argument(
        "--stock",
        action="append",
        default=[],
        metavar="GPU=N",
        help="at most N of a kind; REGION:GPU=N for one region",
    )
    parser.add_argument("--budget", type=positive, metavar="USD", help="per hour, for all rows")
    add_fidelity(parser)


def run(arguments: argparse.Namespace) -> int:
    from calc.errors import InputError
    from calc.fleet import Budget, plan_fleet
    from calc.fleet_table import fleet_rows, placed_rows, stocks_of
    from calc.scenario import Scenario
    from presets.fleet_file import read_fleet_file
    from presets.resolve import accelerator_named

    base = Scenario(fidelity=arguments.fidelity or "expected", mfu=arguments.mfu, tpot_s=None)
    rows = fleet_rows(read_fleet_file(arguments.file), base)
    stocks = stocks_of(arguments.stock)
    kinds = tuple(dict.fromkeys([*arguments.gpu, *(stock.gpu for stock in stocks)]))
    for kind in (*kinds, *(gpu for row in rows for gpu in row.gpus)):
        accelerator_named(kind)  # refuses what it does not know, before anything is worked out
    if not kinds and not all(row.gpus for row in rows):
        raise InputError("gpu", "none", "name kinds by --gpu or --stock, or in the table's column gpu")
    found = plan_fleet(rows, _ask, kinds, Budget(stocks=stocks, usd_per_hour=arguments.budget))
    record = {
        "rows": placed_rows(found),
        "gpus": found.gpus,
        "usd_per_hour": found.usd_per_hour,
        "rate_per_s": found.rate_per_s,
        "short": list(found.short),
        "exact": found.exact,
    }
    emit(arguments, record, _lines(found))
    return OK if all(place.answer is not None for place in found.placed) else INFEASIBLE


def _ask(row: FleetRow, kind: str) -> Answer:
    from calc.answer import answer
    from presets.resolve import resolve

    inputs = resolve(replace(row.scenario, gpu=kind))
    return answer(replace(inputs, catalogue=()))  # alternatives are the fleet's own business


def _lines(found: Fleet) -> list[str]:
    from calc import format as fmt
    from calc.fleet_report import fleet_headline

    lines = [fleet_headline(found)]
    for place in found.placed:
        where = f" ({place.row.region})" if place.row.region else ""
        if place.answer is None:
            lines.append(f"  {place.row.name}{where}: left out, {place.why}")
            continue
        name = place.answer.inputs.offer.accelerator.name
        price = fmt.optional(place.usd_per_hour, lambda usd: f"{fmt.usd(usd)} an hour", "no price known")
        lines.append(
            f"  {place.row.name}{where}: {fmt.count(place.gpus)} x {name}, {place.answer.layout.label}, {price}"
        )
    return lines
