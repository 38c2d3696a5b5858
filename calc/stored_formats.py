"""Gives every weight of a spec the format that the checkpoint stores it in."""

from __future__ import annotations

from dataclasses import replace

from calc.architectures.config_reader import ConfigReader
from calc.model import Block, ModelSpec, Run, Stack, Sublayer, Weight


def stored_as_published(spec: ModelSpec, config: ConfigReader) -> ModelSpec:
    """The spec with the stored format of each weight: the checkpoint's 16- or 32-bit type."""
    del config
    if spec.dtype == "bf16":
        return spec
    return _in_format(spec, spec.dtype)


def _in_format(spec: ModelSpec, name: str) -> ModelSpec:
    def stored(weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
        return tuple(replace(weight, stored=name) for weight in weights)

    def block(old: Block) -> Block:
        sublayers: tuple[Sublayer, ...] = tuple(
            replace(sublayer, weights=stored(sublayer.weights)) for sublayer in old.sublayers
        )
        return replace(old, sublayers=sublayers, norms=stored(old.norms))

    def stack(old: Stack) -> Stack:
        runs = tuple(Run(count=run.count, block=block(run.block)) for run in old.runs)
        return replace(old, runs=runs, weights=stored(old.weights))

    return replace(
        spec,
        embeddings=stored(spec.embeddings),
        lm_head=stored(spec.lm_head),
        stacks=tuple(stack(old) for old in spec.stacks),
    )
