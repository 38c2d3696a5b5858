"""Calibrate the step model to a measured endpoint: at most six scalars with their uncertainty, judged on points not fitted.

Residuals are logarithms of measured over predicted. Each scalar has a weak prior at its neutral value (maximum a posteriori),
so that what the data do not tell apart stays neutral; the covariance of the Gauss-Newton step gives the uncertainty.

Source: Gauss-Newton with a Gaussian prior, Gelman et al., Bayesian Data Analysis (3rd ed.), chapter 13. Ignores: correlations
between the errors of points of one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import exp, log
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc import format as fmt
from calc.endpoint.run import EndpointRun
from calc.endpoint.summary import Spread, level_of
from calc.errors import InputError
from calc.profile import Calibration, Evidence, Profile
from calc.step import StepModel

Array = NDArray[np.float64]

PRIOR_LOG_FACTOR = log(
    2.0
)  # a fitted profile is within a factor of two, nearly always; its held-out errors are 10 to 30%
PRIOR_S = {
    "step_s": 5e-3,
    "sequence_s": 1e-4,
    "ttft_s": 50e-3,
}  # what engines are known to add, fitted profiles apart
NOISE = 0.05  # relative, of a median over repeats; assumed
ROUNDS = 30
TINY = 1e-9
HOLD_OUT_EVERY = 3
LEAST, MOST = 1e-9, 1e9  # of seconds, tokens, users and rates: nothing that serves lies outside
FEWEST = 3


class Quantity(StrEnum):
    """What a point measures."""

    TTFT = "ttft"
    TPOT = "tpot"
    THROUGHPUT = "tokens_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measured median: seconds, or tokens per second of a replica, at fixed concurrency."""

    quantity: Quantity
    input_tokens: float
    output_tokens: float
    concurrency: float
    value: float
    origin: str = ""

    def __post_init__(self) -> None:
        numbers = (self.input_tokens, self.output_tokens, self.concurrency, self.value)
        if not all(0 < n <= MOST for n in numbers) or self.value < LEAST:
            raise InputError(
                "observation",
                numbers,
                f"tokens, concurrency and value are positive numbers up to {MOST:g}, a value at least {LEAST:g}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A scalar and its standard uncertainty: of a factor relative, of seconds in seconds."""

    name: str
    value: float
    uncertainty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A point with its prediction before and after; `fitted`: whether the fit saw it."""

    observation: Observation
    before: float
    after: float
    fitted: bool

    def error(self, *, after: bool) -> float:
        predicted = self.after if after else self.before
        return abs(predicted / self.observation.value - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """The calibrated profile, its scalars, and every point before and after."""

    profile: Profile
    scalars: tuple[Fitted, ...]
    points: tuple[Checked, ...]

    def median_error(self, *, after: bool, fitted: bool) -> float | None:
        """Median relative error of the fitted points, or of those held out; None where there are none."""
        errors = [p.error(after=after) for p in self.points if p.fitted is fitted]
        return float(np.median(errors)) if errors else None

    def as_json(self) -> dict[str, Any]:
        return {
            "scalars": {f.name: {"value": f.value, "uncertainty": f.uncertainty} for f in self.scalars},
            "held_out_error": {
                "before": self.median_error(after=False, fitted=False),
                "after": self.median_error(after=True, fitted=False),
            },
            "fitted_error": {
                "before": self.median_error(after=False, fitted=True),
                "after": self.median_error(after=True, fitted=True),
            },
            "points": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "quantity": str(p.observation.quantity),
                "input_tokens": p.observation.input_tokens,
                "output_tokens": p.observation.output_tokens,
                "concurrency": p.observation.concurrency,
                "measured": p.observation.value,
                "before": p.before,
                "after": p.after,
                "fitted": p.fitted,
            }
            for p in self.points
        ]

    def lines(self) -> list[str]:
        words = [
            f"{f.name} {fmt.significant(f.value)} ± {fmt.significant(f.uncertainty, 2)}" for f in self.scalars
        ]
        before, after = (self.median_error(after=state, fitted=False) for state in (False, True))
        held = (
            ""
            if before is None or after is None
            else f"; held-out error {fmt.percent(before)} before, {fmt.percent(after)} after"
        )
        return [f"calibrated: {', '.join(words)}{held}"]


def observations_of(run: EndpointRun) -> tuple[Observation, ...]:
    """Medians of a run: TTFT by prompt length, TPOT alone, TPOT and throughput by concurrency up to the server's slots."""
    found = []
    alone = [s for s in run.stage("decode") if s.ok]
    if (tpot := Spread.of(s.tpot_s for s in alone)) is not None:
        found.append(_observed(Quantity.TPOT, alone, 1, tpot.p50, "decode"))
    prefills = [s for s in run.stage("prefill") if s.measures_prefill and s.prompt_tokens]
    for length in run.plan.prompt_lengths:
        near = [s for s in prefills if abs((s.prompt_tokens or 0) - length) <= max(32, 0.2 * length)]
        if (ttft := Spread.of(s.ttft_s for s in near)) is not None:
            found.append(_observed(Quantity.TTFT, near, 1, ttft.p50, f"prefill {length}"))
    for n in run.plan.concurrency:
        if run.slots is not None and n > run.slots:
            continue
        samples = run.stage(f"concurrency {n}")
        level, good = level_of(samples, concurrency=n), [s for s in samples if s.ok]
        if level is None or not level.steady:
            continue
        if level.tpot_s is not None:
            found.append(_observed(Quantity.TPOT, good, n, level.tpot_s.p50, f"concurrency {n}"))
        if level.tokens_per_s:
            found.append(_observed(Quantity.THROUGHPUT, good, n, level.tokens_per_s, f"concurrency {n}"))
    return tuple(found)


def _observed(
    quantity: Quantity, samples: Sequence[Any], concurrency: int, value: float, origin: str
) -> Observation:
    return Observation(
        quantity=quantity,
        input_tokens=float(np.mean([s.prompt_tokens or 1 for s in samples])),
        output_tokens=max(2.0, float(np.mean([s.output_tokens or 2 for s in samples]))),
        concurrency=float(concurrency),
        value=value,
        origin=origin,
    )


def calibrate(
    model: StepModel, observations: Sequence[Observation], *, source: str = ""
) -> CalibrationResult:
    """Fit the scalars that the points can tell; every third point of each kind is held out where there are enough.

    Raises InputError for fewer than three points. `source`: where the points come from, kept in the profile.
    """
    if len(observations) < FEWEST:
        raise InputError("observations", len(observations), f"a calibration needs at least {FEWEST} points")
    points = _Points.of(observations)
    seen = _split(observations)
    names = _tellable([o for o, fitted in zip(observations, seen, strict=True) if fitted])
    start = np.zeros(len(names))
    best, covariance = _gauss_newton(model, points, seen, names, start)
    scalars = {name: _natural(name, value) for name, value in zip(names, best, strict=True)}
    calibration = Calibration(scalars=scalars, source=source)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    before = points.predicted(model)
    after = points.predicted(_with(model, scalars))
    held = [abs(a / o.value - 1) for o, a, fit in zip(observations, after, seen, strict=True) if not fit]
    spread = dict(model.profile.spread)
    if held:  # an honest range: never narrower than what the points that were not fitted show
        spread["calibrated"] = max(spread["calibrated"], 1.0 + float(np.quantile(held, 0.8)))
    profile = replace(
        model.profile, calibration=calibration, evidence=Evidence.CALIBRATED, spread=MappingProxyType(spread)
    )
    return CalibrationResult(
        profile=profile,
        scalars=tuple(
            Fitted(
                name=name,
                value=scalars[name],
                uncertainty=float(e if name.endswith("factor") else e * PRIOR_S[name]),
            )
            for name, e in zip(names, errors, strict=True)
        ),
        points=tuple(
            Checked(observation=o, before=float(b), after=float(a), fitted=bool(fit))
            for o, b, a, fit in zip(observations, before, after, seen, strict=True)
        ),
    )


def _split(observations: Sequence[Observation]) -> Array:
    """True for points to fit; of each quantity with three or more, every third in order of size is held out."""
    seen = np.ones(len(observations), dtype=bool)
    for quantity in Quantity:
        own = [i for i, o in enumerate(observations) if o.quantity is quantity]
        own.sort(key=lambda i: (observations[i].concurrency, observations[i].input_tokens))
        if len(own) >= HOLD_OUT_EVERY:
            seen[own[1::HOLD_OUT_EVERY]] = False
    return seen


def _tellable(observations: Sequence[Observation]) -> tuple[str, ...]:
    """Scalars on which the fitted points bear, never more than the points."""
    first = [o for o in observations if o.quantity is Quantity.TTFT]
    others = [o for o in observations if o.quantity is not Quantity.TTFT]
    names = ["decode_factor"] if others else []
    if first or len({o.concurrency for o in others}) > 1:
        names.append("prefill_factor")
    if len({round(o.input_tokens, -1) for o in first}) > 1:
        names.append("ttft_s")
    if len({o.concurrency for o in others}) > 1:
        names.append("sequence_s")
    if len({o.concurrency for o in others}) > 2:
        names.append("step_s")
    return tuple(names[: len(observations)])


def _natural(name: str, value: float) -> float:
    """From the fit's own coordinate: a factor's logarithm, or seconds in units of the prior."""
    return exp(value) if name.endswith("factor") else max(0.0, value) * PRIOR_S[name]


def _with(model: StepModel, scalars: dict[str, float]) -> StepModel:
    profile = replace(model.profile, calibration=Calibration(scalars=scalars))
    return replace(model, profile=profile)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Points:
    """The observations as arrays, so that the model answers them in one call."""

    kinds: tuple[Quantity, ...]
    inputs: Array
    outputs: Array
    users: Array
    values: Array

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> _Points:
        return cls(
            kinds=tuple(o.quantity for o in observations),
            inputs=np.array([o.input_tokens for o in observations]),
            outputs=np.array([o.output_tokens for o in observations]),
            users=np.array([o.concurrency for o in observations]),
            values=np.array([o.value for o in observations]),
        )

    def predicted(self, model: StepModel) -> Array:
        point = model.serving(input_tokens=self.inputs, output_tokens=self.outputs, concurrency=self.users)
        answers = {
            Quantity.TTFT: np.broadcast_to(point.ttft_s.best, self.values.shape),
            Quantity.TPOT: np.broadcast_to(point.tpot_s.best, self.values.shape),
            Quantity.THROUGHPUT: np.broadcast_to(point.tokens_per_s.best, self.values.shape),
        }
        return np.array([answers[kind][i] for i, kind in enumerate(self.kinds)], dtype=float)


def _gauss_newton(
    model: StepModel, points: _Points, seen: Array, names: tuple[str, ...], start: Array
) -> tuple[Array, Array]:
    """(best coordinates, covariance). Steps are halved until the cost falls; seconds stay at or above zero."""
    priors = np.array([PRIOR_LOG_FACTOR if name.endswith("factor") else 1.0 for name in names])
    seconds = np.array([not name.endswith("factor") for name in names])

    def residuals(at: Array) -> Array:
        scalars = {name: _natural(name, value) for name, value in zip(names, at, strict=True)}
        misses = np.log(points.values / points.predicted(_with(model, scalars)))[seen] / NOISE
        return np.concatenate([misses, at / priors])

    at, now = start, residuals(start)
    slope = np.eye(len(now), len(at))
    for _ in range(ROUNDS):
        slope = np.stack(
            [(residuals(at + step) - now) / step[i] for i, step in enumerate(np.eye(len(at)) * 1e-4)], axis=1
        )
        move, *_ = np.linalg.lstsq(slope, -now, rcond=None)
        share = 1.0
        while share > 1e-4:
            trial = at + share * move
            trial = np.where(seconds, np.maximum(trial, 0.0), trial)
            then = residuals(trial)
            if float(then @ then) < float(now @ now):
                break
            share /= 2
        else:
            break
        done = float(np.abs(trial - at).max()) < TINY
        at, now = trial, then
        if done:
            break
    freedom = max(1, int(np.sum(seen)) - len(names))
    scale = max(1.0, float(now[: int(np.sum(seen))] @ now[: int(np.sum(seen))]) / freedom)
    return at, np.asarray(np.linalg.inv(slope.T @ slope) * scale, dtype=float)
