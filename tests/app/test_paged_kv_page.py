"""Paged KV plays the lesson's samples on the allocator, and its buttons move the three caches."""

import pytest
from reading import text_of, titles

pytestmark = pytest.mark.app

BEAMS = "Four beams of a short prompt"
SAMPLES = "Four samples of a prompt of 1,000 tokens"


def heads(app):
    return [text_of(one) for one in app.markdown if text_of(one).startswith("**")][-3:]


def test_the_worked_capacity_is_the_title(open_page):
    app = open_page("paged_kv.py", kv_gb="50", fidelity="textbook")
    assert titles(app)[0] == "Reserving 4,096 tokens fits 14 requests; paging fits 79."  # capacity-13b-a100


def test_four_samples_take_252_then_63_then_66_blocks(open_page):
    app = open_page("paged_kv.py")
    app.pills(key="paged-of").set_value(SAMPLES).run()
    assert [head.split(": ")[1] for head in heads(app)] == ["288 blocks", "252 blocks", "63 blocks"]
    app.button(key="paged-WRITE").click().run()
    assert heads(app)[2].endswith(": 66 blocks")
    assert any("is copied to" in text_of(one) for one in app.caption)
    app.button(key="paged-reset").click().run()
    assert heads(app)[2].endswith(": 63 blocks")
    app.pills(key="paged-of").set_value(BEAMS).run()
    assert any("others fork in their place" in text_of(one) for one in app.caption)
    app.button(key="paged-COMPETE").click().run()
    assert not app.exception
