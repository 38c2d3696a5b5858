"""The paged allocator: the textbook case first, then what must hold after any sequence of operations."""

import random

import pytest

from calc.errors import InputError
from calc.paging import PagedKvCache, blocks_for


def test_all_writers_but_the_last_copy_the_shared_block():
    cache = PagedKvCache(num_blocks=300, block_size=16)
    last = cache.add(0, range(1000)).block_table[-1]
    for sample in (1, 2, 3):
        cache.fork(0, sample)
    writes = [cache.append(sample, 7) for sample in range(4)]
    assert [write.copied_from for write in writes] == [last] * 3 + [None]


@pytest.mark.reference
def test_waste_stays_under_one_block(worked):
    bound = worked["paged-waste-bound"]
    block_size = bound["in"]["block_size"]
    waste = []
    for length in range(1, 400):
        cache = PagedKvCache(num_blocks=64, block_size=block_size)
        cache.add(0, range(length))
        waste.append(cache.wasted_slots(0))
    assert max(waste) == bound["want"]


def test_a_prompt_never_hits_its_last_token():
    cache = PagedKvCache(num_blocks=8, block_size=4)
    cache.add(0, [1, 2, 3, 4, 5, 6, 7, 8])
    assert cache.cached_prefix_tokens([1, 2, 3, 4, 5, 6, 7, 8]) == 4
    assert cache.cached_prefix_tokens([1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8
    assert cache.cached_prefix_tokens([2, 2, 3, 4, 5, 6, 7, 8, 9]) == 0
    assert cache.cached_prefix_tokens([1, 2, 3, 4, 5], salt=b"tenant") == 0


def test_freed_blocks_stay_hittable_until_reused_and_tails_go_first():
    cache = PagedKvCache(num_blocks=4, block_size=2)
    table = cache.add(0, [1, 2, 3, 4, 5, 6, 7]).block_table
    cache.free(0)
    assert cache.cached_prefix_tokens([1, 2, 3, 4, 5, 6, 7]) == 6
    cache.add(1, [9, 9, 9])  # takes the two blocks freed first: the tail
    assert cache.cached_prefix_tokens([1, 2, 3, 4, 5, 6, 7]) == 4
    again = cache.add(2, [1, 2, 3, 4])
    assert again.cached_tokens == 2
    assert again.block_table[0] == table[0]


def test_a_full_pool_refuses_and_changes_nothing():
    cache = PagedKvCache(num_blocks=2, block_size=2)
    cache.add(0, [1, 2, 3, 4])
    assert cache.add(1, [5]) is None
    assert cache.append(0, 9) is None
    assert cache.wasted_slots(0) == 0
    assert cache.sequence_ids == (0,)
    cache.check()


def test_wrong_calls_say_what_is_wrong():
    cache = PagedKvCache(num_blocks=2, block_size=2)
    with pytest.raises(InputError, match="sequence_id: got 3"):
        cache.free(3)
    with pytest.raises(InputError, match="at least one token"):
        cache.add(0, [])
    with pytest.raises(InputError, match="block_size: got 0"):
        PagedKvCache(num_blocks=2, block_size=0)
    cache.add(0, [1])
    with pytest.raises(InputError, match="already"):
        cache.add(0, [1])
    with pytest.raises(InputError, match="already"):
        cache.fork(0, 0)


@pytest.mark.parametrize("seed", range(4))
def test_no_block_leaks_over_random_operations(seed):
    """60,000 operations a seed on a pool small enough to be full half of the time."""
    draw = random.Random(seed)
    block_size = draw.choice([1, 2, 4, 16])
    cache = PagedKvCache(num_blocks=draw.choice([7, 40, 120]), block_size=block_size)
    texts: dict[int, list[int]] = {}
    refused = hits = copies = 0
    for operation in range(60_000):
        kind = draw.random()
        if kind < 0.15 or not texts:
            prompt = [draw.randrange(2) for _ in range(draw.randrange(1, 5 * block_size))]
            placed = cache.add(operation, prompt)
            if placed is None:
                refused += 1
            else:
                texts[operation] = list(prompt)
                hits += placed.cached_tokens > 0
        elif kind < 0.80:
            chosen = draw.choice(list(texts))
            token = draw.randrange(2)
            write = cache.append(chosen, token)
            if write is None:
                refused += 1
            else:
                texts[chosen].append(token)
                copies += write.copied_from is not None
        elif kind < 0.85:
            parent = draw.choice(list(texts))
            cache.fork(parent, operation)
            texts[operation] = list(texts[parent])
        else:
            chosen = draw.choice(list(texts))
            cache.free(chosen)
            del texts[chosen]
        if operation % 500 == 0:
            cache.check()
            for sequence, text in texts.items():
                held = len(cache.block_table(sequence)) * block_size - cache.wasted_slots(sequence)
                assert held == len(text)
                assert len(cache.block_table(sequence)) == blocks_for(len(text), block_size)
                assert 0 <= cache.wasted_slots(sequence) < block_size
    assert refused
    assert hits or block_size == 16
    assert copies or block_size == 1
    for sequence in list(texts):
        cache.free(sequence)
    cache.check()
    assert cache.num_free_blocks == cache.num_blocks
