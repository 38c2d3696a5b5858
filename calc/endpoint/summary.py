"""What many samples show together: percentiles with enough samples, the steady window, goodput, the fit of TTFT.

Source of the rules: coordinated omission and open against closed loops, Schroeder et al. 2006 (NSDI); goodput, Zhong et al.
2024 (DistServe, arXiv 2401.09670).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from calc.endpoint.samples import Sample, Tag
from calc.slo import Slo

P99_SAMPLES = 100  # with fewer, the 99th percentile is the maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """n values: median and P90, and P99 where n is at least 100 (None before). Seconds."""

    n: int
    p50: float
    p90: float
    p99: float | None
    mean: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """None where there is no value. Quantiles interpolate between neighbours (numpy's default)."""
        found = np.array([value for value in values if value is not None], dtype=float)
        if not found.size:
            return None
        p50, p90, p99 = (float(q) for q in np.quantile(found, [0.5, 0.9, 0.99]))
        return cls(
            n=found.size,
            p50=p50,
            p90=p90,
            p99=p99 if found.size >= P99_SAMPLES else None,
            mean=float(found.mean()),
        )

    def as_json(self) -> dict[str, Any]:
        return {"n": self.n, "p50": self.p50, "p90": self.p90, "p99": self.p99, "mean": self.mean}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of a run, seconds on its clock."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A closed loop at one concurrency, or an open loop at one rate (`rate_per_s`), over its steady window.

    `full_ttft_s`: over every request, the opening burst included. `goodput_per_s` and `attainment` are None without targets.
    """

    concurrency: int
    rate_per_s: float | None
    requests: int
    failed: int
    faults: dict[str, int]
    tags: dict[str, int]
    steady: bool
    window_s: float
    ttft_s: Spread | None
    full_ttft_s: Spread | None
    tpot_s: Spread | None
    e2e_s: Spread | None
    tokens_per_s: float | None
    requests_per_s: float
    goodput_per_s: float | None
    attainment: float | None
    mean_input_tokens: float | None
    mean_output_tokens: float | None

    def as_json(self) -> dict[str, Any]:
        spreads = {
            name: None if (value := getattr(self, name)) is None else value.as_json()
            for name in ("ttft_s", "full_ttft_s", "tpot_s", "e2e_s")
        }
        plain = (
            "concurrency rate_per_s requests failed faults tags steady window_s tokens_per_s requests_per_s "
            "goodput_per_s attainment mean_input_tokens mean_output_tokens"
        )
        return {name: getattr(self, name) for name in plain.split()} | spreads


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftFit:
    """TTFT = a + b n + c n^2 over reported prompt tokens n; none is negative. `error`: median relative error of the fit."""

    a_s: float
    b_s: float
    c_s: float
    error: float
    points: int

    def at(self, tokens: Any) -> Any:
        n = np.asarray(tokens, dtype=float)
        return self.a_s + self.b_s * n + self.c_s * n * n

    def as_json(self) -> dict[str, Any]:
        return {"a_s": self.a_s, "b_s": self.b_s, "c_s": self.c_s, "error": self.error, "points": self.points}


def fit_ttft(tokens: Sequence[float], seconds: Sequence[float]) -> TtftFit | None:
    """Least squares on relative errors, with no term below zero; None for fewer than two prompt lengths.

    Every set of terms is tried and the best that stays positive is taken (three terms: seven sets), which is the exact
    solution of non-negative least squares. The square term needs three lengths. Ignores: queueing, which the caller keeps
    out by measuring one request at a time.
    """
    n, t = np.asarray(tokens, dtype=float), np.asarray(seconds, dtype=float)
    lengths = len(np.unique(np.round(n, -1))) if n.size else 0
    if lengths < 2 or np.any(t <= 0):
        return None
    columns = np.stack([np.ones_like(n), n, n * n], axis=1) / t[:, None]
    terms = range(3 if lengths >= 3 else 2)
    best: tuple[float, Any] | None = None
    for size in (1, 2, 3):
        for chosen in combinations(terms, size):
            solved, *_ = np.linalg.lstsq(
                columns[:, chosen] / (scale := columns[:, chosen].max(axis=0)), np.ones_like(t)
            )
            weights = np.zeros(3)
            weights[list(chosen)] = solved / scale
            if np.any(weights < 0):
                continue
            error = float(np.sum((columns @ weights - 1.0) ** 2))
            if best is None or error < best[0] * (1 - 1e-9):
                best = (error, weights)
    if best is None:
        return None
    a, b, c = (float(w) for w in best[1])
    misses = np.abs(columns @ best[1] - 1.0)
    return TtftFit(a_s=a, b_s=b, c_s=c, error=float(np.median(misses)), points=n.size)


def steady_window(samples: Sequence[Sample], concurrency: int) -> Window | None:
    """From the N-th completion to the last issue of a closed loop of N; None where nothing lies between.

    A loop that fires N at once puts an N-deep queue of prompts into its first answers, and runs out of company in its last.
    """
    ends = sorted(s.end_s for s in samples if s.end_s is not None)
    if len(ends) <= concurrency:
        return None
    window = Window(start_s=ends[concurrency - 1], end_s=max(s.start_s for s in samples))
    return window if window.length_s > 0 else None


def tokens_in(samples: Iterable[Sample], window: Window) -> float | None:
    """Output tokens that came out within the window, each stream's spread evenly between its first and last.

    None where the server counts no tokens.
    """
    total, known = 0.0, False
    for sample in samples:
        if sample.first_s is None or sample.last_s is None or sample.output_tokens is None:
            continue
        known = True
        span = sample.last_s - sample.first_s
        inside = min(sample.last_s, window.end_s) - max(sample.first_s, window.start_s)
        if span > 0:
            total += sample.output_tokens * max(0.0, inside) / span
        elif window.start_s <= sample.first_s <= window.end_s:
            total += sample.output_tokens
    return total if known else None


def meets(sample: Sample, slo: Slo) -> bool:
    """Whether one request keeps every target; a failure never does, a single token has a TPOT of zero."""
    if not sample.ok:
        return False
    reached = (sample.ttft_s, sample.tpot_s or 0.0, sample.e2e_s)
    targets = (slo.ttft_s, slo.tpot_s, slo.e2e_s)
    return all(
        target is None or (value is not None and value <= target)
        for value, target in zip(reached, targets, strict=True)
    )


def level_of(
    samples: Sequence[Sample], *, concurrency: int, rate_per_s: float | None = None, slo: Slo | None = None
) -> Level | None:
    """The statistics of one level; None without samples. Steady where enough was sent, else the full run."""
    if not samples:
        return None
    window = None if rate_per_s else steady_window(samples, concurrency)
    inside = [s for s in samples if window and s.end_s and window.start_s < s.end_s <= window.end_s]
    steady = len(inside) >= min(4, concurrency)
    if not steady or window is None:
        steady, inside = False, list(samples)
        ends = [s.end_s for s in samples if s.end_s is not None]
        begin = min(s.scheduled_s for s in samples)
        window = Window(start_s=begin, end_s=max(ends, default=begin))
    good = [s for s in inside if s.ok]
    length = window.length_s
    kept = sum(meets(s, slo) for s in inside) if slo and any((slo.ttft_s, slo.tpot_s, slo.e2e_s)) else None
    made = tokens_in(samples, window)
    inputs = [s.prompt_tokens for s in good if s.prompt_tokens is not None]
    outputs = [s.output_tokens for s in good if s.output_tokens is not None]
    return Level(
        concurrency=concurrency,
        rate_per_s=rate_per_s,
        requests=len(samples),
        failed=sum(not s.ok for s in samples),
        faults=dict(Counter(s.fault or str(Tag.NO_DONE) for s in samples if not s.ok)),
        tags=dict(Counter(tag for s in samples for tag in s.tags)),
        steady=steady,
        window_s=length,
        ttft_s=Spread.of(s.ttft_s for s in good),
        full_ttft_s=Spread.of(s.ttft_s for s in samples if s.ok),
        tpot_s=Spread.of(s.tpot_s for s in good),
        e2e_s=Spread.of(s.e2e_s for s in good),
        tokens_per_s=made / length if made is not None and length > 0 else None,
        requests_per_s=len(good) / length if length > 0 else 0.0,
        goodput_per_s=kept / length if kept is not None and length > 0 else None,
        attainment=kept / len(inside) if kept is not None else None,
        mean_input_tokens=float(np.mean(inputs)) if inputs else None,
        mean_output_tokens=float(np.mean(outputs)) if outputs else None,
    )
