"""The answer for one accelerator and one layout, at the scenario's fidelity.

Textbook: closed forms over totals (`calc.textbook_sizing`). Roofline and expected: the engine's ledger and the
step model (`calc.expected`). A result never mixes them.
"""

from __future__ import annotations

from dataclasses import replace

from calc import expected
from calc import format as fmt
from calc.accelerator import Accelerator
from calc.cost import usd_per_hour, usd_per_million_tokens
from calc.engine import ENGINE_NAMES, LLAMA_CPP_ENGINES, Engine
from calc.format_support import Support, formats_support, served_formats
from calc.layout import Layout
from calc.memory.kv import kv_heads
from calc.model import Role
from calc.pool_sizing import pools_of
from calc.quantization import stored_bytes, weight_bytes
from calc.replica import replica_memory, replica_passes, replica_times
from calc.result import Answer, Cost, Inputs, Offer
from calc.scenario import Fidelity, Scenario
from calc.sizing import MemoryStep, SequencesStep, replicas_for_users
from calc.textbook_sizing import (
    TextbookTiming,
    decode_step,
    fleet_step,
    memory_step,
    prefill_step,
    sequences_step,
)
from calc.verdict import Verdict, Wall

TEXTBOOK_OVERHEAD_SHARE = 0.05
"""Share of a card's label that the textbook keeps for everything but weights and cache: 4 of 80 GB (our assumption)."""
DEFAULT_RESERVED_TOKENS = 4096
"""What an engine without paging sets aside per sequence where no length limit is given (vLLM paper, section 3.1)."""


def answer_on(inputs: Inputs, layout: Layout) -> Answer:
    """The six steps on one layout, and whether every promise is kept."""
    if inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        return _textbook(inputs, layout)
    return _expected(inputs, layout)


def _blank(
    inputs: Inputs, layout: Layout, memory: MemoryStep, verdict: Verdict, assumptions: tuple[str, ...]
) -> Answer:
    """The answer as far as memory goes."""
    return Answer(
        inputs=inputs,
        layout=layout,
        memory=memory,
        sequences=None,
        decode=None,
        prefill=None,
        fleet=None,
        ttft_s=None,
        tpot_s=None,
        cost=_cost(inputs.offer, gpus=layout.gpus_per_replica, tokens_per_s=0.0),
        verdict=verdict,
        assumptions=assumptions,
    )


def _expected(inputs: Inputs, layout: Layout) -> Answer:
    scenario = inputs.scenario
    refused = refused_format(inputs, layout) or _hopeless(inputs, layout)
    if refused is not None:
        return refused
    memory, ledger, fit = replica_memory(inputs, layout)
    engine = (text.rstrip(".") for text in ledger.assumptions)
    assumptions = (*_expected_assumptions(inputs), *engine, *inputs.warnings)
    blank = replace(_blank(inputs, layout, memory, ledger.verdict, assumptions), ledger=ledger)
    too_long = length_verdict(inputs)
    if not too_long.fits:
        return replace(blank, verdict=too_long)
    if not ledger.verdict.fits:
        return blank
    replica = replica_times(inputs, layout, fit=fit)
    sequences = expected.sequences_of(replica, scenario.slo, scenario, fit=fit)
    if fit < 1:
        return replace(blank, sequences=sequences, verdict=_no_sequence_verdict(inputs, memory, sequences))
    point = replica.point
    alone = _latency_verdict(
        inputs,
        tpot_s=replica.at(point.tpot_s, 1.0).best,
        ttft_s=replica.at(point.ttft_s, 1.0).best,
        e2e_s=replica.at(point.e2e_s, 1.0).best,
    )
    batch = max(1, sequences.batch)
    if scenario.disaggregated:
        fleet, users, ttft = pools_of(replica, scenario, batch=batch)
        if scenario.ttft_s is not None and alone.fits and ttft.best > scenario.ttft_s:
            alone = _latency_verdict(inputs, tpot_s=0.0, ttft_s=ttft.best, e2e_s=0.0)
    else:
        fleet, users = expected.fleet_of(replica, scenario.workload, batch=batch, headroom=scenario.headroom)
        ttft = replica.at(point.ttft_s, users)
    decode, prefill = replica_passes(inputs, layout, fit=fit, users=users)
    tokens_per_s = fleet.rate_per_s * scenario.output_tokens
    return replace(
        blank,
        sequences=sequences,
        decode=decode,
        prefill=prefill,
        fleet=fleet,
        ttft_s=ttft,
        tpot_s=replica.at(point.tpot_s, users) if scenario.decodes else None,
        cost=_cost(inputs.offer, gpus=layout.gpus_per_replica * fleet.replicas, tokens_per_s=tokens_per_s),
        verdict=alone,
        evidence=str(point.evidence),
    )


