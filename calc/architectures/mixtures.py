"""Mixture-of-experts decoders with dense layers among them: Qwen MoE, DeepSeekMoE, GLM-4.5 to 4.7, ERNIE 4.5, dots.llm1.

Sources: the published configs and modelling code of each family as transformers 5 builds them; for DeepSeekMoE (v1) the
code that the checkpoint carries.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.draft import draft_stack
from calc.architectures.family import Family
from calc.architectures.layers import mixture
from calc.architectures.recipe import ATTENTION_BIAS, WIDTH, Flag, Recipe, decoder, dense_mlp
from calc.architectures.windows import late_layers
from calc.model import Mlp, ModelSpec, Moe

TOP_K: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
    "top_k_experts",
)
EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


QWEN2_MOE: Final = Recipe(
    architecture="Qwen2MoeForCausalLM",
    model_types=("qwen2_moe",),
    qkv_bias=Flag(field="qkv_bias", default=True),
    kv_heads_stated=True,
    windows=late_layers,
)
QWEN3_MOE: Final = Recipe(
    architecture="Qwen3MoeForCausalLM",
    model_types=(
        "qwen3_moe",
        "qwen3_vl_moe_text",
    ),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    kv_heads_stated=True,
    windows=late_layers,
)
ERNIE_MOE: Final = Recipe(
    architecture="Ernie4_5_MoeForCausalLM",
    model_types=("ernie4_5_moe",),
    qkv_bias=Flag(field="use_bias"),
    out_bias=Flag(field="use_bias"),
    mlp_bias=Flag(field="use_bias"),
    tied_default=True,
    kv_heads_stated=True,
)
GLM4_MOE: Final = Recipe(
    architecture="Glm4MoeForCausalLM",
    model_types=("glm4_moe", "sarvam_moe"),
    qkv_bias=ATTENTION_BIAS,
    qk_norm="head",
    qk_norm_flag=Flag(field="use_qk_norm"),
    kv_heads_stated=True,
)
GLM4V_MOE_TEXT: Final = Recipe(
    architecture="Glm4vMoeTextModel",
    model_types=("glm4v_moe_text",),
    qkv_bias=Flag(field="attention_bias", default=True),
    kv_heads_stated=True,
)
DEEPSEEK_V1: Final = Recipe(
    architecture="DeepseekForCausalLM",
    model_types=("deepseek",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
)
DOTS1: Final = Recipe(
    architecture="Dots1ForCausalLM",
    model_types=("dots1",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    kv_heads_stated=True,
    windows=late_layers,
)


def sparse_layers(config: ConfigReader, layers: int) -> list[bool]:
    """Qwen's rule: every `decoder_sparse_step`-th layer is a mixture, but those in `mlp_only_layers`."""
    step = config.int("decoder_sparse_step", default=1)
    dense = set(config.ints("mlp_only_layers") or [])
    return [layer not in dense and (layer + 1) % step == 0 for layer in range(layers)]


def qwen_feed_forwards(config: ConfigReader, recipe: Recipe, *, shared: bool) -> list[Mlp | Moe]:
    """Qwen MoE's feed-forward layers; with `shared`, a gated shared expert beside the routed ones."""
    width = config.int(*WIDTH)
    sparse = sparse_layers(config, config.layers())
    layer = mixture(
        width=width,
        n_experts=config.int("num_experts", "num_local_experts"),
        top_k=config.int("num_experts_per_tok"),
        intermediate=config.int("moe_intermediate_size"),
        shared_intermediate=config.int("shared_expert_intermediate_size") if shared else 0,
        shared_gate=shared,
        shared="shared_expert",
    )
    dense = layer if all(sparse) else dense_mlp(config, recipe, width)
    config.raw("intermediate_size")
    config.expect("use_qk_norm", True)
    return [layer if is_sparse else dense for is_sparse in sparse]


def parse_qwen_moe(config: ConfigReader, recipe: Recipe) -> ModelSpec:
    """Qwen 1.5, 2 and 3 MoE."""
    return decoder(config, recipe, qwen_feed_forwards(config, recipe, shared=recipe is QWEN2_MOE))


