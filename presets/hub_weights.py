"""Downloading a checkpoint from the hub: small files whole, weights in windows that go on where they stopped.

Files lie in the user's cache folder, apart by commit, and are not asked for again. Nothing is unpacked or run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from calc.errors import SourceError, SourceFault
from calc.units import MIB
from presets import hub_faults
from presets.checkpoint import INDEX_FILE, SINGLE_FILE, read_header, weight_files
from presets.config_text import CONFIG_FILE
from presets.hub import open_client
from presets.hub_cache import default_folder
from presets.hub_client import HubClient, json_object

WINDOW_BYTES = 64 * MIB  # more than the longest header that is read
WINDOW_S = 600.0  # for a window, so that a line of one megabit per second is enough
MAX_SMALL_FILE = 64 * MIB
SMALL_FILES = (CONFIG_FILE, "tokenizer.json", "generation_config.json")


def fetched(repo_id: str, *, weights: bool = True) -> Path:
    """The folder of a hub model: config and tokenizer, and the safetensors if `weights`. Raises SourceError."""
    client = open_client()
    commit = client.info(repo_id, None).commit
    folder = default_folder() / "weights" / repo_id.replace("/", "--") / (commit or "main")
    with _disk_faults(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in SMALL_FILES:
            _fetch_small(client, repo_id, name, folder, commit)
        if not (folder / CONFIG_FILE).is_file():
            raise SourceError(SourceFault.NO_CONFIG, f"{repo_id} has no {CONFIG_FILE}.")
        if weights:
            _fetch_small(client, repo_id, INDEX_FILE, folder, commit)
            patient = replace(client, limits=replace(client.limits, total_s=WINDOW_S))
            for name in weight_files(folder) or (SINGLE_FILE,):
                _fetch_large(patient, repo_id, name, folder / name, commit)
    return folder


def _fetch_small(client: HubClient, repo_id: str, name: str, folder: Path, commit: str | None) -> None:
    """Put this JSON object into `folder`, if the repository has it."""
    path = folder / name
    if path.is_file():
        return
    got = client.file(repo_id, name, commit, max_bytes=MAX_SMALL_FILE)
    if got is not None:
        json_object(got.data, client.asked_for_file(repo_id, name, commit))
        part = _part_of(path)
        part.write_bytes(got.data)
        part.replace(path)


def _fetch_large(client: HubClient, repo_id: str, name: str, path: Path, commit: str | None) -> None:
    """One shard, window by window. What is not as long as its header says is not kept."""
    if path.is_file():
        return
    part = _part_of(path)
    total = _begun(part)
    have = part.stat().st_size if total is not None else 0
    while total is None or have < total:
        got = client.window(repo_id, name, commit, start=have, stop=have + WINDOW_BYTES)
        if got is None:
            raise hub_faults.fault(
                SourceFault.NOT_FOUND, f"{repo_id} has no {name}.", "Take a model with safetensors."
            )
        _require_room(part.parent, len(got.data) if total is None else total - have)
        with part.open("ab" if have else "wb") as file:
            file.write(got.data)
        have += len(got.data)
        total = _file_bytes(part) if total is None else total
        if not got.data:
            break
    if have != total:
        part.unlink()
        raise SourceError(
            SourceFault.UNREADABLE,
            f"{name} of {repo_id} does not end at the {total:,} bytes that its header lists.",
            next_step="Try again; if it stays so, the file is damaged: take another model.",
        )
    part.replace(path)


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _begun(part: Path) -> int | None:
    """Bytes that a file begun earlier will have; None where there is none, or not even its header came."""
    try:
        return _file_bytes(part) if part.is_file() else None
    except SourceError:
        return None


def _file_bytes(path: Path) -> int:
    """Bytes that the whole file has, by its header, which stands in the first window."""
    with path.open("rb") as file:
        begin, tensors = read_header(file, name=path.name)
    return begin + sum(tensor.stored_bytes for tensor in tensors)


def _require_room(folder: Path, needed_bytes: int) -> None:
    """Raise before the disk is filled by what will not fit."""
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        raise _not_stored(folder, f"{needed_bytes:,} bytes are still to come, and {free:,} are free")


@contextmanager
def _disk_faults(folder: Path) -> Iterator[None]:
    """What the disk does not take, named as a source that did not deliver; what came before stays for the next time."""
    try:
        yield
    except OSError as error:
        raise _not_stored(folder, error.strerror or type(error).__name__) from error


def _not_stored(folder: Path, why: str) -> SourceError:
    return SourceError(
        SourceFault.NOT_STORED,
        f"The model's files cannot be written to {folder}: {why}.",
        next_step="Free some space, or set RIDGEBEAM_CACHE_DIR to another folder.",
    )
