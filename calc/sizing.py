"""The first five steps of sizing a deployment, each a record that a page can open, whatever the fidelity.

Memory, sequences that fit, decode, prefill, how many GPUs. `calc.textbook_sizing` and `calc.expected` fill them in; the
sixth step, levers, is `calc.levers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, floor

from calc.arrays import Numbers
from calc.provenance import Estimate
from calc.workload import Workload

BLOCK_TOKENS = 16
"""Tokens of a paged block: vLLM's default on CUDA (Kwon et al. 2023 use 16 as well)."""
ROUNDING = 1e-12  # so that 10 x 1.3 counts as 13 whole users


class Limit(StrEnum):
    """What stops a replica from running more sequences."""

    KV_MEMORY = "kv memory"
    TPOT = "tpot"
    TTFT = "ttft"
    E2E = "end to end"
    ENGINE = "engine"
    MAX_SEQS = "sequence limit"
    PREFIX_HITS = "prefix hits"


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
    binding: Limit


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """One decode step: the estimate, the seconds of each term, and the term that binds."""

    step_s: Estimate
    terms_s: dict[str, float]
    bound: str


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
    users_of_decoder: float = 0.0  # where there are such: requests in flight of each of the others

    @property
    def busy(self) -> float:
        """Replicas' worth of work."""
        return self.prefill_busy + self.decode_busy

    @property
    def active_per_replica(self) -> float:
        """Sequences in flight on each replica."""
        return self.active / self.replicas


def mean_context(workload: Workload) -> float:
    """Cached tokens of a sequence halfway through its output."""
    return workload.input.mean_tokens + workload.output.mean_tokens / 2


def replicas_for_users(workload: Workload, *, batch: int, headroom: float) -> int:
    """Replicas whose slots hold all users who wait for their answer, with headroom."""
    asked = (workload.concurrency or 0) * workload.peak_factor
    return users_per_slot(users=asked, headroom=headroom, batch=batch)


def users_with_headroom(users: float, headroom: float) -> int:
    """Whole users to hold: 30% more than one user is still one, so that a single user needs no second GPU."""
    return max(ceil(users), floor(users * (1.0 + headroom) * (1.0 + ROUNDING)))


def users_per_slot(*, users: float, headroom: float, batch: float) -> int:
    """Replicas whose slots hold all users who wait for their answer, with headroom in whole users.

    Source: every user has one request in flight. Ignores: users who pause.
    """
    return max(1, ceil(users_with_headroom(users, headroom) / batch))


def busy_replica_tokens_per_s(*, rate_per_s: Numbers, output_tokens: Numbers, busy_gpus: Numbers) -> Numbers:
    """Output tokens per second of a replica that has all the work it can take: those that are asked for over the busy ones.

    Source: Little's law, solved for the replica's rate. Ignores: bursts.
    """
    return rate_per_s * output_tokens / busy_gpus


def each_gpu_tokens_per_s(*, tokens_per_s: Numbers, gpus: Numbers) -> Numbers:
    """Output tokens per second of one GPU of a replica.

    Source: definition. Ignores: nothing.
    """
    return tokens_per_s / gpus


def gpus_of_units(*, units: Numbers, gpus_each: Numbers) -> Numbers:
    """GPUs of so many replicas or whole hosts.

    Source: definition. Ignores: nothing.
    """
    return units * gpus_each


def pool_ttft_s(*, ttft_s: Numbers, mean_wait_s: Numbers) -> Numbers:
    """TTFT where prompts have replicas of their own: a prompt alone there, and its wait for the prompts before it.

    Source: M/D/1, prompts of one length. Ignores: prompts of different lengths, bursts.
    """
    return ttft_s + mean_wait_s
