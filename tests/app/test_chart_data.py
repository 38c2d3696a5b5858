"""Every chart hands over what it draws, and draws nothing that Plotly does not know."""

import json

import pytest
from streamlit.testing.v1 import AppTest

from pages._chart_data import chart_rows
from pages._drawing import Drawing
from pages._registry import PAGES
from pages._ui import to_csv

pytestmark = pytest.mark.app


def test_rows_carry_the_axes_titles_and_every_point():
    made = Drawing({"xaxis": {"title": {"text": "batch"}}, "yaxis": {}})
    made.add_scatter(x=[1, 2], y=[3.0, 4.0], name="mean")
    made.add_bar(x=[5], y=["slot 1"], base=[2.5], name="decode", customdata=["request 7"], orientation="h")
    assert chart_rows(made) == [
        {"series": "mean", "x: batch": 1, "y": 3.0},
        {"series": "mean", "x: batch": 2, "y": 4.0},
        {"series": "decode", "x: batch": 5, "y": "slot 1", "from": 2.5, "detail": "request 7"},
    ]
    assert to_csv(chart_rows(made)).splitlines() == [
        "series,x: batch,y,from,detail",
        "mean,1,3.0,,",
        "mean,2,4.0,,",
        "decode,5,slot 1,2.5,request 7",
    ]


def test_a_property_that_plotly_does_not_know_is_found():
    with pytest.raises(ValueError, match="colour"):
        Drawing({"xaxis": {"colour": "red"}}).checked()


def test_streamlit_sends_a_drawing_as_it_is():
    def script():
        from pages._axes import figure
        from pages._ui import show_chart

        made = figure()
        made.add_scatter(x=[1, 2], y=[3, 4])
        show_chart(made, alt="two points", key="points")

    (chart,) = AppTest.from_function(script).run().get("plotly_chart")
    spec = json.loads(chart.proto.spec)
    assert spec["data"] == [{"type": "scatter", "x": [1, 2], "y": [3, 4]}]
    assert spec["layout"]["height"] == 380
    assert "colorway" in spec["layout"]["template"]["layout"]  # Streamlit's, for the theme's colours


@pytest.mark.parametrize("entry", PAGES, ids=[entry.file for entry in PAGES])
def test_each_chart_of_a_page_stands_beside_its_data(open_page, entry):
    app = open_page(entry.file, kv_gb="50", fidelity="textbook")
    charts = app.get("plotly_chart")
    offered = [one for one in app.get("download_button") if one.proto.label == "Chart data"]
    assert len(offered) == len(charts)
