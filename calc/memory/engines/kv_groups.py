"""Block-paged caches as vLLM lays them out: layers with pages, groups that share a pool, blocks, tokens, bytes.

    CacheLayer    what one layer stores: a page per block of tokens, a page per sequence, or nothing that grows
    CacheGroups   layers of equal kind cut into groups of equal size; every group draws blocks from one pool
    pool_of       available bytes -> blocks, concurrency at a length, and the token count that the log prints

Source: vllm/v1/core/kv_cache_utils.py and kv_cache_interface.py, releases 0.9 to 0.28; checked on public start-up logs
(docs/accuracy.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from calc.arrays import largest_count
from calc.errors import InputError


class CacheKind(StrEnum):
    """How many blocks of a layer a sequence holds."""

    FULL = "full"  # grows with the context
    SLIDING = "sliding"  # the window, and the tokens of one step
    CHUNKED = "chunked"  # one chunk, and the tokens of one step
    STATE = "state"  # a fixed number of pages
    CROSS = "cross"  # the encoder's tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayer:
    """One layer's cache on one GPU. `page_bytes` is what one block costs; a STATE page holds one sequence's state.

    `slotted`: pages of unlike size share slots (DeepSeek-V4), see `slotted_groups`.
    """

    kind: CacheKind
    page_bytes: int
    block_size: int
    window: int | None = None
    state_pages: int = 1
    slotted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What bounds a sequence's blocks besides its length: tokens of a step, context parallelism, encoder length."""

    max_batched_tokens: int
    context_parallel: int = 1
    encoder_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroups:
    """Layers of the whole model in groups.

    `groups` holds (layers in it, their layer). `uniform`: one group whose layers may have pages of different size; a
    block then costs the sum of all pages. Otherwise all pages are equal and a block costs `group_size` of them, or
    `group_size` slots of `slot_bytes` where layers of unlike pages share slots.
    `padding_layers`: slots that hold nothing and still cost memory.
    """

    groups: tuple[tuple[int, CacheLayer], ...]
    uniform: bool
    padding_layers: int = 0
    slot_bytes: int = 0

    @property
    def group_size(self) -> int:
        return max((count for count, _ in self.groups), default=0)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of the pool, on a GPU that holds every layer."""
        if self.uniform:
            return sum(count * layer.page_bytes for count, layer in self.groups)
        return self.group_size * (self.slot_bytes or self.groups[0][1].page_bytes)

    @property
    def block_size(self) -> int:
        """Tokens per block that the engine reports: the smallest over the groups that hold tokens (for good, with slots)."""
        sizes = [
            layer.block_size
            for _, layer in self.groups
            if layer.kind is CacheKind.FULL or (layer.kind is not CacheKind.STATE and not self.slot_bytes)
        ]
        return min(sizes, default=self.groups[0][1].block_size if self.groups else 1)


def ceil_div(a: int, b: int) -> int:
    """The quotient of two whole numbers, rounded up."""
    return -(-a // b)


def blocks_of_sequence(layer: CacheLayer, tokens: int, limits: StepLimits) -> int:
    """Most blocks that one sequence of `tokens` tokens holds in a layer at any time."""
    size = layer.block_size
    if layer.kind is CacheKind.STATE:
        return layer.state_pages
    if layer.kind is CacheKind.CROSS:
        return ceil_div(limits.encoder_tokens or tokens, size)
    if layer.kind is CacheKind.SLIDING:
        # One more: the window need not start at a block boundary.
        return ceil_div(min((layer.window or 1) - 1 + limits.max_batched_tokens, tokens), size) + 1
    if layer.kind is CacheKind.CHUNKED:
        return ceil_div(min((layer.window or 1) + limits.max_batched_tokens, tokens), size)
    return ceil_div(ceil_div(tokens, limits.context_parallel), size)


def group_layers(layers: Mapping[CacheLayer, int], *, padding_ratio: float) -> CacheGroups:
    """Groups of all layers of a model (counts by layer), as the hybrid cache manager makes them.

    `padding_ratio`: when the largest bucket of equal layers is below this many times the smallest, every group is as
    large as the largest bucket; otherwise as the smallest.
    """
    if not layers:
        return CacheGroups(groups=(), uniform=True)
    if one_kind(layers):
        return CacheGroups(groups=tuple((count, layer) for layer, count in layers.items()), uniform=True)
    if any(layer.slotted for layer in layers):
        return slotted_groups(layers)
    buckets = equal_pages(layers)
    smallest, largest = min(buckets.values()), max(buckets.values())
    size = largest if largest < smallest * padding_ratio else smallest
    groups: list[tuple[int, CacheLayer]] = []
    padding = 0
    for layer, count in buckets.items():
        n_groups = ceil_div(count, size)
        padding += n_groups * size - count
        groups += [(ceil_div(count - i, n_groups), layer) for i in range(n_groups)]
    return CacheGroups(groups=tuple(groups), uniform=False, padding_layers=padding)


def slotted_groups(layers: Mapping[CacheLayer, int]) -> CacheGroups:
    """Groups of a model whose lasting entries, windows and compressor states have pages of unlike size (DeepSeek-V4).

    A slot holds one page of every size that the lasting entries have; any other page is padded up to one of these. Layers of one
    block size and window make a group, cut into parts of as many slots as waste least in all.

    Source: vllm/v1/core/kv_cache_utils.py of 0.22 (group_and_unify_kv_cache_specs, _get_kv_cache_groups_uniform_groups).
    """
    counts: dict[tuple[object, ...], int] = {}
    first: dict[tuple[object, ...], CacheLayer] = {}
    for layer, count in layers.items():
        key = _slot_group(layer)
        counts[key] = max(counts.get(key, 0), count)
        first.setdefault(key, layer)
    lasting = next(key for key, layer in first.items() if layer.kind is CacheKind.FULL)
    slots = _least_padding(list(counts.values()), at_least=counts[lasting])
    sizes = {layer.page_bytes for layer in layers if layer.kind is CacheKind.FULL}
    groups: list[tuple[int, CacheLayer]] = []
    for key in sorted(counts, key=lambda key: key != lasting):
        parts = ceil_div(counts[key], slots)
        groups += [(ceil_div(counts[key] - i, parts), first[key]) for i in range(parts)]
    held = max(count for count, _ in groups)
    padding = sum(held - count for count, _ in groups)
    return CacheGroups(groups=tuple(groups), uniform=False, padding_layers=padding, slot_bytes=sum(sizes))


def _least_padding(counts: list[int], *, at_least: int) -> int:
    """The size, not below `at_least`, that rounds all counts up with the least in all; the largest of equals."""
    return min(
        range(at_least, max(counts) + 1),
        key=lambda size: (sum(-count % size for count in counts), -size),
        default=at_least,
    )


def one_kind(layers: Mapping[CacheLayer, int]) -> bool:
    """Whether every layer needs the same token slots, so that one block table serves all, pages of any size."""
    kinds = {(layer.kind, layer.block_size, layer.window, layer.state_pages) for layer in layers}
    return len(kinds) == 1


def equal_pages(layers: Mapping[CacheLayer, int], largest: int | None = None) -> dict[CacheLayer, int]:
    """Layers whose pages are all `largest` bytes (None: as the largest of them).

    A page that divides it holds more tokens per block; any other, and a state's, is padded.
    """
    largest = largest or max((layer.page_bytes for layer in layers), default=0)
    result: dict[CacheLayer, int] = {}
    for layer, count in layers.items():
        if layer.kind is CacheKind.STATE or largest % layer.page_bytes:
            even = replace(layer, page_bytes=largest)
        else:
            ratio = largest // layer.page_bytes
            even = replace(layer, page_bytes=largest, block_size=layer.block_size * ratio)
        result[even] = result.get(even, 0) + count
    return result


def stage_block_bytes(groups: CacheGroups, on_stage: Mapping[CacheLayer, int]) -> int:
    """Bytes of one block on a GPU that holds only the layers of one pipeline stage.

    Groups are made for the whole model and then cut; layers of one kind are dealt out evenly among its groups.
    """
    if groups.uniform:
        return sum(count * layer.page_bytes for layer, count in on_stage.items())
    if groups.slot_bytes:
        return groups.slot_bytes * slots_on_stage(groups, on_stage)
    page = groups.groups[0][1].page_bytes
    n_groups: dict[CacheLayer, int] = {}
    for _, layer in groups.groups:
        n_groups[layer] = n_groups.get(layer, 0) + 1
    held = equal_pages(on_stage, page)
    return page * max((ceil_div(count, n_groups.get(layer, 1)) for layer, count in held.items()), default=0)


def slots_on_stage(groups: CacheGroups, on_stage: Mapping[CacheLayer, int]) -> int:
    """Slots that a stage's layers take: the most layers of one page size in one group, dealt out over equal groups."""
    alike: dict[tuple[object, ...], int] = {}
    for _, layer in groups.groups:
        alike[_slot_group(layer)] = alike.get(_slot_group(layer), 0) + 1
    return max(
        (ceil_div(count, alike.get(_slot_group(layer), 1)) for layer, count in on_stage.items()), default=0
    )


