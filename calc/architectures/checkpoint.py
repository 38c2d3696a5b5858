"""Gives every weight of a spec the format that the checkpoint stores it in, by the rules that its config states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from calc.architectures.assembly import runs
from calc.architectures.config_reader import ConfigReader
from calc.architectures.module_names import spellings
from calc.architectures.quantization_rules import Rules, read_rules
from calc.model import Block, ModelSpec, Part, Role, Stack, Weight

QUANTIZED: Final = (
    Part.ATTENTION,
    Part.MIXER,
    Part.MLP,
    Part.EXPERTS,
    Part.SHARED_EXPERTS,
    Part.INDEXER,
)
TEXT: Final = (Role.DECODER, Role.ENCODER, Role.MTP, Role.DRAFT)
# Small matrices that every checkpoint known here keeps in 16 bit whatever its rules say.
KEPT: Final = (
    "weights_proj",
    "conv1d",
    "conv",
    "A_log",
    "in_proj_a",
    "in_proj_b",
    "in_proj_ba",
    "relative_attention_bias",
)


def stored_as_published(
    spec: ModelSpec, config: ConfigReader, hf_quant_config: Mapping[str, object] | None = None
) -> ModelSpec:
    """The spec with the stored format of each weight."""
    rules = read_rules(config, hf_quant_config)
    if rules is None and spec.dtype == "bf16":
        return spec
    return replace(
        spec,
        embeddings=_plain(spec.embeddings, spec.dtype),
        lm_head=_plain(spec.lm_head, spec.dtype),
        stacks=tuple(_stack(stack, rules, spec.dtype) for stack in spec.stacks),
    )


def _plain(weights: tuple[Weight, ...], dtype: str) -> tuple[Weight, ...]:
    if dtype == "bf16":
        return weights
    return tuple(replace(w, stored=dtype) if w.stored == "bf16" else w for w in weights)


def _stack(stack: Stack, rules: Rules | None, dtype: str) -> Stack:
    if rules is None or stack.role not in TEXT:
        coded = tuple(replace(run, block=_with(run.block, None, stack, 0, dtype)) for run in stack.runs)
        return replace(stack, runs=coded, weights=_plain(stack.weights, dtype))
    blocks: list[Block] = []
    built: dict[tuple[object, ...], Block] = {}
    index = 0
    for run in stack.runs:
        for _ in range(run.count):
            key = (id(run.block), *rules.signature(index))
            if key not in built:
                built[key] = _with(run.block, rules, stack, index, dtype)
            blocks.append(built[key])
            index += 1
    return replace(stack, runs=runs(blocks), weights=_plain(stack.weights, dtype))


def _with(block: Block, rules: Rules | None, stack: Stack, index: int, dtype: str) -> Block:
    """One block with its weights in their formats."""

    def stored(weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
        return tuple(_stored(weight, rules, stack, index, dtype) for weight in weights)

    return replace(
        block,
        sublayers=tuple(replace(sublayer, weights=stored(sublayer.weights)) for sublayer in block.sublayers),
        norms=_plain(block.norms, dtype),
    )


def _stored(weight: Weight, rules: Rules | None, stack: Stack, index: int, dtype: str) -> Weight:
    if weight.stored != "bf16":
        return weight
    name = None
    if rules is not None and quantizable(weight):
        names = spellings(stack.path, weight.name)
        name = rules.format_of(names, index, is_expert=weight.part is Part.EXPERTS)
    wanted = name or dtype
    return weight if wanted == "bf16" else replace(weight, stored=wanted)


def quantizable(weight: Weight) -> bool:
    """Whether quantisers convert such a weight at all: matrices of attention, mixers, feed-forward layers, experts."""
    if (
        weight.buffer
        or len(weight.shape) < 2
        or weight.part not in QUANTIZED
        or weight.name.endswith(".bias")
    ):
        return False
    return weight.name.rsplit(".", 1)[-1] not in KEPT
