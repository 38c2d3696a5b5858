"""Prompts of a wanted length without a tokenizer: a nonce first, then words, and the length by the server's own count.

A fixed seed is a trap: a server may still hold the prompts of an earlier run. The first words of every prompt are therefore
random and never repeat, so that no cached prefix is longer than a few tokens.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# Short common words, of which most tokenizers make one token each; what they make of them is measured, not assumed.
_TEXT = (
    "time year people way day man thing woman life child world school state family student group "
    "country problem hand part place case week company system program question work number night "
    "point home water room mother area money story fact month lot right study book eye job word "
    "business issue side kind head house service friend father power hour game line end member "
    "law car city name team minute idea body back parent face others level office door health "
    "person art war history party result change morning reason research girl guy moment air "
    "teacher force education"
)
WORDS = tuple(_TEXT.split())
NONCE_WORDS = 6
FIRST_GUESS = 1.3  # tokens per word, until two answers have said how many it is


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRule:
    """Reported prompt tokens = `fixed` + `per_word` x words: template and nonce, then words."""

    fixed: float = 20.0
    per_word: float = FIRST_GUESS

    @classmethod
    def fitted(cls, seen: Sequence[tuple[int, int]]) -> LengthRule:
        """The line through (words, reported tokens); the first guess where the counts say nothing."""
        by_words = sorted(dict(seen).items())
        if len(by_words) < 2:
            return cls()
        (few, small), (many, large) = by_words[0], by_words[-1]
        if many <= few or large <= small or any(b[1] < a[1] for a, b in pairwise(by_words)):
            return cls()
        per_word = (large - small) / (many - few)
        return cls(fixed=small - per_word * few, per_word=per_word)

    def words_for(self, tokens: int) -> int:
        """How many words make a prompt of about `tokens`."""
        return max(1, round((tokens - self.fixed) / self.per_word))


class PromptMaker:
    """Prompts with a nonce of this run and a counter first."""

    def __init__(self, *, seed: int | None = None) -> None:
        self._random = random.Random(secrets.randbits(64) if seed is None else seed)  # noqa: S311 - text, no secret
        self._made = 0

    def make(self, words: int) -> str:
        """A prompt that begins like none before it."""
        self._made += 1
        nonce = " ".join(f"{self._random.getrandbits(24):x}" for _ in range(NONCE_WORDS // 2))
        body = " ".join(self._random.choices(WORDS, k=words))
        return f"{nonce} {self._made} {body}"
