"""Sizing at roofline and expected fidelity: the engine's own memory ledger, and the step model under load.

A replica is asked at every concurrency it could run at once: TTFT, TPOT and requests per second follow. The largest
concurrency that fits and keeps the targets gives what one replica can carry; the traffic gives how many are needed, and
where on the curve each of them then works.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calc.accelerator import Accelerator
from calc.arrays import first
from calc.engine import LLAMA_CPP_ENGINES, engine_named
from calc.kv_offload import Held, Reuse, reuse_of, room_behind, way_back
from calc.layout import Layout
from calc.memory.adapters import adapter_bytes_per_gpu
from calc.memory.engines import EngineSettings, Ledger, LineKind, ledger
from calc.memory.engines.llama_cpp import MOST_SLOTS, most_slots
from calc.memory.kv import sequence_bytes
from calc.model import ModelSpec
from calc.operators import ForwardPass
from calc.provenance import Estimate
from calc.scenario import Behind, Scenario, stated
from calc.sizing import (
    BLOCK_TOKENS,
    DecodeStep,
    FleetStep,
    Limit,
    MemoryStep,
    PrefillStep,
    SequencesStep,
    StepTime,
    mean_context,
    replicas_for_users,
)
from calc.slo import Slo
from calc.speculative import tokens_per_pass
from calc.step import ServingPoint, StepModel, binding
from calc.textbook import binding_limit
from calc.workload import Workload

GRID_POINTS = 48
MOST_SEQUENCES = 4096
"""More than any engine runs at once by default (vLLM 1,024, SGLang 4,096 requests on the largest cards)."""
LENGTH_MARGIN = 2.0
SHORTEST_LIMIT = 4096

Array = NDArray[np.float64]


def engine_settings(scenario: Scenario, layout: Layout, *, max_model_len: int | None) -> EngineSettings:
    """What the scenario tells the engine at start: its most sequences of a replica are parted over the attention ranks."""
    return EngineSettings(
        engine=engine_named(scenario.engine),
        version=stated(scenario.engine_version),
        memory_utilization=scenario.memory_utilization,
        max_model_len=max_model_len,
        max_seqs=None if scenario.max_seqs is None else layout.share_of_rank(scenario.max_seqs),
        max_batched_tokens=scenario.max_batched_tokens,
        chunked_prefill=None if scenario.chunked_prefill else False,
        prefix_caching=None if scenario.prefix_caching else False,
        draft_tokens=scenario.draft_tokens,
        kv_dtype=stated(scenario.kv_dtype),
        quantization=stated(scenario.quantization),
        device_memory_bytes=scenario.device_memory_bytes,
        available_kv_bytes=scenario.kv_bytes_per_gpu,
        adapters=scenario.adapters,
        adapter_rank=scenario.adapter_rank,
        host_cache_bytes_per_gpu=room_behind(scenario) if scenario.kv_offload == Behind.HOST else None,
    )


def tokens_of_pass(scenario: Scenario) -> float:
    """Tokens that a sequence gains in one step: one, or more where proposals are verified."""
    return float(tokens_per_pass(acceptance=scenario.acceptance, drafts=scenario.draft_tokens))


def length_limit(scenario: Scenario, spec: ModelSpec) -> int:
    """The longest sequence to start the engine with: as chosen, else twice the mean request, at least 4,096 tokens."""
    if scenario.max_model_len is not None:
        return scenario.max_model_len
    wanted = max(SHORTEST_LIMIT, ceil(LENGTH_MARGIN * (scenario.input_tokens + scenario.output_tokens)))
    return min(wanted, spec.max_positions or wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica at every concurrency up to what fits: `point` holds arrays over the axis `users`.

    `held`: what of a prompt the caches still hold at each of them.
    """

    model: StepModel
    workload: Workload
    users: Array
    point: ServingPoint
    held: Held

    @property
    def requests_per_s(self) -> Array:
        return np.asarray(self.users / self.point.e2e_s.best, dtype=float)

    def largest(self, curve: Estimate, limit: float) -> int:
        """The largest concurrency up to which a curve keeps its limit, read between the points; 0 when the first misses it."""
        reached = np.broadcast_to(curve.best, self.users.shape)
        kept = reached <= limit
        if kept.all():
            return int(self.users[-1])
        missed = int(np.argmin(kept))
        if missed == 0:
            return 0
        return int(np.interp(limit, reached[missed - 1 : missed + 1], self.users[missed - 1 : missed + 1]))

    @property
    def best_users(self) -> int:
        """The concurrency of most requests per second: with more, running sequences push out text that comes back."""
        return int(self.users[int(np.argmax(self.requests_per_s))])

    def cached(self, users: float) -> tuple[float, float, float]:
        """(cached tokens of a prompt, those of them from behind the card, seconds of these) at one concurrency."""
        prompt = self.workload.input.mean_tokens
        card, behind, load_s = (
            self._between(values, users) for values in (self.held.card, self.held.behind, self.held.load_s)
        )
        return min(prompt * (card + behind), prompt - 1.0), prompt * behind, load_s

    def at(self, curve: Estimate, users: float) -> Estimate:
        """One of the point's curves at one concurrency, between the points that were asked."""
        low, best, high = (self._between(values, users) for values in (curve.low, curve.best, curve.high))
        return replace(curve, low=min(low, best), best=best, high=max(best, high))

    def _between(self, values: ArrayLike, users: float) -> float:
        """A value at each concurrency, or one for all, read between those that were asked."""
        return float(np.interp(users, self.users, np.broadcast_to(values, self.users.shape)))

    @property
    def _most_so_far(self) -> Array:
        return np.maximum.accumulate(self.requests_per_s)

    def users_at(self, requests_per_s: float) -> float:
        """The least concurrency at which the replica finishes that many requests per second."""
        return float(np.interp(requests_per_s, self._most_so_far, self.users, left=self.users[0]))

    def most_requests_per_s(self, batch: int) -> float:
        """Requests per second that the replica can finish with up to `batch` at once: it need not run them all at once."""
        return float(np.interp(batch, self.users, self._most_so_far))


