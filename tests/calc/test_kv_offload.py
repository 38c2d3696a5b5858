"""Text that comes back: what survives, against the serving simulator; and what memory behind the card changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.answer import answer
from calc.errors import InputError
from calc.handover import handover_of
from calc.kv_offload import COPY_SHARE, surviving_share, way_back
from calc.layout import Layout
from calc.levers import candidate_levers
from calc.proof import requests_of
from calc.scenario import Behind, Scenario
from calc.scenario_text import apply_settings
from calc.simulation import workload as arrivals
from calc.simulation.link import KvTier, Link
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable
from calc.units import GB
from calc.workload import Lengths
from presets.resolve import accelerator_named, resolve

RATE, REUSE = 5.0, 100.0  # 500 texts in use at once
PROMPT, SHARED, OUTPUT, BLOCK = 128, 96, 32, 16
QUICK = StepTable.affine(
    fixed_s=1e-6, prefill_s=1e-6, decode_s=1e-6, kv_s=0.0
)  # hardly anything runs at once


def simulated(blocks, *tiers, count=30_000):
    """(share of prompt tokens on the card, share brought up) of the later half of the requests."""
    draw = np.random.default_rng(7)
    requests = arrivals.open_requests(
        draw,
        arrivals.renewal_arrivals(draw, rate_per_s=RATE, count=count),
        prompt=Lengths(mean_tokens=PROMPT),
        answer=Lengths(mean_tokens=OUTPUT),
        prefix_share=SHARED / PROMPT,
        texts=round(RATE * REUSE),
    )
    rules = engine_rules("vllm", num_blocks=blocks, block_size=BLOCK, tiers=tiers)
    result = simulate(requests, rules, QUICK)
    late, tokens = slice(count // 2, None), PROMPT * (count - count // 2)
    return result.cached_tokens[late].sum() / tokens, result.loaded_tokens[late].sum() / tokens


def predicted(tokens):
    share = surviving_share(
        room_tokens=tokens,
        requests_per_s=RATE,
        reuse_after_s=REUSE,
        shared_tokens=SHARED,
        own_tokens=PROMPT - SHARED + OUTPUT,
    )
    return float(share) * SHARED / PROMPT


@pytest.mark.parametrize("share_of_texts", [0.15, 0.4, 1.0, 2.5])
def test_what_survives_is_what_the_simulator_finds(share_of_texts):
    """On the card, and with a tier three times as large behind it, which the simulator fills with what leaves the card."""
    blocks = round(share_of_texts * RATE * REUSE * SHARED / BLOCK)
    card, nothing = simulated(blocks)
    assert nothing == 0
    assert predicted(blocks * BLOCK) == pytest.approx(card, abs=0.01)
    tier = KvTier(num_blocks=3 * blocks, link=Link(bandwidth_bytes_per_s=1e12, kv_bytes_per_token=1.0))
    card, loaded = simulated(blocks, tier)
    assert predicted(4 * blocks * BLOCK) == pytest.approx(card + loaded, abs=0.02)


def test_without_other_text_a_cache_of_a_third_of_the_texts_hits_a_third():
    """Least recently used among texts that are all asked for as often: the hit rate is the share that fits, exactly."""
    texts, tokens = 300, 1000.0
    rooms = np.array([0.0, 0.2, 1 / 3, 0.9, 1.0]) * texts * tokens
    found = surviving_share(
        room_tokens=rooms, requests_per_s=3.0, reuse_after_s=100.0, shared_tokens=tokens, own_tokens=0.0
    )
    assert found == pytest.approx([0.0, 0.2, 1 / 3, 0.9, 1.0], abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    room=st.floats(0, 1e9),
    rate=st.floats(1e-4, 1e3),
    after=st.floats(0.1, 1e6),
    shared=st.floats(1, 1e5),
    own=st.floats(0, 1e5),
    more=st.floats(1, 100),
)
def test_more_room_and_a_sooner_return_never_lose_text(room, rate, after, shared, own, more):
    def share(**changed):
        given = {"room_tokens": room, "requests_per_s": rate, "reuse_after_s": after}
        return float(surviving_share(**(given | changed), shared_tokens=shared, own_tokens=own))

    assert 0 <= share() <= 1
    assert share(room_tokens=room * more) >= share() - 1e-9
    assert share(reuse_after_s=after / more) >= share() - 1e-9
    assert share(requests_per_s=rate / more) >= share() - 1e-9


# ---- in a plan -----------------------------------------------------------------------------------------------------

ASKED = Scenario(
    model="meta-llama/Meta-Llama-3.1-8B",
    gpu="h100-sxm5-80gb",
    tp=1,
    rate_per_s=20.0,
    input_tokens=4000.0,
    output_tokens=200.0,
    prefix_share=0.8,
    reuse_after_s=120.0,
)


@pytest.fixture(scope="module")
def plans():
    return {behind: answer(resolve(replace(ASKED, kv_offload=behind))) for behind in Behind}


def test_memory_behind_the_card_brings_back_what_the_card_forgets(plans):
    card, host, ssd = (plans[behind] for behind in (Behind.NONE, Behind.HOST, Behind.SSD))
    assert card.prefill.loaded_tokens == 0
    assert card.prefill.cached_tokens < host.prefill.cached_tokens < ssd.prefill.cached_tokens <= 3200
    assert host.fleet.busy < card.fleet.busy
    assert ssd.gpus <= host.gpus <= card.gpus
    always = answer(resolve(replace(ASKED, reuse_after_s=None)))
    assert always.fleet.busy <= ssd.fleet.busy * 1.001


def test_the_way_up_takes_bytes_over_the_bus():
    """Llama 3.1 8B: 128 KiB a token; a PCIe 5.0 slot 16 x 3.938 GB/s, of which a share is reached."""
    spec = resolve(ASKED).spec
    behind = way_back(
        spec,
        accelerator_named("h100-sxm5-80gb"),
        Layout(tp=2),
        Behind.HOST,
        kv_dtype="bf16",
        tokens=4200,
        room_bytes_per_gpu=1e11,
    )
    assert behind.token_s == pytest.approx(131_072 / (2 * COPY_SHARE * 16 * 3.938 * GB))
    assert behind.tokens == pytest.approx(2e11 / 131_072)


def test_a_bus_that_is_slower_than_computing_is_left_alone():
    """An SSD of 6.8 GB/s behind DeepSeek-V2-Lite's small latent wins; behind 13B's 800 KiB a token it loses on an H100."""
    small = replace(ASKED, model="deepseek-ai/DeepSeek-V2-Lite", gpu="h100-sxm5-80gb", kv_offload="ssd")
    assert answer(resolve(small)).prefill.loaded_tokens > 0
    large = replace(
        ASKED, model="meta-llama/Llama-2-13b-hf", input_tokens=3000.0, kv_offload="ssd", rate_per_s=1.0
    )
    assert answer(resolve(large)).prefill.loaded_tokens == 0


def test_both_levers_are_offered_where_text_comes_back_and_set_the_scenario_by_a_click(plans):
    inputs = plans[Behind.NONE].inputs
    found = [lever for lever in candidate_levers(inputs) if "offload" in lever.change.text]
    assert {lever.kind for lever in found} == {"same output"}
    applied = [apply_settings(inputs.scenario, lever.change.settings) for lever in found]
    assert applied == [replace(ASKED, kv_offload=behind) for behind in (Behind.HOST, Behind.SSD)]
    always = replace(inputs, scenario=replace(ASKED, reuse_after_s=None))
    assert not any("offload" in lever.change.text for lever in candidate_levers(always))


def test_host_memory_is_a_flag_and_an_ssd_is_said_to_be_missing(plans):
    own = handover_of(plans[Behind.HOST]).own[0]
    assert own.words[own.words.index("--kv-offloading-size") + 1] == "128"
    assert own.not_set == ()
    (missing,) = handover_of(plans[Behind.SSD]).own[0].not_set
    assert "SSD behind each GPU" in missing


def test_the_proof_takes_what_survives(plans):
    plan = plans[Behind.HOST]
    table = requests_of(plan, seed=0)
    share = table.prefix_count.sum() * table.prefix_block / table.input_tokens.sum()
    assert share == pytest.approx(plan.prefill.cached_tokens / 4000, abs=0.005)


def test_refusals():
    with pytest.raises(InputError, match="no memory but the host"):
        answer(resolve(replace(ASKED, gpu="dgx-spark-gb10", kv_offload="host")))
    with pytest.raises(InputError, match="alike"):
        answer(resolve(replace(ASKED, disaggregated=True)))
