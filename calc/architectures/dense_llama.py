"""Dense decoders of Llama's shape, each by its `Recipe`.

Sources: the published configs and modelling code of each family as transformers 5 builds them; for Baichuan, InternLM,
InternLM 2, Orion and MiMo the code that the checkpoints carry.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.family import Family
from calc.architectures.recipe import (
    ATTENTION_BIAS,
    MLP_BIAS,
    POST_NORMS,
    PRE_NORMS,
    YES,
    Flag,
    Recipe,
    parse_dense,
)
from calc.architectures.tensors import Weights, vector
from calc.architectures.windows import everywhere, late_layers, listed, patterned
from calc.model import Part, Weight

LLAMA: Final = Recipe(
    architecture="LlamaForCausalLM",
    model_types=("llama", "yi", "code_llama", "granite", "aquila", "iquestcoder"),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    mlp_bias=MLP_BIAS,
)
MISTRAL: Final = Recipe(
    architecture="MistralForCausalLM",
    model_types=("mistral", "ministral"),
    kv_heads_stated=True,
    windows=everywhere,
)
QWEN2: Final = Recipe(
    architecture="Qwen2ForCausalLM",
    model_types=("qwen2", "qwen2_vl_text", "qwen2_5_vl_text"),
    qkv_bias=YES,
    kv_heads_stated=True,
    windows=late_layers,
)
QWEN3: Final = Recipe(
    architecture="Qwen3ForCausalLM",
    model_types=("qwen3", "qwen3_vl_text"),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    kv_heads_stated=True,
    head_dim_default=128,
    windows=late_layers,
)


def _xielu(_width: int, _n_heads: int, _head_dim: int) -> Weights:
    """Apertus's activation has two learned numbers, and two more in buffers."""
    learned = vector("mlp.act_fn.alpha", 2, Part.MLP)
    return (*learned, Weight(name="mlp.act_fn.beta", shape=(2,), part=Part.MLP, buffer=True))


