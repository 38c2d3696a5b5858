"""A hub server on loopback for the whole session, an empty cache for every test, and no token from outside."""

import pytest
from hub_server import HubServer

from presets import hub
from presets.hub_cache import HubCache
from presets.hub_client import Limits


@pytest.fixture(scope="session")
def running_hub():
    with HubServer() as server:
        yield server


@pytest.fixture
def hub_server(running_hub, monkeypatch, tmp_path):
    """The server as the client's endpoint, empty, and a cache of its own."""
    running_hub.reset()
    monkeypatch.setenv("HF_ENDPOINT", running_hub.url)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(hub, "CACHE", HubCache(folder=tmp_path / "cache"))
    monkeypatch.setattr(hub, "LIMITS", Limits(connect_s=5.0, read_s=10.0, total_s=20.0, redirects=4))
    return running_hub
