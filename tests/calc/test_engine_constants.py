"""The constants behind activation, graphs and buffers are what their fitting rules give over the public logs."""

import pytest

from scripts.fit_engine_memory import fits


@pytest.mark.reference
def test_constants_in_use_are_the_fitted_ones(cases, reference):
    found = fits(cases, reference)
    assert len(found) >= 20
    off = {
        fit.name: (fit.in_use, fit.fitted)
        for fit in found
        if abs(fit.in_use / fit.fitted - 1) > 0.03 and not fit.low <= fit.in_use <= fit.high
    }
    assert off == {}


@pytest.mark.reference
def test_the_sampler_sets_the_peak_at_default_settings(cases, reference):
    by_name = {fit.name: fit for fit in fits(cases, reference)}
    later = by_name["sampler bytes per sequence and vocabulary entry, from 0.17"]
    assert later.rows >= 25
    assert later.high - later.low < 0.1  # whichever model is left out
