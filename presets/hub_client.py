"""Reads files of a hub through huggingface_hub's own session, with what it leaves to its callers: caps and deadlines.

The client brings the URL scheme, the headers, the token's sources (HF_TOKEN, login) and offline mode; here every body
has a size cap and a deadline, and redirects are followed one by one: the token goes to the endpoint's own origin only.
"""

from __future__ import annotations

import ipaddress
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin, urlsplit

from calc.errors import InputError, SourceFault
from calc.json_text import NOT_JSON, parse_json
from calc.units import MIB
from presets import hub_faults
from presets.deployment import is_shared
from presets.hub_faults import Asked
from presets.model_ids import DEFAULT_HUB, is_file_name, is_repo_id, is_revision

if TYPE_CHECKING:
    import httpx2

MAX_INFO_BYTES = 16 * MIB  # a repository's list of files


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits of one request: to connect, between two pieces of the answer, and in all; redirects followed."""

    connect_s: float = 5.0
    read_s: float = 10.0
    total_s: float = 30.0
    redirects: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Bytes that came, the commit they belong to, and whether they are the part that a range asked for."""

    data: bytes
    commit: str | None
    partial: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoInfo:
    """What the hub says about a repository; `id` as its owner spells it now, `public` where anyone may read it."""

    id: str | None
    commit: str | None
    public: bool
    files: tuple[str, ...]
    library: str
    base_models: tuple[str, ...]


def endpoint_in_use() -> str:
    """HF_ENDPOINT as it is now, or the public hub; http or https only."""
    endpoint = os.environ.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_HUB
    if _joined(endpoint, "") is None or set(endpoint) & set("@?# "):
        raise InputError(
            "HF_ENDPOINT", endpoint, "it must be the http(s) URL of a hub, without user or query"
        )
    return endpoint


def token_in_use(token: str | None) -> str | None:
    """`token`, else the one that huggingface_hub finds (HF_TOKEN, login), else None."""
    if token is None:
        token = _found_token()
    token = (token or "").strip()
    if not token:
        return None
    if not re.fullmatch(r"[!-~]{1,512}", token):
        raise InputError("token", "(hidden)", "a token has no spaces and only ASCII characters")
    return token


