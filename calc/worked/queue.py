"""The numbers of *Queueing* as worked formulas; a percentile is worked out as the share of requests that stay longer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isfinite

from calc.asked_queue import PERCENTILE, AskedQueue
from calc.queue_curves import QueueKind
from calc.queueing import erlang_c, tails
from calc.worked.formula import Worked


def worked_queue(asked: AskedQueue) -> dict[str, Worked]:
    """The formula behind each number: "load", "mean", "p95", "in_system", "needed"; a saturated queue has no times."""
    found = {"load": _load(asked)}
    if not asked.queue.saturated:
        found |= {
            "mean": _mean(asked),
            "p95": _percentile(asked),
            "in_system": Worked(
                formula="requests_in_system",
                inputs={
                    "arrivals_per_s": asked.arrivals_per_s,
                    "time_in_system_s": asked.queue.mean_time_s,
                },
                result=asked.mean_in_system,
            ),
        }
    if isfinite(asked.replicas_needed):
        found["needed"] = _needed(asked)
    return found


def queue_lines(asked: AskedQueue) -> tuple[Worked, ...]:
    """The same in the order in which they follow from each other, with the steps between."""
    found = worked_queue(asked)
    lines = [found["load"]]
    if not asked.queue.saturated:
        lines += [*_wait(asked), found["mean"], found["in_system"], *_before_the_tail(asked), found["p95"]]
    if "needed" in found:
        lines += [*_with_the_needed(asked), found["needed"]]
    return tuple(lines)


def _mean(asked: AskedQueue) -> Worked:
    queue = asked.queue
    if asked.kind is QueueKind.MM1:
        inputs = {"service_s": asked.service_s, "utilisation": asked.load}
        return Worked(formula="mm1_mean_time_s", inputs=inputs, result=queue.mean_time_s)
    if asked.kind is QueueKind.SHARING:
        inputs = {"size_s": asked.service_s, "utilisation": asked.load}
        return Worked(formula="sharing_mean_time_s", inputs=inputs, result=queue.mean_time_s)
    inputs = {"mean_wait_s": queue.mean_wait_s, "service_s": asked.service_s}
    return Worked(formula="mean_time_s", inputs=inputs, result=queue.mean_time_s)


def _wait(asked: AskedQueue) -> Iterator[Worked]:
    """The mean wait, where the mean time is made of it."""
    queue = asked.queue
    if asked.kind is QueueKind.MD1:
        yield Worked(
            formula="md1_mean_wait_s",
            inputs={"service_s": asked.service_s, "utilisation": asked.load},
            result=queue.mean_wait_s,
        )
    if asked.kind is QueueKind.MMC:
        share = _waiting_share(asked)
        yield share
        yield Worked(
            formula="allen_cunneen_mean_wait_s",
            inputs={
                "waiting_share": share.result,
                "utilisation": asked.load,
                "service_s": asked.service_s,
                "servers": asked.replicas,
                "arrival_scv": 1.0,
                "service_scv": 1.0,
            },
            result=queue.mean_wait_s,
        )


def _percentile(asked: AskedQueue) -> Worked:
    if asked.kind is QueueKind.MM1:
        return Worked(
            formula="mm1_time_quantile_s",
            inputs={"percentile": PERCENTILE, "service_s": asked.service_s, "utilisation": asked.load},
            result=asked.p95_s,
        )
    return replace(_tail(asked, asked.p95_s), about="at the p95, 5% of requests stay longer")


def _needed(asked: AskedQueue) -> Worked:
    if asked.kind is QueueKind.MM1:
        return Worked(
            formula="mm1_replicas_for",
            inputs={
                "arrivals_per_s": asked.arrivals_per_s,
                "service_s": asked.service_s,
                "percentile": PERCENTILE,
                "limit_s": asked.limit_s,
            },
            result=asked.replicas_needed,
        )
    enough = _enough(asked)
    return replace(_tail(enough, asked.limit_s), about=_with_so_many(enough))


def _enough(asked: AskedQueue) -> AskedQueue:
    return replace(asked, replicas=int(asked.replicas_needed))


def _with_so_many(enough: AskedQueue) -> str:
    return f"with {enough.replicas:,} replicas, the share that stays longer than the limit: at most 5%, with one less it is more"


def _with_the_needed(asked: AskedQueue) -> Iterator[Worked]:
    """What the share at the limit stands on, where it is not the queue as it is."""
    if asked.kind is QueueKind.MM1:
        return
    enough = _enough(asked)
    about = _with_so_many(enough)
    if asked.kind is QueueKind.MMC:
        yield replace(_waiting_share(enough), about=about)
        yield replace(_clears(enough), about=about)
    else:
        yield replace(_load(enough), about=about)


def _load(asked: AskedQueue) -> Worked:
    """The utilisation."""
    inputs = {
        "arrivals_per_s": asked.arrivals_per_s,
        "service_s": asked.service_s,
        "servers": asked.replicas,
    }
    return Worked(formula="utilisation", inputs=inputs, result=asked.load)


def _before_the_tail(asked: AskedQueue) -> Iterator[Worked]:
    if asked.kind is QueueKind.MMC:
        yield _clears(asked)


def _waiting_share(asked: AskedQueue) -> Worked:
    inputs = {"offered_load": asked.arrivals_per_s * asked.service_s, "servers": asked.replicas}
    share = erlang_c(offered_load=inputs["offered_load"], servers=asked.replicas)
    return Worked(formula="erlang_c", inputs=inputs, result=share)


def _clears(asked: AskedQueue) -> Worked:
    inputs = {
        "servers": asked.replicas,
        "service_s": asked.service_s,
        "arrivals_per_s": asked.arrivals_per_s,
    }
    return Worked(formula="line_clears_per_s", inputs=inputs, result=tails.line_clears_per_s(**inputs))


def _tail(asked: AskedQueue, t_s: float) -> Worked:
    """The share of requests that stay longer than `t_s`."""
    inputs = {"t_s": t_s, "service_s": asked.service_s}
    if asked.kind is QueueKind.MMC:
        inputs |= {
            "waiting_share": _waiting_share(asked).result,
            "line_clears_per_s": _clears(asked).result,
        }
        return Worked(formula="mmc_time_tail", inputs=inputs, result=tails.mmc_time_tail(**inputs))
    inputs["utilisation"] = asked.load
    if asked.kind is QueueKind.MD1:
        return Worked(formula="md1_time_tail", inputs=inputs, result=tails.md1_time_tail(**inputs))
    return Worked(formula="sharing_time_tail", inputs=inputs, result=tails.sharing_time_tail(**inputs))
