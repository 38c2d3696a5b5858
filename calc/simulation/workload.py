"""Requests made up from a description: arrivals, lengths, users who wait, conversations that grow.

Every function takes a numpy Generator, so that the seed is the caller's and the same seed gives the same requests.
"""

from __future__ import annotations

from math import exp, gamma, log, sqrt
from typing import Any

import numpy as np

from calc.errors import InputError
from calc.simulation.requests import Floats, Ints, RequestTable
from calc.units import DAY_S
from calc.workload import MAX_TOKENS, Lengths, LengthShape, Workload

PREFIX_BLOCK = 16  # tokens: shared prompts are cut to whole blocks of this size
MAX_REQUESTS = 50_000_000
# Of all prompts together: 0.3 GB of ids, and three times that while they are numbered.
MAX_SHARED_BLOCKS = 40_000_000

# ---- arrivals


def _check(rate_per_s: float, count: int) -> None:
    if not (np.isfinite(rate_per_s) and rate_per_s > 0):
        raise InputError("rate", rate_per_s, "it must be a positive number of requests/s")
    if not 1 <= count <= MAX_REQUESTS:
        raise InputError("requests", count, f"it must be from 1 to {MAX_REQUESTS:,}")


def weibull_shape(cv: float) -> float:
    """The Weibull shape whose coefficient of variation is `cv`, by bisection."""
    if not 0.05 <= cv <= 100:
        raise InputError("arrival_cv", cv, "a Weibull process needs one from 0.05 to 100")
    low, high = 0.08, 30.0
    for _ in range(100):
        middle = sqrt(low * high)
        mean, square = gamma(1 + 1 / middle), gamma(1 + 2 / middle)
        low, high = (middle, high) if square / mean**2 - 1 > cv * cv else (low, middle)
    return sqrt(low * high)


def unit_gaps(draw: np.random.Generator, count: int, *, cv: float = 1.0, family: str = "gamma") -> Floats:
    """Gaps between arrivals with mean 1 and the given CV: gamma or weibull (both are Poisson at CV 1)."""
    if family == "weibull":
        shape = weibull_shape(cv)
        return np.asarray(draw.weibull(shape, count) / gamma(1 + 1 / shape))
    if family != "gamma":
        raise InputError("arrivals", family, "choose gamma or weibull")
    if cv == 0:
        return np.ones(count)
    return np.asarray(draw.gamma(1 / (cv * cv), cv * cv, count))


def renewal_arrivals(
    draw: np.random.Generator, *, rate_per_s: float, count: int, cv: float = 1.0, family: str = "gamma"
) -> Floats:
    """Arrival times with independent gaps: Poisson at CV 1, bursts above, regular below."""
    _check(rate_per_s, count)
    return np.cumsum(unit_gaps(draw, count, cv=cv, family=family)) / rate_per_s


def on_off_arrivals(
    draw: np.random.Generator, *, rate_per_s: float, count: int, on_s: float, off_s: float
) -> Floats:
    """Bursts: Poisson while "on", nothing while "off", both of exponential length; `rate_per_s` is the mean over all."""
    _check(rate_per_s, count)
    if not (on_s > 0 and off_s >= 0):
        raise InputError("on_s, off_s", (on_s, off_s), "bursts last some time, pauses none or some")
    active = np.cumsum(draw.exponential(1.0, count)) / (rate_per_s * (on_s + off_s) / on_s)
    periods = int(active[-1] / on_s * 1.5) + 20
    lengths = draw.exponential(on_s, periods)
    while lengths.sum() < active[-1]:
        lengths = np.append(lengths, draw.exponential(on_s, periods))
    pauses = np.concatenate(
        ([0.0], np.cumsum(draw.exponential(off_s, len(lengths) - 1) if off_s else np.zeros(len(lengths) - 1)))
    )
    return np.asarray(active + pauses[np.searchsorted(np.cumsum(lengths), active)])


