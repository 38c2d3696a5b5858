"""The paged KV cache: blocks, block tables, reference counts, copy-on-write, prefix hashes, LRU reuse.

An allocator with the rules of vLLM's V1 block pool, over plain integers: it stores no keys or values, only who owns
which block. The pages draw it and drive it; `calc.simulation.kernels.blocks` is the same pool over arrays, and a test
holds the two to the same hits and evictions.

Source: Kwon et al., "Efficient Memory Management for LLM Serving with PagedAttention" (SOSP 2023);
https://docs.vllm.ai/en/latest/design/prefix_caching/ (full blocks only, the last prompt token is always computed,
freed blocks stay hittable until reused, tails are reused before heads).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from calc.errors import InputError

MAX_BLOCKS = 100_000_000
_ROOT = b""


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold `tokens` tokens: ceil(tokens / block_size)."""
    return -(-tokens // block_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A sequence was placed: its block table, and how many of its tokens a cached prefix already held."""

    block_table: tuple[int, ...]
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One token was written to `block`; `copied_from` is the shared block that was copied first, if one was."""

    block: int
    copied_from: int | None = None


@dataclass(slots=True)
class _Sequence:
    tokens: list[int]
    block_table: list[int]
    digests: list[bytes]  # of the full blocks, chained
    salt: bytes = b""


@dataclass(slots=True)
class PagedKvCache:
    """A pool of `num_blocks` blocks of `block_size` token slots, shared by sequences that come and go.

    `add`, `append` and `fork` return None and change nothing when the pool cannot give the blocks: preempting
    somebody is the scheduler's decision.
    """

    num_blocks: int
    block_size: int
    prefix_caching: bool = True
    _free: OrderedDict[int, None] = field(init=False, repr=False)  # next to be reused first
    _ref_counts: list[int] = field(init=False, repr=False)
    _digest_of: dict[int, bytes] = field(init=False, repr=False, default_factory=dict)
    _block_of: dict[bytes, int] = field(init=False, repr=False, default_factory=dict)
    _sequences: dict[int, _Sequence] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= MAX_BLOCKS:
                raise InputError(name, value, f"it must be a whole number from 1 to {MAX_BLOCKS:,}")
        self._free = OrderedDict.fromkeys(range(self.num_blocks))
        self._ref_counts = [0] * self.num_blocks

    # ---- what stands now

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds; some of them may still hold a cached prefix."""
        return len(self._free)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    @property
    def sequence_ids(self) -> tuple[int, ...]:
        return tuple(self._sequences)

    def block_table(self, sequence_id: int) -> tuple[int, ...]:
        return tuple(self._known(sequence_id).block_table)

    def is_cached(self, block: int) -> bool:
        """Whether a prompt could hit the contents of `block`."""
        return block in self._digest_of

    def wasted_slots(self, sequence_id: int) -> int:
        """Token slots that are held but empty; under one block, whatever the length."""
        sequence = self._known(sequence_id)
        return len(sequence.block_table) * self.block_size - len(sequence.tokens)

    # ---- what changes it

    def cached_prefix_tokens(self, tokens: Sequence[int], *, salt: bytes = b"") -> int:
        """Tokens of a new prompt that the cache holds; whole blocks, and never the last token."""
        return len(self._hits(tokens, salt)) * self.block_size

    def blocks_to_add(self, tokens: Sequence[int], *, salt: bytes = b"") -> int:
        """Free blocks that placing a prompt takes: new ones, and those of its cached prefix that nobody holds."""
        hits = self._hits(tokens, salt)
        revived = sum(1 for block in hits if self._ref_counts[block] == 0)
        return blocks_for(len(tokens), self.block_size) - len(hits) + revived

    def add(
        self, sequence_id: int, tokens: Sequence[int], *, salt: bytes = b"", computed_later: bool = False
    ) -> Admission | None:
        """Place a prompt: share the blocks of its cached prefix, take new ones for the rest; None if it won't fit.

        computed_later: its new blocks cannot be hit until `list_computed` says that their keys and values are there.
        """
        if sequence_id in self._sequences:
            raise InputError("sequence_id", sequence_id, "it must not be in the cache already")
        if not tokens:
            raise InputError("tokens", list(tokens), "a sequence has at least one token")
        if self.blocks_to_add(tokens, salt=salt) > len(self._free):
            return None
        hits = self._hits(tokens, salt)
        num_new = blocks_for(len(tokens), self.block_size) - len(hits)
        for block in hits:
            self._hold(block)
        table = hits + [self._take() for _ in range(num_new)]
        sequence = _Sequence(tokens=list(tokens), block_table=table, digests=[], salt=salt)
        self._sequences[sequence_id] = sequence
        self._register_full_blocks(sequence, len(hits) * self.block_size if computed_later else len(tokens))
        return Admission(block_table=tuple(table), cached_tokens=len(hits) * self.block_size)

    def append(self, sequence_id: int, token: int) -> Write | None:
        """Write one token: into the last block, into a copy of it if it is shared, or into a new block.

        Returns None, and changes nothing, if a block is needed and none is free.
        """
        sequence = self._known(sequence_id)
        slot = len(sequence.tokens) % self.block_size
        last = sequence.block_table[-1]
        if slot and self._ref_counts[last] == 1:
            write = Write(block=last)
        elif not self._free:
            return None
        else:
            block = self._take()
            write = Write(block=block, copied_from=last if slot else None)
            if slot:
                self._release(last)
                sequence.block_table[-1] = block
            else:
                sequence.block_table.append(block)
        sequence.tokens.append(token)
        self._register_full_blocks(sequence, len(sequence.tokens))
        return write

    def blocks_to_extend(self, sequence_id: int, count: int) -> int:
        """Blocks that `count` more tokens of a sequence need, a copy of a shared last block included."""
        sequence = self._known(sequence_id)
        tokens = len(sequence.tokens)
        more = blocks_for(tokens + count, self.block_size) - len(sequence.block_table)
        copies = bool(tokens % self.block_size) and self._ref_counts[sequence.block_table[-1]] > 1
        return more + (1 if copies and count else 0)

    def extend(self, sequence_id: int, tokens: Sequence[int]) -> tuple[Write, ...] | None:
        """Write several tokens as `append` would; None, with nothing changed, if the pool cannot give the blocks."""
        if self.blocks_to_extend(sequence_id, len(tokens)) > len(self._free):
            return None
        writes = [self.append(sequence_id, token) for token in tokens]
        return tuple(write for write in writes if write is not None)

    def list_computed(self, sequence_id: int, num_tokens: int) -> None:
        """The first `num_tokens` tokens are computed: their full blocks can be hit from now on."""
        sequence = self._known(sequence_id)
        self._register_full_blocks(sequence, min(num_tokens, len(sequence.tokens)))

    def fork(self, parent_id: int, child_id: int) -> tuple[int, ...]:
        """Another sample of the same text: shares every block of the parent; writing copies. Returns its table."""
        parent = self._known(parent_id)
        if child_id in self._sequences:
            raise InputError("sequence_id", child_id, "it must not be in the cache already")
        for block in parent.block_table:
            self._hold(block)
        self._sequences[child_id] = _Sequence(
            tokens=list(parent.tokens),
            block_table=list(parent.block_table),
            digests=list(parent.digests),
            salt=parent.salt,
        )
        return tuple(parent.block_table)

    def choose(self, sequence_ids: Sequence[int], parents: Sequence[int]) -> int:
        """Beams compete: each sequence goes on with the text of the one at its place in `parents`; returns the blocks that became free.

        One that several continue is shared by them until they write; the blocks of one that nobody continues are let go.
        """
        if len(parents) != len(sequence_ids) or len(set(sequence_ids)) != len(sequence_ids):
            raise InputError("parents", tuple(parents), "one for each of the sequences, which are named once")
        if not set(parents) <= set(sequence_ids):
            raise InputError("parents", tuple(parents), "each must be one of the sequences")
        before = len(self._free)
        old = [self._known(one) for one in sequence_ids]
        chosen = [self._known(one) for one in parents]
        following = [
            _Sequence(
                tokens=list(one.tokens),
                block_table=list(one.block_table),
                digests=list(one.digests),
                salt=one.salt,
            )
            for one in chosen
        ]
        for one in following:
            for block in one.block_table:
                self._hold(block)
        for sequence in old:
            for block in reversed(sequence.block_table):
                self._release(block)
        self._sequences.update(zip(sequence_ids, following, strict=True))
        return len(self._free) - before

    def free(self, sequence_id: int) -> int:
        """Let a sequence go; returns the blocks that became free. Its tail is reused before its head."""
        sequence = self._known(sequence_id)
        before = len(self._free)
        for block in reversed(sequence.block_table):
            self._release(block)
        del self._sequences[sequence_id]
        return len(self._free) - before

    def check(self) -> None:
        """Raise InputError if a count is wrong: leaked, freed twice, or held by more or fewer than it says."""
        holders = [0] * self.num_blocks
        for sequence in self._sequences.values():
            for block in sequence.block_table:
                holders[block] += 1
        if holders != self._ref_counts:
            raise InputError(
                "ref_counts", self._ref_counts, "they must equal the number of tables with the block"
            )
        if {block for block, count in enumerate(holders) if count == 0} != set(self._free):
            raise InputError(
                "free blocks", tuple(self._free), "exactly the blocks that nobody holds are free"
            )
        if any(self._digest_of.get(block) != digest for digest, block in self._block_of.items()):
            raise InputError("digests", len(self._block_of), "each must name the block that holds its text")

    # ---- parts

    def _known(self, sequence_id: int) -> _Sequence:
        try:
            return self._sequences[sequence_id]
        except KeyError:
            raise InputError("sequence_id", sequence_id, "it must be in the cache") from None

    def _digests(self, tokens: Sequence[int], salt: bytes, known: Sequence[bytes] = ()) -> Iterator[bytes]:
        """Digests of the full blocks after the `known` ones; each depends on all tokens before it."""
        parent = known[-1] if known else _ROOT
        for start in range(len(known) * self.block_size, len(tokens) - self.block_size + 1, self.block_size):
            text = ",".join(map(str, tokens[start : start + self.block_size]))
            parent = blake2b(parent + b"|" + text.encode(), digest_size=16, salt=salt[:16]).digest()
            yield parent

    def _hits(self, tokens: Sequence[int], salt: bytes) -> list[int]:
        hits: list[int] = []
        if self.prefix_caching:
            for digest in self._digests(tokens[:-1], salt):
                block = self._block_of.get(digest)
                if block is None:
                    break
                hits.append(block)
        return hits

    def _register_full_blocks(self, sequence: _Sequence, num_tokens: int) -> None:
        """List the blocks that `num_tokens` tokens fill and that are not listed yet."""
        if not self.prefix_caching or num_tokens // self.block_size <= len(sequence.digests):
            return
        known = tuple(sequence.digests)
        for digest in self._digests(sequence.tokens[:num_tokens], sequence.salt, known):
            block = sequence.block_table[len(sequence.digests)]
            sequence.digests.append(digest)
            if digest not in self._block_of and block not in self._digest_of:
                self._block_of[digest] = block
                self._digest_of[block] = digest

    def _take(self) -> int:
        """The next free block; what it still held of a cached prefix is gone."""
        block, _ = self._free.popitem(last=False)
        digest = self._digest_of.pop(block, None)
        if digest is not None:
            del self._block_of[digest]
        self._ref_counts[block] = 1
        return block

    def _hold(self, block: int) -> None:
        if self._ref_counts[block] == 0:
            del self._free[block]
        self._ref_counts[block] += 1

    def _release(self, block: int) -> None:
        self._ref_counts[block] -= 1
        if self._ref_counts[block] == 0:
            self._free[block] = None
