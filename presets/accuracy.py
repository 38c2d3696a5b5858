"""Predicted against measured, for every bundled measurement: what the Accuracy page and `ridgebeam accuracy` show.

Rows here are predicted by the shipped profiles, which were fitted on most of them: they show the fit. How wrong the model is
on data that it did not see is in `held_out`, stored by scripts/fit_profiles.py, which fits again without each group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np

from calc.provenance import Estimate
from calc.step import StepModel
from presets import accelerators, measurements, models, profiles
from presets.maximum_load import most_tokens_per_s
from presets.measurements import PointMeasurement, ServingMeasurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One measurement beside its prediction. `clean`: nothing is known to be wrong with the measurement."""

    id: str
    group: str
    model: str
    accelerator: str
    engine: str
    quantity: str
    unit: str
    measured: float
    low: float
    best: float
    high: float
    evidence: str
    clean: bool
    note: str
    source: str

    @property
    def error(self) -> float:
        """Relative error, signed: predicted over measured, minus one."""
        return self.best / self.measured - 1.0

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the predicted range."""
        return self.low <= self.measured <= self.high

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "group": self.group,
            "model": self.model,
            "gpu": self.accelerator,
            "engine": self.engine,
            "quantity": self.quantity,
            "unit": self.unit,
            "measured": self.measured,
            "predicted": {"low": self.low, "best": self.best, "high": self.high},
            "error": self.error,
            "inside": bool(self.inside),
            "evidence": self.evidence,
            "clean": self.clean,
            "note": self.note,
            "source": self.source,
        }


@cache
def comparisons() -> tuple[Comparison, ...]:
    """Every bundled measurement whose model is bundled too, predicted."""
    return (*_serving(), *_points())


def unmodelled() -> tuple[str, ...]:
    """Models of measurements that are not bundled, so that nothing can be predicted for them."""
    wanted = {m.checkpoint for m in measurements.serving()} | {p.model for p in measurements.points()}
    return tuple(sorted(model for model in wanted if models.find(model) is None))


def _serving() -> Iterable[Comparison]:
    """TPOT and TTFT at fixed concurrency; rows of one configuration are one array."""
    burst = float(held_out()["burst share"])
    alike: dict[tuple[Any, ...], list[ServingMeasurement]] = {}
    for m in measurements.serving():
        key = (m.checkpoint, m.quantization, m.kv_dtype, m.accelerator, m.engine, m.version, m.layout)
        alike.setdefault(key, []).append(m)
    for rows in alike.values():
        first = rows[0]
        if models.find(first.checkpoint) is None:
            continue
        version = first.version or "1.1" if first.engine == "tensorrt-llm" else first.version
        model = _step_model(first.checkpoint, first, version, model_id=first.group[0])
        point = model.serving(
            input_tokens=np.array([m.input_tokens for m in rows]),
            output_tokens=np.array([m.output_tokens for m in rows]),
            concurrency=np.array([m.concurrency for m in rows]),
        )
        burst_s = burst * np.array([(m.concurrency - 1) / 2 if m.source == VENDOR else 0.0 for m in rows])
        first_token = point.ttft_s.plus(Estimate.exactly(burst_s * point.prefill_s))
        for index, m in enumerate(rows):
            for quantity, estimate, measured in (
                ("TPOT", point.tpot_s, m.tpot_s),
                ("TTFT", first_token, m.ttft_s),
            ):
                yield Comparison(
                    id=f"serving-{m.row}-{quantity.lower()}",
                    group=f"{m.group[0]}, {m.accelerator}, {m.engine}",
                    model=m.checkpoint,
                    accelerator=m.accelerator,
                    engine=m.engine,
                    quantity=quantity,
                    unit="s",
                    measured=measured,
                    low=float(estimate.low[index]),
                    best=float(estimate.best[index]),
                    high=float(estimate.high[index]),
                    evidence=str(point.evidence),
                    clean=m.use == "clean" and (quantity == "TPOT" or m.concurrency <= LIGHT_LOAD),
                    note=_serving_note(m),
                    source="aiconfigurator-core 0.12.0, silicon_sample.csv (Apache-2.0)",
                )


VENDOR: Final = "vendor"
"""Runs that start all requests together: a mean request waits for a share of the other users' prompts."""
LIGHT_LOAD: Final = 8  # users up to which a first token is the engine's own work rather than a queue


