"""Where a load test may go: only to the URL that a person typed, and only as far as this deployment allows.

The host is looked up once, every address it has is checked, and the connection goes to a checked address, so that a name
that answers differently a second time leads nowhere else. Redirects are never followed.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from calc.errors import InputError
from presets.deployment import Deployment

ALLOW_VARIABLE = "RIDGEBEAM_ENDPOINT_HOSTS"
LONGEST_URL = 500
STANDARD_PORTS = {"http": 80, "https": 443}
KNOWN_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/api/generate",
    "/api/chat",
    "/v1/models",
    "/v1",
    "/api",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may be measured from here.

    Local: loopback always, other hosts that the person names too. Shared: only hosts that the operator listed in
    `allowed_hosts`, and of those no private, link-local or otherwise special address unless the list names it literally.
    """

    deployment: Deployment = Deployment.LOCAL
    allowed_hosts: frozenset[str] = frozenset()

    @classmethod
    def from_environment(cls, *, deployment: Deployment) -> Policy:
        """The operator's list, hosts separated by commas, in RIDGEBEAM_ENDPOINT_HOSTS."""
        listed = os.environ.get(ALLOW_VARIABLE, "")
        return cls(
            deployment=deployment,
            allowed_hosts=frozenset(host.strip().lower() for host in listed.split(",") if host.strip()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A checked server: what was typed, split, and the address to connect to. Holds no credentials."""

    scheme: str
    host: str
    port: int
    path: str
    address: str

    @property
    def root(self) -> str:
        """The server as shown to people and sent in the Host header's terms, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = STANDARD_PORTS[self.scheme] == self.port
        return f"{self.scheme}://{host}" if default else f"{self.scheme}://{host}:{self.port}"

    @property
    def shown(self) -> str:
        return f"{self.root}{self.path}"

    @property
    def connect_root(self) -> str:
        """The same server by its checked address."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.scheme}://{address}:{self.port}{self.path}"

    @property
    def host_header(self) -> str:
        return self.root.removeprefix(f"{self.scheme}://")

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key in memory: it prints as dots and goes into one header, nowhere else."""

    value: str = field(default="", repr=False)

    def __str__(self) -> str:
        return "•••" if self.value else ""

    def __bool__(self) -> bool:
        return bool(self.value)

    def __post_init__(self) -> None:
        if any(not 32 < ord(sign) < 127 for sign in self.value):
            raise InputError("API key", "•••", "it may only hold printable characters without spaces")

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.value}"} if self.value else {}

    def hidden(self, text: str) -> str:
        """`text` without the key, should a server have sent it back."""
        return text.replace(self.value, "•••") if self.value else text


def checked_target(url: str, policy: Policy) -> Target:
    """The target of a typed URL, or `InputError` that says why it is refused."""
    scheme, host, port, path = _split(url)
    addresses = _addresses(host, port)
    if policy.deployment is Deployment.SHARED:
        _check_shared(host, addresses, policy)
    chosen = next((a for a in addresses if ipaddress.ip_address(a).version == 4), addresses[0])
    if any(ipaddress.ip_address(a).is_unspecified or ipaddress.ip_address(a).is_multicast for a in addresses):
        raise InputError("URL", host, "it must name one host, not a wildcard or a group")
    return Target(scheme=scheme, host=host, port=port, path=path, address=chosen)


def _split(url: str) -> tuple[str, str, int, str]:
    text = url.strip()
    if len(text) > LONGEST_URL or any(ord(sign) < 33 or ord(sign) == 127 for sign in text):
        raise InputError("URL", text[:60], f"it must have at most {LONGEST_URL} characters and no spaces")
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise InputError(
            "URL", "a host or port that cannot be read", "write it as http://host:port"
        ) from None
    if parts.scheme not in STANDARD_PORTS:
        raise InputError("URL", parts.scheme, "it must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "URL", "a name or key before the host", "give the API key in its own field, never in a URL"
        )
    if parts.query or parts.fragment:
        raise InputError("URL", "a query", "give the server's address alone; a key belongs in its own field")
    if not host:
        raise InputError("URL", text[:60], "it must name a host, as in http://127.0.0.1:8000")
    path = parts.path.rstrip("/")
    for known in KNOWN_PATHS:
        path = path.removesuffix(known)
    if ".." in path or "\\" in path:
        raise InputError("URL", path, "its path must not climb")
    return parts.scheme, host, port or STANDARD_PORTS[parts.scheme], path


def _addresses(host: str, port: int) -> tuple[str, ...]:
    """Every address of the host; literal addresses need no lookup."""
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InputError(
            "URL",
            host,
            "its host must have an address",
            next_step="Check the spelling, or give the address itself.",
        ) from None
    return tuple(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in found))


def _check_shared(host: str, addresses: tuple[str, ...], policy: Policy) -> None:
    if host not in policy.allowed_hosts:
        raise InputError(
            "URL",
            host,
            "this deployment is shared, and measures only servers that its operator allows",
            next_step=f"The operator lists hosts in {ALLOW_VARIABLE}; or run Ridgebeam on your own machine.",
        )
    for text in addresses:
        address = ipaddress.ip_address(text)
        mapped = getattr(address, "ipv4_mapped", None) or address
        if not mapped.is_global and host != text:
            raise InputError(
                "URL",
                host,
                "it leads to a private or special address, which a shared deployment does not reach",
            )
