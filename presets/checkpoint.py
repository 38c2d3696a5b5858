"""What a checkpoint really stores, read from the headers of its files: exact bytes and elements by format.

A safetensors file begins with the length of its header (8 bytes, little-endian) and the header, a JSON object:
tensor name -> dtype, shape, data_offsets. Nothing after the header is ever read.

Source: https://huggingface.co/docs/safetensors (format description; a header has at most 100 MB).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from calc.errors import SourceError, SourceFault, shown
from calc.json_text import NOT_JSON, parse_json
from calc.units import MIB

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
LENGTH_BYTES = 8
MAX_HEADER_BYTES = 32 * MIB  # a third of what the format allows; published ones stay below 15 MB
MAX_INDEX_BYTES = 64 * MIB
MAX_FILES = 1024
SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """Sums over the stored tensors of one checkpoint.

    `bytes_by_format` and `elements_by_format` are keyed by the file's own names (BF16, F8_E4M3, I32; Q4_K, F32): packed
    formats count their containers, so elements are parameters only where a format stores one per element.
    `stored_bytes` excludes headers and padding. `source` says which headers were read.
    """

    stored_bytes: int
    bytes_by_format: tuple[tuple[str, int], ...]
    elements_by_format: tuple[tuple[str, int], ...]
    n_tensors: int
    n_files: int
    source: str

    @property
    def elements(self) -> int:
        return sum(count for _, count in self.elements_by_format)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One entry of a header; `begin`: where its bytes start behind the header."""

    name: str
    format: str
    elements: int
    stored_bytes: int
    shape: tuple[int, ...] = ()
    begin: int = 0


def facts_of(tensors: Iterable[StoredTensor], *, n_files: int, source: str) -> CheckpointFacts:
    """The sums over `tensors`, formats in alphabetical order."""
    stored: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    n_tensors = 0
    for tensor in tensors:
        stored[tensor.format] += tensor.stored_bytes
        elements[tensor.format] += tensor.elements
        n_tensors += 1
    return CheckpointFacts(
        stored_bytes=stored.total(),
        bytes_by_format=tuple(sorted(stored.items())),
        elements_by_format=tuple(sorted(elements.items())),
        n_tensors=n_tensors,
        n_files=n_files,
        source=source,
    )


def header_length(first_bytes: bytes, *, file: str) -> int:
    """Bytes of the JSON header, from the first eight bytes of a safetensors file."""
    if len(first_bytes) < LENGTH_BYTES:
        raise _unreadable(file, "it is shorter than the length of its header")
    length = int.from_bytes(first_bytes[:LENGTH_BYTES], "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise _unreadable(file, f"its header claims {length} bytes (at most {MAX_HEADER_BYTES} are read)")
    return length


def read_header(file: BinaryIO, *, name: str) -> tuple[int, list[StoredTensor]]:
    """(where the tensors' bytes begin, what they are), from the beginning of an open safetensors file."""
    length = header_length(file.read(LENGTH_BYTES), file=name)
    header = file.read(length)
    if len(header) < length:
        raise _unreadable(name, "it ends inside its header")
    return LENGTH_BYTES + length, parse_header(header, file=name)


def parse_header(header: bytes, *, file: str) -> list[StoredTensor]:
    """The tensors that a safetensors header lists (the JSON alone, without its length)."""
    try:
        entries = parse_json(header)
    except NOT_JSON:
        raise _unreadable(file, "its header is no JSON") from None
    if not isinstance(entries, dict):
        raise _unreadable(file, "its header is no JSON object")
    return tensors_of(entries, file=file)


def tensors_of(entries: Mapping[str, object], *, file: str) -> list[StoredTensor]:
    """The same from the header's parsed object."""
    return [_tensor(name, entry, file) for name, entry in entries.items() if name != "__metadata__"]


def _tensor(name: str, entry: object, file: str) -> StoredTensor:
    if not isinstance(entry, dict):
        raise _unreadable(file, f"the entry of {shown(name)} is no object")
    dtype, shape, offsets = (
        entry.get("dtype"),
        _counts(entry.get("shape")),
        _counts(entry.get("data_offsets")),
    )
    if not isinstance(dtype, str) or shape is None or offsets is None:
        raise _unreadable(file, f"the entry of {shown(name)} lacks dtype, shape or data_offsets")
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _unreadable(file, f"the data_offsets of {shown(name)} are no range")
    return StoredTensor(
        name=name,
        format=dtype[:16],
        elements=prod(shape),
        stored_bytes=offsets[1] - offsets[0],
        shape=tuple(shape),
        begin=offsets[0],
    )


def _counts(value: object) -> list[int] | None:
    """`value` if it is a list of non-negative integers, else None."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value):
        return value
    return None


def shards_of(index: Mapping[str, object], *, file: str = INDEX_FILE) -> tuple[str, ...]:
    """The distinct file names of an index, in order; each is checked to be a plain name."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _unreadable(file, "it has no weight_map")
    names = sorted({str(value) for value in weight_map.values()})
    if len(names) > MAX_FILES:
        raise _unreadable(file, f"it names {len(names)} files (at most {MAX_FILES} are read)")
    for name in names:
        if not SHARD_NAME.fullmatch(name) or ".." in name:
            raise _unreadable(file, f"it names the file {shown(name)}")
    return tuple(names)


def weight_files(folder: Path) -> tuple[str, ...]:
    """Names of the safetensors files in `folder`: the single file, or the index's shards; none where there is neither."""
    index_path = folder / INDEX_FILE
    if (folder / SINGLE_FILE).is_file():
        return (SINGLE_FILE,)
    return shards_of(_local_index(index_path), file=str(index_path)) if index_path.is_file() else ()


def read_local_facts(folder: Path) -> CheckpointFacts | None:
    """Facts of the safetensors files in `folder`; None where there is none."""
    names = weight_files(folder)
    if not names:
        return None
    tensors = [tensor for name in names for tensor in _local_tensors(folder / name)]
    return facts_of(tensors, n_files=len(names), source="safetensors headers")


def _local_index(path: Path) -> dict[str, object]:
    if path.stat().st_size > MAX_INDEX_BYTES:
        raise _unreadable(str(path), f"it is larger than {MAX_INDEX_BYTES // MIB} MiB")
    try:
        index = parse_json(path.read_bytes())
    except NOT_JSON:
        raise _unreadable(str(path), "it is no JSON") from None
    if not isinstance(index, dict):
        raise _unreadable(str(path), "it is no JSON object")
    return index


def _local_tensors(path: Path) -> list[StoredTensor]:
    if not path.is_file():
        raise _unreadable(str(path), "the index names it, but it is not there")
    with path.open("rb") as file:
        return read_header(file, name=str(path))[1]


def _unreadable(file: str, why: str) -> SourceError:
    return SourceError(
        SourceFault.UNREADABLE,
        f"{file} cannot be read: {why}.",
        next_step="The config alone is enough to plan; exact stored bytes then come from its formats.",
    )
