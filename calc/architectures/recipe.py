"""A decoder of Llama's shape (grouped attention, a feed-forward layer, two norms), and how a family differs: its `Recipe`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.layers import gated_mlp, grouped_attention, plain_mlp
from calc.architectures.tensors import Weights, norm, norms
from calc.architectures.windows import WindowRule, no_window
from calc.model import Attention, Block, Mlp, ModelSpec, Moe, Stack

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
