"""`StepTable`: how long one pass of an engine takes, as data that the engine loops evaluate.

    seconds = base(prefill tokens, decoding sequences)      bilinear between knots, linear beyond the last
            + kv_s x tokens that the decoding sequences attend to
            + window_s x the same, counted up to the window
            + attention_s x sum over prompt chunks of chunk x (prefix + chunk / 2)

A knot at 0 and one at 1 in both directions hold what a step costs that does only one of the two, so that a constant
for mixed steps needs no term of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.errors import InputError
from calc.simulation.kernels.layout import MAX_KNOTS, TABLE

FAR = 1e9  # the second knot of a straight line


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """See the module. `base_s[i, j]`: seconds at `prefill_knots[i]` prompt tokens and `decode_knots[j]` sequences.

    `window` is the attention window in tokens that `window_s` refers to; 0: there is none.
    """

    prefill_knots: tuple[float, ...]
    decode_knots: tuple[float, ...]
    base_s: tuple[tuple[float, ...], ...]
    kv_s: float = 0.0
    attention_s: float = 0.0
    window: int = 0
    window_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("prefill_knots", "decode_knots"):
            knots = getattr(self, name)
            if not 2 <= len(knots) <= MAX_KNOTS or knots[0] != 0 or np.any(np.diff(knots) <= 0):
                raise InputError(name, knots, f"give 2 to {MAX_KNOTS} rising knots that begin with 0")
        shape = (len(self.prefill_knots), len(self.decode_knots))
        base = np.asarray(self.base_s, dtype=np.float64)
        if base.shape != shape:
            raise InputError("base_s", base.shape, f"it must have one value for each pair of knots, {shape}")
        if not np.all(np.isfinite(base)) or base.min() < 0 or base[-1, 0] <= 0 or base[0, -1] <= 0:
            raise InputError("base_s", float(base.min()), "step times must be finite and positive")
        if self.seconds(1, 0) <= 0 or self.seconds(0, 1) <= 0:
            raise InputError("step time", 0.0, "a pass with a token must take time")
        for name in ("kv_s", "attention_s", "window_s"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(name, getattr(self, name), "it must be 0 or a positive number of seconds")
        if self.window < 0 or (self.window_s > 0 and self.window == 0):
            raise InputError("window", self.window, "window_s needs the window's tokens")

    @classmethod
    def affine(
        cls,
        *,
        fixed_s: float,
        prefill_s: float,
        decode_s: float,
        kv_s: float,
        attention_s: float = 0.0,
        mixed_s: float = 0.0,
    ) -> StepTable:
        """Seconds = fixed + prefill x prompt tokens + decode x sequences + kv x attended tokens (+ mixed if both happen)."""
        for name, value in (("fixed_s", fixed_s), ("prefill_s", prefill_s), ("decode_s", decode_s)):
            if not (np.isfinite(value) and value >= 0):
                raise InputError(name, value, "it must be 0 or a positive number of seconds")
        knots = (0.0, 1.0, FAR) if mixed_s else (0.0, FAR)
        base = tuple(
            tuple(fixed_s + prefill_s * p + decode_s * d + (mixed_s if p and d else 0.0) for d in knots)
            for p in knots
        )
        return cls(prefill_knots=knots, decode_knots=knots, base_s=base, kv_s=kv_s, attention_s=attention_s)

    def seconds(
        self,
        prefill_tokens: int,
        decoding: int,
        kv_tokens: float = 0.0,
        attention: float = 0.0,
        window_tokens: float = 0.0,
    ) -> float:
        """Seconds of one pass."""
        from calc.simulation.kernels.clock import step_seconds

        return step_seconds(self.record(), prefill_tokens, attention, decoding, kv_tokens, window_tokens)  # type: ignore[arg-type]

    def record(self) -> Any:
        """The table as the engine loops read it."""
        record = np.zeros(1, TABLE)
        rows, columns = len(self.prefill_knots), len(self.decode_knots)
        record["prefill_knots"][0, :rows] = self.prefill_knots
        record["decode_knots"][0, :columns] = self.decode_knots
        record["base"][0, :rows, :columns] = self.base_s
        record["num_prefill"] = rows
        record["num_decode"] = columns
        for name in ("kv_s", "window_s", "attention_s"):
            record[name] = getattr(self, name)
        return record[0]

    def scaled(self, factor: float) -> StepTable:
        """Every time multiplied by `factor`."""
        return StepTable(
            prefill_knots=self.prefill_knots,
            decode_knots=self.decode_knots,
            base_s=tuple(tuple(value * factor for value in line) for line in self.base_s),
            kv_s=self.kv_s * factor,
            attention_s=self.attention_s * factor,
            window=self.window,
            window_s=self.window_s * factor,
        )
