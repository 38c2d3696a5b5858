"""RWKV 4 and 5: no attention; a token-shift vector for each mixing, and a decaying state per channel or per head.

Sources: modelling code in transformers 5 (RWKV 4); modeling_rwkv5.py of the published checkpoints (RWKV 5.2).
"""

from __future__ import annotations

from typing import Final

from calc.architectures.assembly import LM, causal_lm
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.tensors import Weights, linear, norm, norms, tensor
from calc.model import Block, Mixer, MixerKind, Mlp, ModelSpec, Part, Split


def parse_rwkv4(config: ConfigReader) -> ModelSpec:
    """RWKV 4: three running values per channel (numerator, denominator, their exponent) and two shifted vectors."""
    width = config.int("hidden_size")
    inner = config.int("attention_hidden_size", default=width)
    part = Part.MIXER
    mixing = Mixer(
        kind=MixerKind.RWKV,
        conv_elements=2 * width,
        recurrent_elements=3 * inner,
        weights=_projections(width, inner, ("key", "value", "receptance"))
        + tensor("attention.time_decay", inner, part=part, split=Split.COLUMN)
        + tensor("attention.time_first", inner, part=part, split=Split.COLUMN)
        + _mixes("attention", width, ("key", "value", "receptance")),
    )
    intermediate = config.int("intermediate_size", default=4 * width)
    return _rwkv(config, width, mixing, intermediate, tied=config.bool("tie_word_embeddings", default=False))


def parse_rwkv5(config: ConfigReader) -> ModelSpec:
    """RWKV 5.2 ("Eagle"): a head_size x head_size matrix per head, a gate, a group norm.

    The published checkpoints store embedding and head apart whatever their config says (3B: 6.13 GB in 16 bit).
    """
    width = config.int("hidden_size")
    inner = config.int("attention_hidden_size", default=width)
    head = config.int("head_size", default=64)
    config.expect("model_version", "5_2")
    if inner % head:
        raise config.unsupported("head_size", f"attention_hidden_size ({inner}) must be a multiple of it")
    n_heads = inner // head
    config.raw("tie_word_embeddings")
    names = ("key", "value", "receptance", "gate")
    mixing = Mixer(
        kind=MixerKind.RWKV,
        conv_elements=2 * width,
        recurrent_elements=n_heads * head * head,
        n_heads=n_heads,
        weights=_projections(width, inner, names)
        + tensor("attention.time_decay", n_heads, head, part=Part.MIXER, split=Split.COLUMN)
        + tensor("attention.time_faaaa", n_heads, head, part=Part.MIXER, split=Split.COLUMN)
        + norm("attention.ln_x", inner, bias=True)
        + _mixes("attention", width, names),
    )
    intermediate = config.int("intermediate_size", default=int(width * 3.5) // 32 * 32)
    return _rwkv(config, width, mixing, intermediate, tied=False)


def _projections(width: int, inner: int, names: tuple[str, ...]) -> Weights:
    weights: Weights = ()
    for name in names:
        weights += linear(f"attention.{name}", width, inner, Part.MIXER, Split.COLUMN)
    return weights + linear("attention.output", inner, width, Part.MIXER, Split.ROW)


def _mixes(prefix: str, width: int, names: tuple[str, ...]) -> Weights:
    return tuple(
        weight
        for name in names
        for weight in tensor(f"{prefix}.time_mix_{name}", 1, 1, width, part=Part.MIXER)
    )


def _rwkv(config: ConfigReader, width: int, mixing: Mixer, intermediate: int, *, tied: bool) -> ModelSpec:
    channel = Mlp(
        intermediate=intermediate,
        gated=False,
        weights=linear("feed_forward.key", width, intermediate, Part.MLP, Split.COLUMN)
        + linear("feed_forward.receptance", width, width, Part.MLP)
        + linear("feed_forward.value", intermediate, width, Part.MLP, Split.ROW)
        + _mixes("feed_forward", width, ("key", "receptance")),
    )
    block = Block(sublayers=(mixing, channel), norms=norms(width, "ln1", "ln2", bias=True))
    return causal_lm(
        config,
        default_architecture="RwkvForCausalLM",
        width=width,
        blocks=[block] * config.layers(),
        final=norms(width, "rwkv.ln_out", "rwkv.blocks.0.pre_ln", bias=True),
        tied=tied,
        embedding_name="rwkv.embeddings",
        path="rwkv.blocks",
        kind=LM,
    )


FAMILIES: Final = (
    Family(model_types=("rwkv",), parse=parse_rwkv4, architectures=("RwkvForCausalLM",)),
    Family(model_types=("rwkv5",), parse=parse_rwkv5, architectures=("Rwkv5ForCausalLM",)),
)
