"""How service times vary: fixed, exponential, gamma, hyperexponential, lognormal, or as observed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import erfc, exp, log, pi, sqrt
from typing import Any

import numpy as np

from calc.arrays import not_negative, positive_finite
from calc.errors import InputError
from calc.queueing.laplace import inverted

MOST_TIMES = 1000
"""Observed times beyond which neighbours are merged: their transform costs a term each."""

_erfc = np.vectorize(erfc, otypes=[float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(ABC):
    """A distribution of service times with mean `mean_s`."""

    mean_s: float

    def __post_init__(self) -> None:
        positive_finite(mean_s=self.mean_s)

    @property
    @abstractmethod
    def scv(self) -> float:
        """Squared coefficient of variation: variance over squared mean."""

    @abstractmethod
    def transform(self, s: Any) -> Any:
        """E[e^(-s·S)] for an array of complex s with a positive real part."""

    def tail(self, t_s: Any) -> Any:
        """P(S > t) for an array of t: by inverting the transform, unless a kind of service knows better."""
        flat = np.atleast_1d(np.asarray(t_s, dtype=float)).ravel()
        values = [
            inverted(lambda s: (1.0 - self.transform(s)) / s, t) if t > 0 else 1.0 for t in flat.tolist()
        ]
        return np.clip(values, 0.0, 1.0).reshape(np.shape(t_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedService(Service):
    """Every service takes the same time."""

    @property
    def scv(self) -> float:
        return 0.0

    def transform(self, s: Any) -> Any:
        return np.exp(-s * self.mean_s)

    def tail(self, t_s: Any) -> Any:
        return (np.asarray(t_s) < self.mean_s).astype(float)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialService(Service):
    """Service without memory."""

    @property
    def scv(self) -> float:
        return 1.0

    def transform(self, s: Any) -> Any:
        return 1.0 / (1.0 + s * self.mean_s)

    def tail(self, t_s: Any) -> Any:
        return np.exp(-np.maximum(t_s, 0.0) / self.mean_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaService(Service):
    """Gamma service with any variation; Erlang where 1/variation is whole."""

    variation: float  # squared coefficient of variation

    def __post_init__(self) -> None:
        super(GammaService, self).__post_init__()
        positive_finite(variation=self.variation)

    @property
    def scv(self) -> float:
        return self.variation

    def transform(self, s: Any) -> Any:
        return (1.0 + s * self.mean_s * self.variation) ** (-1.0 / self.variation)


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperexponentialService(Service):
    """A mix of two exponentials with balanced means (each kind brings half of the work): variation from 1 on."""

    variation: float  # squared coefficient of variation

    def __post_init__(self) -> None:
        super(HyperexponentialService, self).__post_init__()
        positive_finite(variation=self.variation)
        if self.variation < 1.0:
            raise InputError(
                "variation", self.variation, "a mix of exponentials varies by at least 1; use gamma"
            )

    @property
    def scv(self) -> float:
        return self.variation

    @property
    def short_share(self) -> float:
        """The share of requests that are of the short kind."""
        return 0.5 * (1.0 + sqrt((self.variation - 1.0) / (self.variation + 1.0)))

    def transform(self, s: Any) -> Any:
        total: Any = 0.0
        for part in (self.short_share, 1.0 - self.short_share):
            rate = 2.0 * part / self.mean_s
            total = total + part * rate / (rate + s)
        return total

    def tail(self, t_s: Any) -> Any:
        total: Any = 0.0
        for part in (self.short_share, 1.0 - self.short_share):
            total = total + part * np.exp(-2.0 * part / self.mean_s * np.maximum(t_s, 0.0))
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalService(Service):
    """Lognormal service, as prompt and output lengths often are."""

    variation: float  # squared coefficient of variation

    def __post_init__(self) -> None:
        super(LognormalService, self).__post_init__()
        positive_finite(variation=self.variation)

    @property
    def scv(self) -> float:
        return self.variation

    def transform(self, s: Any) -> Any:
        """By the trapezoid rule over the normal variable, which converges faster than any power of the step."""
        spread = sqrt(log(1.0 + self.variation))
        z = np.linspace(-9.0, 9.0, 400 + int(900 * spread))  # nine digits, found by refining
        density = np.exp(-0.5 * z**2) / sqrt(2.0 * pi) * (z[1] - z[0])
        times = self.mean_s * exp(-0.5 * spread**2) * np.exp(spread * z)
        return np.exp(-np.multiply.outer(np.asarray(s), times)) @ density

    def tail(self, t_s: Any) -> Any:
        spread = sqrt(log(1.0 + self.variation))
        at = np.maximum(np.asarray(t_s, dtype=float), self.mean_s * 1e-30)
        z = (np.log(at / self.mean_s) + 0.5 * spread**2) / spread
        return 0.5 * _erfc(z / sqrt(2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedService(Service):
    """Service times as they were seen: `times_s`, each with its weight; the mean is theirs."""

    times_s: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        super(ObservedService, self).__post_init__()
        positive_finite(times_s=self.times_s)
        not_negative(weights=self.weights)

    @classmethod
    def of(cls, times_s: Any, weights: Any = None) -> ObservedService:
        """From any sequence of times; equal weights unless given.

        Equal times are merged; beyond `MOST_TIMES` neighbours are, into groups that hold equal parts of the requests and
        of the second moment, so that the long ones, which make others wait, stay apart.
        """
        times = np.asarray(times_s, dtype=float).ravel()
        shares = np.ones_like(times) if weights is None else np.asarray(weights, dtype=float).ravel()
        if times.size == 0 or shares.shape != times.shape or shares.sum() <= 0:
            raise InputError("times_s", times_s, "give at least one time, and one weight for each")
        distinct, index = np.unique(times, return_inverse=True)
        merged = np.bincount(index, weights=shares) / shares.sum()
        if distinct.size > MOST_TIMES:
            second = merged * distinct**2
            part = (merged + second / second.sum()) / 2.0
            group = np.minimum((np.cumsum(part) - part / 2) * MOST_TIMES, MOST_TIMES - 1).astype(int)
            _, group = np.unique(group, return_inverse=True)
            weight = np.bincount(group, weights=merged)
            distinct, merged = np.bincount(group, weights=merged * distinct) / weight, weight
        return cls(
            mean_s=float(distinct @ merged), times_s=tuple(distinct.tolist()), weights=tuple(merged.tolist())
        )

    @property
    def scv(self) -> float:
        second = float(np.asarray(self.times_s) ** 2 @ np.asarray(self.weights))
        return max(0.0, second / self.mean_s**2 - 1.0)

    def transform(self, s: Any) -> Any:
        return np.exp(-np.multiply.outer(np.asarray(s), np.asarray(self.times_s))) @ np.asarray(self.weights)

    def tail(self, t_s: Any) -> Any:
        above = np.append(np.cumsum(self.weights[::-1])[::-1], 0.0)
        return above[np.searchsorted(self.times_s, t_s, side="right")]