def _textbook(inputs: Inputs, layout: Layout) -> Answer:
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
        kv_dtype=scenario.kv_format,
        kv_heads=kv_heads(inputs.spec),
        kv_bytes_per_gpu=scenario.kv_bytes_per_gpu,
        context_tokens=workload.input.mean_tokens + workload.output.mean_tokens,
    )
    verdict = _memory_verdict(inputs, memory)
    blank = _blank(inputs, layout, memory, verdict, _textbook_assumptions(inputs, memory))
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
        tpot_s=decode.time.step_s if scenario.decodes else None,
        cost=_cost(inputs.offer, gpus=gpus * fleet.replicas, tokens_per_s=tokens_per_s),
        verdict=_latency_verdict(
            inputs,
            tpot_s=decode.time.step_s.best,
            ttft_s=prefill.prefill_s.best,
            e2e_s=fleet.e2e_s.best,
        ),
    )


def device_bytes(scenario: Scenario, accelerator: Accelerator) -> float:
    """Bytes of one device: the user's own figure, else the label; `MissingSpec` where neither exists (CPUs)."""
    if scenario.device_memory_bytes is not None:
        return scenario.device_memory_bytes
    return accelerator.memory_label_bytes or accelerator.cuda_memory.best


def timing_of(inputs: Inputs, layout: Layout, weights: float) -> TextbookTiming:
    """The textbook's timing of one replica."""
    scenario = inputs.scenario
    return TextbookTiming.of(
        inputs.spec,
        inputs.offer.accelerator,
        gpus=layout.gpus_per_replica,
        weight_bytes=weights,
        kv_dtype=scenario.kv_format,
        mfu=scenario.mfu,
    )


def replica_weight_bytes(inputs: Inputs) -> float:
    """Weight bytes of one replica in the scenario's format; the checkpoint's own metadata wins where it applies."""
    scenario = inputs.scenario
    if scenario.quantization == "auto":
        return float(inputs.stored_weight_bytes or stored_bytes(inputs.spec).stored)
    return float(weight_bytes(inputs.spec, scenario.quantization).stored)


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
    return Verdict(
        fits=False,
        wall=Wall.WEIGHT_MEMORY,
        short_by=-memory.kv_bytes_per_gpu * memory.gpus,
        reason=(
            f"{fmt.binary_bytes(memory.weight_bytes_per_gpu * memory.gpus)} of weights alone do not fit "
            f"{memory.gpus} x {fmt.binary_bytes(memory.total_bytes_per_gpu)} ({inputs.offer.accelerator.name})"
        ),
    )


def length_verdict(inputs: Inputs) -> Verdict:
    """Whether a request of mean length is one that the engine accepts; encoders count their input apart."""
    scenario, spec = inputs.scenario, inputs.spec
    limit = expected.length_limit(scenario, spec)
    asked = scenario.input_tokens + scenario.output_tokens
    if asked <= limit or any(stack.role == Role.ENCODER for stack in spec.stacks):
        return Verdict(fits=True)
    whose = "--max-model-len ends" if scenario.max_model_len is not None else "the model's positions end"
    return Verdict(
        fits=False,
        wall=Wall.CONTEXT,
        short_by=asked - limit,
        reason=f"a mean request holds {fmt.count(asked)} tokens, {whose} at {fmt.count(limit)}",
    )


def format_support(inputs: Inputs) -> Support:
    """Whether the scenario's engine serves its weight and cache formats on its accelerator."""
    scenario = inputs.scenario
    return formats_support(
        served_formats(inputs.spec, scenario.quantization),
        scenario.kv_dtype,
        scenario.engine,
        inputs.offer.accelerator,
    )


