"""One sequence: without a cache, with one, with one in pages, and with drafts that are checked in one pass.

All four give the same greedy text; what differs is what is computed again and what is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from calc.errors import InputError
from calc.paging import PagedKvCache, blocks_for
from calc.speculative import tokens_of_pass
from probes.engine.cache import BlockStore, Piece
from probes.engine.decoder import Decoder
from probes.engine.sampling import GREEDY, Dice, Sampling, accept, draw, next_tokens, probabilities

Clock = Callable[[], float]


@dataclass(slots=True)
class Generated:
    """tokens: the answer. stamps_s: when each came out, from the start. accepted: kept drafts of each checking pass."""

    tokens: list[int] = field(default_factory=list)
    stamps_s: list[float] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    @property
    def ttft_s(self) -> float:
        return self.stamps_s[0]

    @property
    def tpot_s(self) -> float:
        return (self.stamps_s[-1] - self.stamps_s[0]) / max(1, len(self.stamps_s) - 1)


def generate_without_cache(
    decoder: Decoder,
    prompt: Sequence[int],
    count: int,
    *,
    sampling: Sampling = GREEDY,
    clock: Clock = time.perf_counter,
) -> Generated:
    """Every token computes the whole text again: 1 + 2 + ... + n tokens of work for n."""
    decoder.shape.check_lengths(prompt, count)
    dice, tokens, start = [Dice(sampling)], list(prompt), clock()
    found = Generated()
    for _ in range(count):
        tokens += next_tokens(decoder.logits([Piece(tokens=tokens, start=0)]), dice)
        found.stamps_s.append(clock() - start)
    found.tokens = tokens[len(prompt) :]
    return found


def generate(
    decoder: Decoder,
    prompt: Sequence[int],
    count: int,
    *,
    block_size: int | None = None,
    chunk: int | None = None,
    sampling: Sampling = GREEDY,
    clock: Clock = time.perf_counter,
) -> Generated:
    """With a cache: the prompt once, then one token a pass.

    block_size: in pages of that many tokens, by the allocator of the calculators; None: in one piece. chunk: prompt
    tokens a pass; None: all at once.
    """
    decoder.shape.check_lengths(prompt, count)
    size = block_size or len(prompt) + count
    pages = PagedKvCache(num_blocks=blocks_for(len(prompt) + count, size), block_size=size)
    store = decoder.store(num_blocks=pages.num_blocks, block_size=size)
    dice, start, found = [Dice(sampling)], clock(), Generated()
    pages.add(0, prompt)
    logits = torch.empty(0)
    for at in range(0, len(prompt), chunk or len(prompt)):
        part = prompt[at : at + (chunk or len(prompt))]
        logits = decoder.logits([Piece(tokens=part, start=at, block_table=pages.block_table(0))], store)
    while True:
        found.tokens += next_tokens(logits, dice)
        found.stamps_s.append(clock() - start)
        if len(found.tokens) == count:
            return found
        pages.append(0, found.tokens[-1])
        at = len(prompt) + len(found.tokens) - 1
        piece = Piece(tokens=found.tokens[-1:], start=at, block_table=pages.block_table(0))
        logits = decoder.logits([piece], store)


@dataclass(slots=True)
class _Cached:
    """A decoder with the cache of one text, of which the first `computed` tokens are in it."""

    decoder: Decoder
    store: BlockStore
    computed: int = 0

    @classmethod
    def of(cls, decoder: Decoder, longest: int) -> _Cached:
        return cls(decoder, decoder.store(num_blocks=1, block_size=longest))

    def read(self, text: Sequence[int]) -> torch.Tensor:
        """Logits after each token of `text` that was not computed yet. Cutting `computed` back forgets what follows."""
        piece = Piece(tokens=text[self.computed :], start=self.computed, block_table=(0,))
        self.computed = len(text)
        return self.decoder.logits([piece], self.store, every_token=True)


def generate_with_drafts(
    decoder: Decoder,
    draft: Decoder,
    prompt: Sequence[int],
    count: int,
    *,
    drafts: int,
    sampling: Sampling = GREEDY,
    clock: Clock = time.perf_counter,
) -> Generated:
    """A small decoder proposes `drafts` tokens, the large one checks them in one pass (`sampling.accept`).

    The distribution of the text is that of the large decoder alone; greedy text is the same text.
    """
    decoder.shape.check_lengths(prompt, count)
    if drafts < 1 or draft.shape.vocabulary != decoder.shape.vocabulary:
        raise InputError("drafts", drafts, "at least one, by a decoder with the same vocabulary")
    longest = len(prompt) + count + drafts + 1
    large, small = _Cached.of(decoder, longest), _Cached.of(draft, longest)
    dice, start, found = Dice(sampling), clock(), Generated()
    text = list(prompt)
    text += next_tokens(large.read(text)[-1:], [dice])
    found.stamps_s.append(clock() - start)
    while len(text) - len(prompt) < count:
        proposed, beliefs = list(text), []
        for _ in range(drafts):
            beliefs.append(probabilities(small.read(proposed)[-1], sampling))
            proposed.append(int(draw(beliefs[-1], torch.tensor(dice.random(), device=draft.device))))
        targets = probabilities(large.read(proposed), sampling)
        drafted = torch.tensor(proposed[len(text) :], device=decoder.device)
        uniform = torch.tensor([dice.random() for _ in range(drafts + 1)], device=decoder.device)
        accepted, after = accept(targets[None], torch.stack(beliefs)[None], drafted[None], uniform[None])
        kept = int(accepted)
        text = [*proposed[: len(text) + kept], int(after)]
        large.computed = min(large.computed, len(text) - 1)
        small.computed = min(small.computed, len(text) - 1)
        found.accepted.append(kept)
        found.stamps_s += [clock() - start] * tokens_of_pass(drafts=drafts, accepted=kept)
    found.tokens = text[len(prompt) :][:count]
    found.stamps_s = found.stamps_s[:count]
    return found
