"""GGUF files, here or on a hub: only their headers are read, a split file's parts included."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calc.errors import InputError, SourceError, SourceFault
from calc.model import ModelSpec
from presets import hub_faults
from presets.checkpoint import CheckpointFacts, StoredTensor, facts_of
from presets.gguf_header import Fetch, GgufHeader, first_part, other_parts, read_header
from presets.gguf_model import spec_of
from presets.hub_cache import FRESH_S, credential
from presets.hub_client import HubClient
from presets.hub_repositories import gguf_files, quantization_of
from presets.model_ids import HubReference

MAX_KEPT = 32
_READ: OrderedDict[tuple[str, ...], tuple[float, GgufModel]] = OrderedDict()
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufModel:
    """What a GGUF file holds: the spec with each weight's stored format, and sums over its tensors."""

    spec: ModelSpec
    checkpoint: CheckpointFacts
    file: str
    commit: str | None = None
    warnings: tuple[str, ...] = ()


def read_local_gguf(path: Path) -> GgufModel:
    """The model in a GGUF file on this machine; of a split one, any part may be named."""
    path = path.with_name(first_part(path.name))
    sizes: dict[str, int] = {}

    def open_part(name: str) -> Fetch:
        part = path.with_name(name)
        if not part.is_file():
            raise InputError("model", str(part), "this part of the split file is not there")
        sizes[name] = part.stat().st_size
        return _fetch_from_disk(part)

    headers = _read_parts(path.name, open_part)
    cut = [name for name, header in headers.items() if header.end > sizes[name]]
    warnings = tuple(f"{name} ends before its last tensor: its download is not complete." for name in cut)
    return _model(headers, model_id=path.stem, warnings=warnings)


def read_hub_gguf(reference: HubReference, *, token: str | None = None) -> GgufModel:
    """The model in a GGUF file of a hub repository: the file or the quantisation that `reference` names.

    Kept in memory for a day, for the reader (token) that read it.
    """
    from presets.hub import open_client

    client = open_client(token)
    named = reference.file or (reference.quantization or "").upper()
    key = (
        client.endpoint,
        reference.repo_id.lower(),
        reference.revision or "",
        named,
        credential(client.token),
    )
    with _LOCK:
        kept = _READ.get(key)
    if kept is not None and time.monotonic() - kept[0] < FRESH_S:
        return kept[1]
    model = _fetch(client, reference)
    with _LOCK:
        _READ[key] = (time.monotonic(), model)
        while len(_READ) > MAX_KEPT:
            _READ.popitem(last=False)
    return model


def _fetch(client: HubClient, reference: HubReference) -> GgufModel:
    file, commit = _chosen_file(client, reference)

    def open_part(name: str) -> Fetch:
        return _fetch_from_hub(client, reference, name)

    headers = _read_parts(first_part(file), open_part)
    label = reference.quantization or file.rpartition("/")[2].removesuffix(".gguf")
    model = _model(headers, model_id=f"{reference.repo_id}:{label}", warnings=())
    return GgufModel(spec=model.spec, checkpoint=model.checkpoint, file=file, commit=commit)


def _fetch_from_disk(path: Path) -> Fetch:
    def fetch(start: int, stop: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    return fetch


def _fetch_from_hub(client: HubClient, reference: HubReference, file: str) -> Fetch:
    def fetch(start: int, stop: int) -> bytes:
        got = client.window(reference.repo_id, file, reference.revision, start=start, stop=stop)
        if got is None:
            asked = client.asked_for_file(reference.repo_id, file, reference.revision)
            raise hub_faults.fault(
                SourceFault.NOT_FOUND,
                f"{asked.model} has no file {file}.",
                f"See its files at https://huggingface.co/{reference.repo_id}/tree/main.",
            )
        return got.data

    return fetch


def _chosen_file(client: HubClient, reference: HubReference) -> tuple[str, str | None]:
    """(the file, the commit where the list of files was needed to find it)."""
    if reference.file is not None:
        return reference.file, None
    info = client.info(reference.repo_id, reference.revision)
    ggufs = gguf_files(info.files)
    wanted = (reference.quantization or "").upper()
    found = [file for file in ggufs if quantization_of(file) == wanted]
    if not found:
        asked = client.asked_for_file(reference.repo_id, "GGUF files", reference.revision)
        known = sorted({name for file in ggufs if (name := quantization_of(file)) is not None})
        step = f"There are {', '.join(known)}." if known else "It has no GGUF files: leave the colon out."
        raise hub_faults.fault(SourceFault.NOT_FOUND, f"{asked.model} has no GGUF file for {wanted}.", step)
    return min(found, key=lambda file: (file.count("/"), file)), info.commit


def _read_parts(file: str, open_part: Callable[[str], Fetch]) -> dict[str, GgufHeader]:
    """The headers of all parts of `file`, the first one first."""
    first = read_header(open_part(file), file=file)
    headers = {file: first}
    for name in other_parts(file, first):
        headers[name] = read_header(open_part(name), file=name)
    return headers


def _model(headers: dict[str, GgufHeader], *, model_id: str, warnings: tuple[str, ...]) -> GgufModel:
    file, first = next(iter(headers.items()))
    tensors = [tensor for header in headers.values() for tensor in header.tensors]
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise SourceError(
            SourceFault.UNREADABLE,
            f"Parts of {file} hold the same tensors.",
            next_step="Download them again.",
        )
    stored = [
        StoredTensor(
            name=tensor.name,
            format=tensor.format,
            elements=tensor.elements,
            stored_bytes=tensor.stored_bytes,
        )
        for tensor in tensors
    ]
    return GgufModel(
        spec=spec_of(first, tensors, model_id=model_id, file=file),
        checkpoint=facts_of(stored, n_files=len(headers), source="GGUF header"),
        file=file,
        warnings=warnings,
    )
