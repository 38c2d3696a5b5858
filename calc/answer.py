"""From inputs to the answer: which GPUs, how many, what users feel, what it costs, what limits it.

`answer` is the one entry that pages and the CLI call. It composes the sizing steps for one accelerator; `calc.plan`
ranks many, `calc.levers` asks it again with one thing changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc import format as fmt
from calc.accelerator import Accelerator
from calc.cost import usd_per_hour, usd_per_million_tokens
from calc.errors import InputError, MissingSpec
from calc.layout import Layout
from calc.memory.kv import decoder_sublayers
from calc.model import Attention, CompressedAttention, LatentAttention, ModelSpec
from calc.provenance import Estimate, Provenance, weakest
from calc.quantization import stored_bytes, weight_bytes
from calc.scenario import Fidelity, Scenario
from calc.sizing import (
    DecodeStep,
    FleetStep,
    MemoryStep,
    PrefillStep,
    SequencesStep,
    decode_step,
    fleet_step,
    memory_step,
    prefill_step,
    replicas_for_users,
    sequences_step,
)
from calc.timing import TextbookTiming, Timing
from calc.verdict import Change, Verdict, Wall

TEXTBOOK_OVERHEAD_SHARE = 0.05
"""Share of a card's label that the textbook keeps for everything but weights and cache: 4 of 80 GB (our assumption)."""
DEFAULT_RESERVED_TOKENS = 4096
"""What an engine without paging sets aside per sequence where no length limit is given (vLLM paper, section 3.1)."""
LARGEST_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An accelerator that can be had, with the price of one per hour where one is known, and where that is from."""

    accelerator: Accelerator
    usd_per_gpu_hour: float | None = None
    price_note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything `answer` needs: the scenario, what it names, and the catalogue to look for alternatives in.

    `stored_weight_bytes`: exact bytes of the checkpoint where its own metadata was read.
    """

    scenario: Scenario
    spec: ModelSpec
    offer: Offer
    model_note: str = ""
    stored_weight_bytes: int | None = None
    warnings: tuple[str, ...] = ()
    catalogue: tuple[Offer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the chosen number of GPUs costs; None where no price is known or no token is made."""

    usd_per_hour: float | None
    usd_per_million_output: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The six-step answer for one accelerator. Where the verdict is "does not fit", later steps may be missing."""

    inputs: Inputs
    layout: Layout
    memory: MemoryStep
    sequences: SequencesStep | None
    decode: DecodeStep | None
    prefill: PrefillStep | None
    fleet: FleetStep | None
    ttft_s: Estimate | None
    tpot_s: Estimate | None
    cost: Cost
    verdict: Verdict
    assumptions: tuple[str, ...]

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment; of one replica when nothing serves."""
        replicas = self.fleet.replicas if self.fleet else 1
        return self.layout.gpus_per_replica * replicas


def answer(inputs: Inputs) -> Answer:
    """Size the deployment on the scenario's accelerator; `tp` 0 means the smallest degree that keeps every promise."""
    best: Answer | None = None
    for layout in _layouts(inputs):
        candidate = _answer_for(inputs, layout)
        if candidate.verdict.fits:
            return candidate
        best = candidate if best is None or _nearer(candidate, best) else best
    if best is None:
        raise InputError("tp", inputs.scenario.tp, "no layout of this model exists on this accelerator")
    return replace(best, verdict=replace(best.verdict, nearest=nearest_changes(inputs, best)))


def _layouts(inputs: Inputs) -> tuple[Layout, ...]:
    """The layouts to try, smallest first."""
    chosen = inputs.scenario.layout
    if inputs.scenario.tp:
        return (chosen,)
    most = max(1, min(LARGEST_NODE, inputs.offer.accelerator.node_size))
    heads = _query_heads(inputs.spec)
    degrees = [tp for tp in (1, 2, 4, 8, 16, 32, 64) if tp <= most and (heads is None or heads % tp == 0)]
    return tuple(replace(chosen, tp=tp) for tp in degrees)


def _query_heads(spec: ModelSpec) -> int | None:
    heads = [s.n_heads for _, s in decoder_sublayers(spec) if isinstance(s, Attention | LatentAttention)]
    return min(heads) if heads else None


def kv_heads(spec: ModelSpec) -> int | None:
    """KV heads that tensor parallelism can divide; None where the cache is one latent that every rank holds."""
    found = []
    for _, sublayer in decoder_sublayers(spec):
        if isinstance(sublayer, LatentAttention | CompressedAttention):
            return None
        if isinstance(sublayer, Attention) and sublayer.cached_elements_per_token:
            found.append(sublayer.n_kv_heads)
    return min(found) if found else None


def _nearer(candidate: Answer, best: Answer) -> bool:
    """Whether the candidate fails later than the best so far: a latency miss is nearer than a memory miss."""
    order = [Wall.LAYOUT, Wall.FORMAT, Wall.WEIGHT_MEMORY, Wall.KV_MEMORY, Wall.TPOT, Wall.E2E, Wall.TTFT]
    mine, theirs = order.index(candidate.verdict.wall), order.index(best.verdict.wall)
    return mine > theirs or (mine == theirs and candidate.verdict.short_by < best.verdict.short_by)


def replica_weight_bytes(inputs: Inputs) -> float:
    """Weight bytes of one replica in the scenario's format; the checkpoint's own metadata wins where it applies."""
    scenario = inputs.scenario
    if scenario.quantization == "auto":
        return float(inputs.stored_weight_bytes or stored_bytes(inputs.spec).stored)
    return float(weight_bytes(inputs.spec, scenario.quantization).stored)


def kv_format(scenario: Scenario) -> str:
    """The cache's format: 16 bit unless another was chosen."""
    return "bf16" if scenario.kv_dtype == "auto" else scenario.kv_dtype


def _answer_for(inputs: Inputs, layout: Layout) -> Answer:
    scenario, accelerator = inputs.scenario, inputs.offer.accelerator
    workload, slo = scenario.workload, scenario.slo
    gpus = layout.gpus_per_replica
    weights = replica_weight_bytes(inputs)
    total = device_bytes(scenario, accelerator)
    memory = memory_step(
        inputs.spec,
        gpus=gpus,
        total_bytes_per_gpu=total,
        overhead_bytes_per_gpu=TEXTBOOK_OVERHEAD_SHARE * total,
        weight_bytes=weights,
        kv_dtype=kv_format(scenario),
        kv_heads=kv_heads(inputs.spec),
        kv_bytes_per_gpu=scenario.kv_bytes_per_gpu,
        context_tokens=workload.input.mean_tokens + workload.output.mean_tokens,
    )
    blank = Answer(
        inputs=inputs,
        layout=layout,
        memory=memory,
        sequences=None,
        decode=None,
        prefill=None,
        fleet=None,
        ttft_s=None,
        tpot_s=None,
        cost=_cost(inputs.offer, gpus=gpus, tokens_per_s=0.0),
        verdict=_memory_verdict(inputs, memory),
        assumptions=_assumptions(inputs, memory),
    )
    if not blank.verdict.fits:
        return blank
    timing = timing_of(inputs, layout, weights)
    sequences = sequences_step(
        memory,
        workload,
        timing,
        paged=scenario.paged,
        reserved_tokens=float(scenario.max_model_len or DEFAULT_RESERVED_TOKENS),
        tpot_limit_s=slo.tpot_s,
        max_seqs=scenario.max_seqs,
    )
    if sequences.fit < 1:
        return replace(blank, sequences=sequences, verdict=_no_sequence_verdict(inputs, memory, sequences))
    batch = max(1, sequences.batch)
    if workload.concurrency is not None:
        replicas = replicas_for_users(workload, batch=batch, headroom=scenario.headroom)
        batch = min(batch, max(1, -(-round(workload.concurrency * workload.peak_factor) // replicas)))
    decode = decode_step(timing, workload, batch=batch)
    prefill = prefill_step(timing, workload)
    fleet = fleet_step(workload, decode, prefill, slots=max(1, sequences.batch), headroom=scenario.headroom)
    tokens_per_s = fleet.rate_per_s * workload.output.mean_tokens
    return replace(
        blank,
        sequences=sequences,
        decode=decode,
        prefill=prefill,
        fleet=fleet,
        ttft_s=prefill.prefill_s,
        tpot_s=decode.time.step_s,
        cost=_cost(inputs.offer, gpus=gpus * fleet.replicas, tokens_per_s=tokens_per_s),
        verdict=_latency_verdict(inputs, decode, prefill, fleet),
    )


def device_bytes(scenario: Scenario, accelerator: Accelerator) -> float:
    """Bytes of one device: the user's own figure, else the label; `MissingSpec` where neither exists (CPUs)."""
    if scenario.device_memory_bytes is not None:
        return scenario.device_memory_bytes
    return accelerator.memory_label_bytes or accelerator.cuda_memory.best


def timing_of(inputs: Inputs, layout: Layout, weights: float) -> Timing:
    """The timing of one replica at the scenario's fidelity."""
    scenario = inputs.scenario
    if scenario.fidelity != Fidelity.TEXTBOOK:
        raise MissingSpec(
            f"This version answers at textbook fidelity only, not {scenario.fidelity}.",
            next_step="Choose textbook.",
        )
    return TextbookTiming.of(
        inputs.spec,
        inputs.offer.accelerator,
        gpus=layout.gpus_per_replica,
        weight_bytes=weights,
        kv_dtype=kv_format(scenario),
        mfu=scenario.mfu,
    )


def _cost(offer: Offer, *, gpus: int, tokens_per_s: float) -> Cost:
    if offer.usd_per_gpu_hour is None:
        return Cost(usd_per_hour=None, usd_per_million_output=None, note="no price known")
    per_hour = float(usd_per_hour(gpus=gpus, usd_per_gpu_hour=offer.usd_per_gpu_hour))
    per_million = None
    if tokens_per_s > 0:
        per_million = float(usd_per_million_tokens(usd_per_hour=per_hour, tokens_per_s=tokens_per_s))
    return Cost(usd_per_hour=per_hour, usd_per_million_output=per_million, note=offer.price_note)


# ---- verdicts -------------------------------------------------------------------------------------------------


def _memory_verdict(inputs: Inputs, memory: MemoryStep) -> Verdict:
    if memory.kv_bytes_per_gpu > 0:
        return Verdict(fits=True)
    name = inputs.offer.accelerator.name
    return Verdict(
        fits=False,
        wall=Wall.WEIGHT_MEMORY,
        short_by=-memory.kv_bytes_per_gpu * memory.gpus,
        reason=(
            f"{fmt.binary_bytes(memory.weight_bytes_per_gpu * memory.gpus)} of weights alone do not fit "
            f"{memory.gpus} x {fmt.binary_bytes(memory.total_bytes_per_gpu)} ({name})"
        ),
    )


def _no_sequence_verdict(inputs: Inputs, memory: MemoryStep, sequences: SequencesStep) -> Verdict:
    kept = (
        sequences.kept_tokens
        if inputs.scenario.paged
        else max(sequences.kept_tokens, sequences.reserved_tokens)
    )
    needed = kept * memory.kv_bytes_per_token
    return Verdict(
        fits=False,
        wall=Wall.KV_MEMORY,
        short_by=max(0.0, needed - memory.kv_bytes),
        reason=(
            f"one sequence of {fmt.count(kept)} tokens needs {fmt.binary_bytes(needed)} of KV cache, "
            f"{fmt.binary_bytes(memory.kv_bytes)} are left beside the weights"
        ),
    )


def _latency_verdict(inputs: Inputs, decode: DecodeStep, prefill: PrefillStep, fleet: FleetStep) -> Verdict:
    slo = inputs.scenario.slo
    missed = (
        (Wall.TPOT, "TPOT", slo.tpot_s, decode.time.step_s.best, "of a single sequence"),
        (Wall.E2E, "end to end", slo.e2e_s, fleet.e2e_s.best, "of a whole request"),
        (Wall.TTFT, "TTFT", slo.ttft_s, prefill.prefill_s.best, "of the prompt's prefill alone"),
    )
    for wall, name, target_s, reached_s, what in missed:
        if target_s is not None and reached_s > target_s:
            return Verdict(
                fits=False,
                wall=wall,
                short_by=reached_s - target_s,
                reason=f"{name} {what} is {fmt.seconds(reached_s)}, the target is {fmt.seconds(target_s)}",
            )
    return Verdict(fits=True)


# ---- what would work instead ----------------------------------------------------------------------------------


def nearest_changes(inputs: Inputs, failed: Answer) -> tuple[Change, ...]:
    """Up to three single changes after which the answer fits, each found by asking again."""
    found: list[Change] = []
    for change in (*_format_changes(inputs), *_size_changes(inputs, failed)):
        if len(found) == 3:
            break
        trial = _changed(inputs, change)
        if trial is not None and any(_answer_for(trial, layout).verdict.fits for layout in _layouts(trial)):
            found.append(change)
    for offer in sorted(inputs.catalogue, key=lambda o: o.accelerator.memory_label_bytes or 0.0):
        if len(found) >= 3:
            break
        trial = replace(
            inputs,
            offer=offer,
            scenario=replace(inputs.scenario, gpu=offer.accelerator.id, tp=0, gpu_json=""),
        )
        for layout in _layouts(trial):
            if _serves(trial, layout):
                n = layout.gpus_per_replica
                text = f"{n} x {offer.accelerator.name}" + (f" (TP{n})" if n > 1 else "")
                found.append(Change(text=text, settings=(("gpu", offer.accelerator.id), ("tp", str(n)))))
                break
    return tuple(found)


def _serves(inputs: Inputs, layout: Layout) -> bool:
    try:
        return _answer_for(inputs, layout).verdict.fits
    except MissingSpec:
        return False


def _format_changes(inputs: Inputs) -> tuple[Change, ...]:
    now = replica_weight_bytes(inputs)
    changes = [
        Change(text=f"weights in {name}", settings=(("quantization", name),))
        for name in ("fp8", "int8", "int4-g128")
        if inputs.scenario.quantization != name and weight_bytes(inputs.spec, name).stored < now
    ]
    if kv_format(inputs.scenario) == "bf16":
        changes.append(Change(text="KV cache in fp8", settings=(("kv_dtype", "fp8"),)))
    return tuple(changes)


def _size_changes(inputs: Inputs, failed: Answer) -> tuple[Change, ...]:
    """More of the same GPU, up to a node, when the person chose a smaller degree."""
    name = inputs.offer.accelerator.name
    most = max(1, min(LARGEST_NODE, inputs.offer.accelerator.node_size))
    return tuple(
        Change(text=f"{tp} x {name} per replica (TP{tp})", settings=(("tp", str(tp)),))
        for tp in (2, 4, 8)
        if failed.layout.tp < tp <= most and inputs.scenario.tp
    )


def _changed(inputs: Inputs, change: Change) -> Inputs | None:
    from calc.scenario import apply_settings

    try:
        scenario = apply_settings(inputs.scenario, change.settings)
    except InputError:
        return None
    return replace(inputs, scenario=scenario)


# ---- words ----------------------------------------------------------------------------------------------------


def headline(result: Answer) -> str:
    """The answer in one sentence."""
    accelerator = result.inputs.offer.accelerator
    if not result.verdict.fits or result.sequences is None or result.fleet is None:
        nearest = "; ".join(change.text for change in result.verdict.nearest)
        end = f" Nearest that would work: {nearest}." if nearest else ""
        reason = result.verdict.reason
        return f"Does not work: {reason}.{end}"
    serve = "serves" if result.gpus == 1 else "serve"
    active = fmt.count(result.fleet.active)
    words = {
        "kv memory": f"KV memory binds: {fmt.plural(result.sequences.fit, 'sequence')} fit",
        "tpot": f"The TPOT target binds: {fmt.plural(result.sequences.batch, 'sequence')} at most",
        "sequence limit": f"The sequence limit binds: {fmt.plural(result.sequences.batch, 'sequence')} at most",
    }[result.sequences.binding]
    return f"{result.gpus} x {accelerator.name} {serve} this. {words}, {active} are active at peak."


def _assumptions(inputs: Inputs, memory: MemoryStep) -> tuple[str, ...]:
    scenario = inputs.scenario
    left = f"{fmt.percent(TEXTBOOK_OVERHEAD_SHARE)} of memory kept for activations, graphs and buffers"
    if scenario.kv_bytes_per_gpu is not None:
        left = f"{fmt.decimal_bytes(scenario.kv_bytes_per_gpu)} per GPU for the cache, as given"
    lines = [
        "textbook fidelity: every byte at datasheet bandwidth, nothing else takes time",
        f"prefill reaches {fmt.percent(scenario.mfu)} of the peak (MFU)",
        left,
        f"headroom {fmt.percent(scenario.headroom)} on top of the busy GPUs",
    ]
    if memory.kv_copies > 1:
        lines.append(f"every KV head is held by {memory.kv_copies} GPUs")
    if scenario.slo.percentile is not None:
        lines.append("textbook times are means: a percentile target needs the simulator's proof")
    return (*lines, *inputs.warnings)


def evidence(result: Answer) -> Provenance:
    """The weakest evidence under the answer's times."""
    kinds = [e.provenance for e in (result.ttft_s, result.tpot_s) if e is not None]
    return weakest(*kinds) if kinds else Provenance.EXACT
