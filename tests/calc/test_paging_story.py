"""Stories played on the allocator keep its promises, and the worked sharing comes out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.paging import PagedKvCache
from calc.paging_story import BEAMS, BLOCK_SIZE, MIXED, SAMPLES, SHARED_TOKENS, Action, play
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable


@pytest.mark.reference
def test_the_pages_four_samples_are_the_lessons(worked):
    want = worked["paged-sharing"]["want"]
    forked = play((Action.ADD, *(Action.FORK,) * 3), SAMPLES)
    assert forked.paged.used_blocks == want["unshared"]
    assert forked.sharing.used_blocks == want["shared"] == want["blocks"]
    assert {len(cell.owners) for cell in forked.sharing.cells if cell.owners} == {want["refcount"]}
    written = play((Action.ADD, *(Action.FORK,) * 3, Action.WRITE), SAMPLES)
    assert written.sharing.used_blocks == want["after_first_write"]
    assert sum("is copied to" in line for line in written.log) == 3
    assert sum(cell.touched for cell in written.sharing.cells) == 4  # three copies, and the last writer's own


@pytest.mark.reference
def test_the_allocator_and_the_simulator_fit_14_and_79(worked):
    given = worked["capacity-13b-a100"]["in"]
    want = worked["capacity-13b-a100"]["want"]
    tokens = int(given["cache_bytes"] // given["kv_bytes_per_token"])
    num_blocks = tokens // given["block_size"]
    for length, fits in ((given["reserved_tokens"], want["reserved"]), (given["real_tokens"], want["paged"])):
        cache = PagedKvCache(num_blocks=num_blocks, block_size=given["block_size"], prefix_caching=False)
        placed = 0
        while cache.add(placed, [0] * length) is not None:
            placed += 1
        assert placed == fits
        # Orca's rules reserve a fixed length for every request: 4,096, or exactly what each needs
        crowd = 200
        requests = RequestTable(
            arrival_s=np.zeros(crowd),
            input_tokens=np.full(crowd, 513),
            output_tokens=np.full(crowd, 256),
        )
        rules = engine_rules(
            "orca",
            num_blocks=num_blocks,
            block_size=given["block_size"],
            max_seqs=crowd,
            reserve_tokens=length,
        )
        step = StepTable.affine(fixed_s=0.02, prefill_s=1e-5, decode_s=1e-4, kv_s=0.0)
        assert simulate(requests, rules, step, compiled=False).peak_running == fits


def test_beams_fork_are_dropped_and_copy_on_write():
    """Apart, four beams hold four times the blocks of one; together never more, and a dropped beam's come back."""
    story = [Action.ADD, *[Action.FORK] * 3]
    came_back = set()
    for written in range(1, 13):
        story.append(Action.WRITE)
        before = play(tuple(story), BEAMS)
        story.append(Action.COMPETE)
        after = play(tuple(story), BEAMS)
        one = -(-(75 + BEAMS.written_tokens * written) // BLOCK_SIZE)
        assert before.paged.used_blocks == after.paged.used_blocks == 4 * one
        assert one <= after.sharing.used_blocks <= before.sharing.used_blocks < 4 * one
        assert {pool.requests for pool in after.pools} == {4}
        freed = before.sharing.used_blocks - after.sharing.used_blocks
        came_back.add(freed)
        assert (" dropped, " in after.log[-1]) == (freed > 0)
    assert {0, 1} < came_back
    copies = [line for line in after.log if "is copied to" in line]
    assert len(copies) > 3  # the three of the prompt, and those of forks
    assert "there are no beams" in play((Action.ADD, Action.COMPETE)).log[-1]


def test_reserving_holds_five_and_strands_what_is_left():
    played = play((Action.ADD,) * 9)
    assert played.reserving.requests == 5  # 48 blocks, nine each
    assert played.reserving.waiting == 4
    assert played.reserving.external_slots == (48 - 5 * 9) * BLOCK_SIZE
    assert played.paged.requests == 9  # 37+90+23+61+108+18+74+45+37 tokens in 3+6+2+4+7+2+5+3+3 blocks
    assert played.paged.used_blocks == 35
    assert played.paged.external_slots == 0


def test_a_shared_prompt_is_stored_once():
    played = play((Action.ADD_SHARED, Action.ADD_SHARED))
    assert played.sharing.saved_slots == SHARED_TOKENS
    assert played.paged.saved_slots == 0
    assert any("32 of them cached already" in line for line in played.log)


def test_who_waits_comes_in_when_somebody_is_done():
    waits = play((Action.ADD,) * 6)
    assert waits.reserving.waiting == 1
    comes = play((*(Action.ADD,) * 6, Action.FINISH, Action.WRITE))
    assert (comes.reserving.waiting, comes.reserving.requests) == (0, 5)


def test_a_full_pool_preempts_the_newest_and_it_comes_back_later():
    crowded = (Action.ADD,) * 12
    played = play(crowded + (Action.WRITE,) * 8)
    assert played.sharing.preemptions
    assert played.sharing.waiting
    assert any("preempted" in line for line in played.log)
    rest = play(crowded + (Action.WRITE,) * 8 + (Action.FINISH,) * 4 + (Action.WRITE,))
    assert rest.sharing.waiting < played.sharing.waiting


@pytest.mark.parametrize("setting", [MIXED, SAMPLES], ids=["mixed", "samples"])
def test_running_out_puts_somebody_out(setting):
    played = play((Action.ADD, Action.RUN_OUT), setting)
    assert played.sharing.preemptions >= 1
    assert any("is preempted" in line for line in played.log)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(list(Action)), max_size=25))
def test_any_story_accounts_for_every_slot(story):
    played = play(tuple(story))
    for pool in played.pools:
        assert len(pool.cells) == MIXED.num_blocks
        assert pool.used_slots + pool.wasted_slots == pool.used_blocks * BLOCK_SIZE
    for pool in (played.paged, played.sharing):
        assert pool.reserved_slots == 0
        assert pool.wasted_slots <= pool.requests * (BLOCK_SIZE - 1)  # worked case paged-waste-bound
    if Action.RUN_OUT not in story:
        asked = sum(action in {Action.ADD, Action.ADD_SHARED} for action in story)
        assert played.reserving.requests + played.reserving.waiting <= asked + story.count(Action.FORK)
    assert played.sharing.requests >= played.reserving.requests or played.sharing.preemptions
