"""GPT's descendants: GPT-2, GPT-J, GPT-NeoX, BigCode, StarCoder 2, BLOOM, MPT, Falcon. LayerNorms, plain feed-forward.

Sources: the published configs and modelling code of each family as transformers 5 builds them.
"""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import causal_lm, even_head_dim, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import grouped_attention, plain_mlp
from calc.architectures.tensors import norm, norms, tensor
from calc.architectures.windows import everywhere
from calc.model import Attention, Block, ModelSpec, Part

WIDTH: Final = ("hidden_size", "n_embd", "n_embed", "d_model")
HEADS: Final = ("num_attention_heads", "n_head", "n_heads")
FUSED: Final = ("c_attn", "c_attn", "c_attn", "c_proj")


def parse_gpt2(config: ConfigReader) -> ModelSpec:
    """GPT-2: learned positions, biases everywhere, tied head."""
    return _gpt2_like(config, kv_heads=None, default="GPT2LMHeadModel")


def parse_gpt_bigcode(config: ConfigReader) -> ModelSpec:
    """SantaCoder and StarCoder 1: GPT-2 with one KV head (`multi_query`)."""
    one = config.bool("multi_query", default=True)
    if one:
        config.expect("num_key_value_heads", 1)
    return _gpt2_like(config, kv_heads=1 if one else None, default="GPTBigCodeForCausalLM")


def _gpt2_like(config: ConfigReader, *, kv_heads: int | None, default: str) -> ModelSpec:
    width, n_heads = config.int(*WIDTH), config.int(*HEADS)
    positions = config.int("n_positions", "max_position_embeddings")
    config.raw("n_ctx")
    config.expect("add_cross_attention", False)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=kv_heads or n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=True,
        out_bias=True,
        prefix="attn",
        names=FUSED,
    )
    mlp = plain_mlp(
        width=width,
        intermediate=config.int("n_inner", default=4 * width),
        bias=True,
        names=("c_fc", "c_proj"),
    )
    return causal_lm(
        config,
        default_architecture=default,
        width=width,
        blocks=[Block(sublayers=(attention, mlp), norms=norms(width, "ln_1", "ln_2", bias=True))]
        * config.layers(),
        final=norm("transformer.ln_f", width, bias=True)
        + tensor("transformer.wpe", positions, width, part=Part.POSITION),
        tied_default=True,
        max_positions=positions,
        embedding_name="transformer.wte",
        path="transformer.h",
    )


def parse_gptj(config: ConfigReader) -> ModelSpec:
    """GPT-J: attention and feed-forward in parallel, rotary positions, a head with bias."""
    width, n_heads = config.int(*WIDTH), config.int(*HEADS)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        prefix="attn",
        names=("q_proj", "k_proj", "v_proj", "out_proj"),
    )
    mlp = plain_mlp(
        width=width,
        intermediate=config.int("n_inner", default=4 * width),
        bias=True,
        names=("fc_in", "fc_out"),
    )
    return causal_lm(
        config,
        default_architecture="GPTJForCausalLM",
        width=width,
        blocks=[Block(sublayers=(attention, mlp), norms=norm("ln_1", width, bias=True))] * config.layers(),
        final=norm("transformer.ln_f", width, bias=True),
        max_positions=max_positions(config),
        embedding_name="transformer.wte",
        path="transformer.h",
        head_bias=True,
    )


def parse_gpt_neox(config: ConfigReader) -> ModelSpec:
    """GPT-NeoX, Pythia, RedPajama: two LayerNorms whether or not the residual is parallel."""
    width, n_heads = config.int(*WIDTH), config.int(*HEADS)
    bias = config.bool("attention_bias", default=True)
    config.bool("use_parallel_residual", default=True)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=bias,
        out_bias=bias,
        prefix="attention",
        names=("query_key_value", "query_key_value", "query_key_value", "dense"),
    )
    mlp = plain_mlp(
        width=width,
        intermediate=config.int("intermediate_size"),
        bias=True,
        names=("dense_h_to_4h", "dense_4h_to_h"),
    )
    block = Block(
        sublayers=(attention, mlp),
        norms=norms(width, "input_layernorm", "post_attention_layernorm", bias=True),
    )
    return causal_lm(
        config,
        default_architecture="GPTNeoXForCausalLM",
        width=width,
        blocks=[block] * config.layers(),
        final=norm("gpt_neox.final_layer_norm", width, bias=True),
        max_positions=max_positions(config),
        embedding_name="gpt_neox.embed_in",
        path="gpt_neox.layers",
    )


def parse_bloom(config: ConfigReader) -> ModelSpec:
    """BLOOM: ALiBi, biases everywhere, a LayerNorm behind the embedding, tied head."""
    width, n_heads = config.int(*WIDTH), config.int(*HEADS)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=True,
        out_bias=True,
        prefix="self_attention",
        names=("query_key_value", "query_key_value", "query_key_value", "dense"),
    )
    mlp = plain_mlp(width=width, intermediate=4 * width, bias=True, names=("dense_h_to_4h", "dense_4h_to_h"))
    block = Block(
        sublayers=(attention, mlp),
        norms=norms(width, "input_layernorm", "post_attention_layernorm", bias=True),
    )
    return causal_lm(
        config,
        default_architecture="BloomForCausalLM",
        width=width,
        blocks=[block] * config.layers(),
        final=norms(width, "transformer.ln_f", "transformer.word_embeddings_layernorm", bias=True),
        tied_default=True,
        max_positions=max_positions(config),
        embedding_name="transformer.word_embeddings",
        path="transformer.h",
    )