def parse_ernie(config: ConfigReader) -> ModelSpec:
    """ERNIE 4.5 MoE: a dense beginning, then mixtures with shared experts and a score correction parameter."""
    width = config.int(*WIDTH)
    layers = config.layers()
    interval = config.int("moe_layer_interval", default=1)
    first = config.int("moe_layer_start_index", default=1, low=0)
    last = config.int("moe_layer_end_index", default=-1, low=-1)
    last = layers - 1 if last == -1 else last
    intermediate = config.int("moe_intermediate_size")
    bias = config.bool("use_bias", default=False)
    layer = mixture(
        width=width,
        n_experts=config.int(*EXPERTS),
        top_k=config.int(*TOP_K),
        intermediate=intermediate,
        shared_intermediate=intermediate * config.int("moe_num_shared_experts", default=2, low=0),
        shared_bias=bias,
        correction="parameter",
    )
    dense = dense_mlp(config, ERNIE_MOE, width)
    feed_forwards = [
        layer if first <= index <= last and (index + 1) % interval == 0 else dense for index in range(layers)
    ]
    return decoder(config, ERNIE_MOE, feed_forwards, head_bias=bias)


def after_dense(
    config: ConfigReader,
    recipe: Recipe,
    *,
    correction: str = "",
    shared_names: tuple[str, ...] = ("n_shared_experts", "num_shared_experts"),
) -> list[Mlp | Moe]:
    """DeepSeek's rule: `first_k_dense_replace` dense layers, then mixtures with shared experts."""
    width = config.int(*WIDTH)
    layers = config.layers()
    intermediate = config.int("moe_intermediate_size")
    listed = config.words("mlp_layer_types", allowed=("dense", "sparse"), length=layers)
    first = config.int("first_k_dense_replace", default=0, low=0)
    step = config.raw("moe_layer_freq")
    if listed is not None and not config.has("first_k_dense_replace"):
        sparse = [kind == "sparse" for kind in listed]
    elif isinstance(step, list):
        sparse = [bool(flag) for flag in config.ints("moe_layer_freq", length=layers) or []]
    else:
        every = config.int("moe_layer_freq", default=1)
        sparse = [index >= first and index % every == 0 for index in range(layers)]
    if listed is not None and [kind == "sparse" for kind in listed] != sparse:
        raise config.unsupported("mlp_layer_types", "first_k_dense_replace and moe_layer_freq say otherwise")
    layer = mixture(
        width=width,
        n_experts=config.int(*EXPERTS),
        top_k=config.int(*TOP_K),
        intermediate=intermediate,
        shared_intermediate=intermediate * config.int(*shared_names, default=0, low=0),
        correction=correction,
    )
    dense = layer if all(sparse) else dense_mlp(config, recipe, width)
    config.raw("intermediate_size")
    return [layer if is_sparse else dense for is_sparse in sparse]


def parse_after_dense(config: ConfigReader, recipe: Recipe, correction: str) -> ModelSpec:
    """DeepSeekMoE (v1), GLM-4.5 to 4.7, dots.llm1."""
    feed_forwards = after_dense(config, recipe, correction=correction)
    stacks = draft_stack(config, recipe, feed_forwards[-1], config.int(*WIDTH))
    return decoder(config, recipe, feed_forwards, stacks=stacks)


FAMILIES: Final = (
    *(
        Family(
            model_types=recipe.model_types,
            parse=partial(parse_qwen_moe, recipe=recipe),
            architectures=(recipe.architecture,),
        )
        for recipe in (QWEN2_MOE, QWEN3_MOE)
    ),
    *(
        Family(
            model_types=recipe.model_types,
            parse=partial(parse_after_dense, recipe=recipe, correction=correction),
            architectures=(recipe.architecture,),
        )
        for recipe, correction in (
            (DEEPSEEK_V1, ""),
            (GLM4_MOE, "buffer"),
            (GLM4V_MOE_TEXT, "buffer"),
            (DOTS1, "buffer"),
        )
    ),
    Family(model_types=("ernie4_5_moe",), parse=parse_ernie, architectures=("Ernie4_5_MoeForCausalLM",)),
)
