"""Exact parameter counts of a `ModelSpec`: sums over its weights, nothing estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from calc.model import Block, ModelSpec, Moe, Part, Role, Stack, Weight

APART = (Role.MTP, Role.DRAFT)  # stacks that a plain forward pass does not use


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a model.

    `total` is what transformers builds (tied tensors once; MTP and draft stacks apart, in `parts`). `active` takes part
    in one token: routed top-k, shared experts, and everything else, embeddings and towers included.
    """

    total: int
    active: int
    embedding: int
    lm_head: int
    tied: bool
    parts: dict[str, int]

    @property
    def by_size(self) -> list[tuple[str, int, float]]:
        """(part, its parameters, its share of the total), largest first; stacks beside the model have shares on top of 1."""
        largest = sorted(self.parts.items(), key=lambda item: -item[1])
        return [(part, size, size / self.total) for part, size in largest]


def owned_weights(stack: Stack) -> Iterator[tuple[int, Weight]]:
    """(how many times it is stored, weight) for everything that the stack itself stores, buffers included."""
    for run in stack.runs:
        if not run.block.shares_weights:
            for weight in run.block.weights():
                yield run.count, weight
    for weight in stack.weights:
        yield 1, weight


def model_weights(spec: ModelSpec) -> Iterator[tuple[int, Weight]]:
    """(how many times it is stored, weight) for the model as transformers builds it: no MTP, no draft; with buffers."""
    for weight in (*spec.embeddings, *spec.lm_head):
        yield 1, weight
    for stack in spec.stacks:
        if stack.role not in APART:
            yield from owned_weights(stack)


def count_parameters(spec: ModelSpec) -> ParameterCount:
    """All counts of the model, as exact integers."""
    embedding = sum(w.elements for w in spec.embeddings)
    lm_head = sum(w.elements for w in spec.lm_head)
    parts: Counter[str] = Counter()
    total = 0
    for count, weight in model_weights(spec):
        if not weight.buffer:
            total += count * weight.elements
    for weight in (*spec.embeddings, *spec.lm_head):
        parts[weight.part] += weight.elements
    idle = 0
    for stack in spec.stacks:
        for count, weight in owned_weights(stack):
            if weight.buffer:
                continue
            parts[_part_name(stack.role, weight.part)] += count * weight.elements
        if stack.role not in APART:
            idle += sum(run.count * _idle_parameters(run.block) for run in stack.runs)
    return ParameterCount(
        total=total,
        active=total - idle,
        embedding=embedding,
        lm_head=lm_head,
        tied=spec.tied,
        parts=dict(parts),
    )


def buffer_elements(spec: ModelSpec) -> int:
    """Elements that the checkpoint stores beside the parameters, MTP and draft stacks apart."""
    return sum(count * weight.elements for count, weight in model_weights(spec) if weight.buffer)


def _part_name(role: Role, part: Part) -> str:
    """Decoder parts by what they do; other stacks by their role."""
    return str(part) if role is Role.DECODER else str(role)


def _idle_parameters(block: Block) -> int:
    """Parameters of routed experts that one token does not visit."""
    if block.shares_weights:
        return 0
    idle = 0
    for sublayer in block.sublayers:
        if isinstance(sublayer, Moe):
            routed = sum(w.elements for w in sublayer.weights if w.part is Part.EXPERTS)
            idle += int(routed * (1 - Fraction(sublayer.top_k, sublayer.n_experts)))
    return idle
