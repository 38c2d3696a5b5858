"""Fits the constants of vLLM's memory rules over public start-up logs and prints them beside the ones in use.

    python scripts/fit_engine_memory.py [--cases DIR] [--reference DIR]

Rules: the sampler's constants by least squares over text models whose sampler sets the peak; everything else by the median
over rows that state the term, or their mean where there are fewer than five (`fit_engine_rows`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from math import exp, log
from pathlib import Path
from statistics import mean

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from calc.memory.engines import LineKind, activation, overheads, versions
from calc.memory.engines.overheads import NON_TORCH, captured_sizes
from calc.memory.engines.sharding import expert_format, shard_plan
from calc.memory.engines.vllm import WORKSPACE_FORMATS
from calc.units import GIB, MIB
from presets.engine_log_cards import card_of
from presets.engine_log_check import ledger_of
from presets.engine_log_settings import layout_of, quantization_of, settings_of
from presets.engine_logs import EngineLog, read_logs
from scripts.fit_engine_rows import Fit, Row, by_median, every_row, leave_one_out, rows_of
from scripts.reference_data import folders

VISION_ROWS = ("L066", "M080", "L181")  # few sequences, so that the tower and not the sampler sets the peak


def sampler_rows(rows: list[Row], *, legacy_sorts: bool) -> list[Row]:
    """Text models without a mixture's workspace, whose sampler is above the forward pass by the rule in use."""
    chosen = []
    for row in rows:
        sorts = row.start.rules.sampler_bytes > 20
        plain = row.shape.vision is None and row.element_bytes == 2 and row.log.pp == 1
        if row.log.activation_bytes is None or sorts != legacy_sorts or not plain:
            continue
        if row.shape.is_moe and row.start.rules.moe_workspace:
            continue
        settings = settings_of(row.log)
        if settings.light_sampler or row.start.rules.non_torch_era == "consumed":
            continue
        tokens, tp = row.start.tokens, row.log.tp
        per_hidden = (
            activation.FORWARD_HIDDEN_EAGER if row.start.rules.legacy else activation.FORWARD_HIDDEN_COMPILED
        )
        forward = (
            tokens * 2 * (row.shape.mlp_copies * row.shape.intermediate / tp + per_hidden * row.shape.hidden)
        )
        sampler = row.start.rules.sampler_bytes * row.sequences * row.shape.vocab_size
        if sampler > 1.1 * forward:
            chosen.append(row)
    return chosen


def sampler_fits(rows: list[Row]) -> list[Fit]:
    later = sampler_rows(rows, legacy_sorts=False)

    def solve(chosen: list[Row]) -> np.ndarray:
        matrix = np.array(
            [[r.sequences * r.shape.vocab_size, 2.0 * r.start.tokens * r.shape.hidden, 1.0] for r in chosen]
        )
        peaks = np.array([r.log.activation_bytes for r in chosen])
        scale = matrix.max(axis=0)
        solution, *_ = np.linalg.lstsq(matrix / scale, peaks, rcond=None)
        return solution / scale

    fits = []
    names = (
        ("sampler bytes per sequence and vocabulary entry, from 0.17", versions.SAMPLER_LATER, 1.0),
        ("elements per token and hidden unit beside the sampler", activation.SAMPLER_HIDDEN, 1.0),
        ("fixed buffers, GiB", activation.FIXED_BYTES / GIB, 1 / GIB),
    )
    for index, (name, in_use, unit) in enumerate(names):

        def one(chosen: list[Row], index: int = index, unit: float = unit) -> float:
            return float(solve(chosen)[index]) * unit

        low, high = leave_one_out(later, one)
        fits.append(Fit(name=name, in_use=in_use, fitted=one(later), rows=len(later), low=low, high=high))
    full_sort = sampler_rows(rows, legacy_sorts=True)
    fits.append(
        by_median(
            "sampler bytes per sequence and vocabulary entry, full sort",
            versions.SAMPLER_FULL_SORT,
            full_sort,
            lambda r: (
                (
                    r.log.activation_bytes
                    - activation.SAMPLER_HIDDEN * 2 * r.start.tokens * r.shape.hidden
                    - activation.FIXED_BYTES
                )
                / (r.sequences * r.shape.vocab_size)
            ),
        )
    )
    return fits


def forward_hidden(row: Row) -> float:
    """Elements per token and hidden unit that a logged forward peak leaves after the feed-forward layer."""
    peak = row.log.activation_bytes
    if peak is None:
        # V0 printed no peak here: the budget less everything else that it printed.
        share = row.start.utilization * (row.log.total_bytes or 0.0)
        peak = share - row.log.weights_bytes - row.log.non_torch_bytes - row.log.kv_bytes
    elements = (peak - activation.FIXED_BYTES) / (row.start.tokens * 2)
    elements -= row.shape.mlp_copies * row.shape.intermediate / row.log.tp
    if row.log.pp > 1:
        elements -= activation.PIPELINE_HIDDEN * row.shape.hidden
    return elements / row.shape.hidden