def _slot_group(layer: CacheLayer) -> tuple[object, ...]:
    """What layers of one group have in common; the pages may differ."""
    return layer.kind, layer.block_size, layer.window


def charged_in_full(layers: Mapping[CacheLayer, int]) -> dict[CacheLayer, int]:
    """Layers with every window and chunk forgotten: what versions without a hybrid cache manager allocate."""
    result: dict[CacheLayer, int] = {}
    for layer, count in layers.items():
        full = (
            replace(layer, kind=CacheKind.FULL, window=None) if layer.kind is not CacheKind.STATE else layer
        )
        result[full] = result.get(full, 0) + count
    return result


def blocks_per_request(groups: CacheGroups, tokens: int, limits: StepLimits) -> int:
    """Blocks of the pool that one sequence of `tokens` tokens takes, over all groups."""
    if groups.uniform:
        return max((blocks_of_sequence(layer, tokens, limits) for _, layer in groups.groups), default=0)
    return sum(blocks_of_sequence(layer, tokens, limits) for _, layer in groups.groups)


def most_running(groups: CacheGroups, num_blocks: int, tokens: int, limits: StepLimits) -> int:
    """Sequences of `tokens` tokens that run at once: one whose prompt is being computed, the others decoding.

    A sequence holds its most blocks (`blocks_per_request`) only while its prompt is computed; blocks that have left a
    window go back to the pool before the next pass. Where nothing has a window, both are the same and this is the
    whole part of the concurrency that the engine prints.

    Source: vllm/v1/core/single_type_kv_cache_manager.py (remove_skipped_blocks before each allocation).
    Ignores: that a pass may hold the prompts of several sequences, and the one pass by which a scheduler that works
    ahead frees later; such a pass admits fewer.
    """
    most = blocks_per_request(groups, tokens, limits)
    if not most or num_blocks < most:
        return 0
    return 1 + (num_blocks - most) // blocks_while_decoding(groups, tokens, limits)