def memory_of(
    spec: ModelSpec, accelerator: Accelerator, layout: Layout, scenario: Scenario
) -> tuple[MemoryStep, Ledger, int]:
    """Step 1 by the engine's rules: the ledger at the length limit, and the sequences of mean length that fit."""
    chosen = engine_settings(scenario, layout, max_model_len=length_limit(scenario, spec))
    found = ledger(spec, accelerator, layout, chosen, nearest=False)
    beside = adapter_bytes_per_gpu(
        spec, adapters=scenario.adapters, rank=scenario.adapter_rank, tp=layout.attention_tp
    )
    if beside and found.verdict.fits and not found.tightest.bytes_of(LineKind.ADAPTERS):
        chosen = replace(chosen, available_kv_bytes=found.kv.available_bytes - beside)
        limited = ledger(spec, accelerator, layout, chosen, nearest=False)
        found = replace(found, kv=limited.kv, verdict=limited.verdict)
    kept = max(1, round(scenario.input_tokens + scenario.output_tokens))
    mean = ledger(spec, accelerator, layout, replace(chosen, max_model_len=kept), nearest=False)
    ranks = layout.attention_ranks
    running = mean.kv.most_running
    each = BLOCK_TOKENS * ceil(kept / BLOCK_TOKENS)  # what one of them holds, in whole blocks
    if chosen.engine in LLAMA_CPP_ENGINES:
        slots = most_slots(spec, accelerator, layout, chosen)
        running = slots if chosen.max_seqs is None else min(slots, chosen.max_seqs)
        each = found.kv.tokens  # a slot has cells of its own for the longest sequence
    fit = running * ranks if mean.kv.available_bytes > 0 else 0
    rank = found.tightest
    weights = rank.bytes_of(LineKind.WEIGHTS)
    per_token = sequence_bytes(spec, kept, scenario.kv_format) / kept
    room = found.kv.available_bytes
    return (
        MemoryStep(
            gpus=layout.gpus_per_replica,
            total_bytes_per_gpu=float(rank.total.best),
            weight_bytes_per_gpu=weights,
            overhead_bytes_per_gpu=max(0.0, float(rank.total.best) - weights - room),
            kv_bytes_per_gpu=room,
            kv_copies=1,
            kv_bytes_per_token=per_token,
            kv_bytes=max(0.0, room) * layout.gpus_per_replica,
            tokens=max(mean.kv.tokens, running * each),
        ),
        found,
        fit,
    )


def replica_curve(model: StepModel, scenario: Scenario, *, fit: int) -> Replica:
    """The replica asked at up to 48 concurrencies from 1 to what fits, in one call."""
    most = max(1, min(fit, scenario.max_seqs or MOST_SEQUENCES, MOST_SEQUENCES))
    users = np.unique(np.rint(np.geomspace(1, most, GRID_POINTS)))
    workload = scenario.workload
    prompt, output = workload.input.mean_tokens, workload.output.mean_tokens

    def served(held: Held) -> ServingPoint:
        return model.serving(
            input_tokens=prompt,
            output_tokens=output,
            concurrency=users,
            prefix_tokens=np.minimum(prompt * held.share, prompt - 1.0),
            drafts=scenario.draft_tokens,
            tokens_per_pass=tokens_of_pass(scenario),
            disaggregated=scenario.disaggregated,
            load_s=held.load_s,
        )

    running = users * mean_context(workload)
    held = _reuse(model, scenario).settled(
        fit * (prompt + output) - running, lambda held: users / np.asarray(served(held).e2e_s.best)
    )
    return Replica(model=model, workload=workload, users=users, point=served(held), held=held)


def _reuse(model: StepModel, scenario: Scenario) -> Reuse:
    """What repeats in prompts, and where it waits; the time of computing it again is the step model's."""
    workload = scenario.workload
    behind, compute_s = None, 0.0
    if workload.prefix_share > 0 and workload.reuse_after_s is not None:
        behind = way_back(
            model.spec,
            model.accelerator,
            model.layout,
            Behind(scenario.kv_offload),
            kv_dtype=scenario.kv_format,
            tokens=max(1, round(scenario.input_tokens + scenario.output_tokens)),
            room_bytes_per_gpu=room_behind(scenario),
        )
        again = ForwardPass.prefill(workload.prefix_share * scenario.input_tokens)
        compute_s = first(model.step(again).total.best)
    return reuse_of(scenario, model.layout, behind, compute_s=compute_s)


