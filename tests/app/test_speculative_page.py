"""Speculative decoding: passes simulated onto the bars, serving simulated onto the batch curve, and states that lack one."""

import pytest
from reading import text_of, titles

pytestmark = pytest.mark.app


def said(app):
    return " ".join(text_of(one) for one in app.caption)


def test_ten_thousand_passes_and_a_simulated_server_beside_the_formulas(open_page):
    app = open_page("speculative.py")
    assert titles(app)[0].startswith("4 drafts at 80% acceptance: 3.36 tokens a pass, ")
    app.toggle(key="spec-simulate").set_value(True).run()
    assert "standard errors from the formula's 3.362" in said(app)
    app.toggle(key="spec-serve").set_value(True).run()
    assert "Simulated against the formula, batch 1: " in said(app)
    assert not app.exception


def test_where_checking_has_no_price_serving_is_not_simulated(open_page):
    app = open_page("speculative.py", fidelity="textbook")
    assert app.toggle(key="spec-serve").disabled
    app = open_page("speculative.py", spec_batch="128")
    assert any(metric.label == "Speed-up at batch 128" for metric in app.metric)