def diurnal_concentration(peak_factor: float) -> float:
    """The concentration k of a von Mises day, exp(k cos) / I0(k), whose peak is `peak_factor` times its mean."""
    if not 1 <= peak_factor <= 20:
        raise InputError("peak_factor", peak_factor, "a day's peak may be 1 to 20 times its mean")
    low, high = 0.0, 600.0
    for _ in range(200):
        middle = (low + high) / 2
        peak = exp(middle - log(float(np.i0(middle))))
        low, high = (middle, high) if peak < peak_factor else (low, middle)
    return low


def diurnal_arrivals(
    draw: np.random.Generator,
    *,
    rate_per_s: float,
    count: int,
    peak_factor: float,
    period_s: float = DAY_S,
    cv: float = 1.0,
) -> Floats:
    """Arrivals whose rate follows a day: lowest at its begin, `peak_factor` times the mean at its middle.

    A renewal process on a clock that runs with the rate, so that the CV is kept within the day.
    """
    _check(rate_per_s, count)
    k = diurnal_concentration(peak_factor)
    phase = np.linspace(0, 1, 4001)
    shape = np.exp(k * (-np.cos(2 * np.pi * phase) - 1))
    share = np.concatenate(([0.0], np.cumsum((shape[1:] + shape[:-1]) / 2)))
    share /= share[-1]
    work = np.cumsum(unit_gaps(draw, count, cv=cv)) / (rate_per_s * period_s)
    days = np.floor(work)
    return np.asarray((days + np.interp(work - days, share, phase)) * period_s)


# ---- lengths


def draw_lengths(
    draw: np.random.Generator,
    count: int,
    *,
    prompt: Lengths,
    answer: Lengths,
    correlation: float = 0.0,
) -> tuple[Ints, Ints]:
    """Prompt and answer lengths; `correlation` is that of the underlying normals (a Gaussian copula)."""
    if not -1 <= correlation <= 1:
        raise InputError("correlation", correlation, "it must lie between -1 and 1")
    one = draw.standard_normal(count)
    other = correlation * one + sqrt(1 - correlation * correlation) * draw.standard_normal(count)
    return _lengths(one, prompt), _lengths(other, answer)


def _lengths(normal: Floats, lengths: Lengths) -> Ints:
    if lengths.shape is LengthShape.FIXED or lengths.cv == 0:
        return np.full(len(normal), round(lengths.mean_tokens), np.int64)
    sigma = sqrt(log(1 + lengths.cv * lengths.cv))
    values = np.exp(log(lengths.mean_tokens) - sigma * sigma / 2 + sigma * normal)
    return np.clip(np.rint(values), 1, MAX_TOKENS).astype(np.int64)


# ---- requests


def open_requests(
    draw: np.random.Generator,
    arrival_s: Floats,
    *,
    prompt: Lengths,
    answer: Lengths,
    correlation: float = 0.0,
    prefix_share: float = 0.0,
    texts: int = 1,
) -> RequestTable:
    """Requests at given times; the first `prefix_share` of each prompt is one of `texts` texts, each asked for as often."""
    given, answered = draw_lengths(
        draw, len(arrival_s), prompt=prompt, answer=answer, correlation=correlation
    )
    shared = _shared_text(draw, given, share=prefix_share, texts=texts)
    return RequestTable(arrival_s=arrival_s, input_tokens=given, output_tokens=answered, **shared)


def _shared_text(draw: np.random.Generator, given: Ints, *, share: float, texts: int) -> dict[str, Any]:
    """The ids of what prompts of `given` tokens have in common: the first `share` of each, in whole blocks."""
    if share <= 0:
        return {}
    counts = (given * share).astype(np.int64) // PREFIX_BLOCK
    total = int(counts.sum())
    if total > MAX_SHARED_BLOCKS:
        raise InputError(
            "prefix_share",
            share,
            f"{len(given):,} prompts then share {total:,} blocks of {PREFIX_BLOCK} tokens, and at most "
            f"{MAX_SHARED_BLOCKS:,} are simulated",
            next_step=f"Simulate {max(1, len(given) * MAX_SHARED_BLOCKS // total):,} requests at most.",
        )
    ids = np.arange(total)
    ids -= np.repeat(np.cumsum(counts) - counts, counts)
    if texts > 1:
        ids += np.repeat(draw.integers(0, texts, len(given)) * int(counts.max()), counts)
    return {"prefix_ids": ids, "prefix_count": counts, "prefix_block": PREFIX_BLOCK}


