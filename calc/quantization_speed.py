"""What quantising would do to this deployment's times: each scheme at each batch and at the prefill, over 16 bit.

The step model answers (roofline where the scenario is at textbook fidelity, which knows no formats): weight-only schemes
read less and compute no faster; schemes that the card computes in do both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from calc.accelerator import Accelerator
from calc.arrays import first
from calc.engine import LLAMA_CPP_ENGINES, Engine, engine_named
from calc.format_support import cache_support, weight_support
from calc.gguf_mixtures import MIXTURES
from calc.operators import ForwardPass
from calc.quantization import FORMATS, weight_bytes
from calc.replica_model import replica_model
from calc.result import Answer, Inputs
from calc.scenario import Fidelity
from calc.sized import answer_on
from calc.sizing import mean_context
from calc.step.rates import compute_class
from calc.worked.formula import Worked
from calc.worked.forward_pass import WorkedPass

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TABLED = (1, 8, 32, 128, 512)
BASE = "bf16"


class Way(StrEnum):
    """How a matmul with such weights runs."""

    COMPUTES = "computes in it"
    WEIGHT_ONLY = "reads it, multiplies in 16 bit"
    NOT_RUN = "is not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """How one engine runs one scheme on one card, and why or with what remark."""

    way: Way
    why: str

    @property
    def runs(self) -> bool:
        return self.way is not Way.NOT_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Weights in `weights`, the cache in `kv` (None: as the scenario has it)."""

    name: str
    weights: str
    kv: str | None = None
    meaning: str = ""


SCHEMES = (
    Scheme(name="fp8", weights="fp8", meaning="weights and activations in fp8 (W8A8)"),
    Scheme(name="fp8 + fp8 KV", weights="fp8", kv="fp8", meaning="the same, and the cache in fp8"),
    Scheme(name="int8", weights="int8", meaning="weights and activations in int8 (W8A8)"),
    Scheme(
        name="int8 weight-only", weights="int8-weight", meaning="8-bit weights, 16-bit arithmetic (W8A16)"
    ),
    Scheme(
        name="int4 g128", weights="int4-g128", meaning="4-bit weights in groups, 16-bit arithmetic (W4A16)"
    ),
    Scheme(name="MXFP4", weights="mxfp4", meaning="4-bit floats in blocks of 32"),
    Scheme(name="NVFP4", weights="nvfp4", meaning="4-bit floats in blocks of 16, activations too (W4A4)"),
    Scheme(name="KV in fp8", weights=BASE, kv="fp8", meaning="the cache alone"),
)
GGUF_SCHEMES = (
    Scheme(name="Q8_0", weights="q8_0", meaning="8-bit blocks of 32"),
    Scheme(name="Q6_K", weights="q6_k", meaning="6-bit blocks of 256"),
    Scheme(name="Q5_K_M", weights="q5_k_m", meaning="5 bits, some tensors 6"),
    Scheme(name="Q4_K_M", weights="q4_k_m", meaning="4 bits, some tensors 6"),
    Scheme(name="Q4_K_M + Q8_0 KV", weights="q4_k_m", kv="q8_0", meaning="the same, and the cache in 8 bits"),
    Scheme(name="KV in Q8_0", weights=BASE, kv="q8_0", meaning="the cache alone"),
)


