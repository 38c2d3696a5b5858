"""Prefill and decode apart: hand-counted cases, an event simulation in simpy, and what it does to a long prompt."""

from itertools import pairwise

import numpy as np
import pytest
import simpy

from calc.errors import InputError
from calc.simulation.cluster import Cluster, Router
from calc.simulation.disaggregation import PrefillPool
from calc.simulation.export import chrome_trace
from calc.simulation.link import Link
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable

UNIT = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
SERVED = StepTable.affine(fixed_s=7.5e-3, prefill_s=5e-5, decode_s=2e-5, kv_s=1.5e-7)


def table(arrivals, prompts, answers, **more):
    return RequestTable(
        arrival_s=np.array(arrivals, float),
        input_tokens=np.array(prompts),
        output_tokens=np.array(answers),
        **more,
    )


def apart(requests, *, blocks=100, prefill_blocks=None, token_s=0.25, latency_s=0.5, pools=(1, 1), **more):
    """One prefill and one decode replica, whose passes take a second, with blocks of four tokens."""
    link = Link(kv_bytes_per_token=1.0, bandwidth_bytes_per_s=1 / token_s, latency_s=latency_s)
    prefill = PrefillPool(
        replicas=pools[0],
        link=link,
        rules=engine_rules("vllm", num_blocks=prefill_blocks or blocks, block_size=4, **more),
    )
    rules = engine_rules("vllm", num_blocks=blocks, block_size=4, **more)
    cluster = Cluster(replicas=pools[1], prefill=prefill, router=Router.LEAST_OUTSTANDING)
    return simulate(requests, rules, UNIT, cluster=cluster, compiled=False)


def test_the_first_token_comes_from_the_prefill_side_and_the_second_waits_for_the_transfer():
    result = apart(table([0], [8], [3]))
    assert result.first_s[0] == 1.0
    assert (result.sent_s[0], result.landed_s[0]) == (1.0, 1.0 + 8 * 0.25 + 0.5)
    assert result.last_s[0] == 3.5 + 2
    assert result.longest_gap_s == 3.5
    assert (result.prefill_replica[0], result.replica[0]) == (0, 1)


def test_one_token_never_travels():
    result = apart(table([0], [8], [1]))
    assert result.last_s[0] == result.first_s[0] == 1.0
    assert np.isnan(result.landed_s[0])
    assert result.prefill_replica[0] == -1


def test_transfers_queue_on_the_link_in_order():
    result = apart(table([0, 0], [8, 8], [2, 2]))
    assert result.sent_s.tolist() == [1.0, 3.0]
    assert result.landed_s.tolist() == [3.5, 5.5]
    # the decode replica is idle when each lands: its pass begins at once
    assert result.last_s.tolist() == [4.5, 6.5]


def test_a_full_decode_pool_holds_transfers_back_and_then_stops_the_prefill_pool():
    """Blocks of four: each request needs 3 to decode (8 tokens and the next) and 2 to prefill; four blocks a pool."""
    result = apart(table([0, 0, 0], [8, 8, 8], [4, 4, 4]), blocks=4, latency_s=0.0, token_s=0.125)
    # two prompts fill the prefill pool; the first travels in a second and decodes three passes, until 5
    assert result.first_s[:2].tolist() == [1.0, 1.0]
    assert (result.landed_s[0], result.last_s[0]) == (2.0, 5.0)
    # the second must wait for those blocks, whole; the third prompt is computed when the first one's blocks came free
    assert result.sent_s[1] == 5.0
    assert result.scheduled_s[2] == 2.0
    assert result.sent_s[2] == result.last_s[1]


def pipeline(requests, *, prefill_s, token_s):
    """The same in simpy: one prompt at a time; decode passes of a second, which call for transfers when they begin; a link."""
    environment = simpy.Environment()
    prefill, link = simpy.Resource(environment), simpy.Resource(environment)
    asked, here, done = [], [], {}
    bell = [environment.event()]

    def ring(into, entry):
        into.append(entry)
        if not bell[0].triggered:
            bell[0].succeed()

    def request(i):
        yield environment.timeout(requests.arrival_s[i])
        with prefill.request() as turn:
            yield turn
            yield environment.timeout(prefill_s)
        ring(asked, i)

    def transfer(i):
        with link.request() as turn:
            yield turn
            yield environment.timeout(token_s * int(requests.input_tokens[i]))
        ring(here, [i, int(requests.output_tokens[i]) - 1])

    def decode():
        while True:
            while asked:
                environment.process(transfer(asked.pop(0)))
            if not here:
                bell[0] = environment.event()
                yield bell[0]
                continue
            members = list(here)
            yield environment.timeout(1.0)
            for one in members:
                one[1] -= 1
                if one[1] == 0:
                    done[one[0]] = environment.now
                    here.remove(one)

    for i in range(len(requests)):
        environment.process(request(i))
    environment.process(decode())
    environment.run(until=1e4)
    return [done[i] for i in range(len(requests))]