def forward_fits(rows: list[Row]) -> list[Fit]:
    compiled = [
        row
        for row in rows
        if row.log.activation_bytes
        and row.shape.vision is None
        and not row.start.rules.legacy
        and not row.shape.is_moe
        and row.start.rules.non_torch_era != "consumed"
        and (row.log.pp > 1 or row.shape.vocab_size < 50_000)
        and row.log.case_id != "M013"  # its sampler is above its forward pass
    ]
    eager = [row for row in rows if row.log.case_id in ("L001", "L002", "L054", "L230", "M062")]
    return [
        by_median(
            "forward elements per token and hidden unit, compiled",
            activation.FORWARD_HIDDEN_COMPILED,
            compiled,
            forward_hidden,
        ),
        by_median(
            "forward elements per token and hidden unit, eager (V0)",
            activation.FORWARD_HIDDEN_EAGER,
            eager,
            forward_hidden,
        ),
    ]


def non_torch_fits(rows: list[Row]) -> list[Fit]:
    fits = []
    for era, table in NON_TORCH.items():
        places = (
            ("one GPU", table.single[1], lambda r: r.log.tp == 1 and r.log.pp == 1 and not _geforce(r)),
            ("TP over PCIe", table.tp_pcie[1], lambda r: r.log.tp > 1 and not _hopper(r)),
            ("TP2 over NVLink", table.tp_nvlink[1], lambda r: r.log.tp == 2 and _hopper(r)),
            ("TP4 and more over NVLink", table.tp_nvlink_wide[1], lambda r: r.log.tp > 2 and _hopper(r)),
        )
        for place, in_use, belongs in places:
            chosen = [
                row
                for row in rows
                if row.start.rules.non_torch_era == era
                and row.log.non_torch_bytes
                and card_of(row.log).vendor == "NVIDIA"
                and belongs(row)
            ]
            if chosen:
                name = f"outside torch, GiB, {era}, {place}"
                fits.append(by_median(name, in_use, chosen, lambda r: r.log.non_torch_bytes / GIB))
    return fits


def consumed_fits(logs: Iterable[EngineLog], rows: list[Row], configs: Path) -> list[Fit]:
    """Outside torch where a release prints weights and it together: consumed less weights, less a mixture's workspace.

    Weights that a log does not state are those of its model's ledger.
    """
    workspaces = {row.log.case_id: workspace_bytes(row) for row in rows}
    values: dict[bool, list[float]] = {True: [], False: []}
    for entry in logs:
        found = re.search(r"consumed (?:\(weights \+ non-torch\) )?([\d.]+)", entry.notes)
        if found is None or not entry.engine.startswith("vllm") or card_of(entry).vendor != "NVIDIA":
            continue
        weights = entry.weights_bytes
        if weights is None:
            result = ledger_of(entry, configs)
            if isinstance(result, str):
                continue
            weights = min(result.ranks, key=lambda rank: rank.stage).bytes_of(LineKind.WEIGHTS)
        rest = float(found[1]) * GIB - weights - workspaces.get(entry.case_id, 0.0)
        values[entry.tp > 1].append(rest / GIB)
    table = NON_TORCH["consumed"]
    return [
        Fit(
            name=f"outside torch, GiB, consumed, {place}",
            in_use=in_use,
            fitted=mean(values[wide]),
            rows=len(values[wide]),
            low=min(values[wide]),
            high=max(values[wide]),
        )
        for place, in_use, wide in (
            ("one GPU", table.single[1], False),
            ("TP over PCIe", table.tp_pcie[1], True),
        )
    ]


