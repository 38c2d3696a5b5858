"""What holds for every engine on any traffic: jumping changes nothing, nothing is lost, time never runs back."""

import numpy as np
import pytest
from simulation_cases import (
    AFFINE,
    CURVED,
    FAMILIES,
    random_beams,
    random_cluster,
    random_disaggregation,
    random_groups,
    random_requests,
    random_rules,
    random_speculation,
    random_tiers,
)

from calc.simulation.kernels import layout
from calc.simulation.rules import FEATURES, EngineFamily
from calc.simulation.run import Simulation

CACHING = (EngineFamily.VLLM, EngineFamily.SGLANG, EngineFamily.NANO_VLLM)
VARIANTS = (
    "plain", "windowed", "followers", "replicas", "stream", "ids", "followers on replicas",
    "pools", "pools and followers", "pools and ids",
    "groups", "groups windowed", "groups and followers", "groups on replicas",
    "drafts", "drafts and ids", "drafts and pools", "drafts windowed",
    "stream on replicas", "tiers and stream", "tiers and ids", "tiers and ids and pools", "tiers and drafts and ids",
    "beams", "beams windowed", "beams and followers", "beams on replicas",
)  # fmt: skip


def run_to_end(requests, rules, step, **how):
    run = Simulation(requests, rules, step, **how)
    while not run.advance():
        pass
    return run, run.result()


def situation(family, variant, seed):
    draw = np.random.default_rng([seed, FAMILIES.index(family), VARIANTS.index(variant)])
    texts = next((text for text in ("stream", "ids") if text in variant), None)
    requests = random_requests(draw, followers="followers" in variant, texts=texts)
    rules = random_rules(draw, family, requests, cached=texts is not None or draw.random() < 0.2)
    cluster = random_cluster(draw, family) if "replicas" in variant else None
    if "pools" in variant:
        cluster = random_disaggregation(draw)
    if "groups" in variant or "beams" in variant:
        requests, rules = random_groups(draw, requests, rules)
    if "beams" in variant:
        rules = random_beams(draw, rules)
    if "tiers" in variant:
        rules = random_tiers(draw, rules)
    if "drafts" in variant:
        rules = random_speculation(draw, rules)
    return requests, rules, CURVED if "windowed" in variant else AFFINE, cluster


def check_ledger(run, result):
    state = run._replicas.state
    for name in (
        "running",
        "waiting",
        "decoding",
        "prefilling",
        "parked",
        "late",
        "kv_tokens",
        "window_tokens",
        "heap",
        "ready",
        "arriving",
        "owed",
        "seats",
        "swapped",
        "swap_blocks",
        "copies",
    ):
        assert not state[name].any(), name
    assert not state["below_window"].any()
    assert (state["free"] == run.rules.num_blocks).all()
    assert run._runs.world["events"] == 0
    assert not run._replicas.lists[:, layout.CROSSING].any()
    if run.cached or run.rules.beam_search is not None:
        assert not run._replicas.blocks["holders"].any()
        for one in range(len(state)):
            seen, block = 0, int(state["free_head"][one])
            while block != layout.NONE:
                seen, block = seen + 1, int(run._replicas.blocks[one, block]["next"])
            assert seen == (run.rules.num_blocks if run.cached else run._replicas.blocks.shape[1])
    assert state["finished"].sum() == len(result)
    assert result.peak_blocks <= run.rules.num_blocks
    assert (
        result.gap_counts.sum()
        == state["gap_count"].sum()
        == ((result.output_tokens - 1) * result.samples).sum()
    )


def check_times(requests, result):
    assert (result.arrival_s >= 0).all()
    assert (result.arrival_s < layout.NEVER).all()
    assert (result.scheduled_s >= result.arrival_s - 1e-9).all()
    assert (result.first_s > result.scheduled_s).all()
    assert (result.last_s >= result.first_s).all()
    several = result.output_tokens > 1
    assert (result.last_s > result.first_s)[several].all()
    travelled = result.prefill_replica >= 0
    assert (result.sent_s >= result.first_s)[travelled].all()
    assert (result.landed_s >= result.sent_s)[travelled].all()
    assert (result.last_s > result.landed_s)[travelled].all()
    if requests.predecessor is not None:
        follows = requests.predecessor >= 0
        before = result.last_s[requests.predecessor[follows]]
        np.testing.assert_allclose(result.arrival_s[follows], before + requests.think_s[follows])


