"""DeepSeek-V4: short windows over one shared key-value vector, compressed entries beyond, several residual streams.

Source: modelling code in transformers 5 and DeepSeek-V4's config; the prediction layer is a plain windowed block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.draft import mtp_stack
from calc.architectures.family import Family
from calc.architectures.layers import mixture
from calc.architectures.tensors import Weights, linear, norm, norms, tensor, vector
from calc.model import Block, CompressedAttention, Indexer, ModelSpec, Moe, Part, Split, Weight

SPARSE: Final = "compressed_sparse_attention"
HEAVY: Final = "heavily_compressed_attention"
WINDOW: Final = "sliding_attention"
PREFIX: Final = "self_attn"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    width: int
    n_heads: int
    head_dim: int
    q_rank: int
    groups: int
    o_rank: int
    window: int
    streams: int


def parse_deepseek_v4(config: ConfigReader) -> ModelSpec:
    """DeepSeek-V4 (Flash and Pro); the first `num_hash_layers` route by token number instead of a score."""
    layers = config.layers()
    sizes = _Sizes(
        width=config.int("hidden_size"),
        n_heads=config.int("num_attention_heads"),
        head_dim=config.int("head_dim"),
        q_rank=config.int("q_lora_rank"),
        groups=config.int("o_groups"),
        o_rank=config.int("o_lora_rank"),
        window=config.int("sliding_window"),
        streams=config.int("hc_mult", high=64),
    )
    config.expect("num_key_value_heads", 1)
    config.expect("attention_bias", False)
    config.expect("mlp_bias", False)
    config.raw("qk_rope_head_dim")
    config.raw("qk_nope_head_dim")
    ratios = compress_ratios(config, layers)
    listed = config.words("mlp_layer_types", allowed=("hash_moe", "moe"), length=layers)
    hashed = config.int("num_hash_layers", default=listed.count("hash_moe") if listed else 3, low=0)
    if listed and listed != ["hash_moe"] * min(hashed, layers) + ["moe"] * max(layers - hashed, 0):
        raise config.unsupported("mlp_layer_types", "the layers that route by token number must come first")
    built: dict[tuple[int, bool], Block] = {}
    blocks = []
    for index, ratio in enumerate(ratios):
        key = (ratio, index < hashed)
        if key not in built:
            built[key] = _block(config, sizes, ratio, hashed=index < hashed)
        blocks.append(built[key])
    drafts = mtp_stack(config, _block(config, sizes, 0, hashed=False), sizes.width, copies_embedding=False)
    wide = sizes.streams * sizes.width
    head = (
        tensor("model.hc_head.hc_fn", sizes.streams, wide, part=Part.MLP)
        + vector("model.hc_head.hc_base", sizes.streams)
        + vector("model.hc_head.hc_scale", 1)
    )
    return causal_lm(
        config,
        default_architecture="DeepseekV4ForCausalLM",
        width=sizes.width,
        blocks=blocks,
        final=norm("model.norm", sizes.width) + head,
        max_positions=max_positions(config),
        stacks=drafts,
    )


def compress_ratios(config: ConfigReader, layers: int) -> list[int]:
    """0 (window only), 4 (sparse, with indexer) or 128 (heavy) for each layer; entries for MTP layers are cut off."""
    listed = config.words("layer_types", allowed=(SPARSE, HEAVY, WINDOW))
    rates = {WINDOW: 0, SPARSE: 4, HEAVY: 128}
    if listed:
        section = config.section("compress_rates")
        if section is not None:
            rates |= {kind: section.int(kind) for kind in (SPARSE, HEAVY)}
        ratios = [rates[kind] for kind in listed]
    else:
        found = config.ints("compress_ratios")
        if found is None:
            raise config.unsupported(
                "compress_ratios", "the config must list the layers' ratios or layer_types"
            )
        ratios = found
    if len(ratios) < layers or any(ratio not in rates.values() for ratio in ratios):
        raise config.unsupported("compress_ratios", f"it must give 0, 4 or 128 for each of {layers} layers")
    return ratios[:layers]


def _block(config: ConfigReader, sizes: _Sizes, ratio: int, *, hashed: bool) -> Block:
    attention = _attention(config, sizes, ratio)
    connections = _hyper_connection("attn_hc", sizes) + _hyper_connection("ffn_hc", sizes)
    return Block(
        sublayers=(attention, _mixture(config, sizes, hashed=hashed)),
        norms=norms(sizes.width, "input_layernorm", "post_attention_layernorm") + connections,
    )


def _hyper_connection(name: str, sizes: _Sizes) -> Weights:
    """Mixes `streams` residual streams before and after a sublayer (mHC, paper section 2.2)."""
    outputs = (2 + sizes.streams) * sizes.streams
    return (
        tensor(f"{name}.fn", outputs, sizes.streams * sizes.width, part=Part.NORM)
        + vector(f"{name}.base", outputs)
        + vector(f"{name}.scale", 3)
    )


def _attention(config: ConfigReader, sizes: _Sizes, ratio: int) -> CompressedAttention:
    width, part = sizes.width, Part.ATTENTION
    inner = sizes.n_heads * sizes.head_dim
    weights = (
        linear(f"{PREFIX}.q_a_proj", width, sizes.q_rank, part)
        + norm(f"{PREFIX}.q_a_norm", sizes.q_rank)
        + linear(f"{PREFIX}.q_b_proj", sizes.q_rank, inner, part, Split.COLUMN)
        + linear(f"{PREFIX}.kv_proj", width, sizes.head_dim, part)
        + norm(f"{PREFIX}.kv_norm", sizes.head_dim)
        + linear(f"{PREFIX}.o_a_proj", inner // sizes.groups, sizes.groups * sizes.o_rank, part, Split.COLUMN)
        + linear(f"{PREFIX}.o_b_proj", sizes.groups * sizes.o_rank, width, part, Split.ROW)
        + vector(f"{PREFIX}.sinks", sizes.n_heads, part, Split.COLUMN)
    )
    indexer: Indexer | None = None
    if ratio == 4:
        indexer = Indexer(
            n_heads=config.int("index_n_heads"),
            head_dim=config.int("index_head_dim"),
            top_k=config.int("index_topk"),
        )
        weights += _compressor(
            f"{PREFIX}.compressor", width, ratio, inner=2 * sizes.head_dim, entry=sizes.head_dim, part=part
        )
        prefix = f"{PREFIX}.compressor.indexer"
        weights += _compressor(
            prefix, width, ratio, inner=2 * indexer.head_dim, entry=indexer.head_dim, part=Part.INDEXER
        )
        weights += linear(
            f"{prefix}.q_b_proj", sizes.q_rank, indexer.n_heads * indexer.head_dim, Part.INDEXER
        )
        weights += linear(f"{prefix}.scorer.weights_proj", width, indexer.n_heads, Part.INDEXER)
    elif ratio:
        weights += _compressor(
            f"{PREFIX}.compressor", width, ratio, inner=sizes.head_dim, entry=sizes.head_dim, part=part
        )
    return CompressedAttention(
        n_heads=sizes.n_heads,
        head_dim=sizes.head_dim,
        window=sizes.window,
        ratio=ratio or None,
        indexer=indexer,
        weights=weights,
    )


def _compressor(prefix: str, width: int, ratio: int, *, inner: int, entry: int, part: Part) -> Weights:
    """Turns `ratio` tokens into one entry; overlapping windows (ratio 4) project twice as wide."""
    return (
        linear(f"{prefix}.kv_proj", width, inner, part)
        + linear(f"{prefix}.gate_proj", width, inner, part)
        + tensor(f"{prefix}.position_bias", ratio, inner, part=Part.POSITION)
        + norm(f"{prefix}.kv_norm", entry)
    )


def _mixture(config: ConfigReader, sizes: _Sizes, *, hashed: bool) -> Moe:
    intermediate = config.int("moe_intermediate_size", "intermediate_size")
    top_k = config.int("num_experts_per_tok")
    table: Weights = ()
    if hashed:
        table = (
            Weight(
                name="mlp.gate.tid2eid",
                shape=(config.int("vocab_size"), top_k),
                part=Part.ROUTER,
                buffer=True,
            ),
        )
    return mixture(
        width=sizes.width,
        n_experts=config.int("n_routed_experts"),
        top_k=top_k,
        intermediate=intermediate,
        shared_intermediate=intermediate * config.int("n_shared_experts", default=1, low=1),
        correction="" if hashed else "buffer",
        extra=table,
    )


FAMILIES: Final = (
    Family(
        model_types=("deepseek_v4", "deepseek_ref"),
        parse=parse_deepseek_v4,
        architectures=("DeepseekV4ForCausalLM",),
    ),
)