def sequences_of(replica: Replica, slo: Slo, scenario: Scenario, *, fit: int) -> SequencesStep:
    """Step 2: as many as fit, as the targets allow, and as the engine takes."""
    point = replica.point
    targets = (
        (Limit.TPOT, slo.tpot_s, point.tpot_s),
        (Limit.TTFT, slo.ttft_s, point.ttft_s),
        (Limit.E2E, slo.e2e_s, point.e2e_s),
    )
    allowed = {
        name: replica.largest(reached, target) for name, target, reached in targets if target is not None
    }
    top = int(replica.users[-1])
    cap = {} if scenario.max_seqs is None else {Limit.MAX_SEQS: float(scenario.max_seqs)}
    # Of limits that allow as many the first is named: llama.cpp starts no more slots than the cap.
    limits = cap | {Limit.ENGINE: float(_most_of_engine(scenario)), Limit.KV_MEMORY: float(fit)}
    limits |= {name: float(most) for name, most in allowed.items() if most < top}
    workload = scenario.workload
    # Users who wait are promised times, no throughput: more of them may run than serve most.
    forgets = workload.prefix_share > 0 and workload.reuse_after_s is not None
    if forgets and workload.rate_per_s is not None and replica.best_users < top:
        limits[Limit.PREFIX_HITS] = float(replica.best_users)
    binding = binding_limit(limits)
    kept = scenario.input_tokens + scenario.output_tokens
    return SequencesStep(
        kept_tokens=kept,
        reserved_tokens=kept,
        paged=fit,
        reserved=fit,
        fit=fit,
        by_tpot=allowed.get(Limit.TPOT),
        by_limit=scenario.max_seqs,
        batch=int(limits[binding]),
        binding=binding,
    )


def _most_of_engine(scenario: Scenario) -> int:
    """Sequences that the engine takes at once however much memory there is: slots end where llama.cpp does."""
    if scenario.engine in LLAMA_CPP_ENGINES:
        return MOST_SLOTS * scenario.layout.attention_ranks
    return MOST_SEQUENCES


def fleet_of(replica: Replica, workload: Workload, *, batch: int, headroom: float) -> tuple[FleetStep, float]:
    """Step 5: replicas for the traffic, and the concurrency at which each of them then works."""
    e2e = replica.point.e2e_s
    if workload.rate_per_s is None:
        asked = (workload.concurrency or 0) * workload.peak_factor
        replicas = replicas_for_users(workload, batch=batch, headroom=headroom)
        users = max(1.0, asked / replicas)
        active, rate, busy = asked, asked / replica.at(e2e, users).best, asked / batch
    else:
        rate = workload.rate_per_s * workload.peak_factor
        busy = rate / replica.most_requests_per_s(batch)
        replicas = max(1, ceil(busy * (1.0 + headroom)))
        users = replica.users_at(rate / replicas)
        active = rate * replica.at(e2e, users).best
    share = float(
        np.interp(users, replica.users, np.broadcast_to(replica.point.prefill_share, replica.users.shape))
    )
    if workload.output.mean_tokens <= 1.0:  # the prompt's own pass yields the only token: nothing decodes
        share = 1.0
    fleet = FleetStep(
        rate_per_s=rate,
        e2e_s=replica.at(e2e, users),
        active=active,
        prefill_busy=busy * share,
        decode_busy=busy * (1.0 - share),
        replicas=replicas,
        utilization=busy / replicas,
    )
    return fleet, users


def decode_at(replica: Replica, users: float, scenario: Scenario) -> DecodeStep:
    """Step 3 at the concurrency where the replica works; with drafts it is one verifying pass."""
    batch = max(1, round(users))
    context = mean_context(replica.workload)
    step = replica.model.step(ForwardPass.verify(float(batch), context, drafts=scenario.draft_tokens))
    seconds, terms = step.total.candidate(), step.terms
    return DecodeStep(
        batch=batch,
        context_tokens=context,
        time=StepTime(
            step_s=seconds,
            terms_s={name: first(value) for name, value in terms.items()},
            bound=str(np.ravel(binding(terms))[0]),
        ),
        tokens_per_s=batch * tokens_of_pass(scenario) / float(seconds.best),
    )


def prefill_of(replica: Replica, held: tuple[float, float, float]) -> PrefillStep:
    """Step 4: one prompt alone, with what caches hold of it, as `Replica.cached` has it."""
    prompt = replica.workload.input.mean_tokens
    cached, loaded, load_s = held
    total = replica.model.step(ForwardPass.prefill(prompt - cached, prefix=cached)).total
    return PrefillStep(
        prompt_tokens=prompt,
        cached_tokens=cached,
        prefill_s=total.candidate(),
        loaded_tokens=loaded,
        load_s=load_s,
    )
