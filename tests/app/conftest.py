"""Pages run in Streamlit's AppTest, always through the frame, as a browser would reach them."""

from pathlib import Path

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from pages._drawing import Drawing

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")
TIMEOUT_S = 240  # the first simulation compiles its loops, and a busy machine takes its time


@pytest.fixture(autouse=True)
def every_chart_is_checked(monkeypatch):
    """Whatever a test has drawn, Plotly knows each of its properties: the app itself does not ask."""
    spec = Drawing.spec

    def checked(drawing):
        made = spec(drawing)
        go.Figure(made)
        return made

    monkeypatch.setattr(Drawing, "spec", checked)


@pytest.fixture
def open_page():
    """Open a page by its file name, with URL parameters; fails on any exception box."""

    def opened(file: str = "size.py", **query: str) -> AppTest:
        app = AppTest.from_file(FRAME, default_timeout=TIMEOUT_S)
        for name, value in query.items():
            app.query_params[name] = value
        app.run()
        if file != "size.py":
            app.switch_page(file).run()
        assert not app.exception, app.exception
        return app

    return opened
