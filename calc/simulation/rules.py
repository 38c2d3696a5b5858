"""`EngineRules`: which engine's scheduler is simulated and how it is set; what a family does not model is refused.

`DEFAULTS` are the engines' own defaults, named and with their source; nothing is assumed silently in the loops.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from math import isfinite
from typing import Any, Final

from calc.errors import InputError
from calc.simulation.kernels.layout import MAX_TIERS
from calc.simulation.link import KvTier
from calc.simulation.step_table import StepTable

MAX_COUNT = 2**30
LARGEST_BLOCK: Final = 1 << 20
"""Tokens: longer than the context of any model; a replica keeps lists of that width."""
MAX_DRAFTS = 64
USUAL_BEAM_DROPPED: Final = 0.2
"""A choice, near to what Kwon et al. (SOSP 2023, section 6.3) report that 2 to 6 beams share: 37.6 to 55.2% of the blocks on
Alpaca (here 35 to 55% at its mean lengths), 44.3 to 66.3% on ShareGPT (here 48 to 78%)."""
NO_BUDGET = 2**40  # tokens a pass, where an engine knows no budget


class EngineFamily(StrEnum):
    """Engines whose scheduling rules can be simulated."""

    VLLM = "vllm"
    VLLM_V0 = "vllm-v0"
    SGLANG = "sglang"
    NANO_VLLM = "nano-vllm"
    SARATHI = "sarathi"
    ORCA = "orca"
    STATIC = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """A draft of `drafts` tokens a pass, each kept with chance `acceptance` given that all before it were.

    draft_step: the time of one draft step for the decoding sequences; None: proposals cost nothing (looked up in the
    prompt). Ignores: that acceptance differs between texts and falls along a draft, and the draft model's own prefill.
    """

    drafts: int
    acceptance: float
    draft_step: StepTable | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.drafts, int) or not 1 <= self.drafts <= MAX_DRAFTS:
            raise InputError("drafts", self.drafts, f"it must be a whole number from 1 to {MAX_DRAFTS}")
        if not (isfinite(self.acceptance) and 0 <= self.acceptance <= 1):
            raise InputError("acceptance", self.acceptance, "it is a chance, from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearch:
    """Answers to a prompt are beams that compete: after each token, one is dropped with chance `dropped` and another forked.

    The beam that takes its place continues one drawn from all, so that at 1 every beam does. Ignores: scores; beams that
    end early.
    """

    dropped: float = USUAL_BEAM_DROPPED

    def __post_init__(self) -> None:
        if not (isfinite(self.dropped) and 0 <= self.dropped <= 1):
            raise InputError("beams dropped", self.dropped, "it is a chance a token, from 0 to 1")


class Policy(StrEnum):
    """Order of the waiting requests."""

    FCFS = "fcfs"
    PRIORITY = "priority"


_EVERY = frozenset(EngineFamily)
_VLLM, _SGLANG, _NANO = EngineFamily.VLLM, EngineFamily.SGLANG, EngineFamily.NANO_VLLM
_V0 = EngineFamily.VLLM_V0
_SARATHI, _ORCA, _STATIC = EngineFamily.SARATHI, EngineFamily.ORCA, EngineFamily.STATIC

CACHING = frozenset({_VLLM, _SGLANG, _NANO})

FEATURES: dict[str, frozenset[EngineFamily]] = {
    "max_seqs": _EVERY - {_STATIC},
    "token_budget": frozenset({_VLLM, _V0, _SGLANG, _NANO, _SARATHI}),
    "prefix_cache": CACHING,
    "prefix_ttl_s": CACHING,
    "prefix_aware": CACHING,
    "tiers": frozenset({_VLLM, _SGLANG}),
    "policy": frozenset({_VLLM}),
    "chunked_prefill": frozenset({_VLLM}),
    "long_prefill_threshold": frozenset({_VLLM}),
    "watermark": frozenset({_VLLM, _V0, _SARATHI}),
    "reserve_full_prompt": frozenset({_VLLM}),
    "reserve_tokens": frozenset({_ORCA}),
    "mixed_chunk": frozenset({_SGLANG}),
    "max_prefill_tokens": frozenset({_SGLANG}),
    "conservativeness": frozenset({_SGLANG}),
    "batch_size": frozenset({_STATIC}),
    "batch_timeout_s": frozenset({_STATIC}),
    "swap": frozenset({_V0}),
    "samples": frozenset({_V0}),
    "beam_search": frozenset({_V0}),
    "speculation": frozenset({_VLLM, _SGLANG}),
    "prefill_pool": frozenset({_VLLM}),
}
"""Which family models which setting; any other value than the dataclass's default is refused elsewhere."""


