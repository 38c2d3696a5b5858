"""Phi: 1, 1.5 and 2 (parallel blocks with biases), Phi-3 and Phi-4 (Llama's shape with fused projections)."""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import causal_lm, even_head_dim, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import grouped_attention, plain_mlp
from calc.architectures.recipe import Flag, Recipe, parse_dense
from calc.architectures.tensors import norm
from calc.architectures.windows import everywhere
from calc.model import Block, ModelSpec

PHI3: Final = Recipe(
    architecture="Phi3ForCausalLM",
    model_types=("phi3",),
    windows=everywhere,
)


def parse_phi(config: ConfigReader) -> ModelSpec:
    """Phi-1 to Phi-2: attention and feed-forward in parallel behind one LayerNorm, biases everywhere.

    The first published configs (`phi-msft`) use GPT-2's field names; the shapes are the same.
    """
    width = config.int("hidden_size", "n_embd")
    n_heads = config.int("num_attention_heads", "n_head")
    config.expect("qk_layernorm", False)
    config.expect("parallel_block", True)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=config.int("num_key_value_heads", "n_head_kv", default=n_heads),
        head_dim=even_head_dim(config, width, n_heads),
        qkv_bias=True,
        out_bias=True,
        names=("q_proj", "k_proj", "v_proj", "dense"),
    )
    mlp = plain_mlp(
        width=width,
        intermediate=config.int("intermediate_size", "n_inner", default=4 * width),
        bias=True,
        names=("fc1", "fc2"),
    )
    block = Block(sublayers=(attention, mlp), norms=norm("input_layernorm", width, bias=True))
    return causal_lm(
        config,
        default_architecture="PhiForCausalLM",
        width=width,
        blocks=[block] * config.layers(),
        final=norm("model.final_layernorm", width, bias=True),
        max_positions=max_positions(config),
        head_bias=True,
    )


def parse_phi3(config: ConfigReader) -> ModelSpec:
    """Phi-3 and Phi-4: q, k and v in one matrix, gate and up in another; no biases."""
    Flag(field="attention_bias").read(config)  # stated by some checkpoints, used by none of the code
    config.expect("mlp_bias", False)
    config.expect("full_attn_mod", 1)  # Phi-4-mini states that every layer attends to everything
    config.expect("lm_head_bias", False)
    return parse_dense(config, PHI3)


FAMILIES: Final = (
    Family(model_types=("phi", "phi-msft"), parse=parse_phi, architectures=("PhiForCausalLM",)),
    Family(model_types=PHI3.model_types, parse=parse_phi3, architectures=("Phi3ForCausalLM",)),
)
