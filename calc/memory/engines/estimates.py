"""Estimates that every engine's ledger is made of: the card's total, ranges of weights, and what is left of a sum."""

from __future__ import annotations

from calc.accelerator import Accelerator
from calc.memory.engines.kv_formats import EngineKvFormat
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.shapes import ModelShape
from calc.memory.engines.sharding import ShardPlan, StageLayers, stored_in
from calc.memory.engines.versions import LATEST, Release
from calc.memory.kv import kv_bytes_per_token
from calc.model import ModelSpec, Role
from calc.provenance import Estimate, Provenance
from calc.quantization import FORMATS, KV_FORMATS
from calc.units import GIB

WEIGHT_RANGE_PLAIN = 0.001  # 16 bit and fp8
WEIGHT_RANGE_PACKED = 0.02  # 4-bit formats with a known list of what is not quantised
WEIGHT_RANGE_UNKNOWN = 0.10  # bitsandbytes: checkpoints keep layers in 16 bit
HOST_SHARE_BYTES = 8 * GIB
TRITON_EXPERTS_SINCE = (0, 14, 0)  # by date


def device_total(accelerator: Accelerator, settings: EngineSettings) -> Estimate:
    """Memory of one GPU as the runtime totals it: as given, or the catalogue's.

    Memory that is shared with the host may hold up to `HOST_SHARE_BYTES` of the system's own, which no rule tells.
    """
    total = accelerator.cuda_memory
    if settings.device_memory_bytes is not None:
        total = Estimate.exactly(float(settings.device_memory_bytes))
    if shares_memory(accelerator):
        low = float(total.low) - HOST_SHARE_BYTES
        return Estimate(low=low, best=total.best, high=total.high, provenance=Provenance.ASSUMED)
    return total


def shares_memory(accelerator: Accelerator) -> bool:
    """Whether the device's memory is the host's."""
    return accelerator.unified_shares is not None or accelerator.memory_type.startswith("LPDDR")


def fitted(low_best_high: tuple[float, float, float]) -> Estimate:
    """A fitted quantity with the range that was seen."""
    low, best, high = low_best_high
    return Estimate(low=low, best=best, high=high, provenance=Provenance.FITTED)


def rest_of(total: Estimate, parts: list[Estimate]) -> Estimate:
    """Total less its parts, with errors that add up."""
    low, best, high = float(total.low), float(total.best), float(total.high)
    for part in parts:
        low, best, high = low - float(part.high), best - float(part.best), high - float(part.low)
    return fitted((min(low, best), best, max(high, best)))


def weights_estimate(shape: ModelShape, plan: ShardPlan, size: float) -> Estimate:
    """Bytes of weights with the range of their format: what is not quantised is not always known."""
    share = WEIGHT_RANGE_PLAIN
    if is_bitsandbytes(shape, plan):
        share = WEIGHT_RANGE_UNKNOWN
    elif any(FORMATS[name].bits < 8 for name in format_names(shape, plan)):
        share = WEIGHT_RANGE_PACKED
    return Estimate(low=size * (1 - share), best=size, high=size * (1 + share), provenance=Provenance.EXACT)


def is_bitsandbytes(shape: ModelShape, plan: ShardPlan) -> bool:
    """Whether the decoder's matrices are stored by bitsandbytes."""
    return any(name.startswith("bnb") for name in format_names(shape, plan))


def format_names(shape: ModelShape, plan: ShardPlan) -> set[str]:
    """Stored formats of the decoder's weights, under the what-if where there is one."""
    return {
        stored_in(weight, Role.DECODER, plan.quantization).name
        for block in shape.blocks
        for sublayer in block.sublayers
        for weight in sublayer.weights
    }


def default_mxfp4_kernel(accelerator: Accelerator, version: Release = LATEST) -> str:
    """The kernel that MXFP4 experts run in: Triton on Hopper and newer from vLLM 0.14 on, Marlin otherwise."""
    older = accelerator.arch in ("Ampere", "Ada", "Turing", "Volta")
    return "marlin" if older or version < TRITON_EXPERTS_SINCE else "triton"


def stage_label(stage: StageLayers) -> str:
    """What a rank of a stage is called."""
    return "every GPU" if stage.of == 1 else f"stage {stage.index + 1} of {stage.of}"


def layers_note(stage: StageLayers) -> str:
    """Which layers a stage holds, in words."""
    return f"layers {stage.first + 1} to {stage.last}"


def logical_bytes_per_token(spec: ModelSpec, kv_format: EngineKvFormat) -> int:
    """What the mathematics stores for one more token, in the plain format nearest to the engine's."""
    return kv_bytes_per_token(spec, kv_format.name if kv_format.name in KV_FORMATS else "fp8")
