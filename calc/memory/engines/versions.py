"""What changed in vLLM from release to release, as data: `rules_of(version)`.

Each row holds from its first release on. Dates and merge numbers are in the notes of the row; a rule "by date" was
inferred from when a change was merged and when a log was made, not read in the release itself.

Source: public start-up logs of 0.6.4 to 0.28 and vLLM pull requests 10511, 11809, 12126, 19312, 21489, 30515, 38284.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from calc.errors import InputError
from calc.memory.engines.kv_groups import PrintedTokens

Release = tuple[int, int, int]


class GraphRule(StrEnum):
    """What happens to the estimate of CUDA graph memory before the pool is sized."""

    NONE = "none"
    PRINTED = "printed"
    SUBTRACTED = "subtracted"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRules:
    """The memory rules of one vLLM release.

    legacy: the V0 engine. in_full: model types whose windows are charged in full although others' are not. sampler_bytes: bytes per (sequence, vocabulary entry) of the dummy sampler pass; None where the
    full-sort sampler is used. padding_ratio: see `calc.memory.engines.kv_groups.group_layers`. rejected_logits: logits per sequence,
    in the model's format, that the dummy rejection sampler holds beside those. second_runner: dense models run in another model
    runner, whose profile may come out lower (see `SAMPLER_SECOND_RUNNER`).
    """

    first: Release
    utilization: float
    legacy: bool
    graphs: GraphRule
    printed: PrintedTokens
    hybrid_cache: bool
    latent_cache: bool
    sampler_bytes: float
    moe_workspace: bool
    non_torch_era: str
    padding_ratio: float
    hybrid_prefix_caching: bool
    in_full: tuple[str, ...]
    note: str
    rejected_logits: float = 0.0
    second_runner: bool = False


# Bytes per sequence and vocabulary entry of the dummy sampler pass; fitted by scripts/fit_engine_memory.py.
SAMPLER_FULL_SORT = 38.0  # top-k/top-p by a full sort of fp32 logits: V0, and V1 up to 0.16
SAMPLER_LATER = 14.5  # from 0.17

# ... and of the second model runner (16-bit logits and their copy in fp32). Two public starts of 0.27 show it, with no graph
# estimate; three of 0.28.0 do not agree. It is the lower end of what is stated.
SAMPLER_SECOND_RUNNER = 6.0

_FIRST = VersionRules(
    first=(0, 0, 0),
    utilization=0.90,
    legacy=True,
    graphs=GraphRule.NONE,
    printed=PrintedTokens.BLOCKS,
    hybrid_cache=False,
    latent_cache=False,
    sampler_bytes=SAMPLER_FULL_SORT,
    moe_workspace=False,
    non_torch_era="v0-early",
    padding_ratio=1.25,
    hybrid_prefix_caching=False,
    in_full=(),
    note="V0 up to 0.6: the CUDA context counts; sliding layers charged in full; MLA stored as ordinary heads",
)


def _from(previous: VersionRules, first: Release, note: str, **changes: object) -> VersionRules:
    return replace(previous, first=first, note=note, **changes)  # type: ignore[arg-type] # checked by the table's test


_V0_7 = _from(
    _FIRST,
    (0, 7, 0),
    "memory before the first allocation is the baseline, so the context no longer counts (by date)",
    non_torch_era="v0-late",
)
_V0_71 = _from(_V0_7, (0, 7, 1), "MLA caches the latent", latent_cache=True)
_V1_8 = _from(
    _V0_71,
    (0, 8, 0),
    "V1 by default: tokens are printed; chunked prefill always on",
    legacy=False,
    printed=PrintedTokens.GROUP_SHARE,
    non_torch_era="v1-early",
)
_V1_92 = _from(_V1_8, (0, 9, 2), "hybrid cache groups (by date)", hybrid_cache=True)
_V1_12 = _from(
    _V1_92,
    (0, 12, 0),
    "the dummy rejection sampler holds the logits of a draft and of the token after it beside the sampler's own (by date)",
    rejected_logits=2.0,
)
_V1_14 = _from(
    _V1_12,
    (0, 14, 0),
    "groups are padded up when buckets differ by less than half (by date)",
    padding_ratio=1.5,
)
_V1_17 = _from(
    _V1_14,
    (0, 17, 0),
    "lighter sampler pass; the fused-expert workspace stays allocated while it runs",
    sampler_bytes=SAMPLER_LATER,
    moe_workspace=True,
)
_V1_18 = _from(
    _V1_17,
    (0, 18, 0),
    "graph estimate printed, not subtracted; more workspace outside torch",
    graphs=GraphRule.PRINTED,
    non_torch_era="v1-late",
)
_V1_20 = _from(
    _V1_18,
    (0, 20, 0),
    "Gemma 4's sliding layers charged in full (vLLM issue 43308)",
    in_full=("gemma4", "gemma4_text"),
)
_V1_21 = _from(
    _V1_20,
    (0, 21, 0),
    "graph estimate subtracted, default utilisation 0.92, tokens printed from the concurrency; recurrent models cache "
    "prefixes by default (by date), which keeps a second state for a request",
    hybrid_prefix_caching=True,
    graphs=GraphRule.SUBTRACTED,
    utilization=0.92,
    printed=PrintedTokens.CONCURRENCY,
    in_full=(),
)
_V1_27 = _from(
    _V1_21,
    (0, 27, 0),
    "dense models run in the second model runner by default",
    second_runner=True,
)
_V1_28 = _from(
    _V1_27,
    (0, 28, 0),
    "one line for all memory consumed (weights and what is outside torch together)",
    non_torch_era="consumed",
)

VLLM_VERSIONS: tuple[VersionRules, ...] = (
    _FIRST,
    _V0_7,
    _V0_71,
    _V1_8,
    _V1_92,
    _V1_12,
    _V1_14,
    _V1_17,
    _V1_18,
    _V1_20,
    _V1_21,
    _V1_27,
    _V1_28,
)
LATEST = (0, 33, 0)  # the newest release that the rules are meant for
LEGACY_LAST = (0, 10, 99)  # the V0 engine could still be chosen up to here


# The newest release of a month, for logs that state a date and no version (dates of the project's tags).
RELEASE_OF_MONTH: dict[str, Release] = {
    "dec 2024": (0, 6, 4),
    "jan 2025": (0, 7, 0),
    "feb 2025": (0, 7, 2),
    "mar 2025": (0, 7, 3),
    "apr 2025": (0, 8, 4),
    "may 2025": (0, 8, 5),
    "jun 2025": (0, 9, 1),
    "jul 2025": (0, 9, 2),
    "aug 2025": (0, 10, 1),
    "sep 2025": (0, 10, 2),
    "oct 2025": (0, 11, 0),
    "nov 2025": (0, 11, 1),
    "dec 2025": (0, 13, 0),
    "jan 2026": (0, 14, 0),
    "feb 2026": (0, 16, 0),
    "mar 2026": (0, 18, 0),
    "apr 2026": (0, 19, 0),
    "may 2026": (0, 20, 1),
    "jun 2026": (0, 23, 0),
    "jul 2026": (0, 25, 0),
    "aug 2026": (0, 28, 0),
    "sep 2026": (0, 28, 0),
}
_BEFORE = re.compile(r"before (\d{1,4})\.(\d{1,4})")
_NUMBERS = re.compile(r"(?:^|[^\d.])v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,6}))?")


def release(text: str) -> Release:
    """(major, minor, patch) of a version as people and logs write it.

    "0.19.0", "v0.10.2", "0.26.1rc1.dev608", "0.11 line (Sep 2025)", "V1 (Jul 2025)" (the newest release of the month),
    "before 0.17" (the one before). A development build without a version of its own (0.1.dev16944) is the newest.
    """
    lowered = text.lower()
    before = _BEFORE.search(lowered)
    if before:
        return int(before[1]), int(before[2]) - 1, 0
    found = _NUMBERS.search(lowered)
    if found:
        version = int(found[1]), int(found[2]), int(found[3] or 0)
        return LATEST if version[:2] < (0, 2) and "dev" in lowered else version
    for month, newest in RELEASE_OF_MONTH.items():
        if month in lowered:
            return newest
    raise InputError(
        "engine_version",
        text,
        "it must name a release (0.19.0) or the month of one (Jul 2025, from Dec 2024 on)",
    )


def engine_generation(text: str | None) -> bool | None:
    """Whether a version says which engine ran: True for "V0 ...", False for "V1 ...", None where it says nothing."""
    word = (text or "").strip().lower()
    if word.startswith("v0 ") or "(v0)" in word or word in ("v0", "v0-style"):
        return True
    return False if word.startswith("v1 ") else None


def rules_of(version: str | None, *, legacy: bool | None = None) -> VersionRules:
    """The rules of a vLLM version (None: the newest); `legacy` chooses the V0 engine where both existed."""
    wanted = LATEST if version is None else release(version)
    if legacy is None:
        legacy = engine_generation(version)
    found = VLLM_VERSIONS[0]
    for rules in VLLM_VERSIONS:
        if rules.first <= wanted:
            found = rules
    if legacy and not found.legacy:
        if wanted > LEGACY_LAST:
            raise InputError("legacy_engine", version or "newest", "the V0 engine ended with 0.10")
        return replace(
            _V0_71, first=found.first, note=f"V0 engine in a release with V1 ({version}): {_V0_71.note}"
        )
    if legacy is False and found.legacy:
        return replace(_V1_8, first=found.first, note=f"V1 preview in {version}: {_V1_8.note}")
    return found
