"""Peak memory of vLLM's profiling passes: the forward at full token budget, the dummy sampler, the vision encoder.

The engine runs one dummy step before it sizes the KV pool and subtracts the peak. At default settings the sampler, not the
layers, sets that peak: it is the same for 0.6B and for 120B models of one vocabulary, and it is not divided by TP.

Source: constants fitted by scripts/fit_engine_memory.py over public start-up logs (38 runs of 27 models on 0.19, a sweep of
0.15 to 0.18, and V0 logs); the structure follows vLLM's profile_run and sampler.
Ignores: LoRA, kernels' private workspaces other than the fused-expert one.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.memory.closed_forms import activation_peak_bytes
from calc.memory.engines.shapes import ModelShape
from calc.memory.engines.versions import SAMPLER_LATER, VersionRules
from calc.provenance import Estimate, Provenance
from calc.units import GIB

# Fitted: scripts/fit_engine_memory.py prints these with their leave-one-model-out ranges.
SAMPLER_HIDDEN = 1.2  # elements per token and hidden unit that live while the sampler runs
FIXED_BYTES = 0.04 * GIB  # buffers that exist in every profile
FORWARD_HIDDEN_COMPILED = 3.83  # elements per token and hidden unit of a compiled layer
FORWARD_HIDDEN_EAGER = 2.9  # the same in V0, which ran eagerly
PIPELINE_HIDDEN = 2.0  # further elements per token and hidden unit: hidden and residual sent between stages
DEQUANTISED_MATRICES = 2.0  # gate and up, fused, in 16 bit
VISION_ACTIVATION = 5.2  # vision widths per patch beside the feed-forward

TEXT_BAND_BYTES = 0.05 * GIB
DEFAULTED_BAND_BYTES = 0.5 * GIB  # server or offline unknown, so the default batch sizes are
VISION_BAND_BYTES = 2.0 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """The profiling step: tokens, sequences, images, bytes of an activation element, and this rank's place."""

    tokens: int
    sequences: int
    tp: int = 1
    pp: int = 1
    last_stage: bool = True
    first_stage: bool = True
    element_bytes: int = 2
    image_items: int | None = None
    experts_on_gpu_width: int = 0
    compiled: bool = True
    dequantised_copy: bool = False  # bitsandbytes expands its largest matrix in the forward pass
    light_sampler: bool = False
    verifies_drafts: bool = False  # the rejection sampler runs as well
    draft_elements: float = 0.0  # per token, alive in the drafter's own pass (calc.memory.engines.drafters)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationPeak:
    """Terms of the peak, in bytes; `total` is what the engine subtracts."""

    sampler: float
    forward: float
    vision_forward: float
    expert_workspace: float
    vision_kept: float

    @property
    def total(self) -> float:
        return float(activation_peak_bytes(**dict(self.inputs)))

    @property
    def inputs(self) -> tuple[tuple[str, float], ...]:
        """The terms by the names of their formula (`activation_peak_bytes`)."""
        return (
            ("sampler_bytes", self.sampler),
            ("forward_bytes", self.forward),
            ("vision_bytes", self.vision_forward),
            ("workspace_bytes", self.expert_workspace),
            ("kept_bytes", self.vision_kept),
        )