def test_simpy_agrees_on_prefill_link_and_decode_in_a_row():
    draw = np.random.default_rng(3)
    arrivals = np.cumsum(draw.exponential(1.3, 200))
    requests = table(arrivals, draw.integers(1, 9, 200), draw.integers(2, 30, 200))
    link = Link(kv_bytes_per_token=1.0, bandwidth_bytes_per_s=1 / 0.2213)
    # one prompt at a time: a budget of one prompt's length, cut by max_seqs
    alone = engine_rules("vllm", num_blocks=10_000, max_seqs=1)
    rules = engine_rules("vllm", num_blocks=10_000, max_seqs=1000, token_budget=2000)
    cluster = Cluster(prefill=PrefillPool(link=link, rules=alone, step=UNIT.scaled(0.9371)))
    result = simulate(requests, rules, UNIT, cluster=cluster, compiled=False)
    np.testing.assert_allclose(
        result.last_s, pipeline(requests, prefill_s=0.9371, token_s=0.2213), rtol=1e-12
    )


def long_prompt():
    """Eight streams that write, and one prompt of 30,000 tokens that comes while they do."""
    return table([0] * 8 + [0.5], [200] * 8 + [30_000], [400] * 8 + [20])


def test_apart_a_long_prompt_stalls_nobody_and_its_second_token_waits_for_the_transfer():
    rules = engine_rules("vllm", num_blocks=4000, token_budget=2048)
    together = simulate(long_prompt(), rules, SERVED, compiled=False)
    link = Link(kv_bytes_per_token=800_000, bandwidth_bytes_per_s=12.5e9)
    cluster = Cluster(prefill=PrefillPool(link=link))
    result = simulate(
        long_prompt(),
        rules,
        SERVED,
        cluster=cluster,
        compiled=False,
        skip=False,
        log_passes=10**6,
        log_members=True,
    )
    tokens = [[] for _ in range(9)]
    for one in result.log:
        for member, _ in one.decoded:
            tokens[member].append(one.end_s)
    stalls = max(b - a for times in tokens[:8] for a, b in pairwise(times))
    decode_s = SERVED.seconds(0, 9, 8 * 600 + 30_020)
    assert together.longest_gap_s > SERVED.seconds(2000, 8)
    assert stalls < decode_s < 0.2 * together.longest_gap_s
    second = tokens[8][0] - result.first_s[8]
    assert result.landed_s[8] - result.sent_s[8] == pytest.approx(30_000 * 800_000 / 12.5e9)
    assert link.seconds(30_000) < second < link.seconds(30_000) + 2 * decode_s


def test_the_trace_shows_each_part_where_it_happened():
    """Prefill and transfer on the prefill replica, decode on the other; nothing in a slot overlaps."""
    result = apart(table([0, 0, 0.5], [8, 8, 8], [3, 4, 1]))
    spans = [one for one in chrome_trace(result)["traceEvents"] if one["ph"] == "X"]
    assert {(one["cat"], one["pid"]) for one in spans} == {("prefill", 0), ("transfer", 0), ("decode", 1)}
    assert sum(one["cat"] == "transfer" for one in spans) == 2
    for one, after in pairwise(sorted(spans, key=lambda one: (one["pid"], one["tid"], one["ts"]))):
        if (one["pid"], one["tid"]) == (after["pid"], after["tid"]):
            assert one["ts"] + one["dur"] <= after["ts"] + 1e-6


@pytest.mark.parametrize(
    ("family", "say"), [("sglang", "prefill_pool"), ("static", "prefill_pool"), ("orca", "prefill_pool")]
)
def test_other_families_refuse_a_prefill_pool(family, say):
    cluster = Cluster(prefill=PrefillPool(link=Link(kv_bytes_per_token=1, bandwidth_bytes_per_s=1)))
    with pytest.raises(InputError, match=say):
        simulate(table([0], [1], [1]), engine_rules(family, num_blocks=9000), UNIT, cluster=cluster)


def test_links_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="bandwidth"):
        Link(kv_bytes_per_token=1, bandwidth_bytes_per_s=0)
    with pytest.raises(InputError, match="latency"):
        Link(kv_bytes_per_token=1, bandwidth_bytes_per_s=1, latency_s=-1)
    with pytest.raises(InputError, match="replicas"):
        PrefillPool(replicas=0, link=Link(kv_bytes_per_token=1, bandwidth_bytes_per_s=1))
