"""Time: how long a pass takes, and what is counted while it passes (token gaps, series)."""

from __future__ import annotations

import math

from calc.simulation.kernels.layout import (
    GAP_BIN_LOG,
    GAP_BINS,
    GAP_FLOOR_S,
    SERIES_BINS,
    SERIES_BLOCKS,
    SERIES_DECODE,
    SERIES_PREFILL,
    SERIES_ROWS,
    SERIES_RUNNING,
    SERIES_SECONDS,
    SERIES_WAITING,
    Array,
    Record,
    Replica,
    inlined,
)


@inlined
def segment(knots: Array, count: int, value: float) -> int:
    """Index of the segment of `knots` that holds `value`; beyond the last knot, the last segment."""
    low = 0
    high = count - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if knots[middle] <= value:
            low = middle
        else:
            high = middle
    return low


@inlined
def step_seconds(
    table: Record, prefill_tokens: int, attention: float, decoding: int, kv_tokens: int, window_tokens: int
) -> float:
    """Seconds of one pass: bilinear in prefill tokens and decoding sequences, linear in what attention reads."""
    xs = table["prefill_knots"]
    ys = table["decode_knots"]
    base = table["base"]
    i = segment(xs, table["num_prefill"], prefill_tokens)
    j = segment(ys, table["num_decode"], decoding)
    x = (prefill_tokens - xs[i]) / (xs[i + 1] - xs[i])
    y = (decoding - ys[j]) / (ys[j + 1] - ys[j])
    low = base[i, j] + y * (base[i, j + 1] - base[i, j])
    high = base[i + 1, j] + y * (base[i + 1, j + 1] - base[i + 1, j])
    reads = kv_tokens * table["kv_s"] + window_tokens * table["window_s"] + attention * table["attention_s"]
    return float(low + x * (high - low) + reads)


@inlined
def gap_bin(gap_s: float) -> int:
    """Bin of a gap between two tokens of a request."""
    if gap_s <= GAP_FLOOR_S:
        return 0
    return min(GAP_BINS - 1, int(math.log(gap_s / GAP_FLOOR_S) / GAP_BIN_LOG))


@inlined
def add_gap(replica: Replica, gap_s: float, count: int) -> None:
    """Count `count` gaps of the same length."""
    if count <= 0:
        return
    state = replica.state[0]
    replica.state[0]["gaps"][gap_bin(gap_s)] += count
    state["gap_count"] += count
    state["gap_sum_s"] += gap_s * count
    state["longest_gap_s"] = max(state["longest_gap_s"], gap_s)


def add_growing_gaps(replica: Replica, first_s: float, growth_s: float, steps: int, count: int) -> None:
    """Count the gaps first, first + growth, ... of `steps` passes, `count` of each."""
    if steps <= 0 or count <= 0:
        return
    last_s = first_s + growth_s * (steps - 1)
    place = gap_bin(first_s)
    final = gap_bin(last_s)
    counted = 0
    while place < final:
        edge_s = GAP_FLOOR_S * math.exp((place + 1) * GAP_BIN_LOG)
        upto = min(steps, max(counted, math.ceil((edge_s - first_s) / growth_s)))
        replica.state[0]["gaps"][place] += (upto - counted) * count
        counted = upto
        place += 1
    replica.state[0]["gaps"][final] += (steps - counted) * count
    state = replica.state[0]
    state["gap_count"] += steps * count
    state["gap_sum_s"] += count * (steps * first_s + growth_s * steps * (steps - 1) / 2)
    state["longest_gap_s"] = max(state["longest_gap_s"], last_s)


def widen_series(series: Array, state: Record) -> None:
    """Halve the resolution: add neighbouring bins, so that twice the time fits."""
    half = SERIES_BINS // 2
    for line in range(SERIES_ROWS):
        for i in range(half):
            series[line, i] = series[line, 2 * i] + series[line, 2 * i + 1]
        for i in range(half, SERIES_BINS):
            series[line, i] = 0.0
    state["series_width_s"] *= 2.0


def record_pass(
    replica: Replica,
    start_s: float,
    steps: int,
    prefill_tokens: int,
    decoding: int,
    used: float,
    chunks: int,
) -> None:
    """Add one pass (or a leap of equal ones) that ends now to the series and the counters."""
    state = replica.state[0]
    end_s = state["now"]
    series = state["series"]
    while end_s >= state["series_width_s"] * SERIES_BINS:
        widen_series(series, state)
    width = state["series_width_s"]
    duration = end_s - start_s
    place = int(start_s / width)
    final = min(int(end_s / width), SERIES_BINS - 1)
    while place <= final:
        part = duration
        if place != final or int(start_s / width) != final:
            part = min(end_s, (place + 1) * width) - max(start_s, place * width)
        share = part / duration if duration > 0 else 1.0
        series[SERIES_SECONDS, place] += part
        series[SERIES_RUNNING, place] += part * state["running"]
        series[SERIES_WAITING, place] += part * state["waiting"]
        series[SERIES_BLOCKS, place] += part * used
        series[SERIES_PREFILL, place] += share * prefill_tokens
        series[SERIES_DECODE, place] += share * decoding * steps
        place += 1
    state["busy_s"] += duration
    state["steps"] += steps
    state["passes"] += 1
    state["decode_tokens"] += decoding * steps
    state["prefill_tokens"] += prefill_tokens
    if prefill_tokens and decoding:
        state["mixed_steps"] += steps
    state["peak_running"] = max(state["peak_running"], state["running"])
    state["pass_start_s"] = start_s
    state["pass_steps"] = steps
    state["pass_prefill"] = prefill_tokens
    state["pass_decoding"] = decoding
    state["pass_chunks"] = chunks


@inlined
def leap_seconds(first_s: float, growth_s: float, steps: int) -> float:
    """Seconds of `steps` passes, each `growth_s` longer than the one before."""
    return first_s * steps + growth_s * (steps * (steps - 1) / 2.0)


def steps_until(first_s: float, growth_s: float, wait_s: float, most: int) -> int:
    """The least number of passes that last at least `wait_s` together, but no more than `most`."""
    if leap_seconds(first_s, growth_s, most) < wait_s:
        return most
    if growth_s > 0:
        half = first_s - growth_s / 2.0
        steps = int((math.sqrt(half * half + 2.0 * growth_s * wait_s) - half) / growth_s)
    else:
        steps = int(wait_s / first_s)
    steps = min(max(steps, 1), most)
    while steps > 1 and leap_seconds(first_s, growth_s, steps - 1) >= wait_s:
        steps -= 1
    while steps < most and leap_seconds(first_s, growth_s, steps) < wait_s:
        steps += 1
    return steps
