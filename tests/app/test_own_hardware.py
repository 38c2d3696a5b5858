"""Hardware beside the list: typed into the form, offered from this machine, or typed as an id."""

import sys
from types import SimpleNamespace

import pytest
from reading import titles, unfolded

from pages import _own_hardware

pytestmark = pytest.mark.app


def headline(app):
    return titles(app)[0]


def number(app, key):
    return next(n for n in app.number_input if n.key == key)


def button(app, label):
    return next(b for b in app.button if label in b.label)


def fill(app, **values):
    for key, value in values.items():
        number(app, key).set_value(value)
    button(app, "Use it").click().run()
    assert not app.exception
    return app


def test_a_typed_accelerator_is_answered_and_stays_in_the_link(open_page):
    app = unfolded(open_page(), "more-accelerator")
    next(t for t in app.text_input if t.key == "own_name").set_value("Lab card")
    fill(app, own_memory_gb=80.0, own_bandwidth_gb_per_s=2040.0, own_rate_16bit=312.0)
    assert "Lab card" in headline(app)
    line = "typed:memory=80GB,bandwidth=2040GB/s,16bit=312TFLOPS,node=8,name=Lab card"
    assert app.session_state["gpu"] == line
    again = open_page(gpu=line)
    assert headline(again) == headline(app)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"own_memory_gb": 80.0}, "Still needed: Memory bandwidth"),
        ({"own_memory_gb": 80.0, "own_bandwidth_gb_per_s": 2040.0, "own_rate_16bit": 312e12}, "bf16 rate"),
    ],
)
def test_what_is_wrong_with_typed_numbers_is_said_beside_them(open_page, values, words):
    app = unfolded(open_page(), "more-accelerator")
    before = headline(app)
    fill(app, **values)
    assert any(words in e.value.replace("\\", "") for e in app.error)
    assert headline(app) == before


def test_an_accelerator_typed_as_an_id_may_be_a_name_or_a_slice(open_page):
    assert "H100 NVL" in headline(open_page(gpu="NVIDIA H100 NVL"))
    assert "MIG 7g" in headline(open_page(gpu="h100:7g.80gb", model="Qwen/Qwen3-0.6B"))
    unknown = open_page(gpu="warp-drive")
    assert any("nearest" in e.value for e in unknown.error)


class NvmlError(Exception):
    pass


@pytest.fixture
def local(monkeypatch):
    """This machine has the devices given, each a (name, MiB) pair."""

    def has(*devices):
        def memory(handle, version=None):
            if version:
                raise NvmlError
            return SimpleNamespace(total=handle[1] * 2**20, used=2**30)

        fake = SimpleNamespace(
            NVMLError=NvmlError,
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlDeviceGetCount=lambda: len(devices),
            nvmlDeviceGetHandleByIndex=lambda index: devices[index],
            nvmlDeviceGetName=lambda handle: handle[0],
            nvmlDeviceGetMemoryInfo=memory,
        )
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        _own_hardware._devices.clear()

    yield has
    monkeypatch.undo()
    _own_hardware._devices.clear()


def test_the_local_device_is_offered_by_itself_and_taken_at_a_click(local, open_page):
    local(("NVIDIA L40S", 46068))
    app = open_page(model="Qwen/Qwen3-0.6B")
    captions = [c.value.replace("\\", "") for c in app.caption]
    assert any("On this machine: NVIDIA L40S, 45 GiB, 1 GiB in use." in c for c in captions)
    button(app, "Use this machine").click().run()
    assert not app.exception
    assert app.session_state["gpu"] == "l40s"
    assert "L40S" in headline(app)


def test_a_device_that_nobody_knows_says_so_and_none_says_nothing(local, open_page):
    local(("NVIDIA Q900", 9000))
    app = open_page()
    assert any("not in the catalogue" in c.value for c in app.caption)
    assert not [b for b in app.button if "this machine" in b.label]
    local()
    assert not [c for c in open_page().caption if "On this machine" in c.value]
