"""Models that mix recurrent layers with attention: Mamba 1 and 2, Jamba, Bamba, Falcon-H1, Granite 4, MiniMax-01.

Sources: the published configs and modelling code of each family as transformers 5 builds them; MiniMax-M1's own code.
"""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import causal_lm, even_head_dim, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention, mixture
from calc.architectures.mixers import lightning_attention, mamba1, mamba2
from calc.architectures.recipe import PRE_NORMS
from calc.architectures.tensors import norm, norms
from calc.model import Attention, Block, Mixer, Mlp, ModelSpec, Moe

RECURRENT: Final = ("mamba", "linear_attention")
FULL: Final = ("attention", "full_attention")


def parse_mamba(config: ConfigReader) -> ModelSpec:
    """Mamba 1 and Falcon-Mamba: no attention, no feed-forward layer."""
    width = config.int("hidden_size", "d_model")
    expand = config.int("expand", default=2, high=64)
    inner = config.int("intermediate_size", "d_inner", default=expand * width)
    rank = config.raw("time_step_rank")
    mixer = mamba1(
        width=width,
        inner=inner,
        state=config.int("state_size", default=16),
        kernel=config.int("conv_kernel", default=4, high=64),
        time_rank=-(-width // 16) if rank in (None, "auto") else config.int("time_step_rank"),
        conv_bias=config.bool("use_conv_bias", default=True),
        bias=config.bool("use_bias", default=False),
        prefix="mixer",
    )
    config.raw("expand")
    tied = config.raw("model_type") == "mamba"
    return _stack(config, width, [Block(sublayers=(mixer,), norms=norm("norm", width))], tied_default=tied)


def parse_mamba2(config: ConfigReader) -> ModelSpec:
    """Mamba 2 (Codestral Mamba): heads x head_dim fill the expanded width."""
    width = config.int("hidden_size", "d_model")
    expand = config.int("expand", default=2, high=64)
    n_heads, head_dim = config.int("num_heads"), config.int("head_dim")
    if n_heads * head_dim != expand * width:
        raise config.unsupported(
            "num_heads", f"num_heads x head_dim must be expand x hidden_size ({expand * width})"
        )
    config.expect("intermediate_size", expand * width)
    config.raw("time_step_rank")
    mixer = mamba2(
        width=width,
        n_heads=n_heads,
        head_dim=head_dim,
        state=config.int("state_size", "d_state"),
        groups=config.int("n_groups", default=8),
        kernel=config.int("conv_kernel", default=4, high=64),
        conv_bias=config.bool("use_conv_bias", default=True),
        bias=config.bool("use_bias", default=False),
        prefix="mixer",
    )
    config.raw("norm_before_gate")
    return _stack(config, width, [Block(sublayers=(mixer,), norms=norm("norm", width))], tied_default=False)


def _stack(config: ConfigReader, width: int, pattern: list[Block], *, tied_default: bool) -> ModelSpec:
    return causal_lm(
        config,
        default_architecture="MambaForCausalLM",
        width=width,
        blocks=pattern * config.layers(),
        final=norm("backbone.norm_f", width),
        tied_default=tied_default,
        embedding_name="backbone.embeddings",
        path="backbone.layers",
    )


def _attention(
    config: ConfigReader, width: int, *, bias: bool = False, head_dim: int | None = None
) -> Attention:
    n_heads = config.int("num_attention_heads")
    return grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=config.int("num_key_value_heads", default=n_heads),
        head_dim=head_dim or even_head_dim(config, width, n_heads),
        qkv_bias=bias,
        out_bias=bias,
    )


