"""Mixture-of-experts decoders whose layers are all alike: Mixtral, Phi-MoE, gpt-oss, MiniMax-M2, OLMoE, DBRX and others.

Sources: the published configs and modelling code of each family as transformers 5 builds them; for Hunyuan-A13B the
code that the checkpoint carries.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import mixture
from calc.architectures.mixtures import EXPERTS, TOP_K
from calc.architectures.recipe import ATTENTION_BIAS, POST_NORMS, WIDTH, Flag, Recipe, decoder
from calc.architectures.tensors import Weights, vector
from calc.architectures.windows import everywhere, patterned
from calc.model import ModelSpec, Moe, Part, Split


def _sinks(_width: int, n_heads: int, _head_dim: int) -> Weights:
    return vector("self_attn.sinks", n_heads, Part.ATTENTION, Split.COLUMN)


MIXTRAL: Final = Recipe(
    architecture="MixtralForCausalLM", model_types=("mixtral",), kv_heads_stated=True, windows=everywhere
)
PHIMOE: Final = Recipe(
    architecture="PhimoeForCausalLM",
    model_types=("phimoe",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    norm_bias=True,
    kv_heads_stated=True,
    windows=everywhere,
)
GPT_OSS: Final = Recipe(
    architecture="GptOssForCausalLM",
    model_types=("gpt_oss",),
    qkv_bias=Flag(field="attention_bias", default=True),
    out_bias=Flag(field="attention_bias", default=True),
    kv_heads_stated=True,
    head_dim_default=64,
    windows=patterned(2),
    attention_extra=_sinks,
)
MINIMAX_M2: Final = Recipe(
    architecture="MiniMaxM2ForCausalLM",
    model_types=("minimax_m2",),
    qk_norm="all",
    qk_norm_flag=Flag(field="use_qk_norm", default=True),
    kv_heads_stated=True,
)
HUNYUAN_MOE: Final = Recipe(
    architecture="HunYuanMoEV1ForCausalLM",
    model_types=(
        "hunyuan",
        "hunyuan_v1_moe",
    ),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="head",
    qk_norm_flag=Flag(field="use_qk_norm", default=True),
)
OLMOE: Final = Recipe(
    architecture="OlmoeForCausalLM",
    model_types=("olmoe",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="all",
)
FLEX_OLMO: Final = Recipe(
    architecture="FlexOlmoForCausalLM",
    model_types=("flex_olmo",),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
    qk_norm="all",
    block_norms=POST_NORMS,
)
GRANITE_MOE: Final = Recipe(
    architecture="GraniteMoeForCausalLM",
    model_types=(
        "granitemoe",
        "granitemoeshared",
    ),
    qkv_bias=ATTENTION_BIAS,
    out_bias=ATTENTION_BIAS,
)


def uniform_layer(
    config: ConfigReader,
    *,
    prefix: str = "block_sparse_moe",
    router: str = "gate",
    bias: bool = False,
    correction: str = "",
    shared_intermediate: int = 0,
) -> Moe:
    """The mixture that every layer has; `bias`: of router and experts."""
    return mixture(
        width=config.int(*WIDTH),
        n_experts=config.int(*EXPERTS),
        top_k=config.int(*TOP_K),
        intermediate=config.int("intermediate_size", "moe_intermediate_size"),
        shared_intermediate=shared_intermediate,
        expert_bias=bias,
        router_bias=bias,
        correction=correction,
        prefix=prefix,
        router=router,
        shared="shared_mlp",
    )


def parse_uniform(config: ConfigReader, recipe: Recipe, prefix: str) -> ModelSpec:
    """Mixtral, OLMoE, FlexOlmo: nothing beside the routed experts."""
    return decoder(config, recipe, [uniform_layer(config, prefix=prefix)] * config.layers())


def parse_phimoe(config: ConfigReader) -> ModelSpec:
    """Phi-3.5-MoE and its small kin: Mixtral with LayerNorms and biases, the head's included."""
    head_bias = config.bool("lm_head_bias", default=False)
    return decoder(config, PHIMOE, [uniform_layer(config)] * config.layers(), head_bias=head_bias)


def parse_gpt_oss(config: ConfigReader) -> ModelSpec:
    """gpt-oss: biases everywhere, sinks in attention, every second layer windowed."""
    layer = uniform_layer(config, prefix="mlp", router="router", bias=True)
    return decoder(config, GPT_OSS, [layer] * config.layers())


def parse_minimax_m2(config: ConfigReader) -> ModelSpec:
    """MiniMax-M2: norms over all heads, a score correction; its checkpoints carry no prediction layers (230 GB in fp8)."""
    config.expect("qk_norm_type", "per_layer")
    if any(kind != 1 for kind in config.ints("attn_type_list") or ()):
        raise config.unsupported("attn_type_list", "MiniMax-M2 has softmax attention (1) on every layer")
    if config.int("shared_intermediate_size", default=0, low=0):
        raise config.unsupported("shared_intermediate_size", "this family has no shared expert")
    for unused in ("use_mtp", "mtp_transformer_layers", "num_mtp_modules"):
        config.raw(unused)
    correction = "buffer" if config.bool("use_routing_bias", default=True) else ""
    return decoder(config, MINIMAX_M2, [uniform_layer(config, correction=correction)] * config.layers())


def parse_granite_moe(config: ConfigReader) -> ModelSpec:
    """Granite MoE, with or without a shared feed-forward layer."""
    shared = config.int("shared_intermediate_size", default=0, low=0)
    layer = uniform_layer(config, shared_intermediate=shared)
    return decoder(config, GRANITE_MOE, [layer] * config.layers())


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
    recipe = Recipe(architecture="DbrxForCausalLM", model_types=("dbrx",), block_norms=("norm_1", "norm_2"))
    config.raw("max_seq_len")
    return decoder(merged, recipe, [layer] * config.layers())


FAMILIES: Final = (
    *(
        Family(
            model_types=recipe.model_types,
            parse=partial(parse_uniform, recipe=recipe, prefix=prefix),
            architectures=(recipe.architecture,),
        )
        for recipe, prefix in ((MIXTRAL, "block_sparse_moe"), (OLMOE, "mlp"), (FLEX_OLMO, "mlp"))
    ),
    Family(
        model_types=PHIMOE.model_types,
        parse=parse_phimoe,
        architectures=("PhimoeForCausalLM", "PhiMoEForCausalLM"),
    ),
    Family(model_types=GPT_OSS.model_types, parse=parse_gpt_oss, architectures=(GPT_OSS.architecture,)),
    Family(
        model_types=MINIMAX_M2.model_types, parse=parse_minimax_m2, architectures=(MINIMAX_M2.architecture,)
    ),
    Family(
        model_types=GRANITE_MOE.model_types,
        parse=parse_granite_moe,
        architectures=(GRANITE_MOE.architecture,),
    ),
    Family(
        model_types=HUNYUAN_MOE.model_types, parse=parse_hunyuan, architectures=(HUNYUAN_MOE.architecture,)
    ),
    Family(model_types=("dbrx",), parse=parse_dbrx, architectures=("DbrxForCausalLM",)),
)
