"""`RequestTable`: the requests of a simulation as arrays, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from calc.errors import InputError
from calc.workload import MAX_TOKENS

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_PRIORITIES = 16
MAX_SAMPLES = 128
MAX_TIME_S = 1e9  # 32 years: a clock of 64 bits still tells a tenth of a microsecond there


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestTable:
    """One entry a request.

    arrival_s: seconds, rising; nan where the request follows another one. input_tokens, output_tokens: at least 1.
    output_limit: the most tokens that the engine must expect (default: output_tokens). samples: answers of
    that length written to the same prompt at once (default 1). priority: smaller goes first.
    predecessor, think_s: a request arrives `think_s` after its predecessor has finished (-1: it has none).
    stream: requests of one stream continue each other's text (-1: a text of its own).
    prefix_ids: for each request the ids of its prompt's blocks of `prefix_block` tokens, equal ids meaning equal text
    up to there; flat, with `prefix_count` per request.
    """

    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    output_limit: Ints | None = None
    samples: Ints | None = None
    priority: Ints | None = None
    predecessor: Ints | None = None
    think_s: Floats | None = None
    stream: Ints | None = None
    prefix_ids: Ints | None = None
    prefix_count: Ints | None = None
    prefix_block: int = 0
    name: str = field(default="requests")

    def __post_init__(self) -> None:
        count = len(self.arrival_s)
        if count == 0:
            raise InputError(self.name, 0, "there must be at least one request")
        for name in ("input_tokens", "output_tokens"):
            self._check_tokens(name, getattr(self, name), count)
        for name in (
            "output_limit",
            "samples",
            "priority",
            "predecessor",
            "think_s",
            "stream",
            "prefix_count",
        ):
            values = getattr(self, name)
            if values is not None and len(values) != count:
                raise InputError(
                    name, len(values), f"it must have one value for each of the {count} requests"
                )
        if self.output_limit is not None:
            self._check_tokens("output_limit", self.output_limit, count)
            if np.any(self.output_limit < self.output_tokens):
                raise InputError("output_limit", "less than output_tokens", "no request may exceed its limit")
        if self.samples is not None and (self.samples.min() < 1 or self.samples.max() > MAX_SAMPLES):
            raise InputError("samples", int(self.samples.max()), f"it must be from 1 to {MAX_SAMPLES}")
        self._check_arrivals()
        if self.priority is not None and len(np.unique(self.priority)) > MAX_PRIORITIES:
            raise InputError("priority", "too many levels", f"at most {MAX_PRIORITIES} different ones")
        if self.prefix_ids is not None:
            self._check_prefixes()

    def __len__(self) -> int:
        return len(self.arrival_s)

    def _check_tokens(self, name: str, values: Any, count: int) -> None:
        if len(values) != count:
            raise InputError(name, len(values), f"it must have one value for each of the {count} requests")
        wrong = np.flatnonzero((values < 1) | (values > MAX_TOKENS))
        if len(wrong):
            raise InputError(
                f"{name} of request {wrong[0]}", int(values[wrong[0]]), f"it must be from 1 to {MAX_TOKENS:,}"
            )

    def _check_arrivals(self) -> None:
        free = np.ones(len(self), bool) if self.predecessor is None else self.predecessor < 0
        times = self.arrival_s[free]
        if len(times) == 0:
            raise InputError("arrival_s", "none", "some request must have an arrival time of its own")
        if not np.all(np.isfinite(times)) or times.min() < 0 or times.max() > MAX_TIME_S:
            worst = float(times.min() if times.min() < 0 else times.max())
            raise InputError(
                "arrival_s",
                worst,
                f"times are seconds from 0 to {MAX_TIME_S:g}",
                next_step="Raise the rate, or play fewer requests.",
            )
        if np.any(np.diff(times) < 0):
            place = int(np.flatnonzero(np.diff(times) < 0)[0]) + 1
            raise InputError("arrival_s", float(times[place]), f"times must rise (request {place})")
        if self.predecessor is not None:
            given = self.predecessor[self.predecessor >= 0]
            if len(given) and (given.max() >= len(self) or len(np.unique(given)) != len(given)):
                raise InputError("predecessor", int(given.max()), "each request has at most one successor")
            if np.any(given >= np.flatnonzero(self.predecessor >= 0)):
                raise InputError(
                    "predecessor", "a later request", "a predecessor stands before its successor"
                )
            thinks = self.think_s
            if thinks is not None and not (np.all(np.isfinite(thinks)) and thinks.min() >= 0):
                raise InputError("think_s", float(np.min(thinks)), "it must be 0 or more seconds")

    def _check_prefixes(self) -> None:
        if self.prefix_count is None or self.prefix_block < 1 or self.prefix_ids is None:
            raise InputError(
                "prefix_block", self.prefix_block, "prefix_ids need prefix_count and prefix_block"
            )
        if int(self.prefix_count.sum()) != len(self.prefix_ids):
            raise InputError("prefix_count", int(self.prefix_count.sum()), "it must add up to the prefix_ids")
        needed = -(-self.input_tokens // self.prefix_block)
        wrong = np.flatnonzero(self.prefix_count > needed)
        if len(wrong):
            raise InputError(
                f"prefix_count of request {wrong[0]}",
                int(self.prefix_count[wrong[0]]),
                "more ids than its prompt has blocks",
            )

    @property
    def shares_text(self) -> bool:
        """Whether one request can hit what another one cached."""
        return self.prefix_ids is not None or self.stream is not None

    def stretched(self, factor: float) -> RequestTable:
        """The same requests, with all times between arrivals multiplied by `factor`."""
        if not (np.isfinite(factor) and factor > 0):
            raise InputError("stretch", factor, "it must be positive")
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return RequestTable(**{**values, "arrival_s": self.arrival_s * factor})

    def at_rate(self, rate_per_s: float) -> RequestTable:
        """Stretched so that the mean rate is `rate_per_s`."""
        return self.stretched(self.rate_per_s / rate_per_s)

    @property
    def rate_per_s(self) -> float:
        """Mean rate between the first and the last arrival that has a time of its own."""
        times = self.arrival_s[~np.isnan(self.arrival_s)]
        span = float(times[-1] - times[0])
        if len(times) < 2 or span <= 0:
            raise InputError("requests", len(times), "a rate needs two arrivals at different times")
        return (len(times) - 1) / span

    def first(self, count: int) -> RequestTable:
        """The first `count` requests."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name, value in values.items():
            if isinstance(value, np.ndarray) and name != "prefix_ids":
                values[name] = value[:count]
        if self.prefix_ids is not None and self.prefix_count is not None:
            values["prefix_ids"] = self.prefix_ids[: int(self.prefix_count[:count].sum())]
        return RequestTable(**values)

    def tiled(self, times: int, gap_s: float = 0.0) -> RequestTable:
        """The same arrivals and lengths `times` over, one after the other; prefixes and conversations are dropped."""
        span = float(self.arrival_s[-1] - self.arrival_s[0]) + gap_s
        shifts = np.repeat(np.arange(times) * span, len(self))
        return RequestTable(
            arrival_s=np.maximum.accumulate(np.tile(self.arrival_s - self.arrival_s[0], times) + shifts),
            input_tokens=np.tile(self.input_tokens, times),
            output_tokens=np.tile(self.output_tokens, times),
            name=self.name,
        )
