"""The first five steps of sizing a deployment, each a record that a page can open.

Memory, sequences that fit, decode, prefill, how many GPUs. The sixth, levers, is `calc.levers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf

from calc import textbook
from calc.memory.kv import sequence_bytes
from calc.model import ModelSpec
from calc.provenance import Estimate
from calc.timing import StepTime, Timing, largest_batch
from calc.workload import Workload

BLOCK_TOKENS = 16
"""Tokens of a paged block: vLLM's default on CUDA (Kwon et al. 2023 use 16 as well)."""
MOST_SEQUENCES = 1_000_000
ROUNDING = 1e-12  # so that 10 x 1.3 counts as 13 whole users


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStep:
    """Step 1. Bytes per GPU by use, and what the whole replica can cache."""

    gpus: int
    total_bytes_per_gpu: float
    weight_bytes_per_gpu: float
    overhead_bytes_per_gpu: float
    kv_bytes_per_gpu: float  # room for the cache; negative: the weights alone are too large by that much
    kv_copies: int  # GPUs that hold the same KV head, when there are more GPUs than heads
    kv_bytes_per_token: float  # of the model, over all GPUs, one copy
    kv_bytes: float  # room of the replica for one copy of everything
    tokens: int  # tokens of one long sequence's mix that fit


@dataclass(frozen=True, slots=True, kw_only=True)
class SequencesStep:
    """Step 2. How many sequences run at once, and what stops more."""

    kept_tokens: float  # what a sequence holds at its end
    reserved_tokens: float  # what an engine without paging sets aside for each
    paged: int
    reserved: int
    fit: int
    by_tpot: int | None
    by_limit: int | None
    batch: int
    binding: str  # "kv memory", "tpot", "ttft", "end to end", "engine", "sequence limit", "prefix hits"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeStep:
    """Step 3. One decode step at the batch of step 2."""

    batch: int
    context_tokens: float  # cached tokens that a sequence holds on average while it decodes
    time: StepTime
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillStep:
    """Step 4. One prompt alone."""

    prompt_tokens: float
    cached_tokens: float
    prefill_s: Estimate
    loaded_tokens: float = 0.0  # of `cached_tokens`, those that come from memory behind the card
    load_s: float = 0.0  # how long they take

    @property
    def cached_share(self) -> float:
        """Share of the prompt that is not computed again."""
        return self.cached_tokens / self.prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStep:
    """Step 5. Work per second against replicas; Little's law gives the sequences in flight."""

    rate_per_s: float
    e2e_s: Estimate
    active: float
    prefill_busy: float
    decode_busy: float
    replicas: int
    utilization: float
    prefill_replicas: int = 0  # of `replicas`, those that only compute prompts

    @property
    def busy(self) -> float:
        return self.prefill_busy + self.decode_busy


def memory_step(
    spec: ModelSpec,
    *,
    gpus: int,
    total_bytes_per_gpu: float,
    overhead_bytes_per_gpu: float,
    weight_bytes: float,
    kv_dtype: str,
    kv_heads: int | None,
    kv_bytes_per_gpu: float | None,
    context_tokens: float,
) -> MemoryStep:
    """What is stored where. `kv_heads` None: the cache cannot be split by head (MLA), every GPU holds all of it.

    `kv_bytes_per_gpu` given: the user's own figure replaces what would be left.
    """
    weight_per_gpu = weight_bytes / gpus
    left = textbook.cache_bytes(
        memory_bytes=total_bytes_per_gpu, weight_bytes=weight_per_gpu, reserved_bytes=overhead_bytes_per_gpu
    )
    room = float(left) if kv_bytes_per_gpu is None else kv_bytes_per_gpu
    copies = gpus if kv_heads is None else max(1, ceil(gpus / kv_heads))
    kv_bytes = room * gpus / copies
    per_token = sequence_bytes(spec, round(context_tokens), kv_dtype=kv_dtype) / context_tokens
    tokens = (
        int(textbook.tokens_that_fit(cache_bytes=kv_bytes, kv_bytes_per_token=per_token)) if per_token else 0
    )
    return MemoryStep(
        gpus=gpus,
        total_bytes_per_gpu=total_bytes_per_gpu,
        weight_bytes_per_gpu=weight_per_gpu,
        overhead_bytes_per_gpu=overhead_bytes_per_gpu,
        kv_bytes_per_gpu=room,
        kv_copies=copies,
        kv_bytes_per_token=per_token,
        kv_bytes=kv_bytes,
        tokens=tokens,
    )