def parse_jamba(config: ConfigReader) -> ModelSpec:
    """Jamba: one attention layer in eight, the rest Mamba 1; every second feed-forward layer is a mixture."""
    width, layers = config.int("hidden_size"), config.layers()
    rank = config.raw("mamba_dt_rank")
    inner = config.int("mamba_expand", default=2, high=64) * width
    mixer = mamba1(
        width=width,
        inner=inner,
        state=config.int("mamba_d_state", default=16),
        kernel=config.int("mamba_d_conv", default=4, high=64),
        time_rank=-(-width // 16) if rank in (None, "auto") else config.int("mamba_dt_rank"),
        conv_bias=config.bool("mamba_conv_bias", default=True),
        bias=config.bool("mamba_proj_bias", default=False),
        inner_norms=True,
    )
    attention = _attention(config, width)
    intermediate = config.int("intermediate_size")
    dense = gated_mlp(width=width, intermediate=intermediate, prefix="feed_forward")
    n_experts = config.int("num_experts", default=16)
    sparse: Mlp | Moe = dense
    if n_experts > 1:
        sparse = mixture(
            width=width,
            n_experts=n_experts,
            top_k=config.int("num_experts_per_tok", default=2),
            intermediate=intermediate,
            prefix="feed_forward",
            router="router",
        )
    attend = _periodic(config, "attn_layer", layers, 8, 4)
    route = _periodic(config, "expert_layer", layers, 2, 1)
    built = {
        (a, s): Block(
            sublayers=(attention if a else mixer, sparse if s else dense),
            norms=norms(width, "input_layernorm", "pre_ff_layernorm"),
        )
        for a in (False, True)
        for s in (False, True)
    }
    return causal_lm(
        config,
        default_architecture="JambaForCausalLM",
        width=width,
        blocks=[built[pair] for pair in zip(attend, route, strict=True)],
        final=norm("model.final_layernorm", width),
        max_positions=max_positions(config),
    )


def _periodic(config: ConfigReader, field: str, layers: int, period: int, offset: int) -> list[bool]:
    every = config.int(f"{field}_period", default=period)
    start = config.int(f"{field}_offset", default=offset, low=0)
    return [layer % every == start for layer in range(layers)]


def granite_mamba(config: ConfigReader, width: int) -> Mixer:
    """Mamba 2 by the names of Granite 4, Bamba and Falcon-H1: `mamba_n_heads` x `mamba_d_head` = expanded width."""
    n_heads = config.int("mamba_n_heads", default=128)
    inner = config.int("mamba_d_ssm", default=config.int("mamba_expand", default=2, high=64) * width)
    stated = config.raw("mamba_d_head")
    head_dim = inner // n_heads if stated in (None, "auto") else config.int("mamba_d_head")
    if n_heads * head_dim != inner:
        raise config.unsupported("mamba_d_head", f"mamba_n_heads ({n_heads}) x mamba_d_head must be {inner}")
    return mamba2(
        width=width,
        n_heads=n_heads,
        head_dim=head_dim,
        state=config.int("mamba_d_state", default=256),
        groups=config.int("mamba_n_groups", default=1),
        kernel=config.int("mamba_d_conv", default=4, high=64),
        conv_bias=config.bool("mamba_conv_bias", default=True),
        bias=config.bool("mamba_proj_bias", default=False),
        out_bias=config.bool("projectors_bias", default=config.bool("mamba_proj_bias", default=False)),
        gated_norm=config.bool("mamba_rms_norm", default=True),
    )


def parse_granite_hybrid(config: ConfigReader) -> ModelSpec:
    """Granite 4: Mamba 2 and attention, each followed by a shared feed-forward layer and, if any, routed experts."""
    width, layers = config.int("hidden_size"), config.layers()
    kinds = config.words("layer_types", "layers_block_type", allowed=(*RECURRENT, *FULL), length=layers)
    kinds = kinds or ["mamba"] * layers
    n_experts = config.int("num_local_experts", default=8, low=0)
    shared = config.int("shared_intermediate_size", default=1024)
    feed_forward: Mlp | Moe
    if n_experts:
        feed_forward = mixture(
            width=width,
            n_experts=n_experts,
            top_k=config.int("num_experts_per_tok", default=2),
            intermediate=config.int("intermediate_size"),
            shared_intermediate=shared,
            prefix="block_sparse_moe",
            router="router.layer",
            shared="shared_mlp",
        )
    else:
        feed_forward = gated_mlp(width=width, intermediate=shared, prefix="shared_mlp")
        config.raw("num_experts_per_tok")
        config.raw("intermediate_size")
    block_norms = norms(width, *PRE_NORMS)
    mixers: dict[bool, Attention | Mixer] = {
        True: _attention(config, width, bias=config.bool("attention_bias", default=False))
    }
    if any(kind in RECURRENT for kind in kinds):
        mixers[False] = granite_mamba(config, width)
    else:
        for name in (
            "n_heads",
            "d_head",
            "d_state",
            "n_groups",
            "d_conv",
            "expand",
            "conv_bias",
            "proj_bias",
        ):
            config.raw(f"mamba_{name}")
    built = {
        full: Block(sublayers=(mixer, feed_forward), norms=block_norms) for full, mixer in mixers.items()
    }
    return causal_lm(
        config,
        default_architecture="GraniteMoeHybridForCausalLM",
        width=width,
        blocks=[built[kind in FULL] for kind in kinds],
        final=norm("model.norm", width),
        max_positions=max_positions(config),
    )


def parse_bamba(config: ConfigReader) -> ModelSpec:
    """Bamba: Mamba 2 with attention at `attn_layer_indices`, a dense feed-forward layer after each."""
    width, layers = config.int("hidden_size"), config.layers()
    attend = set(config.ints("attn_layer_indices") or [])
    mlp = gated_mlp(
        width=width,
        intermediate=config.int("intermediate_size"),
        bias=config.bool("mlp_bias", default=False),
        prefix="feed_forward",
    )
    block_norms = norms(width, "input_layernorm", "pre_ff_layernorm")
    bias = config.bool("attention_bias", default=False)
    full = Block(sublayers=(_attention(config, width, bias=bias), mlp), norms=block_norms)
    recurrent = Block(sublayers=(granite_mamba(config, width), mlp), norms=block_norms)
    return causal_lm(
        config,
        default_architecture="BambaForCausalLM",
        width=width,
        blocks=[full if layer in attend else recurrent for layer in range(layers)],
        final=norm("model.final_layernorm", width),
        max_positions=max_positions(config),
    )


def parse_falcon_h1(config: ConfigReader) -> ModelSpec:
    """Falcon-H1: every layer runs attention and Mamba 2 side by side."""
    width = config.int("hidden_size")
    mlp = gated_mlp(
        width=width,
        intermediate=config.int("intermediate_size"),
        bias=config.bool("mlp_bias", default=False),
        prefix="feed_forward",
    )
    head_dim = config.optional_int("head_dim")
    attention = _attention(
        config, width, bias=config.bool("attention_bias", default=False), head_dim=head_dim
    )
    config.raw("mamba_norm_before_gate")
    config.raw("mamba_use_mlp")
    block = Block(
        sublayers=(attention, granite_mamba(config, width), mlp),
        norms=norms(width, "input_layernorm", "pre_ff_layernorm"),
    )
    return causal_lm(
        config,
        default_architecture="FalconH1ForCausalLM",
        width=width,
        blocks=[block] * config.layers(),
        final=norm("model.final_layernorm", width),
        max_positions=max_positions(config),
    )


def parse_minimax(config: ConfigReader) -> ModelSpec:
    """MiniMax-01 and M1: lightning attention with softmax attention every eighth layer, all layers mixtures."""
    width, layers = config.int("hidden_size"), config.layers()
    listed = config.ints("attn_type_list", length=layers)
    kinds = config.words("layer_types", allowed=("linear_attention", "full_attention"), length=layers)
    if listed is None and kinds is None:
        raise config.unsupported("attn_type_list", "the config must say which layers have softmax attention")
    full = [kind == 1 for kind in listed] if listed else [kind == "full_attention" for kind in kinds or ()]
    n_heads = config.int("num_attention_heads")
    head_dim = config.optional_int("head_dim") or even_head_dim(config, width, n_heads)
    if config.int("shared_intermediate_size", default=0, low=0):
        raise config.unsupported("shared_intermediate_size", "this family has no shared expert")
    experts = mixture(
        width=width,
        n_experts=config.int("num_local_experts"),
        top_k=config.int("num_experts_per_tok"),
        intermediate=config.int("intermediate_size"),
        prefix="block_sparse_moe",
    )
    block_norms = norms(width, *PRE_NORMS)
    softmax = Block(sublayers=(_attention(config, width, head_dim=head_dim), experts), norms=block_norms)
    linear = Block(
        sublayers=(lightning_attention(width=width, n_heads=n_heads, head_dim=head_dim), experts),
        norms=block_norms,
    )
    return causal_lm(
        config,
        default_architecture="MiniMaxForCausalLM",
        width=width,
        blocks=[softmax if is_full else linear for is_full in full],
        final=norm("model.norm", width),
        max_positions=max_positions(config),
    )


FAMILIES: Final = (
    Family(
        model_types=("mamba", "falcon_mamba"), parse=parse_mamba, architectures=("FalconMambaForCausalLM",)
    ),
    Family(model_types=("mamba2",), parse=parse_mamba2, architectures=("Mamba2ForCausalLM",)),
    Family(model_types=("jamba",), parse=parse_jamba, architectures=("JambaForCausalLM",)),
    Family(
        model_types=("granitemoehybrid",),
        parse=parse_granite_hybrid,
        architectures=("GraniteMoeHybridForCausalLM",),
    ),
    Family(model_types=("bamba",), parse=parse_bamba, architectures=("BambaForCausalLM",)),
    Family(model_types=("falcon_h1",), parse=parse_falcon_h1, architectures=("FalconH1ForCausalLM",)),
    Family(
        model_types=("minimax", "minimax_m1", "minimax_text_01"),
        parse=parse_minimax,
        architectures=("MiniMaxForCausalLM", "MiniMaxM1ForCausalLM"),
    ),
)