def _found_token() -> str | None:
    """The token of this machine, never for visitors of a shared app; a token file that cannot be read is as good as none."""
    from huggingface_hub.errors import OIDCError
    from huggingface_hub.utils import get_token

    if is_shared():
        return None
    if os.environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    try:
        return get_token()
    except OSError:
        return None
    except OIDCError:
        raise hub_faults.fault(
            SourceFault.CREDENTIALS,
            "HF_OIDC_RESOURCE is set, but no token could be had for it.",
            "Unset it, or set HF_TOKEN.",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubClient:
    """One reader of one hub. The token is kept out of the repr."""

    endpoint: str
    token: str | None = field(default=None, repr=False)
    limits: Limits = Limits()

    @property
    def hub(self) -> str:
        return urlsplit(self.endpoint).netloc

    def file(self, repo_id: str, file: str, revision: str | None, *, max_bytes: int) -> Fetched | None:
        """The whole of a small file; None where the repository has no such file."""
        return self._get(
            self._file_url(repo_id, file, revision), self._asked(repo_id, file, revision), max_bytes
        )

    def window(
        self, repo_id: str, file: str, revision: str | None, *, start: int, stop: int
    ) -> Fetched | None:
        """Bytes start to stop (exclusive; fewer at the file's end); None where there is no such file.

        A server that ignores ranges is read from the beginning and cut off at `stop`.
        """
        asked = self._asked(repo_id, file, revision)
        got = self._get(self._file_url(repo_id, file, revision), asked, stop - start, window=(start, stop))
        if got is None or got.partial:
            return got
        return Fetched(data=got.data[start:stop], commit=got.commit, partial=True)

    def info(self, repo_id: str, revision: str | None) -> RepoInfo:
        """Commit, access, files and base models of a repository."""
        asked = self._asked(repo_id, "the list of files", revision)
        suffix = "" if revision is None else f"/revision/{quote(revision, safe='')}"
        got = self._get(f"{self.endpoint}/api/models/{repo_id}{suffix}", asked, MAX_INFO_BYTES)
        if got is None:
            raise hub_faults.of_status(asked, 404, {})
        return _parse_info(json_object(got.data, asked))

    def safetensors_headers(self, repo_id: str, index_file: str, *, max_bytes: int) -> dict[str, object]:
        """Every shard's header on the default branch in one request, as the public hub offers it."""
        asked = self._asked(repo_id, "the safetensors headers", None)
        url = f"{self.endpoint}/api/models/{repo_id}/safetensors-metadata/{quote(index_file)}"
        got = self._get(url, asked, max_bytes)
        if got is None:
            raise hub_faults.of_status(asked, 404, {})
        return json_object(got.data, asked)

    def asked_for_file(self, repo_id: str, file: str, revision: str | None) -> Asked:
        """How messages name a request for `file`."""
        return self._asked(repo_id, file, revision)

    def _asked(self, repo_id: str, what: str, revision: str | None) -> Asked:
        if not is_repo_id(repo_id):
            raise InputError("model", repo_id, "it must be a model id such as Qwen/Qwen3-0.6B")
        if revision is not None and not is_revision(revision):
            raise InputError("revision", revision, "it must be a branch, a tag or a commit hash")
        return Asked(
            repo_id=repo_id, revision=revision, what=what, hub=self.hub, with_token=self.token is not None
        )

    def _file_url(self, repo_id: str, file: str, revision: str | None) -> str:
        if not is_file_name(file):
            raise InputError("file", file, "it must be the path of a file inside the repository")
        from huggingface_hub import hf_hub_url

        return hf_hub_url(repo_id, file, revision=revision, endpoint=self.endpoint)

    def _get(
        self, url: str, asked: Asked, max_bytes: int, *, window: tuple[int, int] | None = None
    ) -> Fetched | None:
        """One GET with its redirects; None for a file that the repository does not have."""
        with _faults_named(asked):
            return self._follow(url, asked, max_bytes, window)

    def _follow(
        self, url: str, asked: Asked, max_bytes: int, window: tuple[int, int] | None
    ) -> Fetched | None:
        from httpx2 import Timeout
        from huggingface_hub.utils import get_session

        deadline = time.monotonic() + self.limits.total_s
        timeout = Timeout(self.limits.read_s, connect=self.limits.connect_s)
        for _ in range(self.limits.redirects + 1):
            headers = self._headers(url, window)
            with get_session().stream(
                "GET", url, headers=headers, timeout=timeout, follow_redirects=False
            ) as response:
                if response.has_redirect_location:
                    url = self._redirected(url, response.headers["location"], asked)
                    continue
                return _taken(response, asked, max_bytes, window, deadline)
        raise hub_faults.redirects(asked, f"around in a circle ({self.limits.redirects} redirects)")

    def _headers(self, url: str, window: tuple[int, int] | None) -> dict[str, str]:
        from huggingface_hub.utils import build_hf_headers

        token = self.token if self.token and _origin(url) == _origin(self.endpoint) else False
        headers = {"accept-encoding": "identity"}  # so that a cap on bytes is a cap on what was sent
        if window is not None:
            headers["range"] = f"bytes={window[0]}-{window[1] - 1}"
        return build_hf_headers(token=token, library_name="ridgebeam", headers=headers)

    def _redirected(self, url: str, location: str, asked: Asked) -> str:
        """Where a redirect leads, if it may be followed."""
        target = _joined(url, location)
        if target is None:
            raise hub_faults.redirects(asked, "to something that is no web address")
        parts = urlsplit(target)
        if urlsplit(url).scheme == "https" and parts.scheme == "http":
            raise hub_faults.redirects(asked, "from an encrypted to an open connection")
        if _is_internal(parts.hostname or "") and not _is_internal(urlsplit(self.endpoint).hostname or ""):
            raise hub_faults.redirects(asked, "to an address inside this network")
        return target


def json_object(data: bytes, asked: Asked) -> dict[str, object]:
    """The JSON object in an answer, or the fault that says what came instead."""
    import json

    if data.lstrip()[:1] == b"<":
        raise hub_faults.not_json(asked, is_page=True)
    try:
        value = parse_json(data)
    except NOT_JSON as error:
        line = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise hub_faults.not_json(asked, is_page=False, why=line) from None
    if not isinstance(value, dict):
        raise hub_faults.not_json(asked, is_page=False, why=": an object was expected")
    return value


@contextmanager
def _faults_named(asked: Asked) -> Iterator[None]:
    """Turn the client's exceptions into ours. They are cut off (`from None`): their requests carry the token."""
    import httpx2
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        yield
    except httpx2.TimeoutException:
        raise hub_faults.timeout(asked) from None
    except (httpx2.ConnectError, httpx2.ProxyError):
        raise hub_faults.offline(asked) from None
    except OfflineModeIsEnabled:
        raise hub_faults.offline_by_choice(asked) from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL):
        raise hub_faults.redirects(asked, "to something that is no web address") from None
    except httpx2.HTTPError:  # the connection broke, or the answer is no HTTP
        raise hub_faults.cut_short(asked) from None


