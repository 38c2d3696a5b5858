"""Where a token goes, and where it must never go."""

import logging

import pytest
from hub_server import INFO
from test_config_text import QWEN3

from calc.errors import InputError, SourceError, SourceFault
from presets import hub
from presets.hub_cache import HubCache
from presets.hub_client import HubClient, Limits, token_in_use
from presets.sources import read

pytestmark = pytest.mark.hub

TOKEN = "hf_TopSecretTokenForTests0123456789"
OTHER = "hf_AnotherSecretOfAnotherUser987654"


@pytest.fixture
def gated(hub_server):
    hub_server.valid_tokens.add(OTHER)
    return hub_server.add("me/gated", gated=True, tokens=(TOKEN,)).put("config.json", QWEN3)


def test_a_gated_model_is_read_with_its_token(gated, hub_server):
    assert read("me/gated", token=TOKEN).spec.model_type == "qwen3"
    assert {request.authorization for request in hub_server.requests} == {f"Bearer {TOKEN}"}


def test_the_token_of_the_environment_is_found(gated, monkeypatch):
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}\n")
    assert read("me/gated").spec.model_type == "qwen3"


def test_tokens_that_cannot_be_had_do_not_break_what_is_public(hub_server, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path))  # a folder where a file should be
    hub_server.add("me/public").put("config.json", QWEN3)
    assert read("me/public").spec.model_type == "qwen3"
    monkeypatch.setenv("HF_OIDC_RESOURCE", "me/public")
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "HF_OIDC_ID_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SourceError, match="HF_OIDC_RESOURCE is set") as caught:
        read("me/public")
    assert caught.value.fault is SourceFault.CREDENTIALS


def test_what_one_token_read_no_other_reader_gets(gated, hub_server):
    read("me/gated", token=TOKEN)
    with pytest.raises(SourceError, match="none was given"):
        read("me/gated")
    with pytest.raises(SourceError, match="has no access"):
        read("me/gated", token=OTHER)
    n_requests = len(hub_server.requests)
    read("me/gated", token=TOKEN)
    assert len(hub_server.requests) == n_requests  # its own reader has it from the cache


def test_what_needed_a_token_never_reaches_the_disk(gated, hub_server, monkeypatch):
    hub_server.add("me/private", private=True, tokens=(TOKEN,)).put("config.json", QWEN3)
    hub_server.add("me/unknown", fault="status:500", fault_on=(INFO,), tokens=(TOKEN,)).put(
        "config.json", QWEN3
    )
    hub_server.add("me/public", tokens=(TOKEN,)).put("config.json", QWEN3)
    for name in ("gated", "private", "unknown", "public"):
        read(f"me/{name}", token=TOKEN)
    texts = [file.read_text() for file in hub.CACHE.folder.iterdir()]
    assert len(texts) == 1
    assert "me/public" in texts[0]
    monkeypatch.setattr(hub, "CACHE", HubCache(folder=hub.CACHE.folder))
    n_requests = len(hub_server.requests)
    read("me/gated", token=TOKEN)
    assert len(hub_server.requests) > n_requests


@pytest.mark.parametrize("target", ["other", "cdn"])
def test_a_redirect_to_another_origin_does_not_carry_the_token(hub_server, target):
    repo = hub_server.add("me/model", tokens=(TOKEN,)).put("config.json", QWEN3)
    repo.fault = "cdn" if target == "cdn" else "redirect"
    repo.location = f"{hub_server.other_url}/cdn/me/model/config.json"
    assert read("me/model", token=TOKEN).spec.model_type == "qwen3"
    other_port = hub_server.servers[1].server_port
    at_other = [request for request in hub_server.requests if request.port == other_port]
    assert at_other
    assert all(request.authorization is None for request in at_other)


def test_a_redirect_within_the_hub_carries_the_token(hub_server):
    hub_server.add("new/gated", gated=True, tokens=(TOKEN,)).put("config.json", QWEN3)
    hub_server.add("old/gated", fault="renamed", fault_on=("config.json", INFO), location="new/gated")
    assert read("old/gated", token=TOKEN).spec.model_type == "qwen3"


@pytest.mark.parametrize(
    "fault",
    ["", "status:403", "status:429", "status:500", "silent", "truncated", "html", "loop", "reset", "text"],
)
def test_no_url_log_error_key_or_file_holds_the_token(gated, hub_server, caplog, fault, monkeypatch):
    if fault == "silent":
        monkeypatch.setattr(hub, "LIMITS", Limits(read_s=0.3, total_s=0.6))
    gated.fault = fault
    caplog.set_level(logging.DEBUG)
    error = None
    try:
        read("me/gated", token=TOKEN)
    except SourceError as caught:
        error = caught
    assert (error is None) == (fault == "")
    seen = [request.path for request in hub_server.requests]
    seen += [record.getMessage() for record in caplog.records]
    seen += [str(error), repr(error), repr(error.__reduce__()) if error else ""]
    seen += [repr(key) for key in hub.CACHE._memory]
    seen += [file.read_text() for file in hub.CACHE.folder.rglob("*") if file.is_file()]
    seen.append(repr(HubClient(endpoint=hub_server.url, token=TOKEN)))
    assert not [text for text in seen if TOKEN in text or TOKEN[3:] in text]
    assert error is None or error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize("token", ["hf_with space", "hf_\nHost: evil", "hf_naïve", "x" * 600])
def test_a_token_that_is_none_is_refused_without_being_shown(token):
    with pytest.raises(InputError) as caught:
        token_in_use(token)
    assert token not in str(caught.value)


def test_a_wrong_token_is_told_from_a_missing_right(gated):
    with pytest.raises(SourceError) as caught:
        read("me/gated", token="hf_Mistyped")
    assert caught.value.fault is SourceFault.CREDENTIALS
