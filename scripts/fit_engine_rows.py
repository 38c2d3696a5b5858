"""Rows of public vLLM start-up logs with what their launch resolves to, and the fit of one constant over them.

A fit is the median over rows, or their mean where there are few; its range is that of the fit when one model after the other
is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from calc.memory.engines.shapes import ModelShape, shape_of
from calc.memory.engines.vllm_start import VllmStart, resolve_start
from presets.engine_log_cards import card_of
from presets.engine_log_models import spec_of
from presets.engine_log_settings import quantization_of, settings_of
from presets.engine_logs import EngineLog, readings

FEW_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One constant: what is in use, what the rows give, over how many, and the range when a model is left out."""

    name: str
    in_use: float
    fitted: float
    rows: int
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    log: EngineLog
    shape: ModelShape
    start: VllmStart
    element_bytes: int

    @property
    def model(self) -> str:
        return self.log.model

    @property
    def sequences(self) -> int:
        return min(self.start.sequences, self.start.tokens)


def rows_of(logs: Iterable[EngineLog], configs: Path) -> list[Row]:
    """vLLM rows with a known model whose flags are shown."""
    found = []
    for entry in logs:
        reading = readings().get(entry.case_id)
        hidden = reading is not None and (reading.hidden or reading.only_cache or reading.miss)
        spec = spec_of(entry, configs)
        if not entry.engine.startswith("vllm") or hidden or isinstance(spec, str) or not spec.embeddings:
            continue
        shape = shape_of(spec)
        start = resolve_start(shape, card_of(entry), settings_of(entry))
        fp32 = quantization_of(entry, spec) == "fp32"
        found.append(Row(log=entry, shape=shape, start=start, element_bytes=4 if fp32 else 2))
    return found


def every_row(logs: Iterable[EngineLog], configs: Path) -> list[Row]:
    """As `rows_of`, known misses and rows of unknown checkpoints included: for terms that those do not touch."""
    found = []
    for entry in logs:
        spec = spec_of(entry, configs)
        if entry.engine.startswith("vllm") and not isinstance(spec, str) and spec.embeddings:
            shape = shape_of(spec)
            start = resolve_start(shape, card_of(entry), settings_of(entry))
            found.append(Row(log=entry, shape=shape, start=start, element_bytes=2))
    return found


def leave_one_out(rows: list[Row], fit: Callable[[list[Row]], float]) -> tuple[float, float]:
    """(lowest, highest) fit when the rows of one model after the other are left out."""
    models = sorted({row.model for row in rows})
    if len(models) < 3:
        whole = fit(rows)
        return whole, whole
    values = [fit([row for row in rows if row.model != model]) for model in models]
    return min(values), max(values)


def by_median(name: str, in_use: float, rows: list[Row], value: Callable[[Row], float]) -> Fit:
    def fit(chosen: list[Row]) -> float:
        middle = median if len(chosen) >= FEW_ROWS else mean
        return middle(value(row) for row in chosen)

    low, high = leave_one_out(rows, fit)
    return Fit(name=name, in_use=in_use, fitted=fit(rows), rows=len(rows), low=low, high=high)
