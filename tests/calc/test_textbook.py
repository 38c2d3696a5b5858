"""Every case of cases/textbook.toml, from public functions; and the properties that make them true everywhere."""

from math import isclose

import numpy as np
import pytest
import solved_capacity
import solved_load
import solved_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from solved_cases import SOLVED

from calc import goodput, speculative, textbook
from calc.errors import InputError
from calc.queueing import closed_forms
from calc.textbook import EndToEnd

SOLVERS = (solved_capacity, solved_load, solved_steps)  # importing them fills SOLVED


def agrees(got, want, case, key=None):
    """One wanted value, in the case's own tolerance."""
    exact = case.get("exact", False)
    if exact is True or (isinstance(exact, list) and key in exact) or isinstance(want, (str, bool)):
        return got == want
    return isclose(got, want, rel_tol=case.get("rel", 0.0), abs_tol=case.get("abs", 0.0))


def compare(got, want, case, key=None):
    if isinstance(want, dict):
        assert set(got) >= set(want), f"{case['id']}: no value for {set(want) - set(got)}"
        for name, value in want.items():
            compare(got[name], value, case, name)
    elif isinstance(want, list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            compare(g, w, case, key)
    else:
        assert agrees(got, want, case, key), f"{case['id']} {key or ''}: got {got}, want {want}"


@pytest.mark.reference
@pytest.mark.parametrize("case_id", sorted(SOLVED))
def test_case(worked, case_id):
    case = worked[case_id]
    got = SOLVED[case_id](case["in"])
    if isinstance(got, tuple):  # parameter counts: the total and its parts
        got, parts = got
        compare(parts, case.get("want_parts", {}), case)
    compare(got, case["want"], case)


@pytest.mark.reference
def test_every_case_is_solved(worked):
    assert set(worked) == set(SOLVED)


@pytest.mark.reference
@pytest.mark.parametrize("case_id", sorted(SOLVED))
def test_a_wrong_value_would_be_noticed(worked, case_id):
    case = worked[case_id]
    with pytest.raises(AssertionError):
        compare(spoiled(case["want"]), case["want"], case)


def spoiled(want):
    """The wanted value, off by 10%, or by another name."""
    if isinstance(want, dict):
        return {name: spoiled(value) for name, value in want.items()}
    if isinstance(want, list):
        return [spoiled(value) for value in want]
    if isinstance(want, bool):
        return not want
    return want + "?" if isinstance(want, str) else want * 1.1


# ---- properties and refusals ----------------------------------------------------------------------------------

STEP_13B = {
    "params": 13e9,
    "bytes_per_param": 2,
    "context": 640,
    "kv_bytes_per_token": 819_200,
    "bandwidth_bytes_per_s": 2.04e12,
    "peak_flop_per_s": 312e12,
}


@settings(deadline=None, max_examples=100)
@given(
    tpot_limit_s=st.floats(0.001, 1.0),
    params=st.floats(1e8, 1e12),
    context=st.integers(0, 100_000),
    peak=st.floats(1e13, 1e16),
)
def test_the_largest_batch_keeps_the_limit_and_one_more_does_not(tpot_limit_s, params, context, peak):
    model = {**STEP_13B, "params": params, "context": context, "peak_flop_per_s": peak}
    batch = textbook.largest_batch(tpot_limit_s=tpot_limit_s, **model)
    if batch:
        assert textbook.decode_step_s(**model, batch=batch) <= tpot_limit_s * (1 + 1e-8)
    assert textbook.decode_step_s(**model, batch=batch + 1) > tpot_limit_s * (1 - 1e-8)


def test_no_limit_at_all_gives_an_unlimited_batch():
    free = {**STEP_13B, "context": 0}
    del free["peak_flop_per_s"]
    assert textbook.largest_batch(tpot_limit_s=0.05, **free) == float("inf")
    assert textbook.largest_batch(tpot_limit_s=0.001, **free) == 0


@settings(deadline=None, max_examples=100)
@given(tokens=st.integers(0, 10**7), length=st.integers(1, 10**5), block=st.integers(1, 256))
def test_paging_fits_what_whole_blocks_allow(tokens, length, block):
    fit = textbook.sequences_paged(tokens=tokens, sequence_tokens=length, block_size=block)
    assert fit == (tokens // block) // -(-length // block)
    assert textbook.sequences_reserved(tokens=tokens, reserved_tokens=length) == tokens // length


def test_checking_drafts_is_free_until_arithmetic_binds():
    """Example 8B, 4 drafts: the read of the weights hides 5 tokens' arithmetic up to a batch of 20 (ridge 100 / 5)."""
    example = {
        "params": 8e9,
        "bytes_per_param": 2,
        "bandwidth_bytes_per_s": 1000e9,
        "peak_flop_per_s": 100e12,
    }
    for batch, times in ((1, 1.0), (20, 1.0), (40, 2.0), (100, 5.0)):
        plain = textbook.decode_step_s(**example, batch=batch)
        checked = textbook.verify_step_s(**example, batch=batch, drafts=4)
        assert checked / plain == pytest.approx(times)
        gain = speculative.speedup_at_batch(
            acceptance=0.8, drafts=4, step_s=plain, verify_s=checked, draft_step_s=0.05 * plain
        )
        assert gain == pytest.approx(3.3616 / (times + 0.2))
        assert (gain < 1) == (batch == 100)


def test_arrays_give_what_scalars_give():
    batches = np.array([1, 14, 79, 144])
    curve = textbook.decode_step_s(**STEP_13B, batch=batches)
    assert curve.tolist() == [textbook.decode_step_s(**STEP_13B, batch=int(b)) for b in batches]
    assert isinstance(textbook.decode_step_s(**STEP_13B, batch=3), float)


def test_both_conventions_differ_by_one_step():
    times = {"ttft_s": 0.32, "tpot_s": 0.016, "output_tokens": 500}
    ours = textbook.e2e_s(**times)
    other = textbook.e2e_s(**times, convention=EndToEnd.EVERY_OUTPUT)
    assert other - ours == pytest.approx(0.016)


def test_headroom_does_not_buy_a_gpu_for_the_last_bit():
    assert textbook.gpus_to_buy(busy_gpus=3 * 0.1 * 10, headroom=0.0) == 3
    assert textbook.gpus_to_buy(busy_gpus=2.0, headroom=0.5) == 3
    assert textbook.gpus_to_buy(busy_gpus=2.0001, headroom=0.5) == 4


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: textbook.weight_bytes(params=-1, bytes_per_param=2), "params"),
        (lambda: textbook.weight_bytes(params="many", bytes_per_param=2), "params"),
        (lambda: textbook.decode_step_s(**{**STEP_13B, "bandwidth_bytes_per_s": 0}), "bandwidth_bytes_per_s"),
        (lambda: textbook.decode_step_s(**STEP_13B, batch=np.array([1, 0])), "batch"),
        (lambda: textbook.prefill_s(params=1e9, prompt_tokens=10, peak_flop_per_s=1e14, mfu=1.5), "mfu"),
        (lambda: textbook.prefill_flop(params=1e9, prompt_tokens=10, cached_tokens=10), "cached_tokens"),
        (lambda: textbook.gpus_to_buy(busy_gpus=float("nan"), headroom=0.3), "busy_gpus"),
        (lambda: textbook.binding_limit({}), "limits"),
        (lambda: speculative.tokens_per_pass(acceptance=1.2, drafts=4), "acceptance"),
        (lambda: speculative.tokens_of_pass(drafts=2, accepted=3), "accepted"),
        (lambda: goodput.goodput_per_s(finished_per_s=1, missed_per_s=2), "missed_per_s"),
        (
            lambda: closed_forms.mm1_time_quantile_s(percentile=100, utilisation=0.5, service_s=1.0),
            "percentile",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, field):
    with pytest.raises(InputError) as refused:
        call()
    assert refused.value.field == field