def parse_mpt(config: ConfigReader) -> ModelSpec:
    """MPT: ALiBi, no biases, LayerNorms without shift, tied head; grouped queries by `kv_n_heads`."""
    width, n_heads = config.int(*WIDTH), config.int(*HEADS)
    config.expect("no_bias", True)
    ratio = config.int("expansion_ratio", default=4)
    kv_heads = n_heads
    section = config.section("attn_config")
    if section is not None:
        section.expect("qk_ln", False)
        section.choice(
            "attn_type",
            allowed=("multihead_attention", "multiquery_attention", "grouped_query_attention"),
            default="multihead_attention",
        )
        kind = section.str("attn_type", default="multihead_attention")
        if kind == "multiquery_attention":
            kv_heads = 1
        elif kind == "grouped_query_attention":
            kv_heads = section.int("kv_n_heads")
        section.raw("kv_n_heads")
        section.raw("model_type")
        if not section.bool("alibi", default=True):
            raise section.unsupported(
                "alibi", "learned positions (attn_config.alibi false) are not read for MPT"
            )
    config.raw("learned_pos_emb")
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=kv_heads,
        head_dim=even_head_dim(config, width, n_heads),
        prefix="attn",
        names=("Wqkv", "Wqkv", "Wqkv", "out_proj"),
    )
    block = Block(
        sublayers=(attention, plain_mlp(width=width, intermediate=ratio * width, prefix="ffn")),
        norms=norms(width, "norm_1", "norm_2"),
    )
    return causal_lm(
        config,
        default_architecture="MptForCausalLM",
        width=width,
        blocks=[block] * config.layers(),
        final=norm("transformer.norm_f", width),
        tied_default=True,
        max_positions=config.optional_int("max_seq_len"),
        embedding_name="transformer.wte",
        path="transformer.blocks",
    )


def parse_falcon(config: ConfigReader) -> ModelSpec:
    """Falcon 7B (one KV head, one LayerNorm), 40B and 180B (groups, two LayerNorms), and the sequential 1B kind."""
    width, n_heads = config.int(*WIDTH), config.int(*HEADS)
    grouped = config.bool("new_decoder_architecture", default=False)
    one = config.bool("multi_query", default=True)
    parallel = config.bool("parallel_attn", default=True)
    bias = config.bool("bias", default=False)
    stated = config.int("num_kv_heads", "n_head_kv", default=n_heads)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=stated if grouped else (1 if one else n_heads),
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=bias,
        out_bias=bias,
        prefix="self_attention",
        names=("query_key_value", "query_key_value", "query_key_value", "dense"),
    )
    mlp = plain_mlp(
        width=width,
        intermediate=config.int("ffn_hidden_size", default=4 * width),
        bias=bias,
        names=("dense_h_to_4h", "dense_4h_to_h"),
    )
    count = config.int("num_ln_in_parallel_attn", default=2 if grouped else 1, high=2)
    names = ("input_layernorm", "post_attention_layernorm") if not parallel else ("ln_attn", "ln_mlp")[:count]
    return causal_lm(
        config,
        default_architecture="FalconForCausalLM",
        width=width,
        blocks=[Block(sublayers=(attention, mlp), norms=norms(width, *names, bias=True))] * config.layers(),
        final=norm("transformer.ln_f", width, bias=True),
        tied_default=True,
        max_positions=max_positions(config),
        embedding_name="transformer.word_embeddings",
        path="transformer.h",
    )


def parse_starcoder2(config: ConfigReader) -> ModelSpec:
    """StarCoder 2: grouped attention, biases, LayerNorms, one window for all layers, tied head."""
    width = config.int("hidden_size")
    layers = config.layers()
    bias = config.bool("use_bias", default=True)
    config.expect("mlp_type", "default")
    mlp = plain_mlp(
        width=width, intermediate=config.int("intermediate_size"), bias=bias, names=("c_fc", "c_proj")
    )
    block_norms = norms(width, "input_layernorm", "post_attention_layernorm", bias=True)
    blocks = [
        Block(sublayers=(_starcoder2_attention(config, width, window, bias=bias), mlp), norms=block_norms)
        for window in everywhere(config, layers)[:1]
    ] * layers
    return causal_lm(
        config,
        default_architecture="Starcoder2ForCausalLM",
        width=width,
        blocks=blocks,
        final=norm("model.norm", width, bias=True),
        tied_default=True,
        max_positions=max_positions(config),
    )


def _starcoder2_attention(config: ConfigReader, width: int, window: int | None, *, bias: bool) -> Attention:
    n_heads = config.int(*HEADS)
    return grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=config.int("num_key_value_heads"),
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=bias,
        out_bias=bias,
        window=window,
    )


FAMILIES: Final = (
    Family(model_types=("gpt2", "gpt-sw3"), parse=parse_gpt2, architectures=("GPT2LMHeadModel",)),
    Family(model_types=("gpt_bigcode",), parse=parse_gpt_bigcode, architectures=("GPTBigCodeForCausalLM",)),
    Family(model_types=("gptj",), parse=parse_gptj, architectures=("GPTJForCausalLM",)),
    Family(model_types=("gpt_neox",), parse=parse_gpt_neox, architectures=("GPTNeoXForCausalLM",)),
    Family(model_types=("bloom",), parse=parse_bloom, architectures=("BloomForCausalLM",)),
    Family(model_types=("mpt",), parse=parse_mpt, architectures=("MptForCausalLM", "MPTForCausalLM")),
    Family(
        model_types=("falcon", "RefinedWeb", "RefinedWebModel"),
        parse=parse_falcon,
        architectures=("FalconForCausalLM", "RWForCausalLM"),
    ),
    Family(model_types=("starcoder2",), parse=parse_starcoder2, architectures=("Starcoder2ForCausalLM",)),
)
