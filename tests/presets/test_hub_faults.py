"""Every way in which a hub can fail, each with its kind, its message and its next step; and 200 of them in a row."""

import random
import socket

import pytest
from hub_server import INFO
from test_config_text import QWEN3
from test_hub_tokens import OTHER, TOKEN

from calc.errors import RidgebeamError, SourceError, SourceFault
from presets import hub
from presets.hub_client import HubClient, Limits
from presets.sources import read

pytestmark = pytest.mark.hub

PASTE = "Or paste its config.json: that needs no network."


def failure(source, **settings):
    with pytest.raises(SourceError) as caught:
        read(source, **settings)
    error = caught.value
    assert error.exit_code == 4
    assert PASTE in error.next_step
    assert "\n" not in str(error)
    return error


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        ("status:429", SourceFault.RATE_LIMITED, ("too many requests", "Try again in a few minutes")),
        ("status:500", SourceFault.SERVER, ("answered 500", "Try again in a minute")),
        ("status:503", SourceFault.SERVER, ("answered 503", "Try again in a minute")),
        ("status:418", SourceFault.SERVER, ("answered 418", "Check the id")),
        ("status:451", SourceFault.NOT_FOUND, ("legal reasons", "another model")),
        ("status:403", SourceFault.GATED, ("without a token (403)", "Set HF_TOKEN")),
        ("status:401", SourceFault.NOT_FOUND, ("no public model me/model", "Check the spelling")),
        ("silent", SourceFault.TIMEOUT, ("took too long to send config.json of me/model", "Try again")),
        ("drip", SourceFault.TIMEOUT, ("took too long", "Try again")),
        ("reset", SourceFault.UNREADABLE, ("broke off", "Try again")),
        ("garbage", SourceFault.UNREADABLE, ("broke off", "Try again")),
        ("truncated", SourceFault.UNREADABLE, ("broke off while sending config.json", "Try again")),
        ("cut-json", SourceFault.NOT_JSON, ("not valid JSON (line 1)", "another revision")),
        ("text", SourceFault.NOT_JSON, ("not valid JSON", "another revision")),
        ("list", SourceFault.NOT_JSON, ("an object was expected", "another revision")),
        ("html", SourceFault.NOT_JSON, ("web page instead of config.json", "HF_ENDPOINT")),
        ("declares-too-much", SourceFault.TOO_LARGE, ("larger than 4 MiB", "check the id")),
        ("endless", SourceFault.TOO_LARGE, ("larger than 4 MiB", "check the id")),
        ("loop", SourceFault.REDIRECTS, ("around in a circle (4 redirects)", "HF_ENDPOINT")),
    ],
)
def test_each_fault_has_its_message_and_next_step(hub_server, monkeypatch, fault, kind, said):
    if kind is SourceFault.TIMEOUT:
        monkeypatch.setattr(hub, "LIMITS", Limits(read_s=0.3, total_s=0.6))
    hub_server.add("me/model", fault=fault).put("config.json", QWEN3)
    error = failure("me/model")
    assert error.fault is kind
    assert said[0] in error.message
    assert said[1] in error.next_step


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("ftp://example.org/config.json", "no web address"),
        ("file:///etc/passwd", "no web address"),
        ("http://[broken/config.json", "no web address"),
        ("http://example.org:port/config.json", "no web address"),
        ("javascript:alert(1)", "no web address"),
    ],
)
def test_redirects_that_are_no_web_address_are_not_followed(hub_server, location, message):
    hub_server.add("me/model", fault="redirect", location=location).put("config.json", QWEN3)
    error = failure("me/model")
    assert error.fault is SourceFault.REDIRECTS
    assert message in error.message


@pytest.mark.parametrize(
    ("start", "location", "message"),
    [
        ("https://hub.example/me/model", "http://hub.example/x", "open connection"),
        ("https://hub.example/me/model", "https://127.0.0.1/x", "inside this network"),
        ("https://hub.example/me/model", "https://169.254.169.254/latest/meta-data", "inside this network"),
        ("https://hub.example/me/model", "https://[::1]/x", "inside this network"),
        ("https://hub.example/me/model", "https://10.1.2.3/x", "inside this network"),
        ("https://hub.example/me/model", "https://localhost:8080/x", "inside this network"),
        ("https://hub.example/me/model", "//printer.local/x", "inside this network"),
    ],
)
def test_a_public_hub_cannot_send_us_into_the_network(start, location, message):
    client = HubClient(endpoint="https://hub.example")
    with pytest.raises(SourceError, match=message):
        client._redirected(start, location, client.asked_for_file("me/model", "config.json", None))