RECIPES: Final = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    Recipe(
        architecture="OlmoForCausalLM",
        model_types=("olmo",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        norm_has_scale=False,
    ),
    Recipe(
        architecture="Olmo2ForCausalLM",
        model_types=("olmo2",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm="all",
        block_norms=POST_NORMS,
    ),
    Recipe(
        architecture="Olmo3ForCausalLM",
        model_types=("olmo3",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm="all",
        block_norms=POST_NORMS,
        windows=patterned(4),
    ),
    Recipe(
        architecture="StableLmForCausalLM",
        model_types=("stablelm", "stablelm_epoch"),
        qkv_bias=Flag(field="use_qkv_bias"),
        norm_bias=True,
        kv_heads_stated=True,
    ),
    Recipe(
        architecture="CohereForCausalLM",
        model_types=("cohere",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm="all",
        qk_norm_flag=Flag(field="use_qk_norm"),
        block_norms=("input_layernorm",),
        tied_default=True,
    ),
    Recipe(
        architecture="Cohere2ForCausalLM",
        model_types=("cohere2",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        block_norms=("input_layernorm",),
        tied_default=True,
        windows=patterned(4),
    ),
    Recipe(
        architecture="SmolLM3ForCausalLM",
        model_types=("smollm3",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        mlp_bias=MLP_BIAS,
        tied_default=True,
        kv_heads_stated=True,
        windows=late_layers,
    ),
    Recipe(
        architecture="Exaone4ForCausalLM",
        model_types=("exaone4",),
        qk_norm="head",
        block_norms=POST_NORMS,
        kv_heads_stated=True,
        windows=patterned(4),
    ),
    Recipe(
        architecture="ExaoneForCausalLM",
        model_types=("exaone",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        mlp_bias=MLP_BIAS,
        kv_heads_stated=True,
    ),
    Recipe(
        architecture="NemotronForCausalLM",
        model_types=("nemotron",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        mlp_bias=MLP_BIAS,
        norm_bias=True,
        gated=False,
    ),
    Recipe(
        architecture="ArceeForCausalLM",
        model_types=("arcee",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        mlp_bias=MLP_BIAS,
        gated=False,
    ),
    Recipe(
        architecture="ApertusForCausalLM",
        model_types=("apertus",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm="head",
        block_norms=("attention_layernorm", "feedforward_layernorm"),
        gated=False,
        attention_extra=_xielu,
    ),
    Recipe(
        architecture="CwmForCausalLM",
        model_types=("cwm",),
        mlp_bias=MLP_BIAS,
        kv_heads_stated=True,
        windows=listed,
    ),
    Recipe(
        architecture="Jais2ForCausalLM",
        model_types=("jais2",),
        qkv_bias=Flag(field="attention_bias", default=True),
        out_bias=Flag(field="attention_bias", default=True),
        mlp_bias=Flag(field="mlp_bias", default=True),
        norm_bias=True,
        gated=False,
    ),
    Recipe(
        architecture="SeedOssForCausalLM",
        model_types=("seed_oss",),
        qkv_bias=Flag(field="attention_bias", default=True),
        out_bias=Flag(field="attention_out_bias"),
        mlp_bias=MLP_BIAS,
        kv_heads_stated=True,
    ),
    Recipe(
        architecture="HunYuanDenseV1ForCausalLM",
        model_types=("hunyuan_v1_dense",),
        qkv_bias=ATTENTION_BIAS,
        out_bias=ATTENTION_BIAS,
        qk_norm="head",
        qk_norm_flag=Flag(field="use_qk_norm", default=True),
    ),
    Recipe(
        architecture="Ernie4_5ForCausalLM",
        model_types=("ernie4_5",),
        qkv_bias=Flag(field="use_bias"),
        out_bias=Flag(field="use_bias"),
        mlp_bias=Flag(field="use_bias"),
        tied_default=True,
        kv_heads_stated=True,
        head_dim_default=128,
    ),
    Recipe(
        architecture="GlmForCausalLM",
        model_types=("glm",),
        qkv_bias=Flag(field="attention_bias", default=True),
        kv_heads_stated=True,
        head_dim_default=128,
    ),
    Recipe(
        architecture="Glm4ForCausalLM",
        model_types=("glm4",),
        qkv_bias=Flag(field="attention_bias", default=True),
        block_norms=(*PRE_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
        kv_heads_stated=True,
        head_dim_default=128,
    ),
    Recipe(
        architecture="HeliumForCausalLM",
        model_types=("helium",),
        qkv_bias=ATTENTION_BIAS,
        mlp_bias=MLP_BIAS,
        kv_heads_stated=True,
        head_dim_default=128,
    ),
    Recipe(
        architecture="InternLMForCausalLM",
        model_types=("internlm",),
        qkv_bias=Flag(field="bias", default=True),
        out_bias=Flag(field="bias", default=True),
    ),
    Recipe(
        architecture="InternLM2ForCausalLM",
        model_types=("internlm2",),
        qkv_bias=Flag(field="bias", default=True),
        out_bias=Flag(field="bias", default=True),
    ),
    Recipe(
        architecture="InternLM3ForCausalLM",
        model_types=("internlm3",),
        qkv_bias=Flag(field="qkv_bias"),
        out_bias=Flag(field="bias"),
        mlp_bias=Flag(field="bias"),
        kv_heads_stated=True,
    ),
    Recipe(architecture="BaichuanForCausalLM", model_types=("baichuan",)),
    Recipe(architecture="MiniCPMForCausalLM", model_types=("minicpm",), tied_default=True),
    Recipe(architecture="OrionForCausalLM", model_types=("orion",), qkv_bias=ATTENTION_BIAS, norm_bias=True),
)

FAMILIES: Final = tuple(
    Family(
        model_types=recipe.model_types,
        parse=partial(parse_dense, recipe=recipe),
        architectures=(recipe.architecture,),
    )
    for recipe in RECIPES
)
