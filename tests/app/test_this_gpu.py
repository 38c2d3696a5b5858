"""The page This GPU: nothing measured, a stored run, a damaged file, a measurement that runs; without torch in the app."""

import json
import sys

import pytest
from published_run import a100
from reading import text_of, titles

from calc.scenario import Scenario
from pages import _own_hardware, _probe_figures
from pages._roofline_figure import reached_roofs
from presets.local_device import LocalDevice, LocalDevices
from presets.resolve import resolve
from probes import jobs, store

pytestmark = pytest.mark.app
PAGE = "this_gpu.py"


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("RIDGEBEAM_ALLOW_PROBES", "1")
    return tmp_path


def with_devices(monkeypatch, *devices):
    _own_hardware._devices.clear()
    monkeypatch.setattr(_own_hardware, "local_devices", lambda: LocalDevices(devices=devices, reason="none"))


def button(app, label):
    return next(b for b in app.button if label in b.label)


def test_before_anything_is_measured_the_page_says_what_a_click_tells(open_page, monkeypatch):
    with_devices(monkeypatch)
    app = open_page(PAGE)
    assert "Nothing is measured yet" in titles(app)[0]
    assert "processor" in titles(app)[0]
    assert any("ridgebeam probe --out run.json" in block.value for block in app.code)
    assert button(app, "Measure this machine")
    assert not app.metric


def test_the_gpu_of_the_machine_is_named(open_page, monkeypatch):
    card = LocalDevice(
        index=0,
        name="NVIDIA L4",
        uuid="GPU-1",
        total_bytes=None,
        used_by_others_bytes=None,
        reserved_bytes=None,
        driver="570",
    )
    with_devices(monkeypatch, card)
    app = open_page(PAGE)
    assert "NVIDIA L4" in titles(app)[0]
    chooser = next(box for box in app.selectbox if box.key == "probe_device")
    assert chooser.options == ["the best device here", "NVIDIA L4", "the processor"]


def test_a_stored_run_is_the_title_and_is_used_by_one_click(open_page, monkeypatch):
    with_devices(monkeypatch)
    run = a100()
    store.save(run)
    app = open_page(PAGE)
    assert titles(app)[0] == (
        "Your NVIDIA A100-SXM4-80GB reaches 1.77 TB/s (87%) and 271 TFLOP/s (86.9%) in bf16."
    )
    assert len(app.metric) <= 5
    button(app, "Use this for all answers").click().run()
    assert not app.exception
    assert app.session_state["gpu"] == "a100-sxm4-80gb"
    assert app.session_state["profile"] == run["id"]
    assert app.session_state["fidelity"] == "expected"
    assert titles(app)[0].endswith("All answers now use this.")


def test_a_run_is_worked_out(open_page, monkeypatch):
    with_devices(monkeypatch)
    store.save(a100())
    app = open_page(PAGE)
    app.session_state["probe-maths"] = True
    app.run()
    assert not app.exception
    lines = [line.value for line in app.latex]
    assert any(
        "234.88" in line and r"1.6\times 10^{12}" in line for line in lines
    )  # 28,672 x 4,096 in bf16 over its time
    assert any("1.774" in line and "0.87" in line for line in lines)  # bandwidth over the datasheet


def test_the_sidebar_offers_the_newest_run_of_this_machine_on_every_page(open_page, monkeypatch):
    with_devices(monkeypatch)
    assert not any(b.key == "use_measured" for b in open_page().button)
    run = a100()
    store.save(run)
    app = open_page()
    button(app, "Use the measured NVIDIA A100").click().run()
    assert not app.exception
    assert app.session_state["profile"] == run["id"]
    assert not any(b.key == "use_measured" for b in app.button)


def test_an_implausible_run_says_what_is_usual(open_page, monkeypatch):
    with_devices(monkeypatch)
    store.save(a100(bandwidth=0.62 * 2039e9))
    app = open_page(PAGE)
    assert any("78% to 94% is usual" in text_of(warning) for warning in app.warning)


