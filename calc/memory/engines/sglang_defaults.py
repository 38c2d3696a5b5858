"""SGLang's defaults: its release as people write it, batch limits by card, and the static fraction when none is given.

Source: python/sglang/srt/server_args.py and arg_groups/memory_hook.py of 2025 and 2026 (the published wheels of 0.5.6 to 0.5.23);
fractions checked on public start-up logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from calc.errors import InputError
from calc.memory.engines.shapes import ModelShape
from calc.units import GIB, MIB

LATEST_SGLANG = (0, 5, 23)
WIDER_SMALL_CARDS = (0, 5, 20)  # the release since which cards of 20 to 35 GiB have larger chunks and graphs
PREFILL_GRAPHS = (0, 5, 10)  # ... since which prompts are captured too, and room is kept for that
PREFILL_GRAPH_MIB = 8.0
LEGACY_FRACTIONS = {1: 0.88, 2: 0.87, 4: 0.85, 8: 0.81, 16: 0.79}


@dataclass(frozen=True, slots=True, kw_only=True)
class CardDefaults:
    """Prefill chunk and largest graph batch by card memory; the second graph batch is for TP of 4 and more."""

    below_gib: float
    chunk: int
    graph_batch: int
    graph_batch_wide: int


CARD_DEFAULTS = (
    CardDefaults(below_gib=20, chunk=2048, graph_batch=8, graph_batch_wide=8),
    CardDefaults(below_gib=35, chunk=2048, graph_batch=24, graph_batch_wide=80),
    CardDefaults(below_gib=60, chunk=4096, graph_batch=32, graph_batch_wide=160),
    CardDefaults(below_gib=160, chunk=8192, graph_batch=256, graph_batch_wide=512),
    CardDefaults(below_gib=float("inf"), chunk=16384, graph_batch=512, graph_batch_wide=512),
)


SMALL_CARDS_NOW = CardDefaults(below_gib=35, chunk=4096, graph_batch=48, graph_batch_wide=160)


def card_defaults(version: tuple[int, int, int], card_gib: float) -> CardDefaults:
    """The row of a card, by the release."""
    row = next(r for r in CARD_DEFAULTS if card_gib < r.below_gib)
    small = row.below_gib == SMALL_CARDS_NOW.below_gib
    return SMALL_CARDS_NOW if small and version >= WIDER_SMALL_CARDS else row


def prefill_graphs(chunk: int) -> int:
    """How many prompt lengths are captured up to a chunk: `generate_prefill_cuda_graph_batch_sizes`."""
    steps = (
        (4, 33, 4),
        (48, 257, 16),
        (288, 513, 32),
        (576, 1025, 64),
        (1280, 4097, 256),
        (4608, chunk + 1, 512),
    )
    return sum(size <= chunk for bounds in steps for size in range(*bounds))


# The newest release of a month, for logs that state a date and no version (dates of the project's tags).
SGLANG_RELEASE_OF_MONTH = {
    "feb 2025": (0, 4, 3),
    "may 2025": (0, 4, 6),
    "jul 2025": (0, 4, 9),
    "aug 2025": (0, 4, 10),
    "nov 2025": (0, 5, 5),
    "feb 2026": (0, 5, 8),
    "jul 2026": (0, 5, 15),
}


def sglang_version(text: str | None) -> tuple[int, int, int]:
    """(major, minor, patch) of a release or of the month of one; None or a development build is the newest."""
    if not text:
        return LATEST_SGLANG
    found = re.search(r"(?:^|[^\d.])v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?", text)
    if found is not None:
        version = int(found[1]), int(found[2]), int(found[3] or 0)
        return LATEST_SGLANG if version == (0, 0, 0) else version
    for month, newest in SGLANG_RELEASE_OF_MONTH.items():
        if month in text.lower():
            return newest
    raise InputError("engine_version", text, "it must name a release (0.5.9) or the month of one (Aug 2025)")


def default_static_fraction(
    version: tuple[int, int, int],
    *,
    card_bytes: float,
    tp: int,
    pp: int = 1,
    attention_dp: int = 1,
    shape: ModelShape | None = None,
    chunk: int | None = None,
    prompts_captured: bool = False,
) -> float:
    """`mem_fraction_static` when it is not given, from the card's memory and the layout.

    Up to spring 2025 a table by TP; in summer 2025 a reserve by card size; since late 2025 a reserve from the prefill chunk
    and the largest graph batch, lowered for models with a vision tower. `chunk` is what the flag says: it is read before the
    ranks of data-parallel attention part it. `prompts_captured`: whether CUDA graphs of prompts are taken, too.
    """
    if version < (0, 4, 7):
        known = max(key for key in LEGACY_FRACTIONS if key <= max(tp, 1))
        return LEGACY_FRACTIONS[known]
    card_gib, ranks = card_bytes / GIB, tp * pp
    if version < (0, 5, 4):
        base = 2.8 + ranks / 10 if card_gib < 35 else 9.5 + ranks / 2 if card_gib < 90 else 12 + ranks / 2
        reserve = 1024 * (base if card_gib < 160 else 32.0) + (4096 if attention_dp > 1 else 0)
    else:
        row = card_defaults(version, card_gib)
        graph_batch = row.graph_batch_wide if tp >= 4 else row.graph_batch
        reserve = 512 + 1.5 * max(chunk or row.chunk, 2048) + 2 * graph_batch + 128 * ranks
        if attention_dp > 1:
            reserve += 3 * graph_batch * attention_dp + (
                1.5 * graph_batch * attention_dp if graph_batch > 300 else 0
            )
        if prompts_captured and version >= PREFILL_GRAPHS:
            reserve += PREFILL_GRAPH_MIB * prefill_graphs(chunk or row.chunk)
        if card_gib > 60:
            reserve = max(reserve, 10_240)
    card_mib = card_bytes / MIB
    fraction = round((card_mib - reserve) / card_mib, 3)
    if shape is not None and shape.vision is not None and version >= (0, 5, 0):
        fraction *= 0.95 * _vision_factor(shape)
    return max(0.05, fraction)


def _vision_factor(shape: ModelShape) -> float:
    """Less for towers larger than a ViT-L of 24 layers of 1024, clamped."""
    towers = [s for s in shape.spec.stacks if s.role == "vision"]
    size = sum(stack.n_layers * stack.width**2 for stack in towers) / (24 * 1024**2)
    return float(min(1.05, max(0.8, 1 - 0.1 * (size - 1))))