def texts_of(workload: Workload) -> int:
    """How many texts are in use at once: one where all share it, else as many as are asked for in a mean time of return."""
    if workload.reuse_after_s is None:
        return 1
    return max(1, round((workload.rate_per_s or 0.0) * workload.reuse_after_s))


def closed_loop(
    draw: np.random.Generator,
    *,
    users: int,
    count: int,
    prompt: Lengths,
    answer: Lengths,
    think_s: float = 0.0,
    prefix_share: float = 0.0,
    texts: int = 1,
) -> RequestTable:
    """`count` requests of `users` users who each wait for their answer, and then think (exponential, mean `think_s`).

    `prefix_share`, `texts`: as of `open_requests`.
    """
    if not 1 <= users <= count:
        raise InputError("users", users, f"there must be 1 to {count} of them, one request for each at least")
    given, answered = draw_lengths(draw, count, prompt=prompt, answer=answer)
    predecessor = np.arange(count) - users
    predecessor[:users] = -1
    thinks = draw.exponential(think_s, count) if think_s > 0 else np.zeros(count)
    arrival_s = np.full(count, np.nan)
    arrival_s[:users] = np.sort(thinks[:users])
    return RequestTable(
        arrival_s=arrival_s,
        input_tokens=given,
        output_tokens=answered,
        predecessor=predecessor,
        think_s=thinks,
        **_shared_text(draw, given, share=prefix_share, texts=texts),
    )


def conversations(
    draw: np.random.Generator,
    first_arrival_s: Floats,
    *,
    turns: float,
    said: Lengths,
    answered: Lengths,
    think_s: float,
    system_tokens: int = 0,
) -> RequestTable:
    """Conversations that begin at given times; each turn's prompt is all that was said before and something new.

    `turns` is the mean of their geometric number; the next turn comes `think_s` (mean, exponential) after the answer.
    The turns of a conversation share a stream, so that a prefix cache can hold what was said.
    """
    if turns < 1:
        raise InputError("turns", turns, "a conversation has at least one")
    counts = draw.geometric(1 / turns, len(first_arrival_s))
    total = int(counts.sum())
    new, output = draw_lengths(draw, total, prompt=said, answer=answered)
    stream = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    spoken = np.cumsum(new + output) - output
    prompts = spoken - np.repeat(spoken[first] - new[first], counts) + system_tokens
    predecessor = np.arange(total) - 1
    predecessor[first] = -1
    arrival_s = np.full(total, np.nan)
    arrival_s[first] = np.sort(first_arrival_s)
    return RequestTable(
        arrival_s=arrival_s,
        input_tokens=prompts,
        output_tokens=output,
        predecessor=predecessor,
        think_s=draw.exponential(think_s, total) if think_s > 0 else np.zeros(total),
        stream=stream,
    )


def requests_of(workload: Workload, *, count: int, seed: int, think_s: float = 0.0) -> RequestTable:
    """Requests of a `Workload`: a renewal process (over a day if it has a peak), or users who wait."""
    draw = np.random.default_rng(seed)
    if workload.concurrency is not None:
        return closed_loop(
            draw, users=workload.concurrency, count=max(count, workload.concurrency),
            prompt=workload.input, answer=workload.output, think_s=think_s,
            prefix_share=workload.prefix_share, texts=texts_of(workload),
        )  # fmt: skip
    rate = workload.rate_per_s or 0.0
    if workload.peak_factor > 1:
        times = diurnal_arrivals(
            draw, rate_per_s=rate, count=count, peak_factor=workload.peak_factor, cv=workload.arrival_cv
        )
    else:
        times = renewal_arrivals(draw, rate_per_s=rate, count=count, cv=workload.arrival_cv)
    return open_requests(
        draw,
        times,
        prompt=workload.input,
        answer=workload.output,
        prefix_share=workload.prefix_share,
        texts=texts_of(workload),
    )
