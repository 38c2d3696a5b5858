"""Is a run in a steady state? Warm-up excluded by rule, and stable, near saturation or saturated decided by rule."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calc.saturation import State

Floats = npt.NDArray[np.float64]

MSER_BATCH = 5  # White, 1997: MSER-5
PARTS = 5  # of the time in which requests arrive; the first is warm-up
SATURATED_SHARE = 0.05  # of the arrivals that pile up
NEAR_SHARE = 0.01
NEAR_WAIT = 4.0  # wait over the time between two departures; M/M/1 has it above 80% load
FEWEST_WAITING = 4.0  # a shorter queue is no pile


LoadState = State
"""The same three states as the formulas give, decided here by what happened instead of by utilisation."""


def warm_up_end(latency_s: Floats) -> int:
    """How many of the first requests to leave out, by MSER-5.

    The cut that leaves the mean of the rest with the least standard error, over batches of five, in the first half.
    Source: K. P. White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69
    (1997). Ignores: a run that is still growing at its end has no steady state; `load_state` says so.
    """
    batches = len(latency_s) // MSER_BATCH
    if batches < 10:
        return 0
    means = latency_s[: batches * MSER_BATCH].reshape(batches, MSER_BATCH).mean(axis=1)
    backwards = means[::-1]
    kept = np.arange(1, batches + 1)
    average = np.cumsum(backwards) / kept
    error = (np.cumsum(backwards**2) / kept - average**2) / kept
    candidates = error[::-1][: batches // 2]
    return int(np.argmin(candidates)) * MSER_BATCH


def mean_waiting(arrival_s: Floats, scheduled_s: Floats, edges_s: Floats) -> Floats:
    """Time-averaged number of requests that wait for their first admission, between consecutive edges."""
    means = np.empty(len(edges_s) - 1)
    for i in range(len(means)):
        low, high = edges_s[i], edges_s[i + 1]
        overlap = np.minimum(scheduled_s, high) - np.maximum(arrival_s, low)
        means[i] = np.maximum(overlap, 0.0).sum() / (high - low)
    return means


def load_state(*, arrival_s: Floats, scheduled_s: Floats, last_s: Floats, closed_loop: bool) -> LoadState:
    """The state of a run, from who waits for admission while requests still arrive.

    The time from the first to the last arrival is cut into five parts; the first is warm-up. Saturated: from the
    second part to the last the mean queue grew by more than 5% of the arrivals between their middles. Near
    saturation: by more than 1%, or requests wait more than four times their service over the number that is served at
    once (so a single server and a batch are judged alike). A queue under four requests is never a pile. A closed loop
    can't pile up: there only the waits count.
    """
    wait_s = float((scheduled_s - arrival_s).mean())
    service_s = float((last_s - scheduled_s).mean())
    begin, end = float(arrival_s.min()), float(arrival_s.max())
    at_once = max(1.0, len(arrival_s) * service_s / max(float(last_s.max()) - begin, 1e-9))
    waits_long = wait_s > NEAR_WAIT * service_s / at_once
    if closed_loop or end <= begin or len(arrival_s) < 2 * PARTS:
        return LoadState.NEAR_SATURATION if waits_long else LoadState.STABLE
    edges = np.linspace(begin, end, PARTS + 1)
    queue = mean_waiting(arrival_s, scheduled_s, edges)
    middles = (edges[1:] + edges[:-1]) / 2
    between = np.count_nonzero((arrival_s >= middles[1]) & (arrival_s < middles[-1]))
    share = (queue[-1] - queue[1]) / max(between, 1)
    if queue[-1] >= FEWEST_WAITING and share > SATURATED_SHARE:
        return LoadState.SATURATED
    if waits_long or (queue[-1] >= FEWEST_WAITING and share > NEAR_SHARE):
        return LoadState.NEAR_SATURATION
    return LoadState.STABLE
