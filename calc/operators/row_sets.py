"""Rows of an operator table by what has to be worked out for them: found once, so that a forward pass touches no others.

experts    rows whose weights shrink to the experts that the tokens touch
states     rows that read and write a recurrent state
links      collectives
readers    rows that attend, by whose keys they read
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.operators.forward import ForwardPass, attended_by_last, attended_pairs
from calc.operators.rows import KINDS, Kind, Reads

Array = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Rows that attend to one kind of keys. `mask`: where models stand side by side, which candidate's row does; else None.

    Windows are in tokens, a row's entries times its stride.
    """

    case: Reads
    rows: Rows
    mask: NDArray[np.bool_] | None
    per_stride: Array
    window: Array
    chunk: Array

    def attended(self, step: ForwardPass) -> tuple[Any, Any]:
        """(cached entries read, query-key pairs) per row and candidate."""
        cached, pairs = self._attended(step)
        weight = self.per_stride if self.mask is None else np.where(self.mask, self.per_stride, 0.0)
        return weight * cached, weight * pairs

    def _attended(self, step: ForwardPass) -> tuple[Any, Any]:
        """The same before strides: tokens in place of entries."""
        decoding = np.asarray(step.decode_sequences, dtype=float)
        per_sequence = np.asarray(step.tokens_per_sequence, dtype=float)
        if self.case is Reads.DECODE_CACHE:
            context = np.asarray(step.decode_context, dtype=float) + 0.5 * (per_sequence - 1.0)
            last = attended_by_last(context, window=self.window, chunk=self.chunk)
            return decoding * last, (decoding * per_sequence) * (last + 1.0)
        if self.case is Reads.ENCODER_SELF:
            encoder = np.asarray(step.encoder_tokens, dtype=float)
            return 0.0, encoder * np.minimum(encoder, np.minimum(self.window, self.chunk))
        tokens = np.asarray(step.prefill_tokens, dtype=float)
        if not tokens.any() and self.case is Reads.PROMPT:
            return 0.0, 0.0
        prompts = np.where(tokens > 0, step.prefill_sequences, 0.0)
        if self.case is Reads.ENCODER_CACHE:
            memory = np.asarray(step.encoder_context, dtype=float)
            return (decoding + prompts) * memory, (decoding * per_sequence + tokens) * memory
        prompt = tokens / np.asarray(step.prefill_sequences, dtype=float)
        pairs = attended_pairs(prompt, step.prefix_tokens, window=self.window, chunk=self.chunk)
        return prompts * np.minimum(step.prefix_tokens, self.window), prompts * pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSets:
    """The sets of one table; `gathers`: some rows see the tokens of several attention ranks."""

    experts: Rows
    states: Rows
    links: Rows
    readers: tuple[Readers, ...]
    gathers: bool

    @classmethod
    def of(cls, kind_index: Rows, reads: Rows, numbers: Mapping[str, Array]) -> RowSets:
        """Sets of rows in which any candidate has what the set is about."""

        def having(found: NDArray[np.bool_]) -> Rows:
            return np.flatnonzero(found.any(axis=1))

        return cls(
            experts=having(numbers["n_experts"] > 1),
            states=having(numbers["state_bytes_per_sequence"] > 0),
            links=having(kind_index >= KINDS.index(Kind.ALL_REDUCE)),
            readers=tuple(_readers(reads, numbers)),
            gathers=bool(np.any(numbers["token_ranks"] != 1.0)),
        )


def _readers(reads: Rows, numbers: Mapping[str, Array]) -> Iterator[Readers]:
    for case in list(Reads)[1:]:
        found = reads == int(case)
        rows = np.flatnonzero(found.any(axis=1))
        if rows.size:
            stride = numbers["stride"][rows]
            yield Readers(
                case=case,
                rows=rows,
                mask=None if found[rows].all() else found[rows],
                per_stride=1.0 / stride,
                window=numbers["window"][rows] * stride,
                chunk=numbers["chunk"][rows],
            )