def test_two_runs_are_compared(open_page, monkeypatch):
    with_devices(monkeypatch)
    store.save(a100())
    store.save({**a100(bandwidth=1600e9), "id": "20260102T000000-a100-000002", "started": "2026-01-02"})
    app = open_page(PAGE)
    assert "1.6 TB/s" in titles(app)[0]
    history = next(box for box in app.selectbox if box.key == "probe_run")
    history.select("20260101T000000-a100-000001").run()
    assert "1.77 TB/s" in titles(app)[0]
    assert any(box.key == "probe_against" for box in app.selectbox)


def test_where_the_app_serves_others_measuring_is_off(open_page, monkeypatch):
    with_devices(monkeypatch)
    monkeypatch.delenv("RIDGEBEAM_ALLOW_PROBES")
    monkeypatch.setenv("RIDGEBEAM_SHARED", "1")
    app = open_page(PAGE)
    assert any("measuring is off" in text_of(info) for info in app.info)
    assert not any("Measure" in b.label for b in app.button)


def test_a_click_really_measures_and_the_page_shows_its_progress(open_page, monkeypatch):
    with_devices(monkeypatch)
    before = set(sys.modules)  # other tests of the same run may use torch themselves
    app = open_page(PAGE)
    next(box for box in app.selectbox if box.key == "probe_device").select("cpu").run()
    button(app, "Measure this machine").click().run()
    assert not app.exception
    job = jobs.current()
    assert job is not None
    assert button(app, "Cancel")
    jobs.cancel(job)
    app.run()
    assert jobs.current() is None
    assert button(app, "Measure this machine")
    assert any("ancelled" in text_of(box) for box in (*app.error, *app.warning))
    assert not [name for name in set(sys.modules) - before if name.partition(".")[0] == "torch"]


def test_measured_roofs_stand_beside_the_datasheets(monkeypatch):
    """The run's 1,774 GB/s and 271 TFLOP/s, on its own device and on no other."""
    run = a100()
    store.save(run)
    own = resolve(Scenario(gpu="a100-sxm4-80gb", profile=run["id"])).offer
    reached = reached_roofs(own.accelerator, own.profile)
    assert reached.bytes_per_s == pytest.approx(1774e9)
    assert reached.flop_per_s["bf16"] == pytest.approx(271e12)
    assert reached.evidence == "measured on this device"
    for scenario in (Scenario(gpu="a100-sxm4-80gb"), Scenario(gpu="h100-sxm5-80gb", profile=run["id"])):
        other = resolve(scenario).offer
        found = reached_roofs(other.accelerator, other.profile)
        assert found.evidence != "measured on this device"
        assert found.bytes_per_s < other.accelerator.bandwidth_bytes_per_s


def test_a_measured_run_changes_step_time_and_not_the_engine():
    run = a100(bandwidth=1200e9, rate=150e12)
    store.save(run)
    fitted, own = (
        resolve(Scenario(gpu="a100-sxm4-80gb", profile=chosen)).offer.profile for chosen in ("", run["id"])
    )
    assert own.engine == fitted.engine
    assert own.number("compute.16bit") == pytest.approx(150 / 312)


def test_bars_state_their_shares():
    bars = _probe_figures.bars_of(a100())
    shares = {bar.label: bar.share for bar in bars}
    assert shares["Memory bandwidth"] == pytest.approx(1774 / 2039, rel=1e-3)
    assert shares["Products, bf16"] == pytest.approx(271 / 312, rel=1e-3)
    made = _probe_figures.bars_figure(bars, peak_name="the datasheet").checked()
    assert list(made.data[0].y) == [bar.label for bar in bars]
    assert len(made.layout.shapes) == sum(bar.usual is not None for bar in bars)
    assert "87%" in _probe_figures.bars_finding(bars, peak_name="the datasheet")


def test_an_exported_run_keeps_the_serial_identity_at_home():
    assert "GPU-1" not in json.dumps(json.loads(store.export_text(a100()))["device"].get("uuid", ""))
