"""Fleet: the ready table is placed, a stock that is too small is said, a bad stock is refused in words."""

import pytest
from reading import text_of, titles

pytestmark = pytest.mark.app


def test_a_fleet_is_placed_and_a_stock_runs_short(open_page):
    app = open_page("fleet.py", fidelity="textbook")
    assert titles(app)[0].startswith("4 deployments with 100 requests/s on ")
    app.text_input(key="fleet_stock").set_value("h100-sxm5-80gb=1 l40s=1").run()
    assert not app.exception
    assert titles(app)[0].startswith("Left out: ")
    assert "Short of" in titles(app)[0]
    app.text_input(key="fleet_stock").set_value("h100").run()
    assert not app.exception
    assert any("GPU=N" in text_of(box) for box in app.error)