def _taken(
    response: httpx2.Response, asked: Asked, max_bytes: int, window: tuple[int, int] | None, deadline: float
) -> Fetched | None:
    """The body of a final answer, within its cap and before its deadline."""
    status = response.status_code
    if status == 404 and response.headers.get("x-error-code") == "EntryNotFound":
        return None
    if status == 416 and window is not None:  # the file ends before the window begins
        return Fetched(data=b"", commit=None, partial=True)
    if status not in (200, 206):
        raise hub_faults.of_status(asked, status, response.headers)
    partial = status == 206 and window is not None
    if partial and window is not None:
        _check_range(response.headers.get("content-range", ""), window, asked)
    enough = window[1] if window is not None and not partial else None
    commit = response.headers.get("x-repo-commit", "")
    return Fetched(
        data=_body(response, asked, max_bytes, enough, deadline),
        commit=commit if re.fullmatch(r"[0-9a-f]{40}", commit) else None,
        partial=partial,
    )


def _check_range(content_range: str, window: tuple[int, int], asked: Asked) -> None:
    found = re.match(r"bytes (\d{1,18})-", content_range)
    if found is None or int(found.group(1)) != window[0]:
        raise hub_faults.cut_short(asked)


def _body(
    response: httpx2.Response, asked: Asked, max_bytes: int, enough: int | None, deadline: float
) -> bytes:
    """The body; `enough` bytes of it where more is not wanted, an error where more than `max_bytes` come."""
    declared = response.headers.get("content-length", "")
    if enough is None and declared.isdecimal() and int(declared[:18]) > max_bytes:
        raise hub_faults.too_large(asked, max_bytes)
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if enough is not None and len(body) >= enough:
            return bytes(body[:enough])
        if enough is None and len(body) > max_bytes:
            raise hub_faults.too_large(asked, max_bytes)
        if time.monotonic() > deadline:
            raise hub_faults.timeout(asked)
    return bytes(body)


def _parse_info(info: dict[str, object]) -> RepoInfo:
    """The few fields that we use, each taken only in the shape that the hub documents."""
    commit = info.get("sha")
    siblings = info.get("siblings")
    card = info.get("cardData")
    base = card.get("base_model") if isinstance(card, dict) else None
    bases = base if isinstance(base, list) else [base]
    files = siblings if isinstance(siblings, list) else []
    names = [entry.get("rfilename") for entry in files if isinstance(entry, dict)]
    own_id = info.get("id")
    return RepoInfo(
        id=own_id if isinstance(own_id, str) and is_repo_id(own_id) else None,
        commit=commit if isinstance(commit, str) and re.fullmatch(r"[0-9a-f]{40}", commit) else None,
        public=info.get("private") is False and info.get("gated") is False,
        files=tuple(name for name in names if isinstance(name, str) and is_file_name(name)),
        library=str(info.get("library_name") or "")[:40],
        base_models=tuple(item for item in bases if isinstance(item, str) and is_repo_id(item)),
    )


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return (
        parts.scheme,
        (parts.hostname or "").lower(),
        parts.port or (443 if parts.scheme == "https" else 80),
    )


def _joined(url: str, location: str) -> str | None:
    """The address that `location` means at `url`, or None where it is no web address."""
    try:
        target = urljoin(url, location)
        scheme, host, _ = _origin(target)
    except ValueError:  # brackets that do not match, a port that is no number
        return None
    return target if scheme in ("http", "https") and host else None


def _is_internal(host: str) -> bool:
    """True for names and literal addresses that lie inside a machine or a private network."""
    if host.lower() in ("localhost", "localhost.localdomain") or host.lower().endswith(
        (".local", ".internal")
    ):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return False
