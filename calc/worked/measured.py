"""The numbers of *Scheduler*, *Accuracy*, *This GPU* and *An endpoint* as worked formulas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from calc.endpoint.report import EndpointReport, LevelRow, decode_pass, streams_alone
from calc.schedule import Schedule
from calc.step import Fidelity, StepModel
from calc.worked.formula import Worked
from calc.worked.forward_pass import WorkedPass


def worked_schedule(one: Schedule) -> tuple[Worked, ...]:
    """A scheduler's slot use, and the means over its requests."""
    about, requests = str(one.scheduling), float(len(one.result))
    waits = one.result.scheduled_s - one.result.arrival_s
    return (
        Worked(
            formula="slot_use",
            inputs={
                "useful_slot_steps": one.useful_slot_steps,
                "slots": one.slots,
                "passes": len(one.answering),
            },
            result=one.slot_use,
            about=about,
        ),
        _mean(float(waits.sum()), requests, f"{about}: mean wait, s", one.mean_wait_s),
        _mean(
            float(one.result.ttft_s.sum()),
            requests,
            f"{about}: mean TTFT, s",
            float(one.result.ttft_s.mean()),
        ),
    )


def worked_errors(errors: Sequence[tuple[float, float, str]], *, inside: int) -> tuple[Worked, ...]:
    """Errors of predictions: the worst one, their mean, and the share inside the stated range.

    `errors`: (predicted, measured, what it is) of every point; there is at least one.
    """
    off = [abs(predicted / measured - 1) for predicted, measured, _ in errors]
    predicted, measured, name = errors[int(np.argmax(off))]
    return (
        Worked(
            formula="relative_error",
            inputs={"predicted": predicted, "measured": measured},
            result=predicted / measured - 1,
            about=f"the furthest point: {name}",
        ),
        _mean(sum(off), float(len(off)), "mean of the errors, without their sign", sum(off) / len(off)),
        *worked_share("points inside the stated range", inside, len(errors)),
    )


def worked_rate(about: str, amount: float, seconds: float) -> Worked:
    """A rate from what one call moved or computed and how long it took."""
    return Worked(
        formula="timed_rate_per_s",
        inputs={"amount": amount, "seconds": seconds},
        result=amount / seconds,
        about=about,
    )


def worked_share(about: str, measured: float, reference: float) -> tuple[Worked, ...]:
    """A number over its reference; none where there is nothing to compare."""
    if measured <= 0 or reference <= 0:
        return ()
    return (
        Worked(
            formula="ratio_to_reference",
            inputs={"measured": measured, "reference": reference},
            result=measured / reference,
            about=about,
        ),
    )


def worked_report(report: EndpointReport, model: StepModel | None) -> tuple[Worked, ...]:
    """An endpoint's TPOT from one of its streams, its prefill rate, the decode limit, and measured over predicted."""
    lines: list[Worked] = []
    if report.tpot_s is not None:
        lines += _median_stream(report)
    if report.fit is not None and report.fit.b_s:
        lines.append(worked_rate("prefill: one token over the linear term of the TTFT", 1.0, report.fit.b_s))
    for row in report.levels:
        lines += _worked_level(row)
    if report.gap is None or model is None:
        return tuple(lines)
    gap, step = report.gap, decode_pass(streams_alone(report.run))
    lines += WorkedPass(model=replace(model, fidelity=Fidelity.ROOFLINE), step=step).whole()
    lines += worked_share("measured TPOT over the decode limit's", gap.measured_s, gap.limit_s)
    lines += worked_share("measured TPOT over the predicted one", gap.measured_s, float(gap.expected_s.best))
    return tuple(lines)


def _worked_level(row: LevelRow) -> Iterator[Worked]:
    """One row of the concurrency table: its rates over the steady window, its shares, measured over predicted."""
    level = row.level
    at = f"{level.rate_per_s:g} requests/s" if level.rate_per_s else f"{level.concurrency} at once"
    if level.tokens_per_s:
        amount = level.tokens_per_s * level.window_s
        yield worked_rate(f"{at}: output tokens of the steady window", amount, level.window_s)
    if level.goodput_per_s and level.requests_per_s:
        yield from worked_share(
            f"{at}: requests within the targets", level.goodput_per_s, level.requests_per_s
        )
    if level.tpot_s is not None and row.predicted_tpot_s is not None:
        yield from worked_share(
            f"{at}: median TPOT over the predicted one", level.tpot_s.p50, float(row.predicted_tpot_s.best)
        )


def _median_stream(report: EndpointReport) -> list[Worked]:
    """The stream whose TPOT is nearest to the median."""
    if report.tpot_s is None:
        return []
    middle = report.tpot_s.p50
    streams = [s for s in streams_alone(report.run) if s.tpot_s is not None and s.e2e_s is not None]
    nearest = min(streams, key=lambda s: abs((s.tpot_s or 0.0) - middle), default=None)
    if nearest is None or nearest.tpot_s is None or nearest.ttft_s is None:
        return []
    return [
        Worked(
            formula="measured_tpot_s",
            inputs={
                "last_token_s": nearest.e2e_s or 0.0,
                "ttft_s": nearest.ttft_s,
                "later_tokens": (nearest.output_tokens or 0) - nearest.first_chunk_tokens,
            },
            result=nearest.tpot_s,
            about="TPOT of the stream nearest to the median",
        )
    ]


def _mean(total: float, points: float, about: str, shown: float) -> Worked:
    return Worked(formula="mean_of", inputs={"total": total, "points": points}, result=shown, about=about)
