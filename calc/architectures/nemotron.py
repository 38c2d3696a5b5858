"""NVIDIA's hybrids and heterogeneous models: Nemotron-H and Nemotron 3, Llama-Nemotron with its per-layer blocks.

Sources: modelling code in transformers 5; modeling_decilm.py of the published Llama-Nemotron checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions, runs, stated_state_format
from calc.architectures.config_reader import ConfigReader
from calc.architectures.draft import draft_layers
from calc.architectures.family import Family
from calc.architectures.layers import gated_mlp, grouped_attention, mixture, plain_mlp
from calc.architectures.mixers import mamba2
from calc.architectures.recipe import PRE_NORMS
from calc.architectures.tensors import Weights, linear, norm
from calc.model import Attention, Block, Mlp, ModelSpec, Part, Role, Stack, Sublayer

_PATTERN: Final = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_KINDS: Final = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "moe": "moe",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
}


def parse_nemotron_h(config: ConfigReader) -> ModelSpec:
    """Nemotron-H, Nemotron Nano v2 and Nemotron 3: each layer is one of Mamba 2, attention, feed-forward or mixture."""
    width = config.int("hidden_size")
    kinds = layer_kinds(config)
    blocks = {kind: _block(config, width, kind) for kind in sorted(set(kinds))}
    for unused in (
        "intermediate_size",
        "moe_intermediate_size",
        "expand",
        "n_routed_experts",
        "num_experts_per_tok",
    ):
        config.raw(unused)  # stated by all, used by the kinds of layer that a model has
    for unused in ("n_shared_experts", "moe_shared_expert_intermediate_size", "moe_latent_size"):
        config.raw(unused)
    return causal_lm(
        config,
        default_architecture="NemotronHForCausalLM",
        width=width,
        blocks=[blocks[kind] for kind in kinds],
        final=norm("backbone.norm_f", width),
        max_positions=max_positions(config),
        embedding_name="backbone.embeddings",
        path="backbone.layers",
        stacks=_drafts(config, width),
    )


def layer_kinds(config: ConfigReader) -> list[str]:
    """The kind of each layer, from a list of words or from the pattern of letters."""
    listed = config.words("layers_block_type", "layer_types", allowed=tuple(_KINDS))
    pattern = config.raw("hybrid_override_pattern")
    layers = config.layers() if config.has("num_hidden_layers") or listed is None else len(listed)
    if listed is None:
        if not isinstance(pattern, str) or not set(pattern) <= set(_PATTERN):
            raise config.unsupported("hybrid_override_pattern", "it must be made of M, E, * and -")
        listed = [_PATTERN[letter] for letter in pattern]
    if len(listed) != layers:
        raise config.unsupported(
            "hybrid_override_pattern" if pattern else "layers_block_type",
            f"it must name the kind of each of the {layers} layers",
        )
    return [_KINDS[kind] for kind in listed]


def _drafts(config: ConfigReader, width: int) -> tuple[Stack, ...]:
    """Prediction layers: a pattern of blocks behind two norms and a projection, once per predicted token."""
    pattern = config.raw("mtp_hybrid_override_pattern")
    listed = config.words("mtp_layers_block_type", allowed=tuple(_KINDS))
    count = draft_layers(config)
    if count == 0:
        return ()
    kinds = listed or [_PATTERN.get(letter, "") for letter in str(pattern or "*E")]
    if any(kind not in _KINDS for kind in kinds):
        raise config.unsupported("mtp_hybrid_override_pattern", "it must be made of M, E, * and -")
    blocks = [_block(config, width, _KINDS[kind]) for kind in kinds] * count
    extra: Weights = ()
    for _ in range(count):
        extra += norm("enorm", width) + norm("hnorm", width) + norm("final_layernorm", width)
        extra += linear("eh_proj", 2 * width, width, Part.PROJECTOR)
    return (Stack(role=Role.MTP, width=width, runs=runs(blocks), weights=extra, path="mtp.layers"),)


def _block(config: ConfigReader, width: int, kind: str) -> Block:
    return Block(sublayers=(_sublayer(config, width, kind),), norms=norm("norm", width))


def _sublayer(config: ConfigReader, width: int, kind: str) -> Sublayer:
    if kind == "mamba":
        return mamba2(
            width=width,
            n_heads=config.int("mamba_num_heads"),
            head_dim=config.int("mamba_head_dim"),
            state=config.int("ssm_state_size", "mamba_state_dim"),
            groups=config.int("n_groups", "mamba_num_groups"),
            kernel=config.int("conv_kernel", default=4, high=64),
            conv_bias=config.bool("use_conv_bias", default=True),
            bias=config.bool("use_bias", default=False),
            stated_format=stated_state_format(config),
            prefix="mixer",
        )
    if kind == "attention":
        config.expect("attention_bias", False)
        return grouped_attention(
            width=width,
            n_heads=config.int("num_attention_heads"),
            n_kv_heads=config.int("num_key_value_heads"),
            head_dim=config.int("head_dim", "attention_head_dim", default=128),
            prefix="mixer",
        )
    bias = config.bool("mlp_bias", default=False)
    if kind == "mlp":
        return plain_mlp(width=width, intermediate=config.int("intermediate_size"), bias=bias, prefix="mixer")
    return _mixture(config, width, bias=bias)


def _mixture(config: ConfigReader, width: int, *, bias: bool) -> Sublayer:
    """Experts without gate; with `moe_latent_size` they work in a narrower space behind two projections."""
    latent = config.optional_int("moe_latent_size")
    extra: Weights = ()
    if latent is not None:
        extra = linear("mixer.fc1_latent_proj", width, latent, Part.SHARED_EXPERTS, bias=bias)
        extra += linear("mixer.fc2_latent_proj", latent, width, Part.SHARED_EXPERTS, bias=bias)
    config.expect("n_shared_experts", 1)
    return mixture(
        width=width,
        n_experts=config.int("n_routed_experts"),
        top_k=config.int("num_experts_per_tok"),
        intermediate=config.int("moe_intermediate_size"),
        shared_intermediate=config.int("moe_shared_expert_intermediate_size"),
        shared_bias=bias,
        correction="buffer",
        gated=False,
        expert_width=latent,
        extra=extra,
        prefix="mixer",
    )


def parse_nemotron_nas(config: ConfigReader) -> ModelSpec:
    """Llama-Nemotron (Super, Ultra): `block_configs` gives each layer its own groups, width, or nothing at all."""
    width, layers = config.int("hidden_size"), config.layers()
    entries = config.list("block_configs", length=layers)
    if entries is None:
        raise config.unsupported("block_configs", "this family must list every layer")
    n_heads = config.int("num_attention_heads")
    head_dim = config.optional_int("head_dim") or max(width // n_heads, 1)
    built: dict[str, Block] = {}
    blocks = []
    for entry in entries:
        key = repr(entry)
        if key not in built:
            built[key] = _nas_block(config, entry, width, n_heads, head_dim)
        blocks.append(built[key])
    return causal_lm(
        config,
        default_architecture="DeciLMForCausalLM",
        width=width,
        blocks=blocks,
        final=norm("model.norm", width),
        max_positions=max_positions(config),
    )


def _nas_block(config: ConfigReader, entry: object, width: int, n_heads: int, head_dim: int) -> Block:
    if not isinstance(entry, Mapping):
        raise config.unsupported("block_configs", "each entry must have `attention` and `ffn`")
    layer = ConfigReader(entry, model_id=config.model_id, path="block_configs[].")
    attention, ffn = layer.need_section("attention"), layer.need_section("ffn")
    for part in (attention, ffn):
        for field in ("replace_with_linear", "sparsify"):
            part.expect(field, False)
    for field in (
        "num_sink_tokens",
        "window_length",
        "use_prefill_window_in_sink_attention",
        "unshifted_sink",
    ):
        attention.expect(field, False)
    sublayers: list[Attention | Mlp] = []
    block_norms: Weights = ()
    if not attention.bool("no_op", default=False):
        group = attention.int("n_heads_in_group")
        if n_heads % group:
            raise attention.unsupported("n_heads_in_group", f"{n_heads} heads must be a multiple of it")
        bias = config.bool("attention_bias", default=False)
        sublayers.append(
            grouped_attention(
                width=width,
                n_heads=n_heads,
                n_kv_heads=n_heads // group,
                head_dim=head_dim,
                qkv_bias=bias,
                out_bias=bias,
            )
        )
        block_norms += norm(PRE_NORMS[0], width)
    if not ffn.bool("no_op", default=False):
        intermediate = nas_intermediate(ffn.float("ffn_mult"), width)
        sublayers.append(
            gated_mlp(width=width, intermediate=intermediate, bias=config.bool("mlp_bias", default=False))
        )
        block_norms += norm(PRE_NORMS[1], width)
    return Block(sublayers=tuple(sublayers), norms=block_norms)


def nas_intermediate(multiplier: float, width: int) -> int:
    """The feed-forward width of DeciLM: 2/3 of the multiple of the width, up to the next multiple of 256."""
    return max(-(-int(2 * multiplier * width / 3) // 256), 1) * 256


FAMILIES: Final = (
    Family(model_types=("nemotron_h",), parse=parse_nemotron_h, architectures=("NemotronHForCausalLM",)),
    Family(
        model_types=("nemotron-nas", "deci"), parse=parse_nemotron_nas, architectures=("DeciLMForCausalLM",)
    ),
)
