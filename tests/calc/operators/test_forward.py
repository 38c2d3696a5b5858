"""Counting of attended tokens, against counting one by one."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc.errors import InputError
from calc.operators.forward import ForwardPass, attended_by_last, attended_pairs


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 80), st.integers(0, 80), st.integers(1, 50))
def test_pairs_of_a_window_are_those_counted_one_by_one(tokens, prefix, window):
    counted = sum(min(position, window) for position in range(prefix + 1, prefix + tokens + 1))
    assert attended_pairs(tokens, prefix, window=window, chunk=inf) == pytest.approx(counted)


@given(st.integers(1, 200), st.integers(0, 200))
def test_pairs_of_full_attention_are_the_arithmetic_series(tokens, prefix):
    counted = sum(range(prefix + 1, prefix + tokens + 1))
    assert attended_pairs(tokens, prefix, window=inf, chunk=inf) == counted


def test_a_chunk_is_exact_inside_and_at_its_mean_beyond():
    assert attended_pairs(100, 0, window=inf, chunk=128) == 5050
    whole = sum((position - 1) % 128 + 1 for position in range(1, 1281))
    assert attended_pairs(1280, 0, window=inf, chunk=128) == whole


def test_the_last_token_reads_its_window_or_its_aligned_chunk():
    assert attended_by_last(1000.0, window=128.0, chunk=inf) == 128
    assert attended_by_last(1000.0, window=inf, chunk=300.0) == 100
    assert attended_by_last(77.0, window=128.0, chunk=inf) == 77


def test_a_pass_counts_its_tokens_sequences_and_output_rows():
    mixed = ForwardPass.mixed(8, 1000, prompt_tokens=512)
    assert (float(mixed.tokens), float(mixed.sequences), float(mixed.output_rows)) == (520, 9, 9)
    verify = ForwardPass.verify(4, 1000, drafts=3)
    assert (float(verify.tokens), float(verify.sequences), float(verify.output_rows)) == (16, 4, 16)
    prefill = ForwardPass.prefill(np.array([128, 256]), sequences=2)
    assert prefill.tokens.tolist() == [256, 512]


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_counts_that_are_none_are_refused_by_name(bad):
    with pytest.raises(InputError, match="decode_sequences"):
        ForwardPass.decode(bad, 10)