def refused_format(inputs: Inputs, layout: Layout) -> Answer | None:
    """The answer where the engine does not serve the formats on this accelerator; None where it does."""
    support = format_support(inputs)
    if support:
        return None
    verdict = Verdict(fits=False, wall=Wall.FORMAT, short_by=1.0, reason=support.why)
    return _blank(inputs, layout, _weights_only(inputs, layout), verdict, _expected_assumptions(inputs))


def _hopeless(inputs: Inputs, layout: Layout) -> Answer | None:
    """The answer where the weights alone exceed the cards, so that no engine's ledger needs to be drawn up; else None.

    Layers that an engine leaves on the host (llama.cpp) are the ledger's business.
    """
    scenario = inputs.scenario
    offloads = scenario.engine in LLAMA_CPP_ENGINES
    memory = _weights_only(inputs, layout)
    if offloads or scenario.kv_bytes_per_gpu is not None or memory.kv_bytes_per_gpu > 0:
        return None
    return _blank(inputs, layout, memory, _memory_verdict(inputs, memory), _expected_assumptions(inputs))


def _weights_only(inputs: Inputs, layout: Layout) -> MemoryStep:
    """The cards with the weights alone in them: what is known before an engine's ledger is drawn up."""
    gpus = layout.gpus_per_replica
    total = float(inputs.scenario.device_memory_bytes or inputs.offer.accelerator.cuda_memory.best)
    weights = replica_weight_bytes(inputs)
    return MemoryStep(
        gpus=gpus,
        total_bytes_per_gpu=total,
        weight_bytes_per_gpu=weights / gpus,
        overhead_bytes_per_gpu=0.0,
        kv_bytes_per_gpu=total - weights / gpus,
        kv_copies=1,
        kv_bytes_per_token=0.0,
        kv_bytes=0.0,
        tokens=0,
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


def _latency_verdict(inputs: Inputs, *, tpot_s: float, ttft_s: float, e2e_s: float) -> Verdict:
    """Whether a replica that serves as few as possible keeps the targets at all."""
    slo = inputs.scenario.slo
    missed = (
        (Wall.TPOT, "TPOT", slo.tpot_s, tpot_s, "of a single sequence"),
        (Wall.E2E, "end to end", slo.e2e_s, e2e_s, "of a whole request"),
        (Wall.TTFT, "TTFT", slo.ttft_s, ttft_s, "of a prompt that waits for no other"),
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


def _textbook_assumptions(inputs: Inputs, memory: MemoryStep) -> tuple[str, ...]:
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
    if scenario.prefix_share > 0 and scenario.reuse_after_s is not None:
        lines.append("text that comes back is always in the cache: the textbook forgets nothing")
    if scenario.slo.percentile is not None:
        lines.append("textbook times are means: a percentile target needs the simulator's proof")
    lines += _without_decode(scenario)
    return (*lines, *inputs.warnings)


def _without_decode(scenario: Scenario) -> list[str]:
    if scenario.decodes or scenario.tpot_s is None:
        return []
    return ["an answer of one token has no time per output token: its target does not apply"]


def _expected_assumptions(inputs: Inputs) -> tuple[str, ...]:
    scenario = inputs.scenario
    limit = expected.length_limit(scenario, inputs.spec)
    lines = [
        f"{scenario.fidelity} fidelity, {ENGINE_NAMES.get(Engine(scenario.engine), scenario.engine)}'s memory rules",
        f"sequences of up to {fmt.count(limit)} tokens",
        f"{fmt.percent(scenario.headroom)} headroom",
        *_without_decode(scenario),
    ]
    if scenario.engine in LLAMA_CPP_ENGINES:
        lines.append(f"every slot has cells of its own for {fmt.count(limit)} tokens; none are shared")
    if scenario.workload.prefix_share > 0 and scenario.reuse_after_s is not None:
        lines.append("a text goes to the replica that has it; the cache drops what was used least recently")
    if scenario.slo.percentile is not None:
        lines.append("closed forms give means: a percentile target needs the simulator's proof")
    return tuple(lines)
