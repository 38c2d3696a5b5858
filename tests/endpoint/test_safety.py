"""Where a load test may go."""

import socket

import pytest

from calc.errors import InputError
from probes.endpoint import safety
from probes.endpoint.safety import ALLOW_VARIABLE, ApiKey, Deployment, Policy, checked_target

LOCAL = Policy()
SHARED = Policy(deployment=Deployment.SHARED)


def resolving(monkeypatch, **hosts):
    def answer(host, port, **_):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in hosts[host.replace(".", "_")]]

    monkeypatch.setattr(safety.socket, "getaddrinfo", answer)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/chat/completions", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:11434/api/generate", "http://127.0.0.1:11434"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("http://127.0.0.1:8000/llm/v1", "http://127.0.0.1:8000/llm"),
    ],
)
def test_what_people_type_becomes_the_servers_root(typed, shown):
    target = checked_target(typed, LOCAL)
    assert target.shown == shown
    assert target.loopback


@pytest.mark.parametrize(
    "typed",
    [
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "http://user:secret@127.0.0.1:8000",
        "http://127.0.0.1:8000/?api_key=secret",
        "http://127.0.0.1:8000/#x",
        "http://",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:8000/../x",
        "http://127.0.0.1 :8000",
        "http://127.0.0.1:8000/\r\nHost: other",
        "http://0.0.0.0:8000",
        "http://224.0.0.1:8000",
        "http://" + "a" * 600,
    ],
)
def test_urls_that_are_refused_whoever_asks(typed):
    with pytest.raises(InputError) as refused:
        checked_target(typed, LOCAL)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.5",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "[::1]",
        "[fd00::1]",
        "[fe80::1]",
        "8.8.8.8",
    ],
)
def test_a_shared_deployment_goes_nowhere_by_default(address):
    with pytest.raises(InputError, match="shared"):
        checked_target(f"http://{address}:8000", SHARED)


def test_the_operator_allows_hosts_by_name(monkeypatch):
    monkeypatch.setenv(ALLOW_VARIABLE, "llm.example.org, 10.0.0.5")
    policy = Policy.from_environment(deployment=Deployment.SHARED)
    resolving(monkeypatch, llm_example_org=["93.184.216.34"])
    assert checked_target("https://llm.example.org", policy).address == "93.184.216.34"
    assert checked_target("http://10.0.0.5:8000", policy).address == "10.0.0.5"
    with pytest.raises(InputError):
        checked_target("http://10.0.0.6:8000", policy)


@pytest.mark.parametrize(
    "inside", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1", "fe80::1"]
)
def test_an_allowed_name_that_leads_inside_is_refused(monkeypatch, inside):
    policy = Policy(deployment=Deployment.SHARED, allowed_hosts=frozenset({"llm.example.org"}))
    resolving(monkeypatch, llm_example_org=["93.184.216.34", inside])
    with pytest.raises(InputError, match="private"):
        checked_target("https://llm.example.org", policy)


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch):
    resolving(monkeypatch, llm_example_org=["93.184.216.34"])
    target = checked_target("https://llm.example.org:8443/v1", LOCAL)
    resolving(monkeypatch, llm_example_org=["127.0.0.1"])
    assert target.connect_root == "https://93.184.216.34:8443"
    assert target.host_header == "llm.example.org:8443"


def test_a_host_without_an_address_is_named(monkeypatch):
    def nowhere(*_, **__):
        raise OSError("no such name")

    monkeypatch.setattr(safety.socket, "getaddrinfo", nowhere)
    with pytest.raises(InputError, match="must have an address"):
        checked_target("http://nowhere.invalid", LOCAL)


def test_a_key_prints_as_dots_and_holds_no_line_breaks():
    assert "secret" not in f"{ApiKey('secret')!r}{ApiKey('secret')}"
    with pytest.raises(InputError) as refused:
        ApiKey("secret\r\nX: y")
    assert "secret" not in str(refused.value)
