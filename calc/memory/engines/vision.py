"""What one image costs an engine's profiling pass, by model family: tokens, patches and pixels of the largest item.

A config states the tower's widths, but not the largest image that the processor lets through: that is a fact of the
family's processor. Families that are not listed take one square image of the tower's own resolution where it is known.

Source: the families' published preprocessor settings (largest pixels, patch and merge sizes), read 2026-11.
"""

from __future__ import annotations

from dataclasses import dataclass

from calc.model import Mlp, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageItem:
    """The largest image of a family: tokens for the language model, patches of the tower, pixel elements held.

    `per_sequence`: cross-attention models profile one image for every sequence, not as many as the token budget holds.
    `feature_width`: elements per token that the tower hands over where it is not the language model's width.
    """

    tokens: int
    patches: int
    pixel_elements: int
    per_sequence: bool = False
    feature_width: int = 0


# Gemma 3: 896 x 896, 14-pixel patches, pooled to 256 tokens.
_GEMMA3 = ImageItem(tokens=256, patches=4096, pixel_elements=3 * 896 * 896)
# Gemma 4: 280 tokens of 3x3 pooled 16-pixel patches.
_GEMMA4 = ImageItem(tokens=280, patches=2520, pixel_elements=3 * 16 * 16 * 2520)
# Qwen2-VL and Qwen2.5-VL: 12,845,056 pixels, 14-pixel patches, 2x2 merge; pixels are stored for two time steps.
_QWEN2_VL = ImageItem(tokens=16384, patches=65536, pixel_elements=3 * 2 * 14 * 14 * 65536)
# Qwen3-VL and Qwen3.5: 16,777,216 pixels, 16-pixel patches, 2x2 merge; two time steps.
_QWEN3_VL = ImageItem(tokens=16384, patches=65536, pixel_elements=3 * 2 * 16 * 16 * 65536)
# Pixtral towers (Mistral Small 3.1): 1540 x 1540, 14-pixel patches, 2x2 merge.
_PIXTRAL = ImageItem(tokens=3080, patches=12100, pixel_elements=3 * 1540 * 1540)
# MoonViT (Kimi-VL): 4096 patches of 14 pixels, 2x2 merge.
_MOONVIT = ImageItem(tokens=1024, patches=4096, pixel_elements=3 * 14 * 14 * 4096)
# Llama 4: 336-pixel tiles, at most 16 and a thumbnail, 144 tokens each.
_LLAMA4 = ImageItem(tokens=17 * 144, patches=17 * 576, pixel_elements=17 * 3 * 336 * 336)
# LLaVA-Next (Granite Vision): 384-pixel tiles, at most 10 and a thumbnail, 729 tokens each.
_LLAVA_NEXT = ImageItem(tokens=11 * 729, patches=11 * 729, pixel_elements=11 * 3 * 384 * 384)
_LLAVA = ImageItem(tokens=576, patches=576, pixel_elements=3 * 336 * 336)

# Llama 3.2 Vision: 4 tiles of 560 pixels, 1601 patches each (padded to 1608); features of six layers side by side, 1280 wide.
_MLLAMA = ImageItem(
    tokens=4 * 1601,
    patches=4 * 1608,
    pixel_elements=4 * 3 * 560 * 560,
    per_sequence=True,
    feature_width=6 * 1280,
)

IMAGE_ITEMS: dict[str, ImageItem] = {
    "gemma3": _GEMMA3,
    "gemma4": _GEMMA4,
    "qwen2_vl": _QWEN2_VL,
    "qwen2_5_vl": _QWEN2_VL,
    "qwen2_5_omni": _QWEN2_VL,
    "mimo_vl": _QWEN2_VL,
    "qwen3_vl": _QWEN3_VL,
    "qwen3_vl_moe": _QWEN3_VL,
    "qwen3_5": _QWEN3_VL,
    "qwen3_5_moe": _QWEN3_VL,
    "mistral3": _PIXTRAL,
    "pixtral": _PIXTRAL,
    "kimi_vl": _MOONVIT,
    "kimi_k25": _MOONVIT,
    "mllama": _MLLAMA,
    "llama4": _LLAMA4,
    "llava_next": _LLAVA_NEXT,
    "llava": _LLAVA,
}
DEFAULT_ITEM = _LLAVA


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionShape:
    """A tower as the profiling pass sees it: widths, and the largest image."""

    hidden: int
    intermediate: int
    tokens_per_image: int
    patches_per_image: int
    pixels_per_image: int
    per_sequence: bool
    feature_width: int
    known: bool


def vision_shape(model_type: str, stack: Stack) -> VisionShape:
    """The tower's widths from its stack and the family's largest image."""
    item = IMAGE_ITEMS.get(model_type)
    used = item or DEFAULT_ITEM
    intermediate = max(
        (sublayer.intermediate for _, sublayer in stack.sublayers() if isinstance(sublayer, Mlp)),
        default=4 * stack.width,
    )
    return VisionShape(
        hidden=stack.width,
        intermediate=intermediate,
        tokens_per_image=used.tokens,
        patches_per_image=used.patches,
        pixels_per_image=used.pixel_elements,
        per_sequence=used.per_sequence,
        feature_width=used.feature_width,
        known=item is not None,
    )
