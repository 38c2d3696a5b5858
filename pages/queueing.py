"""Queueing: why latency explodes before the servers are full, on formulas and a simulation of the same queue."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.asked_queue import AskedQueue, mean_in_services
from calc.queue_curves import QueueKind, queue_curve
from calc.worked.queue import queue_lines, worked_queue
from pages._queue_figure import other_kind, queue_figure, queue_finding
from pages._queue_parts import draw_controls, draw_simulation
from pages._ui import (
    Metric,
    predict_first,
    show_chart,
    show_data,
    show_ignored,
    show_metrics,
    show_title,
    show_worked_maths,
)

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
    _predict(asked)
    show_metrics(_metrics(asked))
    dots = draw_simulation(asked)
    beside = queue_curve(other_kind(asked.kind), service_s=asked.service_s)
    show_chart(
        queue_figure(curve, load=asked.load, limit_s=asked.limit_s, beside=beside, dots=dots),
        alt=queue_finding(curve, load=asked.load, mean_s=queue.mean_time_s),
        key="queue-curve",
    )
    show_worked_maths(lambda: queue_lines(asked), key="queue-maths")
    show_data(curve.rows, key="queue-data", name="ridgebeam-queue")
    show_ignored("Batching: *Simulate traffic* takes it into account.", "Bursts.", IGNORED[asked.kind])


def _headline(asked: AskedQueue) -> str:
    eighty, ninety_five = (
        mean_in_services(asked.kind, load=load, servers=asked.replicas) for load in (0.8, 0.95)
    )
    return f"At 80% load the mean is {fmt.significant(eighty)} times the service time; at 95%, {fmt.significant(ninety_five)}."


def _predict(asked: AskedQueue) -> None:
    if asked.queue.saturated:
        return
    faster, ratio = asked.served_twice_as_fast, asked.gain_of_twice_as_fast
    predict_first(
        key="queueing",
        question=f"{fmt.significant(asked.arrivals_per_s)} requests per second take {fmt.seconds(asked.service_s)} each, on "
        f"{fmt.plural(asked.replicas, 'replica')}. If each took half as long, how many times shorter would the mean time in "
        "the system be?",
        unit="times",
        answer=ratio,
        reading=f"{fmt.factor(ratio)} shorter",
        arithmetic=[
            (
                f"Now {fmt.seconds(asked.queue.mean_time_s)} at {fmt.percent(asked.load)} load. Half the work also halves the "
                f"load, to {fmt.percent(faster.load)}: {fmt.seconds(faster.queue.mean_time_s)}."
            )
        ],
    )


def _metrics(asked: AskedQueue) -> list[Metric]:
    queue, worked = asked.queue, worked_queue(asked)
    exponential = asked.kind is QueueKind.MM1
    return [
        Metric(
            label="Utilisation",
            reading=fmt.percent(asked.load),
            help=f"The queue is {queue.state}.",
            worked=worked["load"],
        ),
        Metric(
            label="Mean time",
            reading="saturated" if queue.saturated else fmt.seconds(queue.mean_time_s),
            help="In the system: the wait and the service.",
            worked=worked.get("mean"),
        ),
        Metric(
            label="p95",
            reading="saturated" if queue.saturated else fmt.seconds(asked.p95_s),
            help="Time that 95% of requests keep."
            + ("" if exponential else " Found by bisection: where the share that stays longer falls to 5%."),
            worked=worked.get("p95"),
        ),
        Metric(
            label="In the system",
            reading="grows" if queue.saturated else fmt.significant(asked.mean_in_system),
            help="Little's law, all replicas together.",
            worked=worked.get("in_system"),
        ),
        Metric(
            label="Replicas for the limit",
            reading=fmt.significant(asked.replicas_needed),
            help="Smallest number whose p95 keeps the limit."
            + ("" if exponential else " With so many, this share stays longer:"),
            worked=worked.get("needed"),
        ),
    ]


main()
