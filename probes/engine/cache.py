"""Keys and values in blocks, and a pass: which tokens go through the decoder, where each writes, and what it reads.

Who owns which block is decided by `calc.paging.PagedKvCache`; here are the tensors behind its numbers. A cache of one
sequence that is not paged is the same with a single block as long as the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from calc.paging import blocks_for
from probes.engine.shape import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A sequence's share of a pass: `tokens` go in at positions `start`, `start` + 1, ... of its text.

    block_table: the blocks of its whole text so far; empty: no cache, the tokens see each other only.
    padding: how many of the tokens, at their end, stand there to fill up a batch.
    """

    tokens: Sequence[int]
    start: int
    block_table: Sequence[int] = ()
    padding: int = 0

    @property
    def stop(self) -> int:
        return self.start + len(self.tokens)


class BlockStore:
    """Tensors of (blocks, tokens of a block, KV heads, head dimension), keys and values of each layer."""

    def __init__(
        self,
        shape: DecoderShape,
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        size = (shape.layers, num_blocks, block_size, shape.kv_heads, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
        self.num_blocks, self.block_size = num_blocks, block_size

    def write(self, layer: int, slots: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Store (tokens, KV heads, dimension) at slot numbers: block x block size + place in the block."""
        self.keys[layer].flatten(0, 1).index_copy_(0, slots, keys)
        self.values[layer].flatten(0, 1).index_copy_(0, slots, values)

    def read(self, layer: int, tables: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(sequences, KV heads, tokens, dimension) of the blocks of each row of `tables`, copied together."""
        keys, values = self.keys[layer][tables], self.values[layer][tables]
        return keys.flatten(1, 2).transpose(1, 2), values.flatten(1, 2).transpose(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sequences of a pass that attend together: all with one new token, or one with many.

    rows: (sequences, new tokens) where their tokens stand in the pass. tables: (sequences, blocks), or None without a
    cache. mask: (sequences, new tokens, tokens read), True where a token may look.
    """

    rows: torch.Tensor
    tables: torch.Tensor | None
    mask: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward pass as the decoder takes it. last: rows of the last token of each piece, in the pieces' order."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor | None
    groups: tuple[Group, ...]
    last: torch.Tensor


def plan_pass(pieces: Sequence[Piece], *, block_size: int, device: torch.device) -> Pass:
    """Lay the pieces end to end. Those with one token (decoding) attend as one padded group, and so do equal prompts."""
    starts = [0]
    together: dict[tuple[int, int], list[int]] = {}
    for i, piece in enumerate(pieces):
        starts.append(starts[-1] + len(piece.tokens))
        alike = (1, 0) if len(piece.tokens) == 1 and piece.block_table else (len(piece.tokens), piece.start)
        together.setdefault(alike, []).append(i)
    groups = [
        _group([pieces[i] for i in members], [starts[i] for i in members], block_size, device)
        for members in together.values()
    ]
    cached = all(piece.block_table for piece in pieces)
    places = [(piece, at) for piece in pieces for at in range(piece.start, piece.stop)]
    slots = [
        piece.block_table[at // block_size] * block_size + at % block_size for piece, at in places if cached
    ]
    last = [start - 1 - piece.padding for piece, start in zip(pieces, starts[1:], strict=True)]
    return Pass(
        tokens=torch.tensor([token for piece in pieces for token in piece.tokens], device=device),
        positions=torch.tensor([at for _, at in places], device=device),
        slots=torch.tensor(slots, device=device) if cached else None,
        groups=tuple(groups),
        last=torch.tensor(last, device=device),
    )


def _group(pieces: Sequence[Piece], starts: Sequence[int], block_size: int, device: torch.device) -> Group:
    new = len(pieces[0].tokens)
    rows = torch.tensor(starts)[:, None] + torch.arange(new)
    seen = torch.tensor([piece.start for piece in pieces])[:, None] + torch.arange(new) + 1
    if not pieces[0].block_table:
        mask = torch.arange(new)[None, None] < seen[..., None]
        return Group(rows=rows.to(device), tables=None, mask=mask.to(device))
    width = max(blocks_for(piece.stop, block_size) for piece in pieces)
    # a shorter table is filled up with its own first block: read, and masked out
    tables = [
        [*piece.block_table[:width], *[piece.block_table[0]] * (width - len(piece.block_table))]
        for piece in pieces
    ]
    mask = torch.arange(width * block_size)[None, None] < seen[..., None]
    return Group(rows=rows.to(device), tables=torch.tensor(tables, device=device), mask=mask.to(device))
