"""Gemma 1 to 3, text: tied embeddings, GeGLU, and from Gemma 2 on four norms per block and alternating windows."""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.family import Family
from calc.architectures.recipe import ATTENTION_BIAS, PRE_NORMS, Recipe, parse_dense
from calc.architectures.windows import patterned

FOUR_NORMS: Final = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")

GEMMA: Final = Recipe(
    architecture="GemmaForCausalLM",
    model_types=("gemma",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    tied_default=True,
    kv_heads_stated=True,
    head_dim_default=256,
)
GEMMA2: Final = Recipe(
    architecture="Gemma2ForCausalLM",
    model_types=("gemma2",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    block_norms=FOUR_NORMS,
    tied_default=True,
    kv_heads_stated=True,
    head_dim_default=256,
    windows=patterned(2),
)
VAULT_GEMMA: Final = Recipe(
    architecture="VaultGemmaForCausalLM",
    model_types=("vaultgemma",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    block_norms=("input_layernorm", "pre_feedforward_layernorm"),
    tied_default=True,
    kv_heads_stated=True,
    head_dim_default=256,
    windows=patterned(2),
)
GEMMA3: Final = Recipe(
    architecture="Gemma3ForCausalLM",
    model_types=("gemma3_text",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    block_norms=FOUR_NORMS,
    tied_default=True,
    kv_heads_stated=True,
    head_dim_default=256,
    windows=patterned(6),
)

FAMILIES: Final = tuple(
    Family(
        model_types=recipe.model_types,
        parse=partial(parse_dense, recipe=recipe),
        architectures=(recipe.architecture,),
    )
    for recipe in (GEMMA, GEMMA2, GEMMA3, VAULT_GEMMA)
)
