"""What a person pasted to name a model, understood: hub id, hub URL, `id@revision`, `id:quantisation`, or a path.

Only what matches the strict patterns here is ever sent to a hub: a repository id, a revision, a file name.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from calc.errors import InputError

MAX_SOURCE_CHARACTERS = 512  # longer than any hub URL of a file; a poem or a config is longer still
HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co")
DEFAULT_HUB = "https://huggingface.co"

# A repository id as the hub's own client validates it (huggingface_hub.utils.validate_repo_id): one or two names of
# letters, digits, "-", "_" and ".", which neither start nor end with "-" or "."; "--", ".." and ".git" never.
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REPO_ID = re.compile(rf"{_NAME}(?:/{_NAME})?")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]{0,127}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+ -]{0,199}(?:/[A-Za-z0-9_][A-Za-z0-9._+ -]{0,199}){0,4}")
_QUANTIZATION = re.compile(r"[A-Za-z0-9_-]{1,32}")
_URL_VIEWS = ("tree", "blob", "resolve", "raw", "commit")
_OTHER_KINDS = ("datasets", "spaces", "collections", "papers", "docs", "blog", "models", "buckets", "kernels")
_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), None)
_QUOTES = "\"'`<>“”‘’«»"

_ACCEPTED = (
    "it must be a model id such as Qwen/Qwen3-0.6B, a hub URL of a model, a config.json or a .gguf file"
)
_NEXT = "Copy the id from the top of the model's page, or paste its config.json."


@dataclass(frozen=True, slots=True, kw_only=True)
class HubReference:
    """A model on a hub: repository id as typed, revision and file where the paste named them.

    `file` is a path in the repository (only .gguf files are read apart from the config); `quantization` picks among
    the .gguf files of a repository ("Q4_K_M").
    """

    repo_id: str
    revision: str | None = None
    file: str | None = None
    quantization: str | None = None

    def __post_init__(self) -> None:
        if not is_repo_id(self.repo_id):
            raise InputError("model", self.repo_id, _ACCEPTED, next_step=_NEXT)
        if self.revision is not None and not is_revision(self.revision):
            raise InputError("revision", self.revision, "it must be a branch, a tag or a commit hash")
        if self.file is not None and not is_file_name(self.file):
            raise InputError("file", self.file, "it must be the path of a file inside the repository")
        if self.quantization is not None and not _QUANTIZATION.fullmatch(self.quantization):
            raise InputError(
                "quantization", self.quantization, "it must be a GGUF quantisation such as Q4_K_M"
            )


def is_repo_id(text: str) -> bool:
    """True for `name` or `owner/name` as hubs allow them."""
    if not _REPO_ID.fullmatch(text) or len(text) > 96 or text.endswith(".git"):
        return False
    return "--" not in text and ".." not in text


def is_revision(text: str) -> bool:
    """True for a branch, a tag, a commit hash or a `refs/pr/N`; never for a path that climbs."""
    return (
        bool(_REVISION.fullmatch(text)) and ".." not in text and "//" not in text and not text.endswith("/")
    )


def is_file_name(text: str) -> bool:
    """True for a plain path inside a repository: no `..`, no leading or doubled slash."""
    return bool(_FILE.fullmatch(text)) and ".." not in text


def cleaned(source: str) -> str:
    """`source` without the dirt of copying: quotes, invisible characters, spaces around it and its slashes."""
    if not isinstance(source, str):
        raise InputError("model", source, _ACCEPTED, next_step=_NEXT)
    text = source.translate(_INVISIBLE).replace("\u00a0", " ").strip().strip(_QUOTES).strip()
    if not text:
        raise InputError("model", source, _ACCEPTED, next_step=_NEXT)
    if len(text) > MAX_SOURCE_CHARACTERS or "\n" in text:
        raise InputError(
            "model",
            text,
            _ACCEPTED,
            next_step="This looks like a text: paste a config.json into the field for configs, an id here.",
        )
    return text


def looks_like_path(text: str) -> bool:
    """True where only a file can be meant: it starts as a path, or ends as a file that we read."""
    if text.startswith(("/", "./", "../", "~", ".\\", "..\\", "\\\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    if text.lower().endswith(".json"):
        return "://" not in text
    return text.lower().endswith(".gguf") and not _is_hub_file(text)


def _is_hub_file(text: str) -> bool:
    """True for owner/name/file.gguf and for URLs, unless such a file is here."""
    return "://" in text or text.startswith(HUB_HOSTS) or (text.count("/") >= 2 and not Path(text).is_file())


def parse_reference(source: str) -> HubReference:
    """The hub model that `source` names; `InputError` where it names none. Sends nothing."""
    text = cleaned(source)
    if "://" in text or text.lower().startswith(tuple(f"{host}/" for host in _hub_hosts())):
        return _from_url(text)
    text = re.sub(r"\s*/\s*", "/", text).strip("/")
    repo_id, revision, quantization = text, None, None
    if "@" in repo_id:
        repo_id, revision = (part.strip() for part in repo_id.split("@", 1))
    if ":" in repo_id:
        repo_id, quantization = (part.strip() for part in repo_id.split(":", 1))
    parts = repo_id.split("/")
    if len(parts) > 2 and text.lower().endswith(".gguf"):
        return HubReference(repo_id="/".join(parts[:2]), revision=revision, file="/".join(parts[2:]))
    _refuse_other_kinds(parts, text)
    return HubReference(repo_id=repo_id, revision=revision, quantization=quantization)


def _hub_hosts() -> tuple[str, ...]:
    """Hosts whose URLs we take an id from: the public hub's, and the one that HF_ENDPOINT names."""
    own = os.environ.get("HF_ENDPOINT", "").rpartition("://")[2].partition("/")[0].lower()
    return (*HUB_HOSTS, own) if own else HUB_HOSTS


