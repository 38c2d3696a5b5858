"""The header of a GGUF file: its metadata, and name, shape, type and size of every tensor. No tensor data is read.

A header comes from anyone and is read from a file or over the network, piece by piece; the `gguf` library reads files
from disk only and believes every count in them. Here each count and length has a cap before anything is read for it.

Layout (little-endian): "GGUF", version u32, tensor count u64, field count u64; the fields: key, type u32, value; the
tensors: name, dimension count u32, dimensions u64 (fastest first), type u32, offset u64. A string is u64 and bytes.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; sizes of types from the `gguf` library.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from calc.errors import SourceError, SourceFault, shown
from calc.units import MIB

MAGIC = b"GGUF"
VERSIONS = (2, 3)
FIRST_WINDOW_BYTES = MIB
LARGEST_WINDOW_BYTES = 16 * MIB
MAX_HEADER_BYTES = 128 * MIB  # vocabularies of 262,144 tokens with their merges take below 20 MiB
MAX_FIELDS = 16_384
MAX_TENSORS = 65_536
MAX_NAME_BYTES = 512
MAX_STRING_BYTES = 32 * MIB  # some files carry a whole tokenizer.json in one field
MAX_NUMBERS = 1 << 26
MAX_TEXTS = 1 << 21  # in one array; the largest vocabularies and their merges stay below a million
KEPT_ARRAY_LENGTH = 4096  # longer arrays (tokens, scores, merges) are counted and skipped
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
MAX_ELEMENTS = 1 << 48

# Field types by number: struct format of the scalars, then string and array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9

Fetch = Callable[[int, int], bytes]
Value = int | float | bool | str | tuple[int | float | bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor: `shape` as in torch (slowest first), `format` the ggml name of its type ("Q4_K")."""

    name: str
    shape: tuple[int, ...]
    format: str
    stored_bytes: int
    offset: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """`fields` holds scalars, texts and short arrays of numbers; `lengths` the length of every array.

    `data_start`: where tensor data begins; tensors' offsets count from there.
    """

    fields: Mapping[str, Value]
    lengths: Mapping[str, int]
    tensors: tuple[GgufTensor, ...]
    data_start: int

    @property
    def end(self) -> int:
        """Bytes that the whole file needs."""
        return self.data_start + max(
            (tensor.offset + tensor.stored_bytes for tensor in self.tensors), default=0
        )


