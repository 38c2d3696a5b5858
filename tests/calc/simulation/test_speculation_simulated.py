"""Speculation in the simulator: known random numbers, the published mean of tokens a pass, and the speed-up by formula."""

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from calc.errors import InputError
from calc.simulation.kernels.draws import philox
from calc.simulation.requests import RequestTable
from calc.simulation.rules import Speculation, engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable
from calc.speculative import speedup_at_batch, tokens_per_pass

AFFINE = StepTable.affine(fixed_s=7.5e-3, prefill_s=5e-5, decode_s=2e-5, kv_s=1.5e-9)
# flat while memory-bound, then 0.1 ms a token: checking five tokens for each of 128 sequences costs more than it brings
RIDGED = StepTable(
    prefill_knots=(0.0, 1.0, 1e4),
    decode_knots=(0.0, 1.0, 150.0, 1000.0),
    base_s=((15e-3, 15e-3, 16e-3, 101e-3), (15e-3, 15.1e-3, 16e-3, 101e-3), (1.0, 1.0, 1.0, 1.1)),
    kv_s=1e-9,
)


def together(count, prompt, answer):
    return RequestTable(
        arrival_s=np.zeros(count), input_tokens=np.full(count, prompt), output_tokens=np.full(count, answer)
    )


def rules(batch, speculation=None, **more):
    budget = batch * 200 + 10_000
    return engine_rules(
        "vllm", num_blocks=10**6, token_budget=budget, max_seqs=batch, speculation=speculation, **more
    )


def test_random_numbers_by_counter_are_those_of_random123():
    """Known answers of philox2x32-10, from the library's kat_vectors."""
    assert philox(0, 0, 0) == (0xFF1DAE59, 0x6CD10DF2)
    assert philox(0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF) == (0x2C3F628B, 0xAB4FD7AD)
    assert philox(0x243F6A88, 0x85A308D3, 0x13198A2E) == (0xDD7CE038, 0xF62A4C12)


@pytest.mark.parametrize(
    ("acceptance", "drafts", "mean"), [(0.8, 4, 3.3616), (0.5, 3, 1.875), (0.9, 7, None)]
)
def test_tokens_a_pass_over_ten_thousand_passes(acceptance, drafts, mean):
    """Within three standard errors of (1 - a^(k+1)) / (1 - a); 3.3616 at 0.8 and 4."""
    expected = tokens_per_pass(acceptance=acceptance, drafts=drafts)
    assert mean is None or expected == pytest.approx(mean, rel=1e-12)
    speculation = Speculation(drafts=drafts, acceptance=acceptance)
    requests = together(10, 5, round(expected * 1_050))
    result = simulate(requests, rules(10, speculation), AFFINE, compiled=False)
    assert result.drafted_passes >= 10_000
    chances = acceptance ** np.arange(drafts + 1)
    second_moment = float((chances * (2 * np.arange(drafts + 1) + 1)).sum())
    error = sqrt((second_moment - expected**2) / result.drafted_passes)
    assert abs(result.tokens_per_pass - expected) < 3 * error


@pytest.mark.parametrize("step", [AFFINE, RIDGED], ids=["affine", "ridged"])
@pytest.mark.parametrize("batch", [1, 16, 128])
def test_the_speedup_at_a_batch_is_the_formula(step, batch):
    """E[tokens] x T(B) / (T(B (k+1)) + k T_draft(B)), within 3%, and below 1 where the formula is."""
    drafts, acceptance, prompt, answer = 4, 0.8, 500, {1: 6_000, 16: 800, 128: 200}[batch]
    draft = step.scaled(0.08)
    speculation = Speculation(drafts=drafts, acceptance=acceptance, draft_step=draft)
    rates = []
    for how in (None, speculation):
        result = simulate(
            together(batch, prompt, answer), rules(batch, how), step, compiled=False, skip=False,
            log_passes=10**6, log_members=True,
        )  # fmt: skip
        full = [one for one in result.log if one.decoding == batch]
        written = sum(tokens for one in full for _, tokens in one.decoded)
        rates.append(written / sum(one.end_s - one.start_s for one in full))
    attended = batch * (prompt + answer / 2)
    expected = speedup_at_batch(
        acceptance=acceptance,
        drafts=drafts,
        step_s=step.seconds(0, batch, attended),
        verify_s=step.seconds(0, batch * (drafts + 1), attended),
        draft_step_s=draft.seconds(0, batch, attended),
    )
    assert rates[1] / rates[0] == pytest.approx(expected, rel=0.03)
    assert (rates[1] < rates[0]) == (expected < 1)
    assert (expected < 1) == (step is RIDGED and batch == 128)


def test_certain_drafts_and_hopeless_ones_are_counted_by_hand():
    """Passes of 1 s and a free draft of three: 13 tokens are the prompt's and 12 more, four a pass or one."""
    unit = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
    for acceptance, passes in ((1.0, 3), (0.0, 12)):
        how = Speculation(drafts=3, acceptance=acceptance)
        result = simulate(together(1, 5, 13), rules(1, how), unit, compiled=False)
        assert result.last_s[0] == 1 + passes
        assert result.gap_counts.sum() == 12


def test_a_draft_step_costs_its_time_for_every_proposed_token():
    unit = StepTable.affine(fixed_s=1.0, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
    how = Speculation(drafts=3, acceptance=1.0, draft_step=unit.scaled(0.1))
    result = simulate(together(1, 5, 13), rules(1, how), unit, compiled=False)
    assert result.last_s[0] == pytest.approx(1 + 3 * 1.3)


def test_what_a_request_accepts_does_not_depend_on_company_or_pressure():
    """Its passes are the same alone as in a pool so small that it is preempted."""
    how = Speculation(drafts=4, acceptance=0.7)
    passes = {}
    for blocks in (400, 60):
        requests = RequestTable(
            arrival_s=np.arange(6) * 0.01, input_tokens=np.full(6, 100), output_tokens=np.full(6, 150)
        )
        made = engine_rules("vllm", num_blocks=blocks, max_seqs=6, speculation=how)
        result = simulate(
            requests, made, AFFINE, compiled=False, skip=False, log_passes=10**6, log_members=True
        )
        passes[blocks] = [[t for one in result.log for i, t in one.decoded if i == r] for r in range(6)]
        preempted = result.preempted
    assert preempted.any()
    for r in np.flatnonzero(preempted == 0):
        assert passes[60][r] == passes[400][r]
    again = [np.cumsum(one).tolist() for one in passes[400]]
    assert all(a < b for one in again for a, b in pairwise(one))


def test_speculation_that_cannot_be_is_refused():
    with pytest.raises(InputError, match="drafts"):
        Speculation(drafts=0, acceptance=0.5)
    with pytest.raises(InputError, match="acceptance"):
        Speculation(drafts=2, acceptance=1.5)
    with pytest.raises(InputError, match="speculation"):
        engine_rules("orca", num_blocks=10, speculation=Speculation(drafts=2, acceptance=0.5))
    with pytest.raises(InputError, match="mixed_chunk"):
        engine_rules(
            "sglang", num_blocks=10, mixed_chunk=True, speculation=Speculation(drafts=2, acceptance=0.5)
        )
    with pytest.raises(InputError, match="token_budget"):
        engine_rules(
            "vllm", num_blocks=10, token_budget=128, speculation=Speculation(drafts=2, acceptance=0.5)
        )
