"""Multi-head latent attention (MLA) with its weights, and the key selector that DeepSeek-V3.2 and GLM-5 put beside it."""

from __future__ import annotations

from calc.architectures.config_reader import ConfigReader
from calc.architectures.tensors import Weights, linear, norm
from calc.model import Indexer, LatentAttention, Part, Split

PREFIX = "self_attn"


def latent_attention(
    config: ConfigReader,
    width: int,
    *,
    value_dim: int | None = None,
    indexer: Indexer | None = None,
    extra: Weights = (),
) -> LatentAttention:
    """MLA by DeepSeek's field names; `q_lora_rank` null means one full query projection (V2-Lite)."""
    n_heads = config.int("num_attention_heads")
    rank = config.int("kv_lora_rank")
    rope, nope = config.int("qk_rope_head_dim"), config.int("qk_nope_head_dim")
    value = value_dim or config.int("v_head_dim")
    q_rank = config.optional_int("q_lora_rank")
    bias = config.bool("attention_bias", default=False)
    for ignored in (
        "num_key_value_heads",
        "head_dim",
    ):  # MLA has one latent for all heads; engines state others
        config.raw(ignored)
    config.expect("qk_head_dim", nope + rope)
    part = Part.ATTENTION
    if q_rank is None:
        weights = linear(f"{PREFIX}.q_proj", width, n_heads * (nope + rope), part, Split.COLUMN)
    else:
        weights = (
            linear(f"{PREFIX}.q_a_proj", width, q_rank, part, bias=bias)
            + norm(f"{PREFIX}.q_a_layernorm", q_rank)
            + linear(f"{PREFIX}.q_b_proj", q_rank, n_heads * (nope + rope), part, Split.COLUMN)
        )
    weights += (
        linear(f"{PREFIX}.kv_a_proj_with_mqa", width, rank + rope, part, bias=bias)
        + norm(f"{PREFIX}.kv_a_layernorm", rank)
        + linear(f"{PREFIX}.kv_b_proj", rank, n_heads * (nope + value), part, Split.COLUMN)
        + linear(f"{PREFIX}.o_proj", n_heads * value, width, part, Split.ROW, bias=bias)
        + extra
    )
    if indexer is not None:
        if q_rank is None:
            raise config.unsupported("q_lora_rank", "an indexer needs the low-rank query")
        weights += indexer_weights(indexer, width, q_rank)
    return LatentAttention(
        n_heads=n_heads,
        kv_lora_rank=rank,
        rope_dim=rope,
        nope_dim=nope,
        value_dim=value,
        q_lora_rank=q_rank,
        indexer=indexer,
        weights=weights,
    )


def read_indexer(config: ConfigReader, *, owns_keys: bool = True) -> Indexer:
    """The key selector that the config states; one without keys of its own reuses an earlier layer's selection."""
    return Indexer(
        n_heads=config.int("index_n_heads"),
        head_dim=config.int("index_head_dim"),
        top_k=config.int("index_topk"),
        owns_keys=owns_keys,
    )


def indexer_weights(indexer: Indexer, width: int, q_rank: int) -> Weights:
    """Query, key and head-weight projections of an indexer that owns its keys."""
    if not indexer.owns_keys:
        return ()
    prefix = f"{PREFIX}.indexer"
    return (
        linear(f"{prefix}.wq_b", q_rank, indexer.n_heads * indexer.head_dim, Part.INDEXER)
        + linear(f"{prefix}.wk", width, indexer.head_dim, Part.INDEXER)
        + norm(f"{prefix}.k_norm", indexer.head_dim, bias=True)
        + linear(f"{prefix}.weights_proj", width, indexer.n_heads, Part.INDEXER)
    )
