"""InternVL: InternViT with layer scales, a pixel shuffle and two matrices in front of a decoder of its own family.

Sources: modelling code in transformers 5 (`internvl`), modeling_internvl_chat.py of the published checkpoints.
"""

from __future__ import annotations

from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.multimodal import parse_text, text_section
from calc.architectures.tensors import Weights, norm, tensor, vector
from calc.architectures.towers import CHANNELS, patches, tower, two_linears, vit_block
from calc.model import ModelSpec, Part, Stack


def parse_internvl(config: ConfigReader) -> ModelSpec:
    """InternVL in both spellings of its config."""
    text, kind = text_section(config, "qwen2")
    vision = config.need_section("vision_config")
    ratio = config.float("downsample_ratio", default=0.5)
    if ratio != 0.5:
        raise config.unsupported("downsample_ratio", "known is 0.5")
    for unused in ("vision_hidden_size", "text_hidden_size", "hidden_size", "mlp_checkpoint", "pad2square"):
        config.raw(unused)
    return parse_text(text, config, kind, _tower(vision, text.int("hidden_size")))


def _tower(vision: ConfigReader, text_width: int) -> tuple[Stack, ...]:
    width, n_heads = vision.int("hidden_size"), vision.int("num_attention_heads")
    patch = _one(vision, "patch_size")
    side = _one(vision, "image_size") // patch
    block = vit_block(
        vision,
        width,
        n_heads,
        vision.int("intermediate_size"),
        bias=vision.bool("attention_bias", "qkv_bias", default=False),
        out_bias=True,
        layer_norm=vision.choice("norm_type", allowed=("layer_norm", "rms_norm"), default="layer_norm")
        == "layer_norm",
        extra=_scales(vision, width),
    )
    merged = 4 * width
    weights = (
        vector("class_embedding", width, Part.POSITION)
        + patches(width, vision.int(*CHANNELS, default=3, high=16), patch, patch, bias=True)
        + tensor("position_embedding", side * side + 1, width, part=Part.POSITION)
        + norm("mlp1.0", merged, bias=True)
        + two_linears(merged, text_width, text_width, bias=True, name="mlp1")
    )
    for unused in (
        "use_mean_pooling",
        "use_absolute_position_embeddings",
        "use_mask_token",
        "layer_scale_init_value",
    ):
        vision.raw(unused)
    return tower(width, [block] * vision.layers(), weights, "vision_model.encoder.layers")


def _scales(vision: ConfigReader, width: int) -> Weights:
    """Two layer scales, and norms over all heads of queries and keys where the config asks for them."""
    scales = vector("ls1", width) + vector("ls2", width)
    if vision.bool("use_qk_norm", "qk_normalization", default=False):
        scales += norm("attn.q_norm", width) + norm("attn.k_norm", width)
    return scales


def _one(vision: ConfigReader, name: str) -> int:
    """A size that may be given as [height, width]; both must be equal."""
    value = vision.raw(name)
    if isinstance(value, list | tuple):
        sizes = set(vision.ints(name, low=1) or ())
        if len(sizes) != 1:
            raise vision.unsupported(name, "patches and images must be square")
        return sizes.pop()
    return vision.int(name, high=16384)


FAMILIES: Final = (
    Family(
        model_types=("internvl_chat", "internvl"),
        parse=parse_internvl,
        architectures=("InternVLChatModel", "InternVLForConditionalGeneration"),
    ),
)
