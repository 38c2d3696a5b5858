"""Mixtures that follow DeepSeek's layout with attention of their own: EXAONE MoE, Solar Open, Hunyuan 3, AFMoE (Trinity).

Source: modelling code in transformers 5.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import mixture
from calc.architectures.mixtures import after_dense
from calc.architectures.recipe import ATTENTION_BIAS, MLP_BIAS, WIDTH, Recipe, decoder, dense_mlp
from calc.architectures.tensors import Weights, linear
from calc.architectures.windows import patterned
from calc.model import ModelSpec, Part, Split

AFMOE_NORMS: Final = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_mlp_layernorm",
    "post_mlp_layernorm",
)

EXAONE_MOE: Final = Recipe(
    architecture="ExaoneMoeForCausalLM",
    model_types=("exaone_moe",),
    qk_norm="head",
    kv_heads_stated=True,
    windows=patterned(4),
)
SOLAR_OPEN: Final = Recipe(
    architecture="SolarOpenForCausalLM",
    model_types=("solar_open",),
    qkv_bias=ATTENTION_BIAS,
    kv_heads_stated=True,
    head_dim_default=128,
)
HY_V3: Final = Recipe(
    architecture="HYV3ForCausalLM",
    model_types=("hy_v3",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    mlp_bias=MLP_BIAS,
    qk_norm="head",
    kv_heads_stated=True,
    head_dim_default=128,
)


def _output_gate(width: int, n_heads: int, head_dim: int) -> Weights:
    """A gate as wide as all heads together."""
    return linear("self_attn.gate_proj", width, n_heads * head_dim, Part.ATTENTION, Split.COLUMN)


AFMOE: Final = Recipe(
    architecture="AfmoeForCausalLM",
    model_types=("afmoe",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    block_norms=AFMOE_NORMS,
    head_dim_default=128,
    windows=patterned(4, "global_attn_every_n_layers"),
    attention_extra=_output_gate,
)


def parse_corrected(config: ConfigReader, recipe: Recipe) -> ModelSpec:
    """A dense beginning, then mixtures whose routers keep a score correction as a buffer."""
    return decoder(config, recipe, after_dense(config, recipe, correction="buffer"))


def parse_afmoe(config: ConfigReader) -> ModelSpec:
    """AFMoE: `num_dense_layers` in front, an expert bias as a parameter, gated attention."""
    width, layers = config.int(*WIDTH), config.layers()
    first = config.int("num_dense_layers", default=1, low=0)
    intermediate = config.int("moe_intermediate_size")
    experts = mixture(
        width=width,
        n_experts=config.int("num_experts", "num_local_experts"),
        top_k=config.int("num_experts_per_tok"),
        intermediate=intermediate,
        shared_intermediate=intermediate * config.int("num_shared_experts", default=2, low=0),
        correction="parameter",
        router="router.gate",
    )
    dense = dense_mlp(config, AFMOE, width)
    return decoder(config, AFMOE, [dense if layer < first else experts for layer in range(layers)])


FAMILIES: Final = (
    *(
        Family(
            model_types=recipe.model_types,
            parse=partial(parse_corrected, recipe=recipe),
            architectures=(recipe.architecture,),
        )
        for recipe in (EXAONE_MOE, SOLAR_OPEN, HY_V3)
    ),
    Family(model_types=AFMOE.model_types, parse=parse_afmoe, architectures=(AFMOE.architecture,)),
)
