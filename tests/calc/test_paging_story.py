"""Stories played on the allocator keep its promises, and the worked sharing comes out."""

from hypothesis import given, settings
from hypothesis import strategies as st

from calc.paging_story import BLOCK_SIZE, NUM_BLOCKS, PROMPTS, RESERVED_TOKENS, SHARED_TOKENS, Action, play


def test_reserving_holds_six_and_paging_more():
    played = play((Action.ADD,) * 9)
    assert played.reserved.requests == NUM_BLOCKS * BLOCK_SIZE // RESERVED_TOKENS == 6
    assert played.reserved.turned_away == 3
    assert played.paged.requests == 9  # 37+90+23+61+108+18+74+45+37 tokens in 3+6+2+4+7+2+5+3+3 blocks
    assert sum(1 for cell in played.paged.cells if cell.owners) == 35


def test_a_shared_prompt_is_stored_once():
    played = play((Action.ADD_SHARED, Action.ADD_SHARED))
    assert played.paged.saved_slots == SHARED_TOKENS
    assert any("32 of them cached already" in line for line in played.log)


def test_a_fork_shares_and_the_first_write_copies():
    forked = play((Action.ADD, Action.FORK))
    assert forked.paged.saved_slots == PROMPTS[0]
    written = play((Action.ADD, Action.FORK, Action.WRITE))
    assert any("is copied to" in line for line in written.log)
    # two full blocks of 37 tokens stay shared; the last one was copied (worked case paged-sharing, smaller)
    assert sum(1 for cell in written.paged.cells if len(cell.owners) == 2) == 2


def test_a_full_pool_preempts():
    played = play((Action.ADD,) * 13 + (Action.WRITE,) * 12)
    assert any("preempted" in line for line in played.log)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(list(Action)), max_size=40))
def test_any_story_accounts_for_every_slot(story):
    played = play(tuple(story))
    for pool in (played.reserved, played.paged):
        held = sum(1 for cell in pool.cells if cell.owners)
        assert len(pool.cells) == NUM_BLOCKS
        assert pool.used_slots + pool.wasted_slots == held * BLOCK_SIZE
    assert played.paged.wasted_slots <= played.paged.requests * (BLOCK_SIZE - 1)
