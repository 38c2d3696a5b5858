"""Single rules of single engines, on cases small enough to follow by hand; what is not modelled is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from calc.errors import InputError
from calc.paging import PagedKvCache
from calc.simulation.cluster import Cluster
from calc.simulation.requests import RequestTable
from calc.simulation.rules import FEATURES, EngineFamily, EngineRules, Policy, engine_rules
from calc.simulation.run import Cancelled, Simulation, simulate
from calc.simulation.step_table import StepTable

UNIT = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
DOCUMENT = Path(__file__).parents[3] / "docs/simulation.md"


def table(arrivals, prompts, answers, **more):
    values = {name: np.array(v) for name, v in more.items()}
    return RequestTable(
        arrival_s=np.array(arrivals, float),
        input_tokens=np.array(prompts),
        output_tokens=np.array(answers),
        **values,
    )


def run(requests, family, **settings):
    how = {name: settings.pop(name) for name in ("cluster", "log_passes") if name in settings}
    return simulate(requests, engine_rules(family, **settings), UNIT, compiled=False, **how)


def test_a_first_token_comes_at_the_end_of_the_step_that_computes_the_last_prompt_token():
    result = run(table([0], [25], [3]), "vllm", num_blocks=10, token_budget=10, max_seqs=4)
    assert (result.first_s[0], result.last_s[0], result.steps) == (3.0, 5.0, 5)


def test_an_arrival_is_seen_at_the_next_step():
    result = run(table([0, 0.5], [1, 1], [5, 1]), "vllm", num_blocks=10)
    assert result.scheduled_s.tolist() == [0.0, 1.0]
    assert result.first_s.tolist() == [1.0, 2.0]


def test_vllm_admits_nobody_behind_a_head_that_does_not_fit():
    # 4 blocks of 4: the first holds 2 (later 3), the second needs 3, the third would fit
    requests = table([0, 0.1, 0.2], [8, 12, 1], [4, 1, 1])
    result = run(requests, "vllm", num_blocks=4, block_size=4)
    assert result.scheduled_s[1] >= result.last_s[0]
    assert result.scheduled_s[2] >= result.scheduled_s[1]


def test_vllm_preempts_the_last_and_queues_it_in_front():
    # blocks of 2, six of them; both grow until the pool is empty: the second one goes, and returns before the third
    requests = table([0, 0.5, 4.5], [3, 3, 1], [8, 8, 1])
    result = run(requests, "vllm", num_blocks=6, block_size=2)
    assert result.preempted.tolist() == [0, 1, 0]
    assert result.last_s[0] < result.last_s[1]
    assert result.scheduled_s[2] == result.last_s[0]


def test_by_priority_the_lowest_class_is_preempted_and_admitted_last():
    requests = table([0, 0.5, 0.6], [3, 3, 3], [9, 9, 2], priority=[2, 1, 0])
    fcfs = run(requests, "vllm", num_blocks=7, block_size=2)
    ranked = run(requests, "vllm", num_blocks=7, block_size=2, policy=Policy.PRIORITY)
    assert ranked.preempted[0] > 0
    assert fcfs.preempted[0] == 0
    assert ranked.last_s[2] <= fcfs.last_s[2]


def test_a_long_prompt_leaves_budget_to_others_under_the_threshold():
    requests = table([0, 0.1], [40, 5], [1, 1])
    free = run(requests, "vllm", num_blocks=20, token_budget=10, max_seqs=4)
    capped = run(requests, "vllm", num_blocks=20, token_budget=10, max_seqs=4, long_prefill_threshold=5)
    assert capped.first_s[1] < free.first_s[1]


def test_nano_vllm_prefills_strictly_first():
    requests = table([0, 1.5, 2.5], [4, 4, 4], [6, 1, 1])
    result = run(requests, "nano-vllm", num_blocks=10, block_size=4)
    # prefill, decode, prefill, prefill: the stream stands still while others' prompts are computed
    assert result.longest_gap_s == 3.0
    assert result.mixed_steps == 0


def test_sglang_prefills_apart_unless_told_to_mix():
    requests = table([0, 1.5], [4, 4], [6, 1])
    apart = run(requests, "sglang", num_blocks=100)
    mixed = run(requests, "sglang", num_blocks=100, mixed_chunk=True)
    assert (apart.longest_gap_s, mixed.longest_gap_s) == (2.0, 1.0)
    assert (apart.mixed_steps, mixed.mixed_steps) == (0, 1)


def test_sglang_keeps_room_for_what_running_requests_may_still_say():
    # one runs with 50 tokens to come; a second prompt fits now, but not beside 0.7 x 50 and its own answer
    requests = table([0, 1.5], [10, 48], [50, 10])
    wary = run(requests, "sglang", num_blocks=100)
    bold = run(requests, "sglang", num_blocks=100, conservativeness=0.1)
    assert bold.scheduled_s[1] < wary.scheduled_s[1]


def test_sglang_retracts_who_said_least():
    requests = table([0, 1.5, 3.5], [10, 10, 10], [60, 60, 60])
    result = run(requests, "sglang", num_blocks=110, conservativeness=0.05)
    assert result.preempted[2] > 0
    assert result.preempted[0] == 0


@pytest.mark.parametrize("cached", [False, True])
def test_sglang_takes_pages_back_from_a_cut_prompt_before_it_runs_out(cached):
    requests = table([0, 1.5], [10, 500], [90, 10])
    rules = engine_rules(
        "sglang", num_blocks=555, token_budget=9, mixed_chunk=True, conservativeness=0.05, prefix_cache=cached
    )
    one = Simulation(requests, rules, UNIT, compiled=False)
    while not one.advance(1):
        assert one._replicas.state["free"][0] >= 0
    assert one._replicas.state["free"][0] == 555
    assert one.result().preempted.tolist() == [0, 1]


def test_orca_reserves_the_longest_length():
    requests = table([0, 0, 0], [8, 8, 8], [4, 4, 4])
    longest = run(requests, "orca", num_blocks=8, block_size=16, reserve_tokens=64)
    oracle = run(requests, "orca", num_blocks=8, block_size=16)
    assert (longest.peak_running, oracle.peak_running) == (2, 3)


def test_a_static_batch_waits_for_company_or_for_its_patience():
    requests = table([0, 3, 50], [4, 4, 4], [2, 2, 2])
    waiting = run(requests, "static", num_blocks=100, batch_size=2)
    patient = run(requests, "static", num_blocks=100, batch_size=2, batch_timeout_s=1.0)
    assert waiting.scheduled_s.tolist() == [3.0, 3.0, 50.0]
    assert patient.scheduled_s.tolist() == [1.0, 4.0, 51.0]


def test_the_pool_of_arrays_is_the_pool_of_the_pages():
    """One request after the other over a small pool: the compiled rules and PagedKvCache find the same prefixes."""
    draw = np.random.default_rng(3)
    texts = [[int(x) for x in draw.integers(0, 2, 60)] for _ in range(6)]
    prompts = []
    for _ in range(300):
        text = texts[int(draw.integers(6))]
        prompts.append(text[: int(draw.integers(1, 60))])
    size, blocks = 4, 24
    cache = PagedKvCache(num_blocks=blocks, block_size=size)
    names: dict[tuple[int, ...], int] = {}
    ids, counts, expected = [], [], []
    for number, prompt in enumerate(prompts):
        expected.append(cache.add(number, prompt).cached_tokens)
        cache.free(number)
        full = len(prompt) // size
        counts.append(full)
        ids += [names.setdefault(tuple(prompt[: (i + 1) * size]), len(names)) for i in range(full)]
    requests = RequestTable(
        arrival_s=np.arange(300) * 10.0,
        input_tokens=np.array([len(p) for p in prompts]),
        output_tokens=np.ones(300, np.int64),
        prefix_ids=np.array(ids),
        prefix_count=np.array(counts),
        prefix_block=size,
    )
    result = run(requests, "vllm", num_blocks=blocks, block_size=size)
    assert result.cached_tokens.tolist() == expected
    assert 0.2 < np.mean(np.array(expected) > 0) < 0.95


def test_replicas_share_the_work():
    requests = table(np.zeros(8), [4] * 8, [5] * 8)
    result = run(requests, "vllm", num_blocks=100, max_seqs=1, cluster=Cluster(replicas=4))
    assert np.bincount(result.replica).tolist() == [2, 2, 2, 2]


def test_a_schedule_is_logged_pass_by_pass():
    result = run(table([0, 0], [4, 4], [5, 3]), "vllm", num_blocks=100, log_passes=100)
    assert [p.start_s for p in result.log[1:]] == [p.end_s for p in result.log[:-1]]
    assert sum(p.steps for p in result.log) >= result.steps - 2
    assert result.log[0].prefill_tokens == 8


def test_a_run_can_be_stopped():
    requests = table(np.arange(200.0), [4] * 200, [20] * 200)
    rules = engine_rules("vllm", num_blocks=100)
    one = Simulation(requests, rules, UNIT, compiled=False)
    one.advance(5)
    with pytest.raises(InputError, match="must have run to its end"):
        one.result()
    import calc.simulation.run as module

    small = module.DEFAULT_SLICE
    assert small > 1000
    seen = []

    def stop(share):
        seen.append(share)
        return False

    original = Simulation.advance
    try:
        Simulation.advance = lambda self, passes=10: original(self, passes)
        with pytest.raises(Cancelled, match="stopped at"):
            simulate(requests, rules, UNIT, compiled=False, progress=stop)
    finally:
        Simulation.advance = original
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: engine_rules("tgi", num_blocks=5), "engine rules"),
        (lambda: engine_rules("orca", num_blocks=5, token_budget=512), "token_budget"),
        (lambda: engine_rules("sglang", num_blocks=5, policy=Policy.PRIORITY), "policy"),
        (lambda: engine_rules("static", num_blocks=5, prefix_cache=True), "prefix_cache"),
        (lambda: engine_rules("vllm", num_blocks=5, batch_size=3), "batch_size"),
        (lambda: engine_rules("vllm", num_blocks=0), "num_blocks"),
        (lambda: engine_rules("vllm", num_blocks=5, token_budget=4, max_seqs=8), "token_budget"),
        (lambda: engine_rules("vllm", num_blocks=5, watermark=1.0), "watermark"),
        (lambda: simulate(table([0], [100], [1]), engine_rules("vllm", num_blocks=5), UNIT), "num_blocks"),
        (lambda: table([1, 0], [1, 1], [1, 1]), "arrival_s"),
        (lambda: table([0], [0], [1]), "input_tokens"),
        (lambda: table([0], [1], [5], output_limit=[3]), "output_limit"),
        (lambda: StepTable.affine(fixed_s=0, prefill_s=0, decode_s=0, kv_s=0), "base_s"),
        (lambda: StepTable.affine(fixed_s=-1, prefill_s=0, decode_s=0, kv_s=0), "fixed_s"),
        (lambda: Cluster(replicas=0), "replicas"),
    ],
)
def test_what_cannot_be_simulated_is_refused(make, field):
    with pytest.raises(InputError, match=field):
        make()


def test_the_document_says_what_the_rules_refuse():
    """Every cell of the matrix in docs/simulation.md is what `FEATURES` has, and what the constructor does."""
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        name = re.fullmatch(r".*\(`(\w+)`\)", cells[0])
        if name and len(cells) == len(EngineFamily) + 1:
            rows[name.group(1)] = cells[1:]
    assert set(rows) == set(FEATURES)
    for name, cells in rows.items():
        modelled = {family for family, cell in zip(EngineFamily, cells, strict=True) if cell == "yes"}
        assert modelled == FEATURES[name], name
    header = next(line for line in text.splitlines() if line.startswith("| setting |"))
    assert [cell.strip() for cell in header.strip("|").split("|")][1:] == list(EngineFamily)


def test_rules_survive_pickling_and_json_of_results():
    import pickle

    rules = engine_rules("vllm", num_blocks=50)
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert isinstance(rules, EngineRules)
    spread = run(table([0], [4], [5]), "vllm", num_blocks=10).spread("tpot_s").as_json()
    assert json.loads(json.dumps(spread))["mean"] == 1.0