def sequences_step(
    memory: MemoryStep,
    workload: Workload,
    timing: Timing,
    *,
    paged: bool,
    reserved_tokens: float,
    tpot_limit_s: float | None,
    max_seqs: int | None,
) -> SequencesStep:
    """How many sequences run at once: as many as the cache holds, the TPOT target allows, and the engine takes."""
    kept = workload.input.mean_tokens + workload.output.mean_tokens
    by_paging = int(
        textbook.sequences_paged(tokens=memory.tokens, sequence_tokens=kept, block_size=BLOCK_TOKENS)
    )
    by_reserving = int(
        textbook.sequences_reserved(tokens=memory.tokens, reserved_tokens=max(kept, reserved_tokens))
    )
    fit = by_paging if paged else by_reserving
    most = min(fit, MOST_SEQUENCES)
    by_tpot = None
    if tpot_limit_s is not None:
        by_tpot = largest_batch(
            timing,
            tpot_limit_s=tpot_limit_s,
            context_tokens=mean_context(workload),
            most=max(2 * most, 4096),
        )
    limits = {
        "kv memory": float(most),
        "tpot": inf if by_tpot is None else float(by_tpot),
        "sequence limit": inf if max_seqs is None else float(max_seqs),
    }
    binding = min(limits, key=limits.__getitem__)
    return SequencesStep(
        kept_tokens=kept,
        reserved_tokens=reserved_tokens,
        paged=by_paging,
        reserved=by_reserving,
        fit=fit,
        by_tpot=by_tpot,
        by_limit=max_seqs,
        batch=int(limits[binding]),
        binding=binding,
    )


def mean_context(workload: Workload) -> float:
    """Cached tokens of a sequence halfway through its output."""
    return workload.input.mean_tokens + workload.output.mean_tokens / 2


def decode_step(timing: Timing, workload: Workload, *, batch: int) -> DecodeStep:
    """One decode step of a full batch."""
    context = mean_context(workload)
    time = timing.decode_step(batch=batch, context_tokens=context)
    return DecodeStep(
        batch=batch,
        context_tokens=context,
        time=time,
        tokens_per_s=float(textbook.tokens_per_s(batch=batch, step_s=time.step_s.best)),
    )


def prefill_step(timing: Timing, workload: Workload) -> PrefillStep:
    """One prompt of mean length alone on the replica; what the prefix cache holds is not computed again."""
    prompt = workload.input.mean_tokens
    cached = min(prompt * workload.prefix_share, prompt - 1)
    return PrefillStep(
        prompt_tokens=prompt,
        cached_tokens=cached,
        prefill_s=timing.prefill_s(tokens=prompt, cached_tokens=cached),
    )


def replicas_for_users(workload: Workload, *, batch: int, headroom: float) -> int:
    """Replicas whose slots hold all users who wait for their answer, with headroom."""
    asked = (workload.concurrency or 0) * workload.peak_factor
    return max(1, ceil(users_with_headroom(asked, headroom) / batch))


def users_with_headroom(users: float, headroom: float) -> int:
    """Whole users to hold: 30% more than one user is still one, so that a single user needs no second GPU."""
    return max(ceil(users), floor(users * (1.0 + headroom) * (1.0 + ROUNDING)))


def fleet_step(
    workload: Workload, decode: DecodeStep, prefill: PrefillStep, *, slots: int, headroom: float
) -> FleetStep:
    """Replicas for the work that arrives per second (open traffic), or for the users who wait (closed traffic).

    `slots`: sequences that one replica may run at once. Closed traffic fills slots, so slots in use over slots is its
    utilisation; open traffic brings work, so work per second over replicas is.
    """
    output = workload.output.mean_tokens
    e2e = prefill.prefill_s.plus(decode.time.step_s.scaled(output - 1))
    if workload.rate_per_s is None:
        active = float(workload.concurrency or 0) * workload.peak_factor
        rate = active / e2e.best
        busy = active / slots
        prefill_busy = busy * prefill.prefill_s.best / e2e.best
        decode_busy = busy - prefill_busy
        replicas = replicas_for_users(workload, batch=slots, headroom=headroom)
    else:
        rate = workload.rate_per_s * workload.peak_factor
        active = rate * e2e.best
        prefill_busy = float(textbook.prefill_gpus(rate_per_s=rate, prefill_s=prefill.prefill_s.best))
        decode_busy = float(
            textbook.decode_gpus(rate_per_s=rate, output_tokens=output, tokens_per_s=decode.tokens_per_s)
        )
        busy = prefill_busy + decode_busy
        replicas = max(1, int(textbook.gpus_to_buy(busy_gpus=busy, headroom=headroom)))
    return FleetStep(
        rate_per_s=rate,
        e2e_s=e2e,
        active=active,
        prefill_busy=prefill_busy,
        decode_busy=decode_busy,
        replicas=replicas,
        utilization=busy / replicas,
    )
