"""Puts blocks together into stacks and specs: run-length coding, heads, formats, fields that every family reads alike."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.tensors import Weights, embedding, linear, lm_head, vector
from calc.errors import InputError, UnsupportedArchitecture
from calc.model import Block, ModelSpec, Part, Role, Run, Split, Stack

_DTYPES: Final = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float8_e4m3fn": "fp8",
}

# Classes that end in "Model" too, but have heads or only a part of the layers.
_SPECIAL: Final = re.compile(r"Heads?Model|LMHead|For[A-Z]|With[A-Z]|Encoder|Decoder")

LM: Final = "lm"
CLASSIFIER: Final = "classifier"
NO_HEAD: Final = "none"


def runs(blocks: Sequence[Block]) -> tuple[Run, ...]:
    """Equal neighbours coded once."""
    coded: list[tuple[int, Block]] = []
    for block in blocks:
        if coded and (coded[-1][1] is block or coded[-1][1] == block):
            coded[-1] = (coded[-1][0] + 1, coded[-1][1])
        else:
            coded.append((1, block))
    return tuple(Run(count=count, block=block) for count, block in coded)


def model_dtype(config: ConfigReader) -> str:
    """The 16- or 32-bit format that the checkpoint states; bf16 where it states none, as engines then serve it."""
    value = config.raw("torch_dtype", "dtype")
    if value is None:
        return "bf16"
    name = str(value).removeprefix("torch.")
    if name == "auto":
        return "bf16"
    if name not in _DTYPES:
        raise config.unsupported(
            "torch_dtype" if config.has("torch_dtype") else "dtype", f"known are {', '.join(_DTYPES)}"
        )
    return _DTYPES[name]


def stated_state_format(config: ConfigReader) -> str | None:
    """The format that the config asks for the recurrent state, where it does."""
    stated = config.raw("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    if stated is None:
        return None
    name = str(stated).removeprefix("torch.")
    if name not in _DTYPES:
        raise config.unsupported("mamba_ssm_dtype", f"known are {', '.join(_DTYPES)}")
    return _DTYPES[name]


def architecture(config: ConfigReader, default: str) -> str:
    """The class name that the config states first, or the family's own."""
    names = config.list("architectures")
    if not names:
        return default
    if not isinstance(names[0], str):
        raise config.unsupported("architectures", "it must list class names")
    return names[0]


def head_kind(config: ConfigReader, name: str) -> str:
    """Which head a class name ends in: a language-model head, a classifier, or none."""
    if name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")):
        return LM
    if name.endswith("ForSequenceClassification"):
        return CLASSIFIER
    if name.endswith("Model") and not _SPECIAL.search(name):
        return NO_HEAD
    raise UnsupportedArchitecture(
        config.path + "architectures",
        name,
        "known are classes that end in ForCausalLM, ForSequenceClassification or Model",
    )


def n_labels(config: ConfigReader) -> int:
    """How many classes a classifier has."""
    named = config.raw("id2label")
    if isinstance(named, dict) and named:
        return len(named)
    return config.int("num_labels", "_num_labels", default=2)


def causal_lm(
    config: ConfigReader,
    *,
    default_architecture: str,
    width: int,
    blocks: Sequence[Block],
    final: Weights,
    tied_default: bool = False,
    tied: bool | None = None,
    max_positions: int | None = None,
    embedding_name: str = "model.embed_tokens",
    path: str = "model.layers",
    head_bias: bool = False,
    head_width: int | None = None,
    vocab_size: int | None = None,
    embedding_rows: int | None = None,
    kind: str | None = None,
    extra_embeddings: Weights = (),
    stacks: tuple[Stack, ...] = (),
    outer: ConfigReader | None = None,
) -> ModelSpec:
    """A decoder with one token embedding and the head that its class name tells.

    `stacks` are towers and draft layers beside the decoder. `outer` is the top of a nested config: the class name, the
    model_type and the tie are read there where the inner section does not state them. `kind` overrules what the class
    name tells of the head.
    """
    top = outer or config
    vocab = vocab_size or config.int("vocab_size", "padded_vocab_size")
    if tied is None:
        stated = config.raw("tie_word_embeddings"), top.raw("tie_word_embeddings")
        source = (
            top if stated[1] is not None else config
        )  # the outer section decides, as in the model's class
        tied = source.bool("tie_word_embeddings", default=tied_default)
    name = architecture(top, default_architecture)
    if kind is None:
        kind = head_kind(top, name)
    head: Weights = ()
    if kind == LM and not tied:
        head = lm_head("lm_head", vocab, head_width or width, bias=head_bias)
    elif kind == LM and head_bias:
        head = vector("lm_head.bias", vocab, Part.LM_HEAD, Split.VOCAB)
    elif kind == CLASSIFIER:
        head = linear("score", head_width or width, n_labels(top), Part.LM_HEAD)
    decoder = Stack(role=Role.DECODER, width=width, runs=runs(blocks), weights=final, path=path)
    return ModelSpec(
        id=config.model_id,
        architecture=name,
        model_type=top.str("model_type", default=default_architecture),
        vocab_size=vocab,
        width=width,
        embeddings=embedding(
            embedding_name, embedding_rows or vocab, head_width or width, tied=tied and kind == LM
        )
        + extra_embeddings,
        lm_head=head,
        tied=tied and kind == LM,
        stacks=(decoder, *stacks),
        max_positions=max_positions,
        dtype=model_dtype(config if config.has("torch_dtype") or config.has("dtype") else top),
    )


def even_head_dim(config: ConfigReader, width: int, n_heads: int) -> int:
    """The head width of families that divide the width evenly among the heads."""
    if width % n_heads:
        raise config.unsupported(
            "hidden_size" if config.has("hidden_size") else "n_embd",
            f"{width} cannot be divided evenly among {n_heads} heads",
        )
    return width // n_heads


POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "seq_length",
    "max_sequence_length",
    "model_max_length",
)
MOST_POSITIONS = 1e9  # of a text, and as a factor: beyond, the field holds something else
NO_LIMIT = (0, -1)  # stand-ins for "no longest length" in published configs


def max_positions(config: ConfigReader) -> int | None:
    """The longest sequence that the config allows, where it says so."""
    stated = config.raw(*POSITIONS)
    if isinstance(stated, int | float) and stated < 0 and stated not in NO_LIMIT:
        raise InputError(
            config.path + next(name for name in POSITIONS if config.has(name)),
            stated,
            "it must be a positive number of tokens",
            next_step="Check the config; leave the field out where the length is not limited.",
        )
    trained = config.optional_int(*POSITIONS)
    return trained if trained is None else max(trained, _stretched_positions(config))


def _stretched_positions(config: ConfigReader) -> int:
    """The length that YaRN stretches the model's own to, by a factor in the config; 0 where there is none.

    Model cards have it added by hand, beside the `max_position_embeddings` that the model was trained with. vLLM starts with
    original_max_position_embeddings x factor then (two logs of Kimi-VL show rotary tables of that length); in other configs
    that publish both it is max_position_embeddings itself.
    """
    scaling = config.fields.get("rope_scaling") or config.fields.get("rope_parameters")
    if not isinstance(scaling, Mapping) or scaling.get("rope_type", scaling.get("type")) != "yarn":
        return 0
    original, factor = scaling.get("original_max_position_embeddings"), scaling.get("factor")
    numbers = [n for n in (original, factor) if isinstance(n, int | float) and 1 <= n <= MOST_POSITIONS]
    return round(numbers[0] * numbers[1]) if len(numbers) == 2 else 0
