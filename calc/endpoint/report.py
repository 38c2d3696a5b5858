"""A measured endpoint beside the prediction for the same scenario: limit, ratio, one sentence that explains the gap.

The theoretical decode limit is the roofline's: one sequence, the stage's mean context, every datasheet peak reached. What lies
between it and the measured TPOT is shared out by the step model's own terms, and what the model does not explain is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calc import format as fmt
from calc.arrays import first
from calc.endpoint.run import EndpointRun
from calc.endpoint.samples import Sample, Tag
from calc.endpoint.summary import Level, Spread, TtftFit, fit_ttft, level_of
from calc.operators import ForwardPass
from calc.provenance import Estimate
from calc.slo import Slo
from calc.step import StepModel

CAUSES = {
    "weights": "weights read below the datasheet's bandwidth",
    "kv": "reads of the cache",
    "activations": "activations",
    "compute": "arithmetic and dequantisation",
    "communication": "links between GPUs",
    "overhead": "launches and scheduling",
}
NAMED_SHARE = 0.15  # of the gap: causes smaller than this are not worth a word
SAME_LENGTH = 0.15  # prompts whose reported lengths differ by less are one row


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """From the decode limit to the measured TPOT: seconds by cause, and what the model leaves unexplained (may be negative)."""

    limit_s: float
    limit_name: str
    expected_s: Estimate
    measured_s: float
    causes_s: dict[str, float]
    unexplained_s: float
    sentence: str

    @property
    def of_limit(self) -> float:
        """The share of the limit's speed that is reached."""
        return self.limit_s / self.measured_s

    @property
    def over_predicted(self) -> float:
        return self.measured_s / float(self.expected_s.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRow:
    """TTFT at one prompt length (mean of the reported counts). `server_s`: the server's own prefill time, median."""

    tokens: float
    ttft_s: Spread
    server_s: float | None
    predicted_s: Estimate | None

    @property
    def over_predicted(self) -> float | None:
        return None if self.predicted_s is None else self.ttft_s.p50 / float(self.predicted_s.best)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelRow:
    """One level with its prediction; `queued`: more requests than the server's slots."""

    level: Level
    predicted_ttft_s: Estimate | None
    predicted_tpot_s: Estimate | None
    predicted_tokens_per_s: Estimate | None
    queued: bool
    waiting: float | None
    server: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Client against server, medians over uncached samples: TTFT less the server's prefill time, and TPOT over the server's."""

    samples: int
    ttft_less_prefill_s: float | None
    tpot_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReport:
    """Everything that the page, the command line and the exports show."""

    run: EndpointRun
    headline: str
    tpot_s: Spread | None
    gap: Gap | None
    prompts: tuple[PromptRow, ...]
    fit: TtftFit | None
    levels: tuple[LevelRow, ...]
    agreement: Agreement
    cached_tokens: dict[str, float]
    faults: dict[str, int]
    tags: dict[str, int]
    notes: tuple[str, ...]


def report_of(run: EndpointRun, *, model: StepModel | None = None, slo: Slo | None = None) -> EndpointReport:
    """Judge a run; `model`: the step model of what runs behind the endpoint, where it is known."""
    alone = streams_alone(run)
    tpot = Spread.of(s.tpot_s for s in alone)
    gap = _gap(model, alone, tpot) if model is not None and tpot is not None else None
    prefills = [s for s in run.stage("prefill") if s.measures_prefill and s.prompt_tokens]
    fit = fit_ttft([float(s.prompt_tokens or 0) for s in prefills], [s.ttft_s or 0.0 for s in prefills])
    levels = tuple(row for n in run.plan.concurrency if (row := _level_row(run, n, model, slo)) is not None)
    opened = _level_row(run, 0, model, slo) if run.plan.open_rate_per_s else None
    rows = (*levels, opened) if opened is not None else levels
    report = EndpointReport(
        run=run,
        headline="",
        tpot_s=tpot,
        gap=gap,
        prompts=_prompt_rows(prefills, model),
        fit=fit,
        levels=rows,
        agreement=_agreement([s for s in run.samples if s.ok and Tag.CACHED not in s.tags]),
        cached_tokens=_cached(run),
        faults=_counted(s.fault for s in run.samples if s.fault),
        tags=_counted(tag for s in run.samples for tag in s.tags),
        notes=(*run.notes, *_notes(run, rows)),
    )
    return replace(report, headline=_headline(report))


def streams_alone(run: EndpointRun) -> list[Sample]:
    """The good streams that had the server to themselves."""
    return [s for s in run.stage("decode") if s.ok] or [s for s in run.stage("concurrency 1") if s.ok]


def decode_pass(samples: Sequence[Sample]) -> ForwardPass:
    """The decode pass that those streams are held against: one sequence, halfway through the mean of their outputs."""
    contexts = [(s.prompt_tokens or 0) + (s.output_tokens or 0) / 2 for s in samples]
    return ForwardPass.decode(1.0, float(np.mean(contexts)))


def _gap(model: StepModel, samples: Sequence[Sample], tpot: Spread) -> Gap:
    step = decode_pass(samples)
    bound, expected = model.roofline(step), model.step(step)
    limit = first(bound.total)
    floor, terms = bound.terms(), expected.terms
    memory = sum(first(floor[name]) for name in ("weights", "kv", "activations"))
    causes = {name: first(terms[name]) - first(floor[name]) for name in CAUSES}
    total = expected.total.candidate()
    unexplained = tpot.p50 - float(total.best)
    return Gap(
        limit_s=limit,
        limit_name="bandwidth" if memory >= first(floor["compute"]) else "compute",
        expected_s=total,
        measured_s=tpot.p50,
        causes_s=causes,
        unexplained_s=unexplained,
        sentence=gap_sentence(limit_s=limit, measured_s=tpot.p50, causes_s=causes, unexplained_s=unexplained),
    )


def gap_sentence(
    *, limit_s: float, measured_s: float, causes_s: dict[str, float], unexplained_s: float
) -> str:
    """One sentence that names the causes in order of size."""
    gap = measured_s - limit_s
    if gap <= 0:
        return (
            "Faster than the datasheet allows: the server does not run this model on this accelerator, or it guesses "
            "several tokens per step."
        )
    parts = sorted(((s, CAUSES[name]) for name, s in causes_s.items() if s > NAMED_SHARE * gap), reverse=True)
    words = [f"{what} ({fmt.seconds(s)})" for s, what in parts]
    if unexplained_s > NAMED_SHARE * gap:
        words.append(f"{fmt.seconds(unexplained_s)} that the step model does not explain")
    text = f"Of the {fmt.seconds(gap)} per token above the limit: {', '.join(words) or 'many small causes'}"
    if unexplained_s < -NAMED_SHARE * gap:
        text += f"; the server is {fmt.seconds(-unexplained_s)} faster than the step model expects"
    return text + "."


def _prompt_rows(samples: Sequence[Sample], model: StepModel | None) -> tuple[PromptRow, ...]:
    """Samples gathered by reported length, shortest first."""
    rows: list[list[Sample]] = []
    for sample in sorted(samples, key=lambda s: s.prompt_tokens or 0):
        tokens = sample.prompt_tokens or 0
        if rows and tokens <= (rows[-1][0].prompt_tokens or 0) * (1 + SAME_LENGTH) + 8:
            rows[-1].append(sample)
        else:
            rows.append([sample])
    return tuple(_prompt_row(group, model) for group in rows)


def _prompt_row(group: Sequence[Sample], model: StepModel | None) -> PromptRow:
    tokens = float(np.mean([s.prompt_tokens or 0 for s in group]))
    ttft = Spread.of(s.ttft_s for s in group)
    if ttft is None:
        raise ValueError("a group of prompts always holds a TTFT")
    own = [s.server["prompt_s"] for s in group if "prompt_s" in s.server]
    predicted = None
    if model is not None:
        point = model.serving(input_tokens=tokens, output_tokens=8.0, concurrency=1.0)
        predicted = point.ttft_s.candidate()
    return PromptRow(
        tokens=tokens, ttft_s=ttft, server_s=float(np.median(own)) if own else None, predicted_s=predicted
    )


def _level_row(
    run: EndpointRun, concurrency: int, model: StepModel | None, slo: Slo | None
) -> LevelRow | None:
    stage = f"concurrency {concurrency}" if concurrency else "open loop"
    rate = None if concurrency else run.plan.open_rate_per_s
    level = level_of(run.stage(stage), concurrency=concurrency, rate_per_s=rate, slo=slo)
    if level is None:
        return None
    point = None
    if model is not None and concurrency and level.mean_input_tokens and level.mean_output_tokens:
        working = min(
            concurrency, run.slots or concurrency
        )  # what queues before the slots is no work of the engine
        point = model.serving(
            input_tokens=level.mean_input_tokens,
            output_tokens=max(2.0, level.mean_output_tokens),
            concurrency=float(working),
        )
    queued = bool(concurrency and run.slots and concurrency > run.slots)
    return LevelRow(
        level=level,
        predicted_ttft_s=None if point is None or queued else point.ttft_s.candidate(),
        predicted_tpot_s=None if point is None else point.tpot_s.candidate(),
        predicted_tokens_per_s=None if point is None else point.tokens_per_s.candidate(),
        queued=queued,
        waiting=run.waiting.get(stage),
        server=dict(run.server_means.get(stage, {})),
    )


def _agreement(samples: Sequence[Sample]) -> Agreement:
    alone = [s for s in samples if s.stage in {"prefill", "decode", "uncached", "concurrency 1"}]
    waits = [
        s.ttft_s - s.server["prompt_s"] for s in alone if s.ttft_s is not None and "prompt_s" in s.server
    ]
    ratios = [s.tpot_s / s.server["per_token_s"] for s in alone if s.tpot_s and s.server.get("per_token_s")]
    return Agreement(
        samples=len(alone),
        ttft_less_prefill_s=float(np.median(waits)) if waits else None,
        tpot_ratio=float(np.median(ratios)) if ratios else None,
    )


def _cached(run: EndpointRun) -> dict[str, float]:
    """Mean cached tokens of the pass that repeats prompts on purpose, by whether it was the first or the second time."""
    found = {}
    for stage in ("uncached", "cached"):
        counts = [s.cached_tokens for s in run.stage(stage) if s.cached_tokens is not None]
        if counts:
            found[stage] = float(np.mean(counts))
    return found


def _counted(values: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for value in values:
        found[str(value)] = found.get(str(value), 0) + 1
    return found


def _notes(run: EndpointRun, rows: Sequence[LevelRow]) -> list[str]:
    """Findings in words: the knee at the slots, failures, samples that were set aside."""
    notes = []
    if any(row.queued for row in rows):
        notes.append(
            f"The server works on {run.slots} requests at a time: above that TTFT grows by queueing, not by slowness."
        )
    failed = sum(not s.ok for s in run.samples)
    if failed:
        notes.append(
            f"{fmt.plural(failed, 'request')} of {fmt.count(len(run.samples))} failed; none counts as good."
        )
    cached = sum(Tag.CACHED in s.tags for s in run.samples if s.stage == "prefill")
    if cached:
        notes.append(f"{fmt.plural(cached, 'prompt')} were cached by the server and are not in the TTFT fit.")
    if any(Tag.BUFFERED in s.tags for s in run.samples):
        notes.append("Something between here and the server buffers the stream; such samples give no TPOT.")
    return notes


def _headline(report: EndpointReport) -> str:
    """The finding as a title."""
    tpot = report.tpot_s
    if tpot is None:
        done = sum(s.ok for s in report.run.samples)
        return (
            f"{fmt.plural(done, 'request')} answered, but the server counts no tokens: TPOT cannot be told."
        )
    speed = f"Your server streams at {fmt.plain(1.0 / tpot.p50, 'tokens/s')} per user"
    gap = report.gap
    if gap is None:
        return f"{speed}, {fmt.seconds(tpot.p50)} per token."
    if gap.of_limit > 1.0:
        return f"{speed}, faster than the {gap.limit_name} limit of the accelerator named: it is another one."
    named = sorted(gap.causes_s, key=gap.causes_s.__getitem__, reverse=True)[:2]
    short = {
        "weights": "unreached bandwidth",
        "kv": "cache reads",
        "compute": "arithmetic",
        "communication": "links",
    }
    causes = " and ".join(short.get(name, name) for name in named)
    explained = gap.unexplained_s < 0.5 * (gap.measured_s - gap.limit_s)
    verb = "explain the rest" if explained else "explain only a part of the rest"
    return f"{speed}, {fmt.percent(gap.of_limit)} of the {gap.limit_name} limit; {causes} {verb}."
