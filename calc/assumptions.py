"""What an answer takes for granted, each with the range in which it may lie and the reason for that range.

`uncertain` lists the assumptions of one answer; `calc.sensitivity` asks again at both ends of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp

from calc import format as fmt
from calc.layout import Layout
from calc.profile import Profile
from calc.result import Answer, Inputs
from calc.scenario import Fidelity, Traffic
from calc.sized import TEXTBOOK_OVERHEAD_SHARE
from calc.step.spread import ranks_factor, spread_factor

FORECAST_FACTOR = 1.2
"""How far traffic and lengths may lie from what was typed (our choice: nobody's forecast is nearer than a fifth)."""
FORECAST = "a forecast: a fifth either way"
HIT_RATE_FACTOR = 1.5
"""The same for the share of prompts that a prefix cache holds: it depends on routing and eviction (our choice)."""
ASSUMED_FACTOR = 1.25
"""A number of a profile that no measurement stands behind (our choice)."""
MEDIAN_TO_80_PERCENT = 1.9
"""80% half-width over the median absolute error of a normal distribution: 1.2816/0.6745."""
TEXTBOOK_MFU = (0.3, 0.7)
"""What prefills reach of the peak: from short prompts on few GPUs to long ones on fitted cards (docs/accuracy.md)."""
TEXTBOOK_OVERHEAD = (0.02, 0.12)
"""Share of a card that engines keep for activations, graphs and buffers: vLLM and SGLang start-up logs."""
BURSTY_ARRIVAL_CV = 3.0
"""Gaps of public request traces reach a coefficient of variation of 2 to 3 in busy hours (Azure and BurstGPT traces)."""
OUTPUT_CV = 1.5
"""Answers of public chat and reasoning traces: coefficients of variation from 0.7 to 1.5."""
ACCEPTANCE = (0.53, 0.89)
"""Lowest and highest of the measured drafting models in Leviathan et al. 2023 (arXiv 2211.17192), table 3."""
HEADROOM = (0.15, 0.6)
"""What people set: from 87% to 62% target utilisation."""

BANDWIDTH_NUMBERS = (
    "bandwidth.16bit", "bandwidth.8bit", "bandwidth.4bit", "bandwidth.activations", "attention.bandwidth",
    "attention.bandwidth_8bit", "latent_attention.bandwidth", "mixer.bandwidth", "experts.bandwidth",
)  # fmt: skip
COMPUTE_NUMBERS = (
    "compute.16bit", "compute.fp8", "compute.fp4", "compute.int8", "compute.weight_only", "prefill_attention.compute",
    "prefill_attention.compute_fp8", "experts.compute", "experts.compute_4bit",
)  # fmt: skip
OVERHEAD_NUMBERS = (
    "kernel_s", "layer_s", "layer.qk_norm_s", "layer.latent_s", "layer.latent_8bit_s", "layer.indexer_s", "layer.mixer_s",
    "layer.experts_16bit_s", "layer.experts_8bit_s", "layer.experts_4bit_s", "layer.quantised_activations_s", "step_s",
    "sequence_s", "eager_layer_s", "attention.sequence_s", "attention.sequence_8bit_s",
)  # fmt: skip
FIRST_TOKEN_NUMBERS = ("ttft.server_s", "ttft.steps", "ttft.prefill")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One uncertain thing. `low` and `high` are the inputs with it at either end, `low_text` and `high_text` say which.

    `part_of`: contained in another assumption's range, so that it is shown beside it and not added to it. `bursts`: it
    does not change the means; what it changes is how many requests are under way at a percentile.
    """

    name: str
    now: str
    low_text: str
    high_text: str
    low: Inputs
    high: Inputs
    why: str
    part_of: str = ""
    bursts: bool = False


STEP_MODEL = "step model as a whole"


def uncertain(result: Answer) -> tuple[Assumption, ...]:
    """The assumptions of this answer, traffic first. What the scenario fixes (a typed KV room) is not uncertain."""
    inputs = result.inputs
    found = [*_traffic(inputs), *_drafting(inputs), *_bursts(inputs), *_memory(result)]
    if inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        found += _textbook_times(inputs)
    elif inputs.scenario.fidelity == Fidelity.EXPECTED and inputs.offer.profile is not None:
        found += _step_times(inputs, inputs.offer.profile, result.layout)
    return (*found, *_headroom(inputs), *_price(inputs))


def _scenario(inputs: Inputs, **fields: object) -> Inputs:
    return replace(inputs, scenario=replace(inputs.scenario, **fields))  # type: ignore[arg-type]


def _between(
    inputs: Inputs,
    field: str,
    ends: tuple[float, float],
    *,
    name: str,
    shown: Callable[[float], str],
    why: str,
    bursts: bool = False,
) -> Assumption:
    """An assumption that is one number of the scenario, somewhere between two ends."""
    low, high = ends
    return Assumption(
        name=name,
        now=shown(getattr(inputs.scenario, field)),
        low_text=shown(low),
        high_text=shown(high),
        low=_scenario(inputs, **{field: low}),
        high=_scenario(inputs, **{field: high}),
        why=why,
        bursts=bursts,
    )


def _forecast(inputs: Inputs, field: str, *, name: str, unit: str) -> Assumption:
    """A number of the scenario that somebody forecast."""
    now = float(getattr(inputs.scenario, field))
    ends = (now / FORECAST_FACTOR, now * FORECAST_FACTOR)
    return _between(inputs, field, ends, name=name, shown=lambda value: fmt.plain(value, unit), why=FORECAST)


def _traffic(inputs: Inputs) -> Iterator[Assumption]:
    scenario = inputs.scenario
    if scenario.traffic == Traffic.RATE:
        if scenario.rate_per_s > 0:
            yield _forecast(inputs, "rate_per_s", name="request rate", unit="requests/s")
    else:
        ends = (max(1, round(scenario.users / FORECAST_FACTOR)), round(scenario.users * FORECAST_FACTOR))
        yield _between(inputs, "users", ends, name="number of users", shown=fmt.count, why=FORECAST)
    yield _forecast(inputs, "input_tokens", name="prompt length", unit="tokens")
    if scenario.output_tokens >= FORECAST_FACTOR:
        yield _forecast(inputs, "output_tokens", name="answer length", unit="tokens")
    share = scenario.prefix_share
    if share > 0:
        yield _between(
            inputs,
            "prefix_share",
            (share / HIT_RATE_FACTOR, min(share * HIT_RATE_FACTOR, (1.0 + share) / 2.0)),
            name="prefix-hit rate",
            shown=fmt.percent,
            why="routing and eviction decide it",
        )
        if scenario.reuse_after_s is not None and scenario.fidelity != Fidelity.TEXTBOOK:
            yield _forecast(inputs, "reuse_after_s", name="time until text comes back", unit="s")


def _drafting(inputs: Inputs) -> Iterator[Assumption]:
    """How many proposals are kept; at textbook fidelity nothing is proposed."""
    scenario = inputs.scenario
    if scenario.draft_tokens == 0 or scenario.fidelity == Fidelity.TEXTBOOK:
        return
    low, high = ACCEPTANCE
    yield _between(
        inputs,
        "acceptance",
        (min(low, scenario.acceptance), max(high, scenario.acceptance)),
        name="acceptance of drafts",
        shown=fmt.percent,
        why="the drafter, the text and the temperature decide it",
    )


def _bursts(inputs: Inputs) -> Iterator[Assumption]:
    """Open traffic only: users who wait for their answer cannot arrive in bursts."""
    scenario = inputs.scenario
    if scenario.traffic != Traffic.RATE or scenario.rate_per_s == 0:
        return
    yield _between(
        inputs,
        "arrival_cv",
        (min(1.0, scenario.arrival_cv), max(BURSTY_ARRIVAL_CV, scenario.arrival_cv)),
        name="burstiness of arrivals",
        shown=_cv,
        why="busy hours of public traces",
        bursts=True,
    )
    yield _between(
        inputs,
        "output_cv",
        (0.0, max(OUTPUT_CV, scenario.output_cv)),
        name="spread of answer lengths",
        shown=_cv,
        why="public chat and reasoning traces",
        bursts=True,
    )


def _cv(value: float) -> str:
    return f"CV {value:g}"


def _memory(result: Answer) -> Iterator[Assumption]:
    """Room for the cache: the ledger's own range, or the textbook's share for everything else."""
    inputs, memory = result.inputs, result.memory
    if inputs.scenario.kv_bytes_per_gpu is not None:
        return
    if result.ledger is not None:
        room = result.ledger.tightest.kv
        low, high = float(room.low), float(room.high)
        why = "the ledger's own range: activations, graphs and what the runtime totals"
    elif inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        total = memory.total_bytes_per_gpu
        most, least = TEXTBOOK_OVERHEAD[1], TEXTBOOK_OVERHEAD[0]
        low = memory.kv_bytes_per_gpu - (most - TEXTBOOK_OVERHEAD_SHARE) * total
        high = memory.kv_bytes_per_gpu + (TEXTBOOK_OVERHEAD_SHARE - least) * total
        why = "engines keep 2% to 12% of a card for activations, graphs and buffers"
    else:
        return
    low = max(1.0, low)
    yield Assumption(
        name="room for the cache",
        now=fmt.binary_bytes(memory.kv_bytes_per_gpu),
        low_text=fmt.binary_bytes(low),
        high_text=fmt.binary_bytes(high),
        low=_scenario(inputs, kv_bytes_per_gpu=low),
        high=_scenario(inputs, kv_bytes_per_gpu=max(low, high)),
        why=why,
    )


def _textbook_times(inputs: Inputs) -> Iterator[Assumption]:
    mfu, accelerator = inputs.scenario.mfu, inputs.offer.accelerator
    yield _between(
        inputs,
        "mfu",
        (min(TEXTBOOK_MFU[0], mfu), max(TEXTBOOK_MFU[1], mfu)),
        name="MFU of prefill",
        shown=fmt.percent,
        why="short prompts reach less, long ones more",
    )
    if inputs.offer.profile is None:
        return
    share = inputs.offer.profile.number("bandwidth.16bit")
    slower = replace(accelerator, bandwidth_bytes_per_s=accelerator.bandwidth_bytes_per_s * share)
    yield Assumption(
        name="share of memory bandwidth reached",
        now="100%",
        low_text=fmt.percent(share),
        high_text="100%",
        low=replace(inputs, offer=replace(inputs.offer, accelerator=slower)),
        high=inputs,
        why=f"what kernels of the {inputs.offer.profile.device.family} family were measured to reach",
    )


def _step_times(inputs: Inputs, profile: Profile, layout: Layout) -> Iterator[Assumption]:
    factor = spread_factor(inputs.spec, profile) * ranks_factor(layout, profile)
    calibration = profile.calibration
    ends = [
        _profiled(
            inputs,
            replace(
                profile,
                calibration=replace(
                    calibration,
                    scalars={
                        **calibration.scalars,
                        "decode_factor": calibration.get("decode_factor") * times,
                        "prefill_factor": calibration.get("prefill_factor") * times,
                    },
                ),
            ),
        )
        for times in (1.0 / factor, factor)
    ]
    yield Assumption(
        name=STEP_MODEL,
        now="x1",
        low_text=f"x{1.0 / factor:.2f}",
        high_text=f"x{factor:.2f}",
        low=ends[0],
        high=ends[1],
        why=f"80% of held-out errors; evidence: {profile.evidence}",
    )
    groups = [
        ("share of memory bandwidth reached", BANDWIDTH_NUMBERS, "bandwidth.16bit"),
        ("share of peak compute reached", COMPUTE_NUMBERS, "compute.16bit"),
        ("engine overhead per step, layer and sequence", OVERHEAD_NUMBERS, "layer_s"),
        ("first token: server and waiting steps", FIRST_TOKEN_NUMBERS, "ttft.prefill"),
    ]
    if layout.tp > 1:
        groups.append(("messages between GPUs", ("collectives.factor",), "collectives.factor"))
    if inputs.spec.has_experts:
        groups.append(("distinct experts touched", ("experts.routing",), "experts.routing"))
    for name, numbers, lead in groups:
        yield _of_numbers(inputs, profile, name, numbers, lead)


def _of_numbers(
    inputs: Inputs, profile: Profile, name: str, numbers: tuple[str, ...], lead: str
) -> Assumption:
    """Profile numbers that err together, each by a factor from the fit's own error; shares never exceed one."""
    error = _lead(profile, lead)
    factor = ASSUMED_FACTOR if error is None else exp(MEDIAN_TO_80_PERCENT * error)
    share = profile.number(lead)
    is_share = lead.split(".", maxsplit=1)[0] in {"bandwidth", "compute"}
    shown: Callable[[float], str] = fmt.percent if is_share else lambda times: f"x{times / share:.2f}"
    low, high = share / factor, min(share * factor, 1.0) if is_share else share * factor
    why = (
        "assumed, no measurement of this family" if error is None else f"median error of the fit {error:.1%}"
    )
    return Assumption(
        name=name,
        now=shown(share),
        low_text=shown(low),
        high_text=shown(high),
        low=_profiled(inputs, _scaled(profile, numbers, 1.0 / factor)),
        high=_profiled(inputs, _scaled(profile, numbers, factor)),
        why=why,
        part_of=STEP_MODEL,
    )


def _lead(profile: Profile, name: str) -> float | None:
    found = profile.engine.numbers.get(name) or profile.device.numbers.get(name)
    return None if found is None else found.error


def _scaled(profile: Profile, names: tuple[str, ...], factor: float) -> Profile:
    """The profile with some numbers multiplied; what is a share of a peak stays at most 1."""

    def value_of(number: object, of: str) -> float:
        raw = float(number) * factor  # type: ignore[arg-type]
        return min(raw, 1.0) if of.startswith("share") else raw

    device = {
        name: replace(number, value=value_of(number.value, number.of)) if name in names else number
        for name, number in profile.device.numbers.items()
    }
    engine = {
        name: replace(number, value=value_of(number.value, number.of)) if name in names else number
        for name, number in profile.engine.numbers.items()
    }
    return replace(
        profile,
        device=replace(profile.device, numbers=device),
        engine=replace(profile.engine, numbers=engine),
    )


def _profiled(inputs: Inputs, profile: Profile) -> Inputs:
    return replace(inputs, offer=replace(inputs.offer, profile=profile))


def _headroom(inputs: Inputs) -> Iterator[Assumption]:
    now = inputs.scenario.headroom
    yield _between(
        inputs,
        "headroom",
        (min(HEADROOM[0], now), max(HEADROOM[1], now)),
        name="target utilisation",
        shown=lambda headroom: fmt.percent(1.0 / (1.0 + headroom)),
        why="a choice: what bursts and failures are left",
    )


def _price(inputs: Inputs) -> Iterator[Assumption]:
    offer = inputs.offer
    if offer.usd_per_gpu_hour is None or offer.usd_per_gpu_hour_range is None:
        return
    low, high = offer.usd_per_gpu_hour_range
    yield Assumption(
        name="price per GPU hour",
        now=fmt.usd(offer.usd_per_gpu_hour),
        low_text=fmt.usd(low),
        high_text=fmt.usd(high),
        low=replace(inputs, offer=replace(offer, usd_per_gpu_hour=low)),
        high=replace(inputs, offer=replace(offer, usd_per_gpu_hour=high)),
        why="cheapest and dearest current on-demand price of the catalogue",
    )
