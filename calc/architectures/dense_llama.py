"""Dense decoders of Llama's shape: grouped attention, a feed-forward layer, two norms; small differences in a `Recipe`.

Sources: the published configs and modelling code of each family as transformers 5 builds them; for Baichuan, InternLM,
InternLM 2, Orion and MiMo the code that the checkpoints carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention, plain_mlp
from calc.architectures.tensors import Weights, norm, norms, vector
from calc.architectures.windows import WindowRule, everywhere, late_layers, listed, no_window, patterned
from calc.model import Attention, Block, Mlp, ModelSpec, Moe, Part, Stack, Weight

WIDTH: Final = ("hidden_size", "n_embd", "d_model")
PRE_NORMS: Final = ("input_layernorm", "post_attention_layernorm")
POST_NORMS: Final = ("post_attention_layernorm", "post_feedforward_layernorm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A yes-or-no that a config field decides, with what holds where it is absent; no field: always `default`."""

    field: str | None = None
    default: bool = False

    def read(self, config: ConfigReader) -> bool:
        return self.default if self.field is None else config.bool(self.field, default=self.default)


NO: Final = Flag()
YES: Final = Flag(default=True)
ATTENTION_BIAS: Final = Flag(field="attention_bias")
MLP_BIAS: Final = Flag(field="mlp_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a family differs from Llama.

    `kv_heads_stated`: the class default is a number of its own, so a config that leaves it out is refused;
    otherwise absent means one KV head per head. `qk_norm`: "head" (one norm shared by the heads) or "all" (over all).
    """

    architecture: str
    model_types: tuple[str, ...]
    qkv_bias: Flag = NO
    out_bias: Flag = NO
    mlp_bias: Flag = NO
    qk_norm: str = ""
    qk_norm_flag: Flag = YES
    block_norms: tuple[str, ...] = PRE_NORMS
    norm_bias: bool = False
    norm_has_scale: bool = True
    gated: bool = True
    tied_default: bool = False
    kv_heads_stated: bool = False
    head_dim_default: int | None = None
    windows: WindowRule = no_window
    attention_extra: Callable[[int, int, int], Weights] | None = None  # of (width, query heads, head width)


def parse_dense(config: ConfigReader, recipe: Recipe) -> ModelSpec:
    """A dense decoder by its recipe."""
    mlp = dense_mlp(config, recipe, config.int(*WIDTH))
    return decoder(config, recipe, [mlp] * config.layers())


def decoder(
    config: ConfigReader,
    recipe: Recipe,
    feed_forwards: Sequence[Mlp | Moe],
    *,
    stacks: tuple[Stack, ...] = (),
    outer: ConfigReader | None = None,
    kind: str | None = None,
    head_bias: bool = False,
) -> ModelSpec:
    """A decoder of Llama's shape with one feed-forward layer, dense or mixture, for each layer.

    `stacks`, `outer` and `kind` as in `causal_lm`.
    """
    width = config.int(*WIDTH)
    return causal_lm(
        config,
        default_architecture=recipe.architecture,
        width=width,
        blocks=dense_blocks(config, recipe, width, feed_forwards),
        final=norm("model.norm", width, bias=recipe.norm_bias) if recipe.norm_has_scale else (),
        tied_default=recipe.tied_default,
        max_positions=max_positions(config),
        stacks=stacks,
        outer=outer,
        kind=kind,
        head_bias=head_bias,
    )


def dense_blocks(
    config: ConfigReader, recipe: Recipe, width: int, feed_forwards: Sequence[Mlp | Moe]
) -> list[Block]:
    """One block per layer; equal ones are one object."""
    block_norms = dense_norms(config, recipe, width)
    built: dict[tuple[int | None, int], Block] = {}
    blocks = []
    windows = recipe.windows(config, len(feed_forwards))
    for window, feed_forward in zip(windows, feed_forwards, strict=True):
        key = (window, id(feed_forward))
        if key not in built:
            attention = dense_attention(config, recipe, width, window)
            built[key] = Block(sublayers=(attention, feed_forward), norms=block_norms)
        blocks.append(built[key])
    return blocks


def heads(config: ConfigReader, recipe: Recipe, width: int) -> tuple[int, int, int]:
    """(query heads, KV heads, head width)."""
    n_heads = config.int("num_attention_heads", "n_head", "n_heads")
    kv_names = ("num_key_value_heads", "num_kv_heads", "n_head_kv")
    if recipe.kv_heads_stated and not any(name in config.fields for name in kv_names):
        n_kv_heads = config.int(*kv_names)
    else:
        n_kv_heads = config.int(*kv_names, default=n_heads)
    head_dim = config.optional_int("head_dim") or recipe.head_dim_default
    if head_dim is None:
        if width % n_heads:
            raise config.unsupported(
                "hidden_size", f"without head_dim it must be a multiple of {n_heads} heads"
            )
        head_dim = width // n_heads
    return n_heads, n_kv_heads, head_dim


def dense_attention(config: ConfigReader, recipe: Recipe, width: int, window: int | None) -> Attention:
    """The attention of one layer."""
    n_heads, n_kv_heads, head_dim = heads(config, recipe, width)
    qk_norm: tuple[int, int] | None = None
    if recipe.qk_norm and recipe.qk_norm_flag.read(config):
        per_head = recipe.qk_norm == "head"
        qk_norm = (head_dim, head_dim) if per_head else (n_heads * head_dim, n_kv_heads * head_dim)
    return grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        qkv_bias=recipe.qkv_bias.read(config),
        out_bias=recipe.out_bias.read(config),
        qk_norm=qk_norm,
        window=window,
        extra=recipe.attention_extra(width, n_heads, head_dim) if recipe.attention_extra else (),
    )


def dense_mlp(config: ConfigReader, recipe: Recipe, width: int) -> Mlp:
    """The feed-forward layer."""
    intermediate = config.int("intermediate_size", "ffn_hidden_size", "n_inner")
    build = gated_mlp if recipe.gated else plain_mlp
    return build(width=width, intermediate=intermediate, bias=recipe.mlp_bias.read(config))


def dense_norms(config: ConfigReader, recipe: Recipe, width: int) -> Weights:
    """The norms of one block; parallel attention and feed-forward share one."""
    names = recipe.block_norms
    if config.bool("use_parallel_residual", default=False):
        names = names[:1]
    return norms(width, *names, bias=recipe.norm_bias) if recipe.norm_has_scale else ()


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
