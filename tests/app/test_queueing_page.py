"""The Queueing page: its load can be moved, its queue changed, and the simulation says how far off it is."""

import pytest
from reading import text_of, titles, unfolded

from calc.queue_curves import QueueKind, queue_curve, simulated_points
from pages._queue_figure import queue_figure, queue_finding

pytestmark = pytest.mark.app


def metrics(app):
    return {metric.label: metric.value for metric in app.metric}


def test_the_load_is_moved_and_the_service_halved(open_page):
    app = open_page("queueing.py")
    assert metrics(app)["Mean time"] == "100 ms"
    app.slider(key="q-load").set_value(95.0).run()
    assert app.number_input(key="q_rate").value == pytest.approx(47.5)
    assert metrics(app)["Mean time"] == "400 ms"
    app.number_input(key="q_rate").set_value(40.0).run()
    app.button(key="q-half").click().run()
    assert metrics(app) | {"In the system": ""} == {
        "Utilisation": "40%",
        "Mean time": "16.7 ms",  # worked case mm1-int8
        "p95": "49.9 ms",
        "In the system": "",
        "Replicas for the limit": "1",
    }
    assert app.slider(key="q-load").value == pytest.approx(40.0)


@pytest.mark.parametrize("kind", QueueKind)
def test_every_queue_has_its_title_and_its_maths(open_page, kind):
    app = open_page("queueing.py", q_kind=str(kind), q_n="4", q_rate="160")
    assert titles(app)[0].startswith("At 80% load the mean is ")
    assert len(unfolded(app, "queue-maths").latex) >= 2
    assert not app.error


def test_the_simulation_says_how_far_it_is_from_the_formula(open_page):
    app = open_page("queueing.py")
    app.toggle(key="q-simulate").set_value(True).run()
    said = " ".join(text_of(one) for one in app.caption)
    assert "standard errors from the formula's 100 ms" in said
    assert "counted over time" in said


def test_a_saturated_queue_has_no_latency(open_page):
    app = open_page("queueing.py", q_rate="60")
    assert metrics(app)["Mean time"] == "saturated"
    assert not app.exception


def test_the_figure_clips_at_saturation():
    curve = queue_curve(QueueKind.MM1, service_s=0.020)
    dots = simulated_points(QueueKind.MM1, service_s=0.020, loads=(0.5,), requests=2000, seed=1)
    made = queue_figure(curve, load=1.7, limit_s=0.150, dots=dots).checked()
    assert made.layout.xaxis.range == (0, 101)
    assert made.layout.shapes[0].x0 == 100
    assert "saturated" in queue_finding(curve, load=1.7, mean_s=float("inf"))