def read_header(fetch: Fetch, *, file: str) -> GgufHeader:
    """The header of the file that `fetch(start, stop)` reads; fewer bytes than asked for mean that it ends there.

    Raises SourceError (unreadable) for what is no GGUF, an unknown version, a broken or an absurd header.
    """
    cursor = _Cursor(fetch, file)
    magic = cursor.take(4)
    if magic != MAGIC:
        raise unreadable(file, f"it does not begin with GGUF but with {shown(magic)}")
    version = cursor.u32()
    if version not in VERSIONS:
        big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
        why = "it is big-endian" if big_endian else f"its version is {version} (known are 2 and 3)"
        raise unreadable(file, why)
    n_tensors = cursor.count("tensors", MAX_TENSORS)
    n_fields = cursor.count("fields", MAX_FIELDS)
    fields: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(n_fields):
        key = cursor.text(MAX_NAME_BYTES)
        if key in fields or key in lengths:
            raise unreadable(file, f"it states {shown(key)} twice")
        _read_field(cursor, key, fields, lengths)
    tensors = _read_tensors(cursor, n_tensors)
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= MIB or alignment & (alignment - 1):
        raise unreadable(file, f"its alignment is {shown(alignment)}")
    return GgufHeader(
        fields=fields,
        lengths=lengths,
        tensors=tensors,
        data_start=-(-cursor.position // alignment) * alignment,
    )


def _read_field(cursor: _Cursor, key: str, fields: dict[str, Value], lengths: dict[str, int]) -> None:
    kind = cursor.u32()
    if kind == _STRING:
        fields[key] = cursor.text(MAX_STRING_BYTES)
    elif kind == _ARRAY:
        kept, lengths[key] = _read_array(cursor, key)
        if kept is not None:
            fields[key] = kept
    else:
        fields[key] = cursor.scalar(kind, key)


def _read_array(cursor: _Cursor, key: str) -> tuple[tuple[int | float | bool, ...] | None, int]:
    """(the numbers of a short array, or None; its length)."""
    kind = cursor.u32()
    length = cursor.count(f"entries of {shown(key)}", MAX_TEXTS if kind == _STRING else MAX_NUMBERS)
    if kind == _STRING:
        cursor.skip_texts(length)
        return None, length
    if kind not in _SCALARS:
        raise unreadable(cursor.file, f"{shown(key)} is an array of type {kind}")
    if length > KEPT_ARRAY_LENGTH:
        cursor.skip(length * struct.calcsize(_SCALARS[kind]))
        return None, length
    return tuple(cursor.scalar(kind, key) for _ in range(length)), length


def _read_tensors(cursor: _Cursor, n_tensors: int) -> tuple[GgufTensor, ...]:
    tensors: dict[str, GgufTensor] = {}
    for _ in range(n_tensors):
        tensor = _read_tensor(cursor)
        if tensor.name in tensors:
            raise unreadable(cursor.file, f"it lists the tensor {shown(tensor.name)} twice")
        tensors[tensor.name] = tensor
    return tuple(tensors.values())


def _read_tensor(cursor: _Cursor) -> GgufTensor:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    name = cursor.text(MAX_NAME_BYTES)
    n_dimensions = cursor.u32()
    if not 1 <= n_dimensions <= MAX_DIMENSIONS:
        raise unreadable(cursor.file, f"the tensor {shown(name)} has {n_dimensions} dimensions")
    dimensions = [cursor.u64() for _ in range(n_dimensions)]
    kind = cursor.u32()
    offset = cursor.u64()
    if min(dimensions) < 1 or prod(dimensions) > MAX_ELEMENTS or offset > 1 << 50:
        raise unreadable(cursor.file, f"the tensor {shown(name)} has the shape {dimensions} at {offset}")
    if kind not in {int(known) for known in GGML_QUANT_SIZES}:
        raise unreadable(cursor.file, f"the tensor {shown(name)} has the type {kind}, which is not known")
    known = GGMLQuantizationType(kind)
    block, block_bytes = GGML_QUANT_SIZES[known]
    if dimensions[0] % block:
        why = f"rows of {shown(name)} have {dimensions[0]} elements, no multiple of {block} ({known.name})"
        raise unreadable(cursor.file, why)
    return GgufTensor(
        name=name,
        shape=tuple(reversed(dimensions)),
        format=known.name,
        stored_bytes=prod(dimensions) // block * block_bytes,
        offset=offset,
    )


class _Cursor:
    """Walks through a header; fetches windows that double as it needs more."""

    def __init__(self, fetch: Fetch, file: str) -> None:
        self.file = file
        self.position = 0
        self._fetch = fetch
        self._buffer = b""
        self._start = 0  # position of the buffer's first byte
        self._window = FIRST_WINDOW_BYTES

    def take(self, size: int) -> bytes:
        self._ensure(size)
        begin = self.position - self._start
        self.position += size
        return self._buffer[begin : begin + size]

    def skip(self, size: int) -> None:
        self.position += size
        if self.position > MAX_HEADER_BYTES:
            raise self._too_long()

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def count(self, what: str, most: int) -> int:
        number = self.u64()
        if number > most:
            raise unreadable(self.file, f"it claims {number} {what} (at most {most} are read)")
        return number

    def text(self, most: int) -> str:
        data = self.take(self.count("bytes in a text", most))
        return data.decode("utf-8", "replace")

    def scalar(self, kind: int, key: str) -> int | float | bool:
        if kind not in _SCALARS:
            raise unreadable(self.file, f"{shown(key)} has the type {kind}, which is not known")
        layout = f"<{_SCALARS[kind]}"
        value: int | float | bool = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def skip_texts(self, count: int) -> None:
        """Walk over `count` strings; a vocabulary has hundreds of thousands, so this loop stays in local names."""
        length_at = struct.Struct("<Q").unpack_from
        while count:
            self._ensure(8)
            buffer, at = self._buffer, self.position - self._start
            last = len(buffer) - 8
            while count and at <= last:
                (length,) = length_at(buffer, at)
                if length > MAX_STRING_BYTES:
                    raise unreadable(self.file, f"it claims {length} bytes in a text")
                at += 8 + length
                count -= 1
            self.position = self._start + at
            if self.position > MAX_HEADER_BYTES:
                raise self._too_long()

    def _ensure(self, size: int) -> None:
        """Have `size` bytes from the position on in the buffer."""
        stop = self.position + size
        have = self._start + len(self._buffer)
        if stop <= have:
            return
        if stop > MAX_HEADER_BYTES:
            raise self._too_long()
        begin = max(self.position, have)  # bytes that were skipped over are not fetched
        wanted = min(max(stop, begin + self._window), MAX_HEADER_BYTES)
        self._window = min(2 * self._window, LARGEST_WINDOW_BYTES)
        kept = self._buffer[self.position - self._start :] if self.position < have else b""
        self._buffer = kept + self._fetch(begin, wanted)
        self._start = self.position
        if self._start + len(self._buffer) < stop:
            raise unreadable(self.file, "it ends inside its header")

    def _too_long(self) -> SourceError:
        return unreadable(self.file, f"its header is longer than {MAX_HEADER_BYTES // MIB} MiB")


def unreadable(file: str, why: str) -> SourceError:
    """The refusal of a GGUF file."""
    return SourceError(
        SourceFault.UNREADABLE,
        f"{file} is no GGUF file that can be read: {why}.",
        next_step="Load it with llama.cpp to check it, download it again, or give the model's config.json.",
    )


_PART = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)


def first_part(file: str) -> str:
    """The name of the first part of a split file, or `file` itself."""
    return _PART.sub(r"-00001-of-\2\3", file)


def other_parts(file: str, header: GgufHeader) -> tuple[str, ...]:
    """The names of the further parts that `split.count` announces, in order."""
    count = header.fields.get("split.count", 1)
    if count in (0, 1):
        return ()
    found = _PART.search(file)
    if type(count) is not int or found is None or int(found.group(2)) != count:
        raise unreadable(file, f"it is one of {shown(count)} parts, but its name does not say so")
    return tuple(_PART.sub(rf"-{part:05d}-of-\2\3", file) for part in range(2, count + 1))
