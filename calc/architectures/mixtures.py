"""Mixture-of-experts decoders with plain grouped attention: Mixtral, Qwen MoE, gpt-oss, MiniMax-M2, GLM-4 MoE and others.

Sources: the published configs and modelling code of each family as transformers 5 builds them; DeepSeekMoE (v1) and
Hunyuan-A13B the code that the checkpoints carry.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.dense_llama import (
    ATTENTION_BIAS,
    POST_NORMS,
    WIDTH,
    Flag,
    Recipe,
    decoder,
    dense_mlp,
)
from calc.architectures.draft import draft_stack
from calc.architectures.family import Family
from calc.architectures.layers import mixture
from calc.architectures.tensors import Weights, vector
from calc.architectures.windows import everywhere, late_layers, patterned
from calc.model import Mlp, ModelSpec, Moe, Part, Split

TOP_K: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_top_k",
    "moe_topk",
    "moe_k",
    "top_k_experts",
)
EXPERTS: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def _recipe(architecture: str, *model_types: str, **differences: object) -> Recipe:
    return Recipe(architecture=architecture, model_types=model_types, **differences)  # type: ignore[arg-type]


def _sinks(_width: int, n_heads: int, _head_dim: int) -> Weights:
    return vector("self_attn.sinks", n_heads, Part.ATTENTION, Split.COLUMN)


MIXTRAL: Final = _recipe("MixtralForCausalLM", "mixtral", kv_heads_stated=True, windows=everywhere)
QWEN2_MOE: Final = _recipe(
    "Qwen2MoeForCausalLM",
    "qwen2_moe",
    qkv_bias=Flag(field="qkv_bias", default=True),
    kv_heads_stated=True,
    windows=late_layers,
)
QWEN3_MOE: Final = _recipe(
    "Qwen3MoeForCausalLM",
    "qwen3_moe",
    "qwen3_vl_moe_text",
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    kv_heads_stated=True,
    windows=late_layers,
)
PHIMOE: Final = _recipe(
    "PhimoeForCausalLM",
    "phimoe",
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    norm_bias=True,
    kv_heads_stated=True,
    windows=everywhere,
)
GPT_OSS: Final = _recipe(
    "GptOssForCausalLM",
    "gpt_oss",
    qkv_bias=Flag(field="attention_bias", default=True),
    out_bias=Flag(field="attention_bias", default=True),
    kv_heads_stated=True,
    head_dim_default=64,
    windows=patterned(2),
    attention_extra=_sinks,
)
MINIMAX_M2: Final = _recipe(
    "MiniMaxM2ForCausalLM",
    "minimax_m2",
    qk_norm="all",
    qk_norm_flag=Flag(field="use_qk_norm", default=True),
    kv_heads_stated=True,
)
ERNIE_MOE: Final = _recipe(
    "Ernie4_5_MoeForCausalLM",
    "ernie4_5_moe",
    qkv_bias=Flag(field="use_bias"),
    out_bias=Flag(field="use_bias"),
    mlp_bias=Flag(field="use_bias"),
    tied_default=True,
    kv_heads_stated=True,
)
HUNYUAN_MOE: Final = _recipe(
    "HunYuanMoEV1ForCausalLM",
    "hunyuan",
    "hunyuan_v1_moe",
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    qk_norm_flag=Flag(field="use_qk_norm", default=True),
)
GLM4_MOE: Final = _recipe(
    "Glm4MoeForCausalLM",
    "glm4_moe",
    qkv_bias=ATTENTION_BIAS,
    qk_norm="head",
    qk_norm_flag=Flag(field="use_qk_norm"),
    kv_heads_stated=True,
)
GLM4V_MOE_TEXT: Final = _recipe(
    "Glm4vMoeTextModel",
    "glm4v_moe_text",
    qkv_bias=Flag(field="attention_bias", default=True),
    kv_heads_stated=True,
)
OLMOE: Final = _recipe(
    "OlmoeForCausalLM", "olmoe", qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS, qk_norm="all"
)
FLEX_OLMO: Final = _recipe(
    "FlexOlmoForCausalLM",
    "flex_olmo",
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="all",
    block_norms=POST_NORMS,
)
GRANITE_MOE: Final = _recipe(
    "GraniteMoeForCausalLM",
    "granitemoe",
    "granitemoeshared",
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
)
DEEPSEEK_V1: Final = _recipe(
    "DeepseekForCausalLM", "deepseek", qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS
)
DOTS1: Final = _recipe(
    "Dots1ForCausalLM",
    "dots1",
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    kv_heads_stated=True,
    windows=late_layers,
)


def every_layer(config: ConfigReader, recipe: Recipe) -> ModelSpec:
    """All layers are mixtures with one width (Mixtral, Phi-MoE, gpt-oss, OLMoE, MiniMax-M2, Granite MoE)."""
    width = config.int(*WIDTH)
    gpt_oss = recipe is GPT_OSS
    correction = ""
    if recipe is MINIMAX_M2:
        config.expect("qk_norm_type", "per_layer")
        correction = "buffer" if config.bool("use_routing_bias", default=True) else ""
        if any(kind != 1 for kind in config.ints("attn_type_list") or ()):
            raise config.unsupported("attn_type_list", "MiniMax-M2 has softmax attention (1) on every layer")
        for unused in ("use_mtp", "mtp_transformer_layers", "num_mtp_modules"):
            config.raw(
                unused
            )  # the published checkpoints carry no prediction layers (230 GB of fp8 without them)
    shared = config.int("shared_intermediate_size", default=0, low=0)
    if shared and "granitemoeshared" not in recipe.model_types:
        raise config.unsupported("shared_intermediate_size", "this family has no shared expert")
    layer = mixture(
        width=width,
        n_experts=config.int(*EXPERTS),
        top_k=config.int(*TOP_K),
        intermediate=config.int("intermediate_size", "moe_intermediate_size"),
        shared_intermediate=shared,
        expert_bias=gpt_oss,
        router_bias=gpt_oss,
        correction=correction,
        router="router" if gpt_oss else "gate",
        prefix="mlp" if gpt_oss or recipe is OLMOE else "block_sparse_moe",
        shared="shared_mlp",
    )
    spec_layers = [layer] * config.layers()
    head_bias = recipe is PHIMOE and config.bool("lm_head_bias", default=False)
    return decoder(config, recipe, spec_layers, head_bias=head_bias)


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


def parse_hunyuan(config: ConfigReader) -> ModelSpec:
    """Hunyuan-A13B: every layer routed experts and a shared one; sizes are given per layer and must be equal."""
    width = config.int(*WIDTH)
    layers = config.layers()
    for field in ("use_mla", "use_cla", "moe_layer_num_skipped", "add_classification_head"):
        config.expect(field, False, 0)
    for field in ("cla_share_factor", "use_mixed_mlp_moe", "num_media_embeds", "attention_head_dim"):
        config.raw(field)
    for field in ("dense_list", "org_vocab_size"):  # of the classification head and the tokenizer
        config.raw(field)
    sizes = {
        field: _uniform(config, names, layers)
        for field, names in (
            ("intermediate", ("moe_intermediate_size", "intermediate_size")),
            ("top_k", ("moe_topk", "num_experts_per_tok")),
            ("shared", ("num_shared_expert",)),
        )
    }
    intermediate = config.int("intermediate_size", default=sizes["intermediate"])
    layer = mixture(
        width=width,
        n_experts=config.int("num_experts"),
        top_k=sizes["top_k"],
        intermediate=sizes["intermediate"],
        shared_intermediate=intermediate * sizes["shared"],
        shared="shared_mlp",
        router="gate.wg",
    )
    config.raw("attention_head_dim", "head_dim")
    return decoder(config, HUNYUAN_MOE, [layer] * layers)


def _uniform(config: ConfigReader, names: tuple[str, ...], layers: int) -> int:
    """A size that every layer has, stated once or as an equal list."""
    for name in names:
        if config.has(name):
            values = set(config.per_layer(name, layers=layers))
            if len(values) > 1:
                raise config.unsupported(name, "layers of different sizes are not understood for this family")
            return values.pop()
    return 1


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


def parse_dbrx(config: ConfigReader) -> ModelSpec:
    """DBRX: sizes in `attn_config` and `ffn_config`, LayerNorms without shift."""
    attention, feed_forward = config.need_section("attn_config"), config.need_section("ffn_config")
    for part in (attention, feed_forward):
        part.raw("model_type")
    width = config.int("d_model")
    layer = mixture(
        width=width,
        n_experts=feed_forward.int("moe_num_experts"),
        top_k=feed_forward.int("moe_top_k"),
        intermediate=feed_forward.int("ffn_hidden_size"),
        prefix="ffn",
        router="router.layer",
        names=("mlp.w1", "mlp.v1", "mlp.w2"),
    )
    merged = config.overlaid({"num_key_value_heads": attention.int("kv_n_heads")})
    recipe = _recipe("DbrxForCausalLM", "dbrx", block_norms=("norm_1", "norm_2"))
    config.raw("max_seq_len")
    return decoder(merged, recipe, [layer] * config.layers())


FAMILIES: Final = (
    *(
        Family(
            model_types=recipe.model_types,
            parse=partial(every_layer, recipe=recipe),
            architectures=(recipe.architecture,),
        )
        for recipe in (MIXTRAL, PHIMOE, GPT_OSS, MINIMAX_M2, OLMOE, FLEX_OLMO, GRANITE_MOE)
    ),
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
    Family(
        model_types=HUNYUAN_MOE.model_types, parse=parse_hunyuan, architectures=("HunYuanMoEV1ForCausalLM",)
    ),
    Family(model_types=("dbrx",), parse=parse_dbrx, architectures=("DbrxForCausalLM",)),
)