def _from_url(text: str) -> HubReference:
    try:
        url = urlsplit(text if "://" in text else f"https://{text}")
    except ValueError:
        raise InputError("model", text, _ACCEPTED, next_step=_NEXT) from None
    host = url.netloc.rpartition("@")[2].lower()
    if url.scheme == "hf":  # hf://owner/name/...
        parts = [url.netloc, *url.path.split("/")]
    elif url.scheme in ("http", "https") and host in _hub_hosts():
        parts = url.path.split("/")
    else:
        raise InputError(
            "model",
            text,
            f"only URLs of {HUB_HOSTS[0]} are understood, and no URL is ever fetched as it is",
            next_step="Paste the model's id, or its config.json.",
        )
    parts = [unquote(part).strip() for part in parts if part.strip()]
    if parts[:1] == ["models"]:
        parts = parts[1:]
    _refuse_other_kinds(parts, text)
    view = next((i for i, part in enumerate(parts) if i in (1, 2) and part in _URL_VIEWS), None)
    repo_id = "/".join(parts[:2] if view is None else parts[:view])
    repo_id, _, quantization = repo_id.partition(
        ":"
    )  # hf.co/owner/name:Q4_K_M, as llama.cpp and Ollama write it
    rest = [] if view is None else parts[view + 1 :]
    revision = rest[0] if rest and rest[0] != "main" else None
    file = "/".join(rest[1:])
    return HubReference(
        repo_id=repo_id,
        revision=revision,
        file=file if file.lower().endswith(".gguf") else None,
        quantization=quantization or None,
    )


def _refuse_other_kinds(parts: list[str], text: str) -> None:
    if parts and parts[0] in _OTHER_KINDS and len(parts) > 1:
        raise InputError(
            "model",
            text,
            f"{parts[0]} are not models",
            next_step="Open the model's own page and copy its id.",
        )


def nearest(text: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """Up to `limit` of the `known` ids that `text` may have meant, the closest first; case does not matter."""
    by_key: dict[str, str] = {}
    for model_id in known:
        by_key.setdefault(model_id.lower(), model_id)
        by_key.setdefault(model_id.rpartition("/")[2].lower(), model_id)
    wanted = text.lower()
    found = difflib.get_close_matches(wanted, by_key, n=limit, cutoff=0.6)
    found += difflib.get_close_matches(wanted.rpartition("/")[2], by_key, n=limit, cutoff=0.6)
    return tuple(dict.fromkeys(by_key[key] for key in found))[:limit]
