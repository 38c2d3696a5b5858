"""Do predictions rank layouts as measurements do? Public serving points, layouts of one model on one accelerator compared.

A layout is worth its most tokens per second and GPU at a TPOT limit, over the concurrencies that were measured. Groups are
(checkpoint, accelerator, engine, input, output) with four layouts or more that keep the limit as measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from presets import measurements
from presets.accuracy import comparisons
from presets.measurements import ServingMeasurement

FEWEST_LAYOUTS: Final = 4
LIMITS_S: Final = (0.015, 0.02, 0.03, 0.05, 0.1)
Times = tuple[float, float]  # TTFT, TPOT in seconds
Key = tuple[str, str | None, str, str, float, float]  # checkpoint, format, accelerator, engine, input, output


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRanking:
    """One group at one TPOT limit: tokens/s/GPU of each layout as measured and as predicted, 0 where the limit is missed."""

    group: str
    limit_s: float
    layouts: tuple[str, ...]
    measured: tuple[float, ...]
    predicted: tuple[float, ...]

    @property
    def tau(self) -> float:
        """Kendall's tau-b of the two rankings."""
        return kendall_tau(self.measured, self.predicted)

    @property
    def kept(self) -> float:
        """What the layout that is predicted best reaches, as a share of the best measured."""
        return self.measured[int(np.argmax(self.predicted))] / max(self.measured)


def kendall_tau(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Kendall's tau-b: agreeing less disagreeing pairs over the pairs that are not tied; 0 where everything is tied.

    Source: Kendall 1945, Biometrika 33 (3).
    """
    a, b = np.sign(np.subtract.outer(first, first)), np.sign(np.subtract.outer(second, second))
    upper = np.triu_indices(len(first), 1)
    untied = np.sqrt(np.count_nonzero(a[upper]) * np.count_nonzero(b[upper]))
    return float((a[upper] * b[upper]).sum() / untied) if untied else 0.0


def shipped_times() -> dict[int, Times]:
    """TTFT and TPOT of every serving row by the shipped profiles, which saw most rows."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for one in comparisons():
        if one.id.startswith("serving-"):
            _, row, quantity = one.id.split("-")
            found[int(row)][quantity] = one.best
    return {row: (times["ttft"], times["tpot"]) for row, times in found.items()}


def layout_rankings(predicted: Mapping[int, Times]) -> tuple[LayoutRanking, ...]:
    """Every group with four layouts or more, at the limits that four of them keep, from clean rows."""
    groups: dict[Key, list[ServingMeasurement]] = defaultdict(list)
    for m in measurements.serving():
        if m.use == "clean" and m.row in predicted:
            key = (m.checkpoint, m.quantization, m.accelerator, m.engine, m.input_tokens, m.output_tokens)
            groups[key].append(m)
    found = []
    for key, rows in sorted(groups.items(), key=lambda item: str(item[0])):
        for limit_s in LIMITS_S:
            ranking = _ranking(key, rows, predicted, limit_s)
            if ranking is not None:
                found.append(ranking)
    return tuple(found)


def _ranking(
    key: Key, rows: list[ServingMeasurement], predicted: Mapping[int, Times], limit_s: float
) -> LayoutRanking | None:
    """The group at one limit; None with too few layouts."""
    measured: dict[str, float] = {}
    guessed: dict[str, float] = {}
    for m in rows:
        layout = m.layout.label
        for values, (ttft_s, tpot_s) in ((measured, (m.ttft_s, m.tpot_s)), (guessed, predicted[m.row])):
            reached = tokens_per_s_per_gpu(m, ttft_s, tpot_s) if tpot_s <= limit_s else 0.0
            values[layout] = max(values.get(layout, 0.0), reached)
    kept = sorted(layout for layout, value in measured.items() if value > 0)
    if len(kept) < FEWEST_LAYOUTS:
        return None
    checkpoint, _, accelerator, engine, given, answered = key
    return LayoutRanking(
        group=f"{checkpoint}, {accelerator}, {engine}, {given:g} in, {answered:g} out",
        limit_s=limit_s,
        layouts=tuple(kept),
        measured=tuple(measured[layout] for layout in kept),
        predicted=tuple(guessed[layout] for layout in kept),
    )


def tokens_per_s_per_gpu(m: ServingMeasurement, ttft_s: float, tpot_s: float) -> float:
    """Output tokens per second and GPU of a closed loop: users x tokens over the end-to-end time."""
    e2e_s = ttft_s + tpot_s * (m.output_tokens - 1.0)
    return m.concurrency * m.output_tokens / e2e_s / m.layout.gpus_per_replica
