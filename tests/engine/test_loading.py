"""Which weights the engine loads: what has no room is refused before it is downloaded, and what is missing is told."""

import pytest
from models import save_qwen3

from calc.errors import ProbeError, SourceError, SourceFault
from probes.engine_server import loading
from probes.engine_server.loading import Wanted, load
from probes.torch_device import TorchDevice

pytestmark = pytest.mark.torch

ID = "Qwen/Qwen3-0.6B"  # bundled: its shape is known without a hub


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub that delivers a small model for any id; what it was asked for."""
    asked = []

    def fetched(repo_id, *, weights=True):
        asked.append((repo_id, weights))
        if weights:
            save_qwen3(tmp_path)
        return tmp_path

    monkeypatch.setattr(loading, "fetched", fetched)
    return asked


def test_a_model_without_room_is_refused_before_its_weights_come(hub, monkeypatch):
    monkeypatch.setattr(TorchDevice, "free_bytes", lambda self: 100_000_000)
    with pytest.raises(ProbeError, match="50,000,000 are a half"):
        load(Wanted(source=ID, device="cpu"))
    assert hub == [(ID, False)]


def test_a_folder_without_room_is_refused(monkeypatch, tmp_path):
    save_qwen3(tmp_path)
    monkeypatch.setattr(TorchDevice, "free_bytes", lambda self: 100_000)
    with pytest.raises(ProbeError, match="50,000 are a half"):
        load(Wanted(source=str(tmp_path), device="cpu"))


def test_a_hub_that_does_not_deliver_means_random_weights_that_fit(monkeypatch):
    def fetched(repo_id, *, weights=True):
        raise SourceError(SourceFault.OFFLINE, f"{repo_id} cannot be reached.")

    monkeypatch.setattr(loading, "fetched", fetched)
    monkeypatch.setattr(TorchDevice, "free_bytes", lambda self: 16_000_000)
    found = load(Wanted(source=ID, device="cpu"))
    assert found.random
    assert "no weights from the hub: offline" in found.note
    assert found.decoder.weight_bytes <= 8_000_000
