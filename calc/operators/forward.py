"""What one forward pass is made of: `ForwardPass`, per attention rank, with fields that may be arrays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from calc.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """The tokens of one step of one attention rank: decoding sequences, prompts, or both (a mixed step).

    Every field is a number or an array; all broadcast to one candidate axis.

    decode_sequences: sequences that produce tokens; each enters with `tokens_per_sequence` tokens (more than one when
    drafts are verified) and has `decode_context` cached tokens on average. prefill_tokens: new prompt tokens of all
    prompts of the step together; prefill_sequences: how many prompts they belong to; prefix_tokens: tokens of each prompt
    that are cached already (a chunk's predecessors, a shared prefix). encoder_tokens: tokens that the encoder or the
    towers see in this step; encoder_context: encoder tokens that cross attention reads per sequence.
    prompts_finished: prompts whose last token is in this step (their logits are needed).
    """

    decode_sequences: Any = 0.0
    decode_context: Any = 0.0
    tokens_per_sequence: Any = 1.0
    prefill_tokens: Any = 0.0
    prefill_sequences: Any = 1.0
    prefix_tokens: Any = 0.0
    encoder_tokens: Any = 0.0
    encoder_context: Any = 0.0
    prompts_finished: Any = None

    def __post_init__(self) -> None:
        for name in FIELDS:
            value = getattr(self, name)
            if value is not None and not _is_count(value):
                raise InputError(name, value, "it must be a finite count of zero or more")
        if np.min(self.prefill_sequences) <= 0:
            raise InputError("prefill_sequences", self.prefill_sequences, "it must be positive")

    def fields(self) -> tuple[Any, ...]:
        """Every count that is given, in the order of the fields."""
        values = (getattr(self, name) for name in FIELDS)
        return tuple(value for value in values if value is not None)

    @classmethod
    def decode(cls, batch: Any, context: Any, *, encoder_context: Any = 0.0) -> ForwardPass:
        """`batch` sequences, each adding one token behind `context` cached ones."""
        return cls(decode_sequences=batch, decode_context=context, encoder_context=encoder_context)

    @classmethod
    def prefill(cls, tokens: Any, *, sequences: Any = 1.0, prefix: Any = 0.0) -> ForwardPass:
        """`sequences` prompts of `tokens` new tokens each, behind `prefix` cached ones."""
        return cls(
            prefill_tokens=np.asarray(tokens, dtype=float) * sequences,
            prefill_sequences=sequences,
            prefix_tokens=prefix,
        )

    @classmethod
    def mixed(cls, batch: Any, context: Any, *, prompt_tokens: Any, prefix: Any = 0.0) -> ForwardPass:
        """A decode batch and one prompt's chunk in the same step."""
        return cls(
            decode_sequences=batch, decode_context=context, prefill_tokens=prompt_tokens, prefix_tokens=prefix
        )

    @classmethod
    def verify(cls, batch: Any, context: Any, *, drafts: Any) -> ForwardPass:
        """`batch` sequences that each verify `drafts` draft tokens and add their own."""
        return cls(
            decode_sequences=batch,
            decode_context=context,
            tokens_per_sequence=np.asarray(drafts, dtype=float) + 1.0,
        )

    @property
    def decode_tokens(self) -> Any:
        """Tokens that enter for the decoding sequences."""
        return np.asarray(self.decode_sequences, dtype=float) * self.tokens_per_sequence

    @property
    def tokens(self) -> Any:
        """All tokens of the step on this rank."""
        return self.decode_tokens + self.prefill_tokens

    @property
    def sequences(self) -> Any:
        """Sequences that take part in the step."""
        prompts = np.where(np.asarray(self.prefill_tokens) > 0, self.prefill_sequences, 0.0)
        return np.asarray(self.decode_sequences, dtype=float) + prompts

    @property
    def output_rows(self) -> Any:
        """Rows that the output head computes: every decoding token and the last token of each finished prompt."""
        if self.prompts_finished is not None:
            return self.decode_tokens + self.prompts_finished
        return self.decode_tokens + np.where(np.asarray(self.prefill_tokens) > 0, self.prefill_sequences, 0.0)


FIELDS = tuple(field.name for field in fields(ForwardPass))


def _is_count(value: Any) -> bool:
    """Whether a number, or every number of an array, is finite and not negative (not-a-number is neither)."""
    if isinstance(value, float | int):
        return 0.0 <= value < np.inf
    array = np.asarray(value, dtype=float)
    return bool(array.size == 0 or (array.min() >= 0.0 and array.max() < np.inf))


def attended_by_last(context: Any, *, window: Any, chunk: Any) -> Any:
    """Cached tokens that a query behind `context` tokens reads, with a sliding window or within an aligned chunk."""
    inside = np.minimum(context, window)
    if not np.any(np.isfinite(chunk)):
        return inside
    return np.where(np.isfinite(chunk), np.mod(inside, np.where(np.isfinite(chunk), chunk, 1.0)), inside)


def attended_pairs(tokens: Any, prefix: Any, *, window: Any, chunk: Any) -> Any:
    """(query, key) pairs of `tokens` causal queries behind `prefix` cached tokens: sum of min(position, window).

    Source: the sum of an arithmetic series that is cut at the window. An aligned chunk of size C is taken at its mean,
    (C+1)/2 keys per query once the prompt is longer than C; a whole prompt inside one chunk is exact.
    """
    first = np.asarray(prefix, dtype=float)
    last = first + tokens
    rising_end = np.clip(np.minimum(last, window), first, None)
    rising = 0.5 * (rising_end * (rising_end + 1.0) - first * (first + 1.0))
    flat_tokens = last - rising_end
    flat = np.where(flat_tokens > 0, flat_tokens * np.where(np.isfinite(window), window, 0.0), 0.0)
    if not np.any(np.isfinite(chunk)):
        return rising + flat
    chunked = np.where(
        last <= chunk, rising, np.asarray(tokens) * (np.where(np.isfinite(chunk), chunk, 0.0) + 1) / 2
    )
    return np.where(np.isfinite(chunk), chunked, rising + flat)