def activation_peak(shape: ModelShape, step: StepShape, rules: VersionRules) -> ActivationPeak:
    """Bytes of the profiling pass on one GPU, term by term."""
    tokens, hidden, size = step.tokens, shape.hidden, step.element_bytes
    sequences = min(step.sequences, tokens)
    sampler = 0.0
    if step.last_stage and shape.vocab_size:
        # fp32 models keep one more 16-bit pair per logit in the lighter sampler.
        per_logit = SAMPLER_LATER if step.light_sampler else rules.sampler_bytes
        per_logit += 2.0 if size == 4 and rules.moe_workspace else 0.0
        if step.verifies_drafts:
            per_logit += rules.rejected_logits * size
        sampler = (
            per_logit * sequences * shape.vocab_size + SAMPLER_HIDDEN * tokens * hidden * size + FIXED_BYTES
        )
    elements = max(_forward_elements(shape, step), step.draft_elements)
    forward = tokens * size * elements + FIXED_BYTES
    if step.dequantised_copy:
        forward += DEQUANTISED_MATRICES * hidden * shape.intermediate / step.tp * 2.0
    if step.pp > 1:
        forward += PIPELINE_HIDDEN * tokens * hidden * size
    return ActivationPeak(
        sampler=sampler,
        forward=forward,
        vision_forward=_vision_forward(shape, step),
        expert_workspace=_expert_workspace(shape, step) if rules.moe_workspace else 0.0,
        vision_kept=_vision_kept(shape, step),
    )


def hidden_elements(*, compiled: bool) -> float:
    """Elements per token and hidden unit alive in a layer beside its feed-forward part."""
    return FORWARD_HIDDEN_COMPILED if compiled else FORWARD_HIDDEN_EAGER


def _forward_elements(shape: ModelShape, step: StepShape) -> float:
    """Elements per token alive at the widest point of a layer: feed-forward inputs and output, hidden states."""
    per_hidden = hidden_elements(compiled=step.compiled)
    return shape.mlp_copies * shape.intermediate / step.tp + per_hidden * shape.hidden


def _expert_workspace(shape: ModelShape, step: StepShape) -> float:
    """Bytes of the fused-expert kernel's two buffers for every routed token copy (Triton experts in 16 bit or fp8 blocks)."""
    if not shape.top_k or not step.experts_on_gpu_width:
        return 0.0
    width = step.experts_on_gpu_width
    return 2.0 * step.tokens * shape.top_k * (max(width, shape.hidden) + max(2 * width, shape.hidden))


def _images(shape: ModelShape, step: StepShape) -> int:
    """Images in the profiling pass: as many as the encoder's token budget holds, at least one; or one a sequence."""
    if shape.vision is None or step.image_items == 0 or not step.first_stage:
        return 0
    if shape.vision.per_sequence:
        return step.sequences if step.image_items is None else step.image_items
    per_image = shape.vision.tokens_per_image
    default = max(1, max(step.tokens, per_image) // per_image) if per_image else 1
    return default if step.image_items is None else step.image_items


def _vision_kept(shape: ModelShape, step: StepShape) -> float:
    """Bytes of encoder outputs and dummy pixels that stay alive through the pass."""
    images = _images(shape, step)
    if not images or shape.vision is None:
        return 0.0
    pixels = images * shape.vision.pixels_per_image * 2.0
    if shape.vision.per_sequence:
        tokens = images * shape.vision.tokens_per_image
        return tokens * (shape.hidden + shape.vision.feature_width) * 2.0 + pixels
    budget = max(step.tokens, shape.vision.tokens_per_image)
    return budget * shape.hidden * 2.0 + pixels


def _vision_forward(shape: ModelShape, step: StepShape) -> float:
    """Bytes of the encoder's own forward at its largest batch of images."""
    images = _images(shape, step)
    if not images or shape.vision is None:
        return 0.0
    vision = shape.vision
    patches = images * vision.patches_per_image
    return patches * 2.0 * (vision.intermediate + VISION_ACTIVATION * vision.hidden)


def activation_estimate(
    peak: ActivationPeak, *, has_vision: bool, defaulted: bool, least: float | None = None
) -> Estimate:
    """The peak with its range: narrow for text at stated batch sizes, wider for towers and for assumed defaults.

    `least`: a lower end that another profile of the same engine would show.
    """
    best = peak.total
    band = DEFAULTED_BAND_BYTES if defaulted else TEXT_BAND_BYTES
    above = max(band, VISION_BAND_BYTES) if has_vision else band
    low = max(0.0, min(best, best if least is None else least) - band)
    return Estimate(low=low, best=best, high=best + above, provenance=Provenance.FITTED)
