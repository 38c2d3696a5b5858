"""The six-step answer: the textbook deployment's own numbers, then what must hold for any scenario."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.answer import answer
from calc.levers import Kind, lever_effects
from calc.plan.ranking import rank
from calc.result import Inputs, Offer, headline
from calc.scenario import Scenario
from calc.scenario_text import apply_settings
from calc.verdict import Wall
from presets import accelerators, models
from presets.resolve import resolve

TEXTBOOK = Scenario(
    model="textbook-13b", gpu="a100-textbook", tp=1, kv_bytes_per_gpu=50e9, fidelity="textbook"
)


def ask(scenario, *, usd=2.0, catalogue=()):
    offer = Offer(accelerator=accelerators.load(scenario.gpu), usd_per_gpu_hour=usd)
    return answer(
        Inputs(scenario=scenario, spec=models.load(scenario.model), offer=offer, catalogue=catalogue)
    )


@pytest.mark.reference
def test_the_textbook_deployment_step_by_step(worked):
    result = ask(TEXTBOOK)
    capacity, prefill, gpus = (
        worked[i]["want"] for i in ("capacity-13b-a100", "prefill-13b-a100", "gpus-13b-a100")
    )
    assert result.memory.tokens == capacity["tokens"]
    assert (result.sequences.reserved, result.sequences.paged) == (capacity["reserved"], capacity["paged"])
    assert result.sequences.by_tpot == worked["step-parts-13b-a100"]["want"]["largest_batch"]
    assert result.sequences.binding == capacity["binding"]
    assert 1e3 * result.prefill.prefill_s.best == pytest.approx(prefill["prefill_ms"], rel=1e-3)
    assert result.fleet.e2e_s.best == pytest.approx(prefill["e2e_s"], rel=1e-3)
    assert result.fleet.active == pytest.approx(prefill["active"], rel=1e-3)
    assert result.fleet.prefill_busy == pytest.approx(gpus["prefill_gpus"], rel=2e-3)
    assert result.fleet.decode_busy == pytest.approx(gpus["decode_gpus"], rel=2e-3)
    assert result.gpus == gpus["buy"]
    assert headline(result).startswith("3 x ")
    unpaged = ask(replace(TEXTBOOK, paged=False))
    assert unpaged.gpus == gpus["unpaged_buy"]
    assert unpaged.fleet.busy == pytest.approx(gpus["unpaged_busy"], rel=2e-3)


@pytest.mark.reference
def test_levers_of_the_textbook_deployment(worked):
    want = worked["levers-13b-a100"]["want"]
    effects = {effect.lever.change.text: effect.after for effect in lever_effects(ask(TEXTBOOK))}
    answers = [ask(TEXTBOOK), effects["int8 weights"], effects["int8 weights and fp8 KV cache"]]
    assert [round(a.memory.kv_bytes_per_gpu / 1e9) for a in answers] == want["kv_gb"]
    assert [a.sequences.fit for a in answers] == want["sequences"]
    # The lever is asked without its latency target, which would cap the batch before memory does.
    free = replace(TEXTBOOK, tpot_s=None)
    effects = {effect.lever.change.text: effect.after for effect in lever_effects(ask(free))}
    answers = [ask(free), effects["int8 weights"], effects["int8 weights and fp8 KV cache"]]
    assert [1e3 * a.tpot_s.best for a in answers] == pytest.approx(want["step_ms"], rel=2e-3)
    assert [1e3 * a.decode.time.terms_s["compute"] for a in answers] == pytest.approx(
        want["compute_ms"], rel=2e-3
    )
    assert [a.decode.tokens_per_s for a in answers] == pytest.approx(want["tokens_per_s"], rel=2e-3)


@pytest.mark.reference
def test_tensor_parallel_memory_of_the_70b_case(worked):
    want = worked["kv-70b-tp4"]["want"]
    result = ask(
        Scenario(
            model="meta-llama/Llama-3.3-70B-Instruct",
            gpu="h100-textbook",
            tp=4,
            kv_bytes_per_gpu=40e9,
            fidelity="textbook",
        )
    )
    assert result.memory.kv_bytes == pytest.approx(1e9 * want["cache_gb"])
    assert result.memory.tokens == want["tokens"]


def test_405b_class_weights_on_a_small_card_name_the_wall_and_what_would_work():
    scenario = Scenario(
        model="meta-llama/Llama-3.3-70B-Instruct",
        gpu="rtx-4060",
        traffic="users",
        users=1,
        fidelity="textbook",
    )
    catalogue = tuple(
        Offer(accelerator=accelerators.load(i)) for i in ("rtx-4090", "h200-sxm-141gb", "b200-sxm-180gb")
    )
    result = ask(scenario, catalogue=catalogue)
    assert result.verdict.wall is Wall.WEIGHT_MEMORY
    assert not result.verdict.fits
    assert "131 GiB of weights" in headline(result)
    assert result.verdict.nearest
    for change in result.verdict.nearest:
        fixed = apply_settings(scenario, change.settings)
        assert ask(fixed).verdict.fits, change


def test_a_target_that_one_sequence_misses_is_a_wall():
    result = ask(replace(TEXTBOOK, tpot_s=0.010, tp=1))
    assert result.verdict.wall is Wall.TPOT
    assert result.verdict.short_by == pytest.approx(0.013 - 0.010, rel=0.05)
    assert ask(replace(TEXTBOOK, ttft_s=0.050, tp=1)).verdict.wall is Wall.TTFT


def test_no_traffic_still_needs_one_replica_and_costs_nothing_per_token():
    result = ask(replace(TEXTBOOK, rate_per_s=0.0))
    assert (result.gpus, result.fleet.active) == (1, 0)
    assert result.cost.usd_per_million_output is None
    assert result.cost.usd_per_hour == 2.0


def test_an_unpriced_accelerator_is_ranked_after_every_priced_one():
    inputs = ask(TEXTBOOK).inputs
    offers = (
        Offer(accelerator=accelerators.load("h100-textbook")),
        Offer(accelerator=accelerators.load("a100-textbook"), usd_per_gpu_hour=99.0),
    )
    ranking = rank(inputs, offers)
    assert [plan.inputs.offer.accelerator.id for plan in ranking.plans] == ["a100-textbook", "h100-textbook"]


def scenarios():
    return st.builds(
        lambda rate, inp, out, tp, paged: replace(
            TEXTBOOK,
            rate_per_s=rate,
            input_tokens=float(inp),
            output_tokens=float(out),
            tp=tp,
            paged=paged,
            tpot_s=None,
        ),
        st.just(0.0) | st.floats(1e-9, 1e4),  # a smaller rate is refused
        st.integers(1, 2000),
        st.integers(1, 2000),
        st.sampled_from([1, 2, 4, 8]),
        st.booleans(),
    )


@given(scenarios())
@settings(max_examples=80, deadline=None)
def test_twice_the_traffic_never_needs_fewer_gpus_and_the_parts_add_up(scenario):
    result = ask(scenario)
    if result.fleet is None:
        assert not result.verdict.fits
        return
    twice = ask(replace(scenario, rate_per_s=2 * scenario.rate_per_s))
    assert twice.gpus >= result.gpus
    assert result.fleet.utilization <= 1 / (1 + scenario.headroom) + 1e-9
    assert result.fleet.active == pytest.approx(result.fleet.rate_per_s * result.fleet.e2e_s.best)
    terms = result.decode.time.terms_s
    assert result.decode.time.step_s.best == pytest.approx(
        max(terms["weights"] + terms["kv"], terms["compute"])
    )


def test_levers_reach_engine_schedule_drafts_pools_and_another_card():
    scenario = Scenario(
        model="meta-llama/Llama-3.3-70B-Instruct", gpu="h100-sxm5-80gb", tp=4, rate_per_s=20.0
    )
    base = answer(resolve(scenario))
    effects = {effect.lever.change.text: effect for effect in lever_effects(base)}
    drafts = effects["4 drafts a pass, 70% kept"]
    assert drafts.lever.kind is Kind.SAME_DISTRIBUTION
    assert drafts.after.tpot_s.best < base.tpot_s.best
    pools = effects["prefill and decode on pools of their own"]
    assert pools.after.fleet.prefill_replicas > 0
    assert effects["SGLang as engine"].after.inputs.scenario.engine == "sglang"
    cards = [e for e in effects.values() if e.after.inputs.offer.accelerator.id != "h100-sxm5-80gb"]
    assert len(cards) == 1
    assert all(e.gpus_saved == 0 for e in effects.values() if not e.after.verdict.fits)
    for effect in effects.values():
        if effect.lever.kind is not Kind.DIFFERENT_MODEL:
            applied = answer(resolve(apply_settings(scenario, effect.lever.change.settings)))
            assert applied.gpus == effect.after.gpus, effect.lever.change.text


def test_fp8_is_no_lever_on_mi210_and_grouped_heads_are_one_for_a_multi_head_model():
    mi210 = answer(resolve(Scenario(gpu="mi210")))
    texts = [effect.lever.change.text for effect in lever_effects(mi210)]
    assert not [text for text in texts if "fp8" in text.lower()]
    (grouped,) = [e for e in lever_effects(mi210) if e.lever.kind is Kind.DIFFERENT_MODEL]
    assert grouped.after.memory.kv_bytes_per_token == pytest.approx(mi210.memory.kv_bytes_per_token * 8 / 40)