def workspace_bytes(row: Row) -> float:
    """The fused-expert workspace of a row, by the rule in use."""
    plan = shard_plan(layout_of(row.log), quantization=quantization_of(row.log, row.shape.spec))
    if not row.shape.is_moe or expert_format(row.shape, plan) not in WORKSPACE_FORMATS:
        return 0.0
    width = -(-row.shape.expert_intermediate // row.log.tp)
    hidden = row.shape.hidden
    return 2.0 * row.start.tokens * row.shape.top_k * (max(width, hidden) + max(2 * width, hidden))


def _geforce(row: Row) -> bool:
    return "GeForce" in card_of(row.log).name and row.start.rules.non_torch_era == "v1-early"


def _hopper(row: Row) -> bool:
    card = card_of(row.log)
    return "NVLink" in card.link_kind and overheads.capability(card) >= overheads.NVLINK_WORKSPACE_CAPABILITY


def printed_graphs(entry: EngineLog) -> float | None:
    """The graph estimate that a log states, in bytes."""
    for pattern in (
        r"estimated CUDA graph memory (-?[\d.]+)",
        r"([\d.]+) (?:GiB )?estimated",
        r"vs (-?[\d.]+) estimated",
    ):
        found = re.search(pattern, f"{entry.flags}; {entry.notes}", re.IGNORECASE)
        if found and float(found[1]) > 0:
            return float(found[1]) * GIB
    return None


def graph_sizes(row: Row) -> int:
    stated = re.search(r"(\d+) piecewise sizes", row.log.notes)
    return int(stated[1]) if stated else sum(captured_sizes(row.start.sequences))


def graph_value(row: Row) -> float:
    """MiB per captured size and layer."""
    estimate = printed_graphs(row.log) or 0.0
    return (
        (estimate - overheads.GRAPH_FIXED_BYTES) / (graph_sizes(row) * row.shape.n_layers / row.log.pp) / MIB
    )


def vision_fits(rows: list[Row], configs: Path) -> list[Fit]:
    """Vision widths per patch: what closes the pool where the tower's forward pass sets the peak."""
    chosen, values = [], {}
    for row in rows:
        vision = row.shape.vision
        if (
            vision is None
            or vision.per_sequence
            or row.log.kv_bytes is None
            or row.log.case_id not in VISION_ROWS
        ):
            continue
        result = ledger_of(row.log, configs)
        if isinstance(result, str):
            continue
        missing = float(result.tightest.kv.best) - row.log.kv_bytes
        values[row.log.case_id] = activation.VISION_ACTIVATION + missing / (
            vision.patches_per_image * 2.0 * vision.hidden
        )
        chosen.append(row)
    return [
        by_median(
            "vision widths per patch beside the feed-forward",
            activation.VISION_ACTIVATION,
            chosen,
            lambda r: values[r.log.case_id],
        )
    ]


def graph_fits(everything: list[Row]) -> list[Fit]:
    stated = [row for row in everything if printed_graphs(row.log) is not None]
    dense = [row for row in stated if not row.shape.is_moe]
    mixtures = [row for row in stated if row.shape.is_moe and not layout_of(row.log).dp > 1]
    spread = [row for row in stated if row.shape.is_moe and layout_of(row.log).dp > 1]
    fits = [
        by_median(
            "graphs, MiB per size and layer, dense", overheads.GRAPH_LAYER_BYTES / MIB, dense, graph_value
        ),
        by_median(
            "graphs, MiB per size and layer, mixtures",
            overheads.GRAPH_MOE_LAYER_BYTES / MIB,
            mixtures,
            graph_value,
        ),
    ]
    values = [graph_value(row) for row in spread]
    pools = minimax_difference(everything)
    if pools is not None:
        values.append(pools)
    middle = exp(sum(map(log, values)) / len(values))
    fits.append(
        Fit(
            name="graphs, MiB per size and layer, experts over DP ranks",
            in_use=overheads.GRAPH_EXPERT_PARALLEL_LAYER_BYTES / MIB,
            fitted=middle,
            rows=len(values),
            low=min(values),
            high=max(values),
        )
    )
    return fits


def minimax_difference(rows: list[Row]) -> float | None:
    """One log states its tokens with and without the estimate: their difference, in bytes of an fp8 cache, is the estimate."""
    for row in rows:
        if row.log.case_id == "M082":
            few, many = 245_840, 769_888
            per_token = row.shape.n_layers * 8 * 128 * 2
            size = (many - few) * per_token - overheads.GRAPH_FIXED_BYTES
            return size / (sum(captured_sizes(1024)) * row.shape.n_layers) / MIB
    return None


def fits(cases: Path, reference: Path) -> list[Fit]:
    """Every constant with its fit."""
    logs, configs = read_logs(cases), reference / "configs"
    rows = rows_of(logs, configs)
    return [
        *sampler_fits(rows),
        *forward_fits(rows),
        *non_torch_fits(rows),
        *consumed_fits(logs, every_row(logs, configs), configs),
        *vision_fits(every_row(logs, configs), configs),
        *graph_fits(every_row(logs, configs)),
    ]


def main() -> None:
    cases, reference = folders(__doc__)
    print(f"{'constant':62s} {'in use':>8s} {'fitted':>8s} {'rows':>4s}  range, one model left out")
    for fit in fits(cases, reference):
        print(
            f"{fit.name:62s} {fit.in_use:8.3f} {fit.fitted:8.3f} {fit.rows:4d}  {fit.low:.3f} to {fit.high:.3f}"
        )


if __name__ == "__main__":
    main()