def _serving_note(m: ServingMeasurement) -> str:
    state = "" if m.use == "clean" else f"; {m.use}"
    return (
        f"{m.layout.label}, {m.input_tokens:g} in, {m.output_tokens:g} out, {m.concurrency:g} users, "
        f"{m.engine} {m.version or 'of unknown version'}{state}"
    )


def _step_model(
    checkpoint: str, of: ServingMeasurement | PointMeasurement, version: str, *, model_id: str
) -> StepModel:
    """The step model of a measurement's configuration."""
    accelerator = accelerators.load(of.accelerator)
    return StepModel.of(
        models.load(checkpoint),
        accelerator,
        of.layout,
        profiles.load(accelerator, of.engine, model_id=model_id, engine_version=version),
        quantization=of.quantization,
        kv_dtype=of.kv_dtype,
    )


def _points() -> Iterable[Comparison]:
    built: dict[tuple[Any, ...], StepModel] = {}
    for point in measurements.points():
        if models.find(point.model) is None:
            continue
        alike = (point.model, point.quantization, point.kv_dtype, point.accelerator, point.engine)
        key = (*alike, point.version, point.layout)
        model = built.get(key)
        if model is None:
            model = built[key] = _step_model(point.model, point, point.version, model_id=point.model)
        quantity, unit, (low, best, high), measured = _predicted(point, model)
        yield Comparison(
            id=point.id,
            group=point.group,
            model=point.model,
            accelerator=point.accelerator,
            engine=point.engine,
            quantity=quantity,
            unit=unit,
            measured=measured,
            low=low,
            best=best,
            high=high,
            evidence=str(model.profile.evidence),
            clean=point.metric != "most_tokens_per_s" and point.group != "nim",
            note=f"{point.layout.label}, batch {point.batch or 'not stated'}, {point.metric}",
            source=point.source,
        )


def _predicted(
    point: PointMeasurement, model: StepModel
) -> tuple[str, str, tuple[float, float, float], float]:
    """(quantity, unit, range, measured) of a single figure."""
    if point.metric == "most_tokens_per_s":
        low, best, high = most_tokens_per_s(point, model)
        return "most tokens/s", "tokens/s", (low, best, high), point.value
    if point.group == "nim":
        served = model.serving(
            input_tokens=point.prompt_tokens,
            output_tokens=point.output_tokens,
            concurrency=point.batch or 1.0,
        )
        estimate = served.tpot_s if point.metric == "tpot_s" else served.ttft_s
        name = "TPOT" if point.metric == "tpot_s" else "TTFT"
        ends = (estimate.low, estimate.best, estimate.high)
        low, best, high = (float(np.atleast_1d(end)[0]) for end in ends)
        return name, "s", (low, best, high), point.value
    seconds = np.zeros(3)
    for step, times in point.passes():
        total = model.step(step).total
        seconds += times * np.array([float(total.low[0]), float(total.best[0]), float(total.high[0])])
    return point.metric.removesuffix("_per_s"), "s", (seconds[0], seconds[1], seconds[2]), point.observed_s


@cache
def held_out() -> Mapping[str, Any]:
    """Errors on data that a fit did not see, as stored with the profiles: by class, by group, kernels, single runs."""
    content = json.loads((profiles.FOLDER / "fit.json").read_text(encoding="utf-8"))
    report: Mapping[str, Any] = content["report"]
    return report


def furthest(rows: Sequence[Comparison], most: int) -> list[Comparison]:
    """The points whose prediction is the largest factor away from the measurement, either way."""
    return sorted(rows, key=lambda row: -abs(math.log(row.best / row.measured)))[:most]


def shares(rows: Sequence[Comparison], *, within: float) -> tuple[float, float]:
    """Shares of the points whose error is at most `within`, and that lie in the stated range."""
    near = sum(abs(row.error) <= within for row in rows) / len(rows)
    return near, sum(row.inside for row in rows) / len(rows)


def by_group(rows: Sequence[Comparison]) -> list[dict[str, object]]:
    """Errors by group and quantity, the largest mean error first."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for row in rows:
        groups.setdefault((row.group, row.quantity), []).append(row)
    out = []
    for (group, quantity), members in groups.items():
        errors = np.array([row.error for row in members])
        out.append(
            {
                "group": group,
                "quantity": quantity,
                "points": len(members),
                "mean_error": float(np.abs(errors).mean()),
                "p90_error": float(np.quantile(np.abs(errors), 0.9)),
                "bias": float(np.median(errors)),
                "inside": float(np.mean([row.inside for row in members])),
            }
        )
    return sorted(out, key=lambda entry: -float(str(entry["mean_error"])))