def blocks_while_decoding(groups: CacheGroups, tokens: int, limits: StepLimits) -> int:
    """Blocks of the pool that a sequence of `tokens` tokens holds once its prompt is computed: one more token a pass."""
    return blocks_per_request(groups, tokens, replace(limits, max_batched_tokens=1))


def longest_length(
    groups: CacheGroups, block_bytes: int, available_bytes: float, limits: StepLimits, *, up_to: int
) -> int:
    """Most tokens of one sequence that fit in `available_bytes`, at most `up_to`; 0 when not even one fits."""

    def fits(tokens: int) -> bool:
        return block_bytes * blocks_per_request(groups, tokens, limits) <= available_bytes

    return largest_count(fits, up_to=up_to)


class PrintedTokens(StrEnum):
    """What the engine's "KV cache size: N tokens" line means."""

    BLOCKS = "blocks"  # the log prints blocks only; tokens are blocks times block size
    GROUP_SHARE = "group share"  # blocks over the number of groups, times the smallest block size
    CONCURRENCY = "concurrency"  # concurrency at the longest length, times that length


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePool:
    """What one pipeline stage has for the cache, per GPU, and what a block costs there."""

    available_bytes: float
    block_bytes: int

    @property
    def num_blocks(self) -> int:
        """Whole blocks that fit."""
        return max(0, int(self.available_bytes // self.block_bytes)) if self.block_bytes else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The pool of blocks of one model replica, and what it holds. Bytes are those of the stage that binds, per GPU."""

    block_size: int
    block_bytes: int
    num_blocks: int
    n_groups: int
    padding_layers: int
    blocks_per_request: int
    blocks_while_decoding: int
    max_concurrency: float
    most_running: int
    tokens: int
    printed_tokens: int
    needed_bytes: int
    available_bytes: float
    longest_length: int


def pool_of(
    groups: CacheGroups,
    stages: Sequence[StagePool],
    *,
    max_model_len: int,
    limits: StepLimits,
    printed: PrintedTokens,
) -> Pool:
    """The pool that the stages' available bytes make, and the numbers that the engine derives from it.

    Every stage gets as many blocks as the poorest one. `tokens` is what can be used at the longest length (concurrency
    times length); `printed_tokens` is what the log says.
    """
    if max_model_len < 1:
        raise InputError("max_model_len", max_model_len, "it must be a positive number of tokens")
    holding = [stage for stage in stages if stage.block_bytes]
    binding = min(
        holding,
        key=lambda s: s.available_bytes / s.block_bytes,
        default=StagePool(available_bytes=0.0, block_bytes=0),
    )
    per_request = blocks_per_request(groups, max_model_len, limits)
    num_blocks = binding.num_blocks
    concurrency = num_blocks / per_request if per_request else 0.0
    tokens = int(concurrency * max_model_len)
    n_groups = 1 if groups.uniform else len(groups.groups)
    shown = tokens
    if printed is not PrintedTokens.CONCURRENCY:
        shown = num_blocks // max(n_groups, 1) * groups.block_size * limits.context_parallel
    return Pool(
        block_size=groups.block_size,
        block_bytes=binding.block_bytes,
        num_blocks=num_blocks,
        n_groups=n_groups,
        padding_layers=groups.padding_layers,
        blocks_per_request=per_request,
        blocks_while_decoding=blocks_while_decoding(groups, max_model_len, limits),
        max_concurrency=concurrency,
        most_running=most_running(groups, num_blocks, max_model_len, limits),
        tokens=tokens,
        printed_tokens=shown,
        needed_bytes=binding.block_bytes * per_request,
        available_bytes=binding.available_bytes,
        longest_length=longest_length(
            groups, binding.block_bytes, binding.available_bytes, limits, up_to=max_model_len
        ),
    )