@pytest.mark.parametrize(
    ("headers", "step"),
    [
        ({"Retry-After": "120"}, "Try again in 120 s."),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, "Try again after Wed, 21 Oct 2026 07:28:00 GMT."),
        ({"RateLimit": '"api";r=0;t=55'}, "Try again in 55 s."),
        ({"Retry-After": "9" * 50}, "Try again in a few minutes."),
        ({}, "Try again in a few minutes."),
    ],
)
def test_a_rate_limit_says_when_to_come_back(hub_server, headers, step):
    hub_server.add("me/model", fault="status:429", headers=headers, tokens=(TOKEN,)).put("config.json", QWEN3)
    error = failure("me/model")
    assert step in error.next_step
    assert "A token (HF_TOKEN) raises the limit." in error.next_step
    assert "HF_TOKEN" not in failure("me/model", token=TOKEN).next_step


@pytest.mark.parametrize(
    ("token", "kind", "message", "step"),
    [
        (None, SourceFault.GATED, "none was given", "Accept the licence at https://huggingface.co/me/gated"),
        (OTHER, SourceFault.GATED, "has no access to it", "with that account"),
        ("hf_Mistyped", SourceFault.CREDENTIALS, "does not accept the token (401)", "or unset it"),
    ],
)
def test_gated_with_and_without_a_token(hub_server, token, kind, message, step):
    hub_server.valid_tokens.add(OTHER)
    hub_server.add("me/gated", gated=True, tokens=(TOKEN,)).put("config.json", QWEN3)
    error = failure("me/gated", token=token)
    assert error.fault is kind
    assert message in error.message
    assert step in error.next_step


@pytest.mark.parametrize(
    ("token", "message", "step"),
    [
        (None, "has no public model me/none", "if it is private, set HF_TOKEN"),
        (OTHER, "has no model me/none that this token may see", "Check the spelling"),
    ],
)
@pytest.mark.parametrize("private", [True, False])
def test_absent_and_private_look_the_same(hub_server, token, message, step, private):
    hub_server.valid_tokens.add(OTHER)
    if private:
        hub_server.add("me/none", private=True, tokens=(TOKEN,)).put("config.json", QWEN3)
    error = failure("me/none", token=token)
    assert error.fault is SourceFault.NOT_FOUND
    assert message in error.message
    assert step in error.next_step


def test_a_token_without_the_right_to_read_is_told(hub_server):
    hub_server.add("me/model", fault="status:403", tokens=(TOKEN,)).put("config.json", QWEN3)
    error = failure("me/model", token=TOKEN)
    assert (error.fault, "lacks the right" in error.message) == (SourceFault.GATED, True)


def test_an_unknown_revision_is_named(hub_server):
    hub_server.add("me/model").put("config.json", QWEN3)
    error = failure("me/model@v9")
    assert error.fault is SourceFault.NOT_FOUND
    assert error.message == "me/model has no revision v9."


def test_an_id_that_is_not_there_suggests_bundled_ones(hub_server):
    error = failure("Qwen/Qwen3-0.6")
    assert "Bundled models with a similar name: Qwen/Qwen3-0.6B" in error.next_step


def test_a_gated_model_suggests_bundled_ones_of_its_name(hub_server):
    hub_server.add("meta-llama/Llama-3.3-70B-Instruct-X", gated=True).put("config.json", QWEN3)
    assert "meta-llama/Llama-3.3-70B-Instruct" in failure("meta-llama/Llama-3.3-70B-Instruct-X").next_step


