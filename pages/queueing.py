"""Queueing: why latency explodes before the servers are full, on formulas and a simulation of the same queue."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.queue_curves import (
    QueueKind,
    TimedQueue,
    quantiles_s,
    queue_curve,
    queue_of,
    replicas_for,
)
from calc.worked.formula import Worked
from pages._queue_figure import other_kind, queue_figure, queue_finding
from pages._queue_parts import Asked, draw_controls, draw_simulation
from pages._ui import (
    Metric,
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_maths,
    show_metrics,
    show_title,
)

FORMULAS = {
    QueueKind.MM1: ("utilisation", "mm1_mean_time_s", "mm1_time_quantile_s", "mm1_replicas_for"),
    QueueKind.MD1: ("utilisation", "md1_mean_wait_s"),
    QueueKind.MMC: ("utilisation", "erlang_c", "allen_cunneen_mean_wait_s"),
    QueueKind.SHARING: ("utilisation", "sharing_mean_time_s"),
}
LITTLE = ("requests_in_system",)
BY_HAND = {
    QueueKind.MM1: "mm1_mean_time_s",
    QueueKind.SHARING: "sharing_mean_time_s",
}  # the mean time's own formula; the others' is the wait and the service time
IGNORED = {
    QueueKind.MM1: "Routers that know the queues need fewer replicas than random ones.",
    QueueKind.MD1: "Answers of different lengths: the work here is the same for all.",
    QueueKind.MMC: "Slots of continuous batching, which slow each other down: take *sharing* for those.",
    QueueKind.SHARING: "Steps that take longer the more requests share them: *Simulate traffic* has the real ones.",
}


def main() -> None:
    """Load and service time by hand; everything else follows."""
    title = st.container()
    asked = draw_controls()
    queue = asked.queue
    curve = queue_curve(asked.kind, service_s=asked.service_s, servers=asked.replicas)
    with title:
        show_title(
            _headline(asked), asked.kind.split(": ")[1].capitalize() + ". Arrivals at random (Poisson)."
        )
    _predict(asked, queue)
    show_metrics(_metrics(asked, queue))
    dots = draw_simulation(asked)
    beside = queue_curve(other_kind(asked.kind), service_s=asked.service_s)
    show_chart(
        queue_figure(curve, load=asked.load, limit_s=asked.limit_s, beside=beside, dots=dots),
        alt=queue_finding(curve, load=asked.load, mean_s=queue.mean_time_s),
        key="queue-curve",
    )
    show_maths(FORMULAS[asked.kind] + (() if queue.saturated else LITTLE), asked.symbols(), key="queue-maths")
    show_data(curve.rows, key="queue-data", name="ridgebeam-queue")
    show_ignored("Batching: *Simulate traffic* takes it into account.", "Bursts.", IGNORED[asked.kind])


def _headline(asked: Asked) -> str:
    eighty, ninety_five = (
        queue_of(asked.kind, load=load, service_s=1.0, servers=asked.replicas).mean_time_s
        for load in (0.8, 0.95)
    )
    return f"At 80% load the mean is {fmt.significant(eighty)} times the service time; at 95%, {fmt.significant(ninety_five)}."


def _predict(asked: Asked, queue: TimedQueue) -> None:
    if queue.saturated:
        return
    service_s, load = asked.service_s, asked.load
    faster = queue_of(asked.kind, load=load / 2, service_s=service_s / 2, servers=asked.replicas).mean_time_s
    ratio = queue.mean_time_s / faster
    predict_first(
        key="queueing",
        question=f"{fmt.significant(asked.arrivals_per_s)} requests per second take {fmt.seconds(service_s)} each, on "
        f"{fmt.plural(asked.replicas, 'replica')}. If each took half as long, how many times shorter would the mean time in "
        "the system be?",
        unit="times",
        answer=ratio,
        reading=f"{fmt.factor(ratio)} shorter",
        arithmetic=[
            (
                f"Now {fmt.seconds(queue.mean_time_s)} at {fmt.percent(load)} load. Half the work also halves the load, to "
                f"{fmt.percent(load / 2)}: {fmt.seconds(faster)}."
            )
        ],
    )


def _metrics(asked: Asked, queue: TimedQueue) -> list[Metric]:
    needed = replicas_for(
        asked.kind,
        arrivals_per_s=asked.arrivals_per_s,
        service_s=asked.service_s,
        limit_s=asked.limit_s,
    )
    time = "saturated" if queue.saturated else fmt.seconds(queue.mean_time_s)
    p95_s = quantiles_s(queue)[0]
    p95 = "saturated" if queue.saturated else fmt.seconds(p95_s)
    lines = 1 if asked.kind is QueueKind.MMC else asked.replicas

    def worked(formula: str | None, shown: float) -> Worked | None:
        if formula is None or queue.saturated:
            return None
        return Worked(formula=formula, inputs=asked.symbols(), result=shown)

    exponential = asked.kind is QueueKind.MM1
    return [
        Metric(
            label="Utilisation",
            reading=fmt.percent(asked.load),
            help=f"The queue is {queue.state}.",
            worked=Worked(formula="utilisation", inputs=asked.symbols(), result=asked.load),
        ),
        Metric(
            label="Mean time",
            reading=time,
            help="In the system: the wait and the service.",
            worked=worked(BY_HAND.get(asked.kind), queue.mean_time_s),
        ),
        Metric(
            label="p95",
            reading=p95,
            help="Time that 95% of requests keep."
            + ("" if exponential else " Where the tail of the distribution falls to 5%, found by bisection."),
            worked=worked("mm1_time_quantile_s" if exponential else None, p95_s),
        ),
        Metric(
            label="In the system",
            reading="grows" if queue.saturated else fmt.significant(lines * queue.mean_in_system),
            help="Little's law, all replicas together.",
            worked=worked("requests_in_system", lines * queue.mean_in_system),
        ),
        Metric(
            label="Replicas for the limit",
            reading=fmt.significant(needed),
            help="Smallest number whose p95 keeps the limit.",
            worked=worked("mm1_replicas_for" if exponential else None, needed),
        ),
    ]


main()
