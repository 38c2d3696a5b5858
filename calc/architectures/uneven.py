"""Mixtures whose attention differs from layer to layer: Laguna (heads per layer), MiniMax-M3 (block-sparse layers).

Sources: modelling code in transformers 5 (laguna; the text part of minimax_m3_vl).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention, mixture
from calc.architectures.recipe import PRE_NORMS
from calc.architectures.tensors import linear, norm, norms
from calc.architectures.windows import FULL, SLIDING
from calc.model import Attention, Block, Indexer, ModelSpec, Part, Split


def parse_laguna(config: ConfigReader) -> ModelSpec:
    """Laguna: gated attention with heads and window per layer, per-head norms, mixtures with one shared expert."""
    width, layers = config.int("hidden_size"), config.layers()
    default = config.int("num_attention_heads")
    heads = config.ints("num_attention_heads_per_layer", length=layers, low=1) or [default] * layers
    kinds = config.words("layer_types", allowed=(FULL, SLIDING), length=layers) or [FULL] * layers
    config.raw("sliding_window")
    mlps = config.words("mlp_layer_types", allowed=("dense", "sparse"), length=layers)
    mlps = mlps or ["dense", *["sparse"] * (layers - 1)]
    sparse = mixture(
        width=width,
        n_experts=config.int("num_experts"),
        top_k=config.int("num_experts_per_tok"),
        intermediate=config.int("moe_intermediate_size"),
        shared_intermediate=config.int("shared_expert_intermediate_size"),
        correction="parameter",
    )
    dense = gated_mlp(width=width, intermediate=config.int("intermediate_size"))
    built: dict[tuple[int, str, str], Block] = {}
    blocks = []
    for key in zip(heads, kinds, mlps, strict=True):
        if key not in built:
            attention = _laguna_attention(config, width, key[0], sliding=key[1] == SLIDING)
            feed_forward = sparse if key[2] == "sparse" else dense
            built[key] = Block(sublayers=(attention, feed_forward), norms=norms(width, *PRE_NORMS))
        blocks.append(built[key])
    return causal_lm(
        config,
        default_architecture="LagunaForCausalLM",
        width=width,
        blocks=blocks,
        final=norm("model.norm", width),
        max_positions=max_positions(config),
    )


def _laguna_attention(config: ConfigReader, width: int, n_heads: int, *, sliding: bool) -> Attention:
    head_dim = config.int("head_dim", default=128)
    gating = config.raw("gating")
    per_head = gating in (None, True, "per-head")
    if not per_head and gating not in (False, "per-element"):
        raise config.unsupported("gating", 'known are true, "per-head" and "per-element"')
    bias = config.bool("attention_bias", default=False)
    gates = n_heads if per_head else n_heads * head_dim
    return grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=config.int("num_key_value_heads"),
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=(head_dim, head_dim),
        window=config.int("sliding_window") if sliding else None,
        extra=linear("self_attn.g_proj", width, gates, Part.ATTENTION, Split.COLUMN),
    )


def parse_minimax_m3(config: ConfigReader) -> ModelSpec:
    """MiniMax-M3, text: per-head norms, block-sparse layers with an indexer, a dense beginning, one shared expert."""
    width, layers = config.int("hidden_size"), config.layers()
    config.expect("qk_norm_type", "per_head")
    config.expect("use_qk_norm", True)
    config.expect("attention_output_gate", False)
    config.expect("n_shared_experts", 1)
    for unused in (
        "first_k_dense_replace",
        "num_mtp_modules",
        "num_nextn_predict_layers",
        "intermediate_size",
    ):
        config.raw(unused)
    mixed = config.ints("moe_layer_freq", length=layers)
    section = config.section("sparse_attention_config")
    if mixed is None or section is None:
        raise config.unsupported(
            "moe_layer_freq", "moe_layer_freq and sparse_attention_config must describe the layers"
        )
    sparse = section.ints("sparse_attention_freq", length=layers) or [0] * layers
    full, selected = _m3_attentions(config, section, width)
    experts = mixture(
        width=width,
        n_experts=config.int("num_local_experts"),
        top_k=config.int("num_experts_per_tok"),
        intermediate=config.int("moe_intermediate_size", "intermediate_size"),
        shared_intermediate=config.int("shared_intermediate_size"),
        correction="buffer" if config.bool("use_routing_bias", default=True) else "",
    )
    dense = gated_mlp(width=width, intermediate=config.int("dense_intermediate_size"))
    built = {
        (s, m): Block(
            sublayers=(selected if s else full, experts if m else dense), norms=norms(width, *PRE_NORMS)
        )
        for s in (False, True)
        for m in (False, True)
    }
    return causal_lm(
        config,
        default_architecture="MiniMaxM3ForCausalLM",
        width=width,
        blocks=[built[bool(s), bool(m)] for s, m in zip(sparse, mixed, strict=True)],
        final=norm("model.norm", width),
        max_positions=max_positions(config),
    )


def _m3_attentions(config: ConfigReader, section: ConfigReader, width: int) -> tuple[Attention, Attention]:
    """(full attention, attention over the blocks that an indexer selects)."""
    layers = config.layers()
    indexer = Indexer(
        n_heads=section.int("sparse_num_index_heads"),
        head_dim=section.int("sparse_index_dim"),
        top_k=section.int("sparse_topk_blocks") * section.int("sparse_block_size"),
    )
    section.ints("sparse_disable_index_value", length=layers)
    for unused in ("sparse_init_block", "sparse_local_block", "sparse_score_type", "use_sparse_attention"):
        section.raw(unused)
    head_dim = config.int("head_dim", default=128)
    full = grouped_attention(
        width=width,
        n_heads=config.int("num_attention_heads"),
        n_kv_heads=config.int("num_key_value_heads"),
        head_dim=head_dim,
        qk_norm=(head_dim, head_dim),
    )
    prefix = "self_attn.indexer"
    selecting = (
        linear(f"{prefix}.q_proj", width, indexer.n_heads * indexer.head_dim, Part.INDEXER)
        + linear(f"{prefix}.k_proj", width, indexer.head_dim, Part.INDEXER)
        + norm(f"{prefix}.q_norm", indexer.head_dim)
        + norm(f"{prefix}.k_norm", indexer.head_dim)
    )
    return full, replace(full, indexer=indexer, weights=full.weights + selecting)


FAMILIES: Final = (
    Family(model_types=("laguna",), parse=parse_laguna, architectures=("LagunaForCausalLM",)),
    Family(
        model_types=("minimax_m3", "minimax_m3_text"),
        parse=parse_minimax_m3,
        architectures=("MiniMaxM3ForCausalLM",),
    ),
)
