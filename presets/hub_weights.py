"""Downloading a checkpoint from the hub: small files whole, weights in windows that go on where they stopped.

Files lie in the user's cache folder and are not asked for again. Nothing is unpacked or run.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from calc.errors import SourceError, SourceFault
from calc.units import MIB
from presets.checkpoint import INDEX_FILE, LENGTH_BYTES, SINGLE_FILE, header_length, parse_header, shards_of
from presets.hub import open_client
from presets.hub_cache import default_folder
from presets.hub_client import HubClient

WINDOW_BYTES = 64 * MIB
MAX_SMALL_FILE = 64 * MIB
SMALL_FILES = ("config.json", "tokenizer.json", "generation_config.json")


def fetched(repo_id: str, *, weights: bool = True) -> Path:
    """The folder of a hub model: config and tokenizer, and the safetensors if `weights`. Raises SourceError."""
    folder = default_folder() / "weights" / repo_id.replace("/", "--")
    client = open_client()
    info = client.info(repo_id, None)
    folder.mkdir(parents=True, exist_ok=True)
    for name in SMALL_FILES:
        _fetch_small(client, repo_id, name, folder)
    if not (folder / "config.json").is_file():
        raise SourceError(SourceFault.NO_CONFIG, f"{repo_id} has no config.json.")
    if weights:
        names: tuple[str, ...] = (SINGLE_FILE,)
        if _fetch_small(client, repo_id, INDEX_FILE, folder):
            names = shards_of(json.loads((folder / INDEX_FILE).read_bytes()))
        for name in names:
            _fetch_large(client, repo_id, name, folder / name, info.commit)
    return folder


def _fetch_small(client: HubClient, repo_id: str, name: str, folder: Path) -> bool:
    if not (folder / name).is_file():
        got = client.file(repo_id, name, None, max_bytes=MAX_SMALL_FILE)
        if got is None:
            return False
        (folder / name).write_bytes(got.data)
    return True


def _fetch_large(client: HubClient, repo_id: str, name: str, path: Path, commit: str | None) -> None:
    """One shard, window by window."""
    if path.is_file():
        return
    part = path.with_suffix(".part")
    total: int | None = None
    while total is None or part.stat().st_size < total:
        start = part.stat().st_size if part.exists() else 0
        got = client.window(repo_id, name, commit, start=start, stop=start + WINDOW_BYTES)
        if got is None or not got.data:
            raise SourceError(
                SourceFault.NOT_FOUND, f"{repo_id} gave nothing of {name} from byte {start} on."
            )
        with part.open("ab") as file:
            file.write(got.data)
        total = _file_bytes(part)
    os.replace(part, path)  # noqa: PTH105 - replaces on every system


def _file_bytes(path: Path) -> int:
    """Bytes that the whole file has, by its header, which stands in the first window."""
    with path.open("rb") as file:
        length = header_length(file.read(LENGTH_BYTES), file=path.name)
        tensors = parse_header(file.read(length), file=path.name)
    return LENGTH_BYTES + length + sum(tensor.stored_bytes for tensor in tensors)
