"""What vLLM spends beside weights, activations and cache: memory outside torch, and CUDA graphs.

Source: public start-up logs, by version and kind of card (docs/accuracy.md lists them); fitted, with the range that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.accelerator import Accelerator
from calc.layout import Layout
from calc.memory.closed_forms import graph_bytes
from calc.memory.engines.estimates import shares_memory
from calc.provenance import Estimate, Provenance
from calc.units import GIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class NonTorch:
    """GiB outside torch's allocator: (low, best, high) for one GPU, for TP over PCIe, for TP over NVLink by degree."""

    single: tuple[float, float, float]
    tp_pcie: tuple[float, float, float]
    tp_nvlink: tuple[float, float, float]
    tp_nvlink_wide: tuple[float, float, float]  # TP 4 and more
    pipeline: tuple[float, float, float]  # pipeline stages of one GPU each
    consumer: tuple[float, float, float] | None = None  # one GeForce-class card


# By era of the version table. TP over NVLink on Hopper grew by 1.5 GiB between 0.17 and 0.18: all-reduce workspaces.
NON_TORCH: dict[str, NonTorch] = {
    "v0-early": NonTorch(
        single=(0.35, 0.38, 0.44),
        tp_pcie=(0.35, 0.39, 0.44),
        tp_nvlink=(0.35, 0.39, 3.58),
        tp_nvlink_wide=(0.35, 0.39, 3.58),
        pipeline=(0.35, 0.40, 0.44),
    ),
    "v0-late": NonTorch(
        single=(0.01, 0.07, 0.16),
        tp_pcie=(0.1, 0.20, 0.33),
        tp_nvlink=(0.1, 0.20, 0.6),
        tp_nvlink_wide=(0.1, 0.20, 0.6),
        pipeline=(0.01, 0.33, 0.4),
    ),
    "v1-early": NonTorch(
        single=(0.06, 0.13, 0.25),
        tp_pcie=(0.1, 0.21, 0.35),
        tp_nvlink=(0.4, 0.55, 0.7),
        tp_nvlink_wide=(0.4, 0.55, 1.0),
        consumer=(0.02, 0.06, 0.13),
        pipeline=(0.05, 0.07, 0.33),
    ),
    "v1-late": NonTorch(
        single=(0.07, 0.25, 0.46),
        tp_pcie=(0.1, 0.21, 0.7),
        tp_nvlink=(2.06, 2.07, 2.11),
        tp_nvlink_wide=(0.5, 2.17, 2.21),  # TP4 was seen, TP8 was not: its pool suggests less
        pipeline=(0.05, 0.07, 0.33),
    ),
    "consumed": NonTorch(
        single=(0.25, 0.45, 0.56),
        tp_pcie=(0.1, 0.66, 0.8),
        tp_nvlink=(2.0, 2.1, 2.3),
        tp_nvlink_wide=(2.0, 2.1, 2.3),
        pipeline=(0.25, 0.45, 0.56),
    ),
}
ROCM_SINGLE = (0.46, 0.50, 0.53)
ROCM_TP = (0.5, 1.78, 2.0)

# On a board that shares its memory with the host the engine measures what the system lost, its own processes' heap among it.
# Qwen3-0.6B on a DGX Spark, vLLM 0.27.1 (a public start of September 2026): 3.35 GiB consumed, of which 1.12 are weights.
HOST_HEAP = (0.0, 1.8, 6.0)

NVLINK_WORKSPACE_CAPABILITY = 9.0

GRAPH_FIXED_BYTES = 0.04 * GIB
GRAPH_LAYER_BYTES = 0.25 * MIB  # per captured size and layer, dense or hybrid
GRAPH_MOE_LAYER_BYTES = 0.31 * MIB
GRAPH_RANGE = 1.8  # the rule against printed estimates: 0.86 to 1.83
# Experts spread over data-parallel ranks: every graph keeps the all-to-all buffers. Two estimates: 10.0 and 12.9 MiB.
GRAPH_EXPERT_PARALLEL_LAYER_BYTES = 11.4 * MIB
MAX_CAPTURED = 512


def non_torch(era: str, accelerator: Accelerator, layout: Layout) -> Estimate:
    """Bytes outside torch on one GPU."""
    row = NON_TORCH[era]
    values = row.single
    if accelerator.vendor == "AMD":
        values = ROCM_TP if layout.tp > 1 else ROCM_SINGLE
    elif layout.tp > 1:
        # The workspaces that grow with NVLink need a switch and Hopper or newer.
        newer = capability(accelerator) >= NVLINK_WORKSPACE_CAPABILITY
        nvlink = "NVLink" in accelerator.link_kind and newer
        wide = row.tp_nvlink_wide if layout.tp >= 4 else row.tp_nvlink
        values = wide if nvlink else row.tp_pcie
    elif layout.pp > 1:
        values = row.pipeline
    elif row.consumer is not None and "GeForce" in accelerator.name:
        values = row.consumer
    low, best, high = values
    if shares_memory(accelerator):
        low, best, high = (value + heap for value, heap in zip(values, HOST_HEAP, strict=True))
    return Estimate(low=low * GIB, best=best * GIB, high=high * GIB, provenance=Provenance.FITTED)


def capability(accelerator: Accelerator) -> float:
    """CUDA compute capability as a number; 0 for other vendors' parts and where it is not known."""
    try:
        return float(accelerator.compute_capability or 0.0)
    except ValueError:
        return 0.0


def captured_sizes(max_seqs: int) -> tuple[int, int]:
    """(piecewise, full) batch sizes that vLLM V1 captures: 1, 2, 4, 8 to 256 by 8, 272 to 512 by 16, cut at twice max_seqs."""
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MAX_CAPTURED + 1, 16)]
    piecewise = [s for s in sizes if s <= min(MAX_CAPTURED, 2 * max_seqs)]
    return len(piecewise), len([s for s in piecewise if s <= max_seqs])


def graph_numbers(
    *, n_layers: int, max_seqs: int, moe: bool, expert_parallel: bool, sizes: int | None = None
) -> dict[str, float]:
    """What the estimate of CUDA graphs is made of, by the names of its formula (`graph_bytes`)."""
    per_layer = GRAPH_MOE_LAYER_BYTES if moe else GRAPH_LAYER_BYTES
    if moe and expert_parallel:
        per_layer = GRAPH_EXPERT_PARALLEL_LAYER_BYTES
    captured = sum(captured_sizes(max_seqs)) if sizes is None else sizes
    return {
        "fixed_bytes": GRAPH_FIXED_BYTES,
        "captured": captured,
        "n_layers": n_layers,
        "bytes_per_capture": per_layer,
    }


def graph_estimate(numbers: dict[str, float], *, spread_over_ranks: bool) -> Estimate:
    """Bytes that vLLM estimates for its CUDA graphs: linear in captured sizes and layers, not divided by TP."""
    lowest = 0.2 if spread_over_ranks else 0.7  # a smaller one was seen as well where experts are spread
    best = float(graph_bytes(**numbers))
    return Estimate(low=lowest * best, best=best, high=GRAPH_RANGE * best, provenance=Provenance.FITTED)
