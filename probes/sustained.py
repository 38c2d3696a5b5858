"""One large product for seconds: what is left of the first milliseconds' rate when power and heat have their say."""

from __future__ import annotations

import time

import numpy as np

from probes import gemm, matmul
from probes.harness import Bench, Case, Measurement, Timing

TOKENS = 8192
SECONDS = 4.0
CPU_SECONDS = {"quick": 1.0, "full": 4.0}
BURST_S = 0.05
FEWEST_BURST = 3


def cases(bench: Bench) -> list[Case]:
    """The 16-bit format, and fp8 where the device has it."""
    forms = [bench.device.sixteen_bit]
    if "fp8" in bench.device.formats:
        forms.append("fp8")
    return [
        Case(
            name=f"{form} sustained",
            run=lambda form=form: _measure(bench, form),
            parameters={"format": form, "seconds": _seconds(bench)},
            essential=form == bench.device.sixteen_bit,
        )
        for form in forms
    ]


def _seconds(bench: Bench) -> float:
    return CPU_SECONDS[bench.depth] if bench.on_cpu else SECONDS


def _tokens(bench: Bench, shape: matmul.Shape, form: str) -> int:
    if not bench.on_cpu:
        return TOKENS
    rate = gemm.pilot_flop_per_s(bench, shape, form) or 1e9
    tokens = TOKENS
    while tokens > 16 and shape.flop(tokens) > rate * bench.longest_call_s:
        tokens //= 2
    return tokens


def _measure(bench: Bench, form: str) -> Measurement:
    shape = matmul.shapes(bench)[0]
    tokens = _tokens(bench, shape, form)
    x = matmul.operand(bench, tokens, shape.in_features, form)
    weight = matmul.operand(bench, shape.out_features, shape.in_features, form)
    multiply = matmul.product(form)
    error = matmul.answer_error(x, weight, multiply(x, weight), form)
    per_wait = max(1, int(0.01 / max(bench.once_s(lambda: multiply(x, weight)), 1e-5)))

    def several() -> None:
        for _ in range(per_wait):
            multiply(x, weight)

    samples, started = [], time.perf_counter()
    while time.perf_counter() - started < _seconds(bench):
        samples.append(bench.once_s(several) / per_wait)
    times = np.array(samples)
    elapsed = np.cumsum(times) * per_wait
    burst = times[: max(FEWEST_BURST, int(np.searchsorted(elapsed, BURST_S)))]
    late = times[elapsed >= elapsed[-1] / 2]
    middle, low, high = (float(np.quantile(late, q)) for q in (0.5, 0.1, 0.9))
    flop = shape.flop(tokens)
    timing = Timing(
        median_s=middle, p10_s=low, p90_s=high, best_s=float(times.min()), samples=len(late), mode="host"
    )
    return Measurement(
        value=flop / middle,
        unit="FLOP/s",
        timing=timing,
        flop_per_call=flop,
        error=error,
        extra={"burst": flop / float(np.median(burst)), "best": flop / float(times.min()), "tokens": tokens},
    )