def check_same(result, other, *, seed):
    for name in ("arrival_s", "scheduled_s", "first_s", "last_s"):
        np.testing.assert_allclose(
            getattr(result, name), getattr(other, name), rtol=1e-9, err_msg=f"{name} {seed}"
        )
    for name in (
        "steps",
        "preemptions",
        "prefill_tokens",
        "decode_tokens",
        "slot_steps",
        "hit_blocks",
        "peak_blocks",
    ):
        assert getattr(result, name) == getattr(other, name), (name, seed)
    for name in ("preempted", "cached_tokens", "replica"):
        np.testing.assert_array_equal(getattr(result, name), getattr(other, name))
    np.testing.assert_allclose(result.gap_sum_s, other.gap_sum_s, rtol=1e-9)
    np.testing.assert_allclose(result.longest_gap_s, other.longest_gap_s, rtol=1e-9)
    shifted = np.abs(np.cumsum(result.gap_counts) - np.cumsum(other.gap_counts)).max()
    assert shifted <= 0.02 * other.gap_counts.sum() + 1


def variants_of(family):
    """Those that the family models."""
    needs = {"stream": CACHING, "ids": CACHING, "pools": FEATURES["prefill_pool"]}
    needs |= {"drafts": FEATURES["speculation"], "tiers": FEATURES["tiers"], "groups": FEATURES["samples"]}
    needs |= {"beams": FEATURES["beam_search"]}
    return [v for v in VARIANTS if all(family in able for word, able in needs.items() if word in v)]


@pytest.mark.parametrize("family", FAMILIES)
def test_jumping_over_equal_passes_changes_nothing(family):
    """Compiled, 40 random situations of each kind."""
    pressed = 0
    for variant in variants_of(family):
        for seed in range(40):
            requests, rules, step, cluster = situation(family, variant, seed)
            run, result = run_to_end(requests, rules, step, cluster=cluster)
            slow_run, slow = run_to_end(requests, rules, step, cluster=cluster, skip=False)
            check_same(result, slow, seed=(variant, seed))
            check_ledger(run, result)
            check_ledger(slow_run, slow)
            check_times(requests, result)
            pressed += result.preemptions
    if family not in (EngineFamily.ORCA, EngineFamily.STATIC):
        assert pressed > 20, "the pools were too large to test anything"


@pytest.mark.parametrize("family", FAMILIES)
def test_machine_code_and_plain_python_agree(family):
    """The reference: the same source without compilation, without jumps."""
    for variant in variants_of(family):
        requests, rules, step, cluster = situation(family, variant, 1)
        _, result = run_to_end(requests, rules, step, cluster=cluster)
        plain_run, plain = run_to_end(requests, rules, step, cluster=cluster, compiled=False, skip=False)
        check_same(result, plain, seed=variant)
        check_ledger(plain_run, plain)


def test_the_same_seed_repeats_a_run_to_the_bit():
    requests, rules, step, _ = situation(EngineFamily.VLLM, "stream", 3)
    cluster = random_cluster(np.random.default_rng(5), EngineFamily.VLLM)
    one, other = (run_to_end(requests, rules, step, cluster=cluster)[1] for _ in range(2))
    np.testing.assert_array_equal(one.last_s, other.last_s)


def test_a_run_in_slices_is_the_same_run():
    requests, rules, step, _ = situation(EngineFamily.SGLANG, "plain", 2)
    _, whole = run_to_end(requests, rules, step)
    run = Simulation(requests, rules, step)
    seen = []
    while not run.advance(passes=3):
        seen.append(run.progress)
    np.testing.assert_array_equal(run.result().last_s, whole.last_s)
    assert seen == sorted(seen)
    assert 0 <= seen[0] < seen[-1] <= 1
