"""Zamba 2: Mamba 2 everywhere; at hybrid layers a shared transformer runs first, with its own cache each time.

A hybrid layer is two blocks here: the shared transformer (its weights owned by its first use, adapters of all its uses
included) and the Mamba layer with the matrix that lets the transformer in. Published configs name the Mamba sizes in
the original way (`mamba_headdim`, `state_size`, `conv_dimension`), which transformers 5 does not read: it then builds
8 Mamba heads instead of expand x hidden_size / mamba_headdim.

Sources: modelling code in transformers 5; Zamba 2's published configs (112 heads of 64 in the 7B).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention
from calc.architectures.mixers import mamba2
from calc.architectures.tensors import Weights, linear, norm
from calc.model import Block, Mixer, ModelSpec, Part, Split


def parse_zamba2(config: ConfigReader) -> ModelSpec:
    """Zamba 2 with `num_mem_blocks` shared transformers used in turn."""
    width, layers = config.int("hidden_size"), config.layers()
    kinds = config.words("layers_block_type", allowed=("mamba", "linear_attention", "hybrid"), length=layers)
    if kinds is None:
        raise config.unsupported("layers_block_type", "it must say which layers are hybrid")
    shared = config.int("num_mem_blocks", default=1, high=64)
    mixer = _mixer(config, width)
    plain = Block(sublayers=(mixer,), norms=norm("input_layernorm", width))
    entry = linear("linear", width, width, Part.MIXER)
    joined = Block(sublayers=(mixer,), norms=norm("input_layernorm", width) + entry)
    uses = kinds.count("hybrid")
    blocks: list[Block] = []
    seen = 0
    for kind in kinds:
        if kind != "hybrid":
            blocks.append(plain)
            continue
        own = len(range(seen % shared, uses, shared)) if seen < shared else 1
        blocks += [_transformer(config, width, adapters=own, again=seen >= shared), joined]
        seen += 1
    config.expect("attention_hidden_size", 2 * width)
    for unused in (
        "num_query_groups",
        "attention_head_dim",
        "hybrid_layer_ids",
        "use_long_context",
        "use_mem_eff_path",
    ):
        config.raw(unused)
    config.raw("kv_channels")
    config.raw("use_mem_rope")
    return causal_lm(
        config,
        default_architecture="Zamba2ForCausalLM",
        width=width,
        blocks=blocks,
        final=norm("model.final_layernorm", width),
        tied_default=True,
        max_positions=max_positions(config),
    )


def _mixer(config: ConfigReader, width: int) -> Mixer:
    inner = config.int("mamba_expand", "expansion_factor", default=2, high=64) * width
    head_dim = config.optional_int("mamba_headdim")
    n_heads = config.optional_int("n_mamba_heads")
    if n_heads is None:
        n_heads = inner // (head_dim or 64)
    if n_heads < 1 or inner % n_heads or (head_dim is not None and n_heads * head_dim != inner):
        raise config.unsupported("mamba_headdim", f"the heads must fill the expanded width {inner}")
    return mamba2(
        width=width,
        n_heads=n_heads,
        head_dim=inner // n_heads,
        state=config.int("mamba_d_state", "state_size", default=64),
        groups=config.int("mamba_ngroups", default=1),
        kernel=config.int("mamba_d_conv", "conv_dimension", default=4, high=64),
        conv_bias=config.bool("use_conv_bias", default=True),
        bias=config.bool("add_bias_linear", default=False),
    )


def _transformer(config: ConfigReader, width: int, *, adapters: int, again: bool) -> Block:
    """The shared transformer: attention over hidden state and embedding side by side (twice the width)."""
    n_heads = config.int("num_attention_heads")
    both = 2 * width
    if both % n_heads:
        raise config.unsupported("num_attention_heads", f"{both} must be a multiple of it")
    head_dim = both // n_heads
    config.expect("num_key_value_heads", n_heads)
    config.expect("gated_linear_unit", True)
    rank = config.int("adapter_rank", "lora_rank", default=128)
    intermediate = config.int("intermediate_size", "ffn_hidden_size", default=4 * width)
    bias = config.bool("add_bias_linear", default=False)
    extra: Weights = ()
    if config.bool("use_shared_attention_adapter", "use_shared_attention_lora", default=False):
        for name in ("q", "k", "v"):
            extra += adapters * _adapter(f"self_attn.linear_{name}_adapter", both, rank, both, Part.ATTENTION)
    attention = grouped_attention(
        width=both, n_heads=n_heads, n_kv_heads=n_heads, head_dim=head_dim, extra=extra
    )
    narrowed = linear("self_attn.o_proj", n_heads * head_dim, width, Part.ATTENTION, Split.ROW)
    kept = tuple(w if w.name != "self_attn.o_proj" else narrowed[0] for w in attention.weights)
    mlp = gated_mlp(width=width, intermediate=intermediate, bias=bias, prefix="feed_forward")
    loras = adapters * _adapter("feed_forward.gate_up_adapter", width, rank, 2 * intermediate, Part.MLP)
    if not config.bool("use_shared_block_lora", default=True):
        raise config.unsupported("use_shared_block_lora", "without its adapters this model is not understood")
    block_norms = norm("input_layernorm", both) + norm("pre_ff_layernorm", width)
    return Block(
        sublayers=(replace(attention, weights=kept), replace(mlp, weights=mlp.weights + loras)),
        norms=block_norms,
        shares_weights=again,
    )


def _adapter(name: str, n_in: int, rank: int, n_out: int, part: Part) -> Weights:
    return linear(f"{name}.0", n_in, rank, part) + linear(f"{name}.1", rank, n_out, part)


FAMILIES: Final = (Family(model_types=("zamba2",), parse=parse_zamba2, architectures=("Zamba2ForCausalLM",)),)