def how_it_runs(scheme: Scheme, accelerator: Accelerator, engine: Engine) -> Running:
    """Whether engine and card serve the scheme, and whether the step model times its arithmetic in the format itself."""
    served = weight_support(scheme.weights, engine, accelerator)
    if served and scheme.kv is not None:
        served = cache_support(scheme.kv, engine, accelerator)
    if not served:
        return Running(way=Way.NOT_RUN, why=served.why)
    mixture = MIXTURES.get(scheme.weights)
    form = FORMATS[mixture.main if mixture else scheme.weights]
    if compute_class(form, accelerator)[0] != "compute.weight_only":
        return Running(way=Way.COMPUTES, why=served.why or f"{accelerator.name} multiplies it as it is")
    reason = "a weight-only format" if form.activations == BASE else f"{accelerator.name} has no units for it"
    return Running(way=Way.WEIGHT_ONLY, why=served.why or f"{reason}: dequantised to 16 bit on the way")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeSpeed:
    """One scheme against 16-bit weights and cache on the same layout.

    `decode`: speed-up of a decode step at each of `BATCHES`; `prefill`: of one prompt; empty and None where it is not run.
    `freed_bytes`: memory of the replica that the weights give back. `sequences`: that fit beside them (0: none).
    `bits_per_weight`: stored bits of all weights over their number.
    """

    scheme: Scheme
    support: Running
    bits_per_weight: float
    weight_bytes: int
    freed_bytes: float
    sequences: int
    decode: tuple[float, ...]
    prefill: float | None

    @property
    def shrink(self) -> float:
        """Times that the weights are smaller than in 16 bit."""
        return FORMATS[BASE].bits / self.bits_per_weight

    def at(self, batch: int) -> float:
        """Speed-up of a decode step at one of `BATCHES`."""
        return self.decode[BATCHES.index(batch)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedStudy:
    """All schemes of an engine on one layout; `base_s` are the steps in 16 bit."""

    fidelity: str
    context: float
    prompt_tokens: float
    base_s: tuple[float, ...]
    base_sequences: int
    schemes: tuple[SchemeSpeed, ...]

    @property
    def run(self) -> tuple[SchemeSpeed, ...]:
        """The schemes that the card and the engine run."""
        return tuple(found for found in self.schemes if found.support.runs)


def step_alone_s(study: SpeedStudy, found: SchemeSpeed) -> float:
    """Seconds of a decode step at batch 1 in a scheme."""
    return study.base_s[0] / found.at(1)


def speed_study(result: Answer) -> SpeedStudy:
    """Every scheme of the scenario's engine on the answer's layout.

    Raises `MissingSpec` where no profile is loaded. Ignores: what the rounding does to answers, and the time to quantise.
    """
    inputs = result.inputs
    scenario = inputs.scenario
    engine = engine_named(scenario.engine)
    context = mean_context(scenario.workload)
    fidelity = Fidelity.ROOFLINE if scenario.fidelity == Fidelity.TEXTBOOK else scenario.fidelity
    base = _with(inputs, Scheme(name=BASE, weights=BASE, kv="bf16"))
    base_s, base_prefill_s = _times(result, base, fidelity, context)
    base_bytes = weight_bytes(inputs.spec, BASE).stored
    parameters = _parameters(inputs)
    found = []
    for scheme in GGUF_SCHEMES if engine in LLAMA_CPP_ENGINES else SCHEMES:
        support = how_it_runs(scheme, inputs.offer.accelerator, engine)
        changed = _with(inputs, scheme)
        stored = weight_bytes(inputs.spec, scheme.weights).stored
        decode: tuple[float, ...] = ()
        prefill = None
        if support.runs:
            step_s, prefill_s = _times(result, changed, fidelity, context)
            decode = tuple((base_s / step_s).tolist())
            prefill = base_prefill_s / prefill_s
        found.append(
            SchemeSpeed(
                scheme=scheme,
                support=support,
                bits_per_weight=8.0 * stored / parameters,
                weight_bytes=stored,
                freed_bytes=float(base_bytes - stored),
                sequences=_sequences(changed, result) if support.runs else 0,
                decode=decode,
                prefill=prefill,
            )
        )
    return SpeedStudy(
        fidelity=str(fidelity),
        context=context,
        prompt_tokens=scenario.input_tokens,
        base_s=tuple(base_s.tolist()),
        base_sequences=_sequences(base, result),
        schemes=tuple(found),
    )


def _parameters(inputs: Inputs) -> float:
    """Elements of the weights that the formats store: 16-bit bytes over two."""
    return weight_bytes(inputs.spec, BASE).stored / (FORMATS[BASE].bits / 8)


def _with(inputs: Inputs, scheme: Scheme) -> Inputs:
    kv = scheme.kv or "bf16"
    return replace(inputs, scenario=replace(inputs.scenario, quantization=scheme.weights, kv_dtype=kv))


def _times(result: Answer, inputs: Inputs, fidelity: str, context: float) -> tuple[Any, float]:
    """Seconds of a decode step at each batch, and of one prompt alone."""
    model = replica_model(inputs, result.layout, fidelity=fidelity)
    decode = model.step(ForwardPass.decode(np.array(BATCHES, dtype=float), context)).total.best
    prefill = model.step(ForwardPass.prefill(inputs.scenario.input_tokens)).total.best
    return np.asarray(decode), first(prefill)


def _sequences(inputs: Inputs, result: Answer) -> int:
    """Sequences that fit beside the weights on the same layout, by the scenario's own memory rules."""
    found = answer_on(inputs, result.layout)
    return found.sequences.fit if found.sequences is not None and found.memory.kv_bytes > 0 else 0


def worked_speedup(
    result: Answer, study: SpeedStudy, found: SchemeSpeed, batch: int | None
) -> tuple[Worked, ...]:
    """A pass in 16 bit and in a scheme, in full, then the speed-up that their totals make.

    `batch`: of a decode step, one of `BATCHES`; None for the prefill of one prompt.
    """
    if batch is None:
        step, what = ForwardPass.prefill(study.prompt_tokens), "the whole prefill"
    else:
        step, what = ForwardPass.decode(float(batch), study.context), f"the whole step at batch {batch}"
    base = Scheme(name=f"{BASE} weights and cache", weights=BASE, kv="bf16")
    lines: list[Worked] = []
    totals_s: list[float] = []
    for scheme in (base, found.scheme):
        model = replica_model(_with(result.inputs, scheme), result.layout, fidelity=study.fidelity)
        worked = WorkedPass(model=model, step=step)
        lines += [replace(line, about=f"{scheme.name}: {line.about or what}") for line in worked.whole()]
        totals_s.append(first(worked.estimate.total.best))
    before_s, after_s = totals_s
    return (
        *worked_weights(result, found),
        *lines,
        Worked(
            formula="ratio_to_reference",
            inputs={"measured": before_s, "reference": after_s},
            result=before_s / after_s,
            about=f"speed-up: {what} in 16 bit over the same in {found.scheme.name}",
        ),
    )


def worked_weights(result: Answer, found: SchemeSpeed) -> tuple[Worked, ...]:
    """Bytes of the weights in 16 bit and in the scheme; their difference is what is freed."""
    parameters, base = _parameters(result.inputs), FORMATS[BASE].bits
    return tuple(
        Worked(
            formula="weight_bytes",
            inputs={"params": parameters, "bytes_per_param": bits / 8.0},
            result=parameters * bits / 8.0,
            about=f"weights in {name}; freed is the difference",
        )
        for name, bits in (("16 bit", base), (found.scheme.name, found.bits_per_weight))
    )


def headline(study: SpeedStudy) -> str:
    """The finding: who is fastest at batch 1, what is left of it at a large batch, and who speeds up prefill."""
    weights = [found for found in study.run if found.scheme.kv is None and found.freed_bytes > 0]
    if not weights:
        return "This engine runs none of the quantised formats on this card."
    large = BATCHES[-1]
    best = max(weights, key=lambda found: found.at(1))
    first = f"{best.scheme.name} weights decode {_gain(best.at(1))} at batch 1, {_gain(best.at(large))} at {large}"
    quick = max(weights, key=lambda found: found.prefill or 0.0)
    prefill = quick.prefill or 0.0
    if prefill < WORTH:
        return f"{first}; nothing that runs here speeds up prefill."
    if quick is best:
        return f"{first}, and prefill {_gain(prefill)}."
    if quick.at(1) < WORTH:
        return f"{first}; {quick.scheme.name} helps prefill alone: {prefill:.2g}x."
    return f"{first}; {quick.scheme.name} helps both phases: {quick.at(1):.2g}x and {prefill:.2g}x."


WORTH = 1.05  # a smaller gain than this is called none


def _gain(factor: float) -> str:
    if factor >= WORTH:
        return f"{factor:.2g}x as fast"
    return "no faster" if factor > 1 / WORTH else f"slower ({factor:.2g}x)"