def refuse_unmodelled(family: EngineFamily, feature: str, value: object) -> None:
    """Raise InputError if `feature`, which is set to `value`, is none of the family's."""
    modelled = FEATURES[feature]
    if family not in modelled:
        raise InputError(
            feature,
            value,
            f"the {family} rules do not have it",
            next_step=f"Leave it out, or choose one of: {', '.join(sorted(modelled))}.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """One engine's scheduler settings.

    num_blocks, block_size: the KV pool (SGLang: pages). token_budget: tokens a pass (SGLang: the prefill chunk).
    max_seqs: requests that run at once (nano-vllm: in one pass). prefix_cache: None: on if the requests share text.
    prefix_ttl_s: how long a text that nobody uses stays known; None: until its blocks are reused.
    tiers: host memory, or host memory and an SSD, for text whose blocks were reused.
    long_prefill_threshold: longest chunk of one prompt, 0: none. watermark: share of the pool that admission leaves
    free. reserve_full_prompt: admit a prompt only if all of it fits (vLLM's scheduler_reserve_full_isl).
    reserve_tokens: Orca's length that every request reserves; None: its own length, an oracle. speculation: a draft.
    swap: host memory to which preempted requests go; None: they are computed anew. beam_search: the samples of a request
    are beams; None: they are independent.
    """

    family: EngineFamily
    num_blocks: int
    block_size: int = 16
    token_budget: int | None = None
    max_seqs: int | None = None
    prefix_cache: bool | None = None
    prefix_ttl_s: float | None = None
    tiers: tuple[KvTier, ...] = ()
    policy: Policy = Policy.FCFS
    chunked_prefill: bool = True
    long_prefill_threshold: int = 0
    watermark: float = 0.0
    reserve_full_prompt: bool = True
    reserve_tokens: int | None = None
    mixed_chunk: bool = False
    max_prefill_tokens: int | None = None
    conservativeness: float = 1.0
    batch_size: int | None = None
    batch_timeout_s: float | None = None
    speculation: Speculation | None = None
    swap: KvTier | None = None
    beam_search: BeamSearch | None = None

    def __post_init__(self) -> None:
        if self.family not in _EVERY:
            allowed = ", ".join(_EVERY)
            raise InputError("engine rules", str(self.family), f"choose one of {allowed}")
        self._refuse_unmodelled()
        self._check_counts()
        self._check_values()
        self._check_memories()
        if self.speculation is not None and self.mixed_chunk:
            raise InputError("mixed_chunk", True, "it does not go with speculation")
        mixes = self.family in (_VLLM, _V0, _SARATHI)
        each = 1 + self.drafts
        if mixes and self.budget < self.places * each:
            raise InputError(
                "token_budget",
                self.budget,
                f"it must be at least max_seqs ({self.places}) x {each}: what each running sequence takes",
            )

    def _refuse_unmodelled(self) -> None:
        for field in fields(self):
            default = None if field.default is MISSING else field.default
            value = getattr(self, field.name)
            if field.name in FEATURES and value not in (default, False):
                refuse_unmodelled(self.family, field.name, value)

    def _check_values(self) -> None:
        if not (isfinite(self.watermark) and 0 <= self.watermark < 1):
            raise InputError("watermark", self.watermark, "it is a share of the blocks, from 0 to below 1")
        if not (isfinite(self.conservativeness) and 0 < self.conservativeness <= 10):
            raise InputError("conservativeness", self.conservativeness, "it must lie between 0 and 10")
        if self.batch_timeout_s is not None and not self.batch_timeout_s >= 0:
            raise InputError("batch_timeout_s", self.batch_timeout_s, "it is a time in seconds, 0 or more")
        if self.long_prefill_threshold and not self.chunked_prefill:
            raise InputError(
                "long_prefill_threshold", self.long_prefill_threshold, "it needs chunked prefill"
            )

    def _check_memories(self) -> None:
        """What text may be kept in and move to beside the pool: tiers, swap space, and how long it stays known."""
        if self.swap is not None and self.swap.link.latency_s:
            raise InputError(
                "swap latency", self.swap.link.latency_s, "leave it out: a swap takes the time of its copies"
            )
        if len(self.tiers) > MAX_TIERS:
            raise InputError("tiers", len(self.tiers), f"at most {MAX_TIERS}: host memory and an SSD")
        if self.tiers and self.prefix_cache is False:
            raise InputError("tiers", len(self.tiers), "they need the prefix cache")
        if self.prefix_ttl_s is not None:
            if not self.prefix_ttl_s > 0:
                raise InputError("prefix_ttl_s", self.prefix_ttl_s, "it is a time in seconds, above 0")
            if self.prefix_cache is False:
                raise InputError("prefix_ttl_s", self.prefix_ttl_s, "it needs the prefix cache")

    def _check_counts(self) -> None:
        for name in (
            "num_blocks", "block_size", "token_budget", "max_seqs", "max_prefill_tokens", "batch_size",
            "reserve_tokens",
        ):  # fmt: skip
            value, most = getattr(self, name), LARGEST_BLOCK if name == "block_size" else MAX_COUNT
            if value is not None and (not isinstance(value, int) or not 1 <= value <= most):
                raise InputError(name, value, f"it must be a whole number from 1 to {most:,}")
        if not 0 <= self.long_prefill_threshold <= MAX_COUNT:
            raise InputError(
                "long_prefill_threshold", self.long_prefill_threshold, "it must be 0 or positive"
            )

    @property
    def budget(self) -> int:
        """Tokens a pass, the engine's default where none is given."""
        if self.family in (_ORCA, _STATIC):
            return NO_BUDGET
        return (
            self.token_budget if self.token_budget is not None else int(DEFAULTS[self.family]["token_budget"])
        )

    @property
    def places(self) -> int:
        """Requests that run at once."""
        if self.family is _STATIC:
            return self.slots
        return self.max_seqs if self.max_seqs is not None else int(DEFAULTS[self.family]["max_seqs"])

    @property
    def slots(self) -> int:
        """Slots of a static batch."""
        return self.batch_size if self.batch_size is not None else int(DEFAULTS[_STATIC]["batch_size"])

    @property
    def prefill_limit(self) -> int:
        """SGLang's max_prefill_tokens."""
        if self.max_prefill_tokens is not None:
            return self.max_prefill_tokens
        return int(DEFAULTS[_SGLANG]["max_prefill_tokens"])

    @property
    def drafts(self) -> int:
        """Tokens that a draft proposes a pass."""
        return self.speculation.drafts if self.speculation is not None else 0

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark * self.num_blocks)


DEFAULTS: dict[EngineFamily, dict[str, Any]] = {
    # vllm/config/scheduler.py: bare defaults; servers on >= 70 GiB cards run 8192 tokens and 1024 sequences
    _VLLM: {"block_size": 16, "token_budget": 2048, "max_seqs": 128},
    # microsoft/vidur's vLLM scheduler: 4096 padded tokens, batch cap 128, watermark 1% (vLLM 0.2: 2560, 256, 1%)
    _V0: {"block_size": 16, "token_budget": 4096, "max_seqs": 128, "watermark": 0.01},
    # srt/server_args.py: chunked_prefill_size on 80 GB cards; the number of running requests comes from memory
    _SGLANG: {"block_size": 1, "token_budget": 8192, "max_seqs": 4096, "max_prefill_tokens": 16384},
    # nanovllm/config.py
    _NANO: {"block_size": 256, "token_budget": 16384, "max_seqs": 512},
    # microsoft/sarathi-serve and microsoft/vidur: chunk 512, batch cap 128, watermark 1%
    _SARATHI: {"block_size": 16, "token_budget": 512, "max_seqs": 128, "watermark": 0.01},
    # Yu et al., OSDI 2022 leave the batch size open; the cap of the engines above
    _ORCA: {"block_size": 16, "max_seqs": 128},
    # no engine's default: a batch that most cards hold
    _STATIC: {"block_size": 16, "batch_size": 8},
}


def engine_rules(family: str, *, num_blocks: int, **settings: Any) -> EngineRules:
    """The family's own defaults with `settings` on top; None means the default."""
    try:
        known = EngineFamily(family)
    except ValueError:
        raise InputError("engine rules", family, f"choose one of {', '.join(EngineFamily)}") from None
    given = {name: value for name, value in settings.items() if value is not None}
    return EngineRules(family=known, num_blocks=num_blocks, **{**DEFAULTS[known], **given})