def test_without_network_the_message_says_so_and_offers_what_needs_none(hub_server, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        error = failure("Qwen/Qwen3-8X")
    assert error.fault is SourceFault.OFFLINE
    assert "cannot be reached" in error.message
    assert "choose a bundled model" in error.next_step
    assert "Qwen/Qwen3-8B" in error.next_step


def test_offline_mode_is_respected_without_a_request(hub_server, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub_server.add("me/model").put("config.json", QWEN3)
    assert "HF_HUB_OFFLINE is set" in failure("me/model").message
    assert hub_server.requests == []


@pytest.mark.parametrize(
    "endpoint", ["ftp://hub", "hub.example", "https://user:secret@hub.example", "https://hub/?x=1"]
)
def test_an_endpoint_that_is_none_is_refused(monkeypatch, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(RidgebeamError, match="HF_ENDPOINT") as caught:
        read("me/model")
    assert caught.value.exit_code == 2


# ---- repositories without a config.json -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "message", "step"),
    [
        (
            [
                "m-Q8_0.gguf",
                "m-Q4_K_M.gguf",
                "m-UD-Q2_K_XL-00001-of-00002.gguf",
                "mmproj-F16.gguf",
                "imatrix.gguf",
            ],
            "has GGUF files and no config.json",
            "Name one: me/model:Q4_K_M (there are Q8_0, Q4_K_M, UD-Q2_K_XL).",
        ),
        (["weights.gguf"], "has GGUF files", "Name the file: me/model/weights.gguf."),
        (
            ["adapter_config.json", "adapter_model.safetensors"],
            "is an adapter",
            "Plan its base model me/base.",
        ),
        (["model_index.json", "unet/config.json"], "image or video pipeline (diffusers)", "generates text"),
        (["modules.json", "0_Transformer/config.json"], "sentence-transformers", "0_Transformer/config.json"),
        (["params.json", "consolidated.00.pth"], "own layout", "-hf"),
        (["consolidated.safetensors", "params.json"], "own layout", "-hf"),
        (["model.nemo"], "NeMo checkpoint", "transformers version"),
        (["onnx/model.onnx"], "ONNX", "transformers version"),
        (["pytorch_model.pt"], "bare PyTorch", "transformers version"),
        (["open_clip_config.json"], "OpenCLIP", "generates text"),
        ([".gitattributes", "README.md"], "is empty", "Check the revision"),
        (["tokenizer.json"], "has no config.json (library: transformers)", "made from"),
    ],
)
def test_a_repository_without_a_config_says_what_it_is(hub_server, files, message, step):
    repo = hub_server.add("me/model")
    for name in files:
        repo.put(name, {"base_model_name_or_path": "me/base"})
    error = failure("me/model")
    assert error.fault is SourceFault.NO_CONFIG
    assert message in error.message
    assert step in error.next_step


def test_the_base_model_on_the_card_is_named(hub_server):
    repo = hub_server.add("me/model", base_model=["me/base", 7])
    repo.put("m-Q4_K_M.gguf", b"")
    assert "Its base model is me/base." in failure("me/model").next_step


# ---- many of them ---------------------------------------------------------------------------------------------------

FAULTS = [
    *(f"status:{status}" for status in (401, 403, 404, 429, 451, 500, 502, 503)),
    *(
        "html",
        "text",
        "list",
        "cut-json",
        "truncated",
        "declares-too-much",
        "endless",
        "reset",
        "garbage",
        "loop",
    ),
    *("wrong-range", "silent", "drip"),
]


def test_200_faults_in_a_row_leave_the_cache_usable(hub_server, monkeypatch):
    hub_server.valid_tokens.add(OTHER)
    hub_server.add("me/good").put("config.json", QWEN3)
    good = read("me/good")
    patient = hub.LIMITS
    monkeypatch.setattr(hub, "LIMITS", Limits(read_s=0.15, total_s=0.2, redirects=3))
    chance = random.Random(20261129)
    errors = []
    for number in range(200):
        struck = chance.choice([("config.json",), (INFO,), ("model.safetensors",), ("*", INFO)])
        repo = hub_server.add(
            f"me/bad-{number % 7}", fault=chance.choice(FAULTS), fault_on=struck, tokens=(TOKEN,)
        )
        repo.gated = chance.random() < 0.1
        repo.put("config.json", QWEN3).put("model.safetensors", b"\x10" + bytes(200))
        try:
            source = read(f"me/bad-{number % 7}", token=chance.choice([None, TOKEN, OTHER, "hf_Wrong"]))
        except SourceError as error:
            errors.append(error)
        else:
            assert source.spec.stacks == good.spec.stacks
            assert source.checkpoint is None
    assert all(PASTE in error.next_step for error in errors)
    assert len({error.fault for error in errors}) >= 8
    monkeypatch.setattr(hub, "LIMITS", patient)
    assert read("me/good") == good
    hub_server.add("me/late").put("config.json", QWEN3)
    assert read("me/late").spec.stacks == good.spec.stacks
