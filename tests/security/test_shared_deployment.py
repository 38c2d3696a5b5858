"""What an app that serves others may not do for its visitors."""

from pathlib import Path

import pytest
from published_run import a100
from streamlit.testing.v1 import AppTest

from calc.errors import InputError, SourceError, SourceFault
from presets.deployment import Deployment, declare_address, deployment, may_probe, may_read_paths
from presets.hub_client import token_in_use
from presets.sources import read
from probes import store

FRAME = str(Path(__file__).parents[2] / "pages/_frame.py")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch, tmp_path):
    for variable in ("RIDGEBEAM_SHARED", "RIDGEBEAM_PATHS", "RIDGEBEAM_ALLOW_PROBES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_SHARED", "1")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", Deployment.LOCAL),
        ("localhost", Deployment.LOCAL),
        ("::1", Deployment.LOCAL),
        ("0.0.0.0", Deployment.SHARED),
        ("192.168.1.7", Deployment.SHARED),
        ("", Deployment.SHARED),
        (None, Deployment.SHARED),
    ],
)
def test_an_address_beyond_loopback_is_shared(monkeypatch, address, expected):
    monkeypatch.setenv("RIDGEBEAM_SHARED", "")
    monkeypatch.delenv("RIDGEBEAM_SHARED")
    declare_address(address)
    assert deployment() is expected
    assert may_probe() is may_read_paths() is (expected is Deployment.LOCAL)


def test_a_typing_error_opens_nothing(shared, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_ALLOW_PROBES", "yess")
    monkeypatch.setenv("RIDGEBEAM_PATHS", "*")
    assert not may_probe()
    assert not may_read_paths()


@pytest.mark.parametrize(
    "where", ["/etc/passwd", "../../etc", "~/model/config.json", "./config.json", "C:\\model"]
)
def test_a_shared_app_reads_no_path(shared, where):
    with pytest.raises(InputError, match="reads no files"):
        read(where)


def test_a_folder_that_looks_like_an_id_is_not_read_either(shared, tmp_path, monkeypatch):
    (tmp_path / "me/model").mkdir(parents=True)
    (tmp_path / "me/model/config.json").write_text('{"model_type": "qwen3"}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError) as asked_of_the_hub:
        read("me/model")
    assert asked_of_the_hub.value.fault is SourceFault.OFFLINE


def test_a_shared_app_uses_no_token_of_its_machine(shared, monkeypatch):
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_OfTheOperator0123456789")
    assert token_in_use(None) is None
    assert token_in_use("hf_OfTheVisitor0123456789") == "hf_OfTheVisitor0123456789"


@pytest.mark.app
def test_visitors_neither_measure_nor_import_nor_forget(shared):
    store.save(a100())
    page = AppTest.from_file(FRAME, default_timeout=240).run().switch_page("this_gpu.py").run()
    assert "A100" in page.title[0].value  # the operator's own run is shown
    assert not any("Measure" in button.label or "Forget" in button.label for button in page.button)
    assert not any("Import" in uploader.proto.label for uploader in page.get("file_uploader"))
    assert any("measuring is off" in info.value for info in page.info)


@pytest.mark.app
def test_the_person_at_the_machine_does_all_three():
    store.save(a100())
    page = AppTest.from_file(FRAME, default_timeout=240).run().switch_page("this_gpu.py").run()
    labels = [button.label for button in page.button]
    assert any("Measure" in label for label in labels)
    assert any("Forget" in label for label in labels)
    assert any("Import" in uploader.proto.label for uploader in page.get("file_uploader"))
