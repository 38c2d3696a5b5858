"""How far the answer moves when one assumption moves, and over all of them: a tornado.

Every end of every assumption asks the whole question again on the same layout, so no effect is a formula of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, exp, log, sqrt

from calc import format as fmt
from calc.assumptions import Assumption, uncertain
from calc.errors import InputError, MissingSpec
from calc.provenance import Estimate, weakest
from calc.queueing.in_flight import in_flight_percentile, peakedness, tokens_held
from calc.result import Answer, Inputs, evidence
from calc.sized import answer_on
from calc.sizing import Limit

BURST_PERCENTILE = 99.0
"""The share of time in which every request finds a slot, where the scenario names no percentile (our choice)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The headline of one answer. `gpus_of_work`: GPUs with headroom before rounding up to whole replicas."""

    fits: bool
    gpus: int
    gpus_of_work: float
    usd_per_hour: float | None
    ttft_s: float | None
    tpot_s: float | None
    wall: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One assumption at both ends, ordered by the GPUs that each end needs."""

    assumption: Assumption
    low: Reading
    high: Reading

    @property
    def width(self) -> float:
        """GPUs of work between the two ends; infinite where an end does not work at all."""
        if not (self.low.fits and self.high.fits):
            return float("inf")
        return abs(self.high.gpus_of_work - self.low.gpus_of_work)

    @property
    def width_usd(self) -> float:
        """USD per hour between the two ends; 0 where no price is known."""
        if self.low.usd_per_hour is None or self.high.usd_per_hour is None:
            return 0.0
        return abs(self.high.usd_per_hour - self.low.usd_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The tornado: swings widest first, and the range of the GPUs over all assumptions.

    `gpus_of_work`: low and high when independent errors add in squares (of logarithms). `gpus`: the same in whole
    replicas. `all_at_once`: every assumption at its worse end, which hardly ever happens; None where that does not work.
    """

    now: Reading
    swings: tuple[Swing, ...]
    gpus_of_work: Estimate
    gpus: tuple[int, int]
    usd_per_hour: tuple[float, float] | None
    all_at_once: int | None


def sensitivity(result: Answer) -> Sensitivity:
    """Ask again at both ends of every assumption; raises `InputError` for an answer that does not work itself."""
    if not result.verdict.fits or result.fleet is None:
        raise InputError("plan", result.verdict.reason, "only a plan that works has a range")
    now = reading_of(result)
    swings = sorted(
        (_swing(result, a) for a in uncertain(result)), key=lambda s: (s.width, s.width_usd), reverse=True
    )
    counted = [s for s in swings if not s.assumption.part_of and s.width < float("inf")]
    down = sqrt(sum(_log_step(s, now, larger=False) ** 2 for s in counted))
    up = sqrt(sum(_log_step(s, now, larger=True) ** 2 for s in counted))
    work = Estimate(
        low=now.gpus_of_work * exp(-down),
        best=now.gpus_of_work,
        high=now.gpus_of_work * exp(up),
        provenance=weakest(evidence(result)),
    )
    step = result.layout.gpus_per_replica
    gpus = (_whole(work.low, step), max(now.gpus, _whole(work.high, step)))
    return Sensitivity(
        now=now,
        swings=tuple(swings),
        gpus_of_work=work,
        gpus=gpus,
        usd_per_hour=_cost_range(result, swings, gpus),
        all_at_once=_all_at_once(now, [s for s in swings if not s.assumption.part_of], step),
    )


def reading_of(result: Answer, *, bursts: bool = False) -> Reading:
    """The headline numbers of an answer; with `bursts`, GPUs that also hold the requests under way at the percentile."""
    fleet = result.fleet
    if not result.verdict.fits or fleet is None:
        return _failed(str(result.verdict.wall))
    step = result.layout.gpus_per_replica
    work = _work(result)
    if bursts:
        work = max(work, _burst_replicas(result) * step)
    gpus = max(fleet.replicas * step, _whole(work, step))
    price = result.inputs.offer.usd_per_gpu_hour
    return Reading(
        fits=True,
        gpus=gpus,
        gpus_of_work=work,
        usd_per_hour=None if price is None else gpus * price,
        ttft_s=None if result.ttft_s is None else float(result.ttft_s.best),
        tpot_s=None if result.tpot_s is None else float(result.tpot_s.best),
        wall="",
    )


def headline_of(found: Sensitivity) -> str:
    """The range in one sentence, and what moves it most."""
    low, high = found.gpus
    span = fmt.plural(low, "GPU") if low == high else f"{low} to {fmt.plural(high, 'GPU')}"
    first = next((s for s in found.swings if not s.assumption.part_of), None)
    most = "" if first is None else f"; {first.assumption.name} matters most"
    breaking = [s.assumption.name for s in found.swings if s.width == float("inf")]
    ends = f" It stops working at one end of: {', '.join(breaking)}." if breaking else ""
    return f"{fmt.plural(found.now.gpus, 'GPU')} now, {span} over everything assumed{most}.{ends}"


def sensitivity_json(found: Sensitivity) -> dict[str, object]:
    """The tornado for verb `plan --sensitivity`."""
    return {
        "gpus": {"low": found.gpus[0], "best": found.now.gpus, "high": found.gpus[1]},
        "gpus_of_work": found.gpus_of_work.as_json(),
        "usd_per_hour": None if found.usd_per_hour is None else list(found.usd_per_hour),
        "gpus_all_at_once": found.all_at_once,
        "swings": [
            {
                "assumption": s.assumption.name,
                "now": s.assumption.now,
                "from": s.assumption.low_text,
                "to": s.assumption.high_text,
                "why": s.assumption.why,
                "part_of": s.assumption.part_of or None,
                "low": _reading_json(s.low),
                "high": _reading_json(s.high),
            }
            for s in found.swings
        ],
    }


def _reading_json(reading: Reading) -> dict[str, object]:
    return {
        "works": reading.fits,
        "wall": reading.wall or None,
        "gpus": reading.gpus,
        "gpus_of_work": reading.gpus_of_work,
        "usd_per_hour": reading.usd_per_hour,
        "ttft_s": reading.ttft_s,
        "tpot_s": reading.tpot_s,
    }


def _swing(result: Answer, assumption: Assumption) -> Swing:
    low, high = (_ask(result, inputs, assumption) for inputs in (assumption.low, assumption.high))
    return Swing(assumption=assumption, low=low, high=high)


def _ask(result: Answer, inputs: Inputs, assumption: Assumption) -> Reading:
    """The answer with one thing changed, on the same layout; where it cannot be asked it does not work."""
    asked = replace(inputs, scenario=replace(inputs.scenario, tp=result.layout.tp), catalogue=())
    try:
        return reading_of(answer_on(asked, result.layout), bursts=assumption.bursts)
    except (InputError, MissingSpec) as error:
        return _failed(str(error))


def _failed(why: str) -> Reading:
    """What there is to read where nothing serves."""
    return Reading(
        fits=False, gpus=0, gpus_of_work=0.0, usd_per_hour=None, ttft_s=None, tpot_s=None, wall=why
    )


def _work(result: Answer) -> float:
    """GPUs of work with headroom, before rounding: of open traffic its busy replicas, of users the slots they fill."""
    fleet = result.fleet
    if fleet is None:
        return 0.0
    return fleet.busy * (1.0 + result.inputs.scenario.headroom) * result.layout.gpus_per_replica


def _burst_replicas(result: Answer) -> float:
    """Replicas whose slots hold the requests under way at the percentile, with the lengths that those have."""
    scenario, fleet, sequences = result.inputs.scenario, result.fleet, result.sequences
    if fleet is None or sequences is None or fleet.active <= 0:
        return 0.0
    spread = peakedness(arrival_cv=scenario.arrival_cv, time_cv=scenario.output_cv)
    under_way = in_flight_percentile(
        mean=fleet.active, peakedness=spread, percentile=scenario.percentile or BURST_PERCENTILE
    )
    slots = float(sequences.batch)
    if sequences.binding is Limit.KV_MEMORY:
        held = tokens_held(
            input_tokens=scenario.input_tokens,
            output_tokens=scenario.output_tokens,
            output_cv=scenario.output_cv,
        )
        slots *= sequences.kept_tokens / held
    return under_way / max(slots, 1.0)


def _log_step(swing: Swing, now: Reading, *, larger: bool) -> float:
    """How far one assumption can move the work up or down, as a logarithm; 0 where it only moves the other way."""
    ends = [end.gpus_of_work for end in (swing.low, swing.high) if end.gpus_of_work > 0]
    if not ends or now.gpus_of_work <= 0:
        return 0.0
    moved = log((max(ends) if larger else min(ends)) / now.gpus_of_work)
    return max(0.0, moved if larger else -moved)


def _whole(work: float, step: int) -> int:
    """Whole replicas for that much work, in GPUs."""
    return max(1, ceil(work / step - 1e-9)) * step


def _cost_range(result: Answer, swings: list[Swing], gpus: tuple[int, int]) -> tuple[float, float] | None:
    offer = result.inputs.offer
    if offer.usd_per_gpu_hour is None:
        return None
    low, high = offer.usd_per_gpu_hour_range or (offer.usd_per_gpu_hour, offer.usd_per_gpu_hour)
    if not any(s.assumption.name == "price per GPU hour" for s in swings):
        low = high = offer.usd_per_gpu_hour
    return gpus[0] * low, gpus[1] * high


def _all_at_once(now: Reading, swings: list[Swing], step: int) -> int | None:
    """GPUs with every assumption at its worse end: the steps multiply."""
    if any(not (s.low.fits and s.high.fits) for s in swings):
        return None
    steps = (_log_step(s, now, larger=True) for s in swings)
    return max(now.gpus, _whole(now.gpus_of_work * exp(sum(steps)), step))
