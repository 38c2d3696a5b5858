"""Request traces as text: the schemas that people have, read line by line into a `RequestTable`.

    azure      TIMESTAMP,ContextTokens,GeneratedTokens            2023 and 2024; two date formats may mix
    burstgpt   Timestamp,...,Model,Request tokens,Response tokens,Total tokens,Log Type     seconds
    vidur      arrived_at,num_prefill_tokens,num_decode_tokens    seconds
    own        arrival_s,input_tokens,output_tokens (,priority,output_limit,stream); also as JSON Lines
    mooncake   JSON Lines: timestamp (ms), input_length, output_length, hash_ids of 512 tokens
    bailian    JSON Lines: chat_id, parent_chat_id, timestamp (s), input_length, output_length, hash_ids of 16 tokens
    vllm       the JSON of `vllm bench serve --save-detailed`: input_lens, output_lens, start_times

A request without prompt or answer (a failed one) is left out and counted. Stamps on a coarse grid are spread inside
it, since a hundred arrivals at the same instant are the recorder's doing, not the users'.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import chain, islice
from math import isfinite
from typing import Any

import numpy as np

from calc.errors import InputError
from calc.json_text import NOT_JSON, parse_json
from calc.simulation.requests import RequestTable

GRID_SLACK = 0.01  # of the grid: recorders' clocks wander a little
GRID_SHARE = 0.5  # of the gaps that are zero: then the stamps are taken for a grid

OPTIONAL = ("priority", "output_limit", "stream")


class TraceFormat(StrEnum):
    """Schemas that can be read."""

    AZURE = "azure"
    BURSTGPT = "burstgpt"
    VIDUR = "vidur"
    OWN = "own"
    MOONCAKE = "mooncake"
    BAILIAN = "bailian"
    VLLM = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace that was read: its requests, its schema, how many rows were left out, and the grid that was spread."""

    requests: RequestTable
    format: TraceFormat
    left_out: int
    grid_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    arrival: str
    input: str
    output: str
    prefix: str | None = None
    prefix_block: int = 0
    unit_s: float = 1.0
    extra: tuple[str, ...] = ()

    def with_extra(self, known: TraceFormat, present: Iterable[str]) -> _Columns:
        """With the optional columns of our own schema that the trace has."""
        names = set(present) if known is TraceFormat.OWN else set()
        return replace(self, extra=tuple(name for name in OPTIONAL if name in names))


_CSV = {
    TraceFormat.AZURE: _Columns(arrival="TIMESTAMP", input="ContextTokens", output="GeneratedTokens"),
    TraceFormat.BURSTGPT: _Columns(arrival="Timestamp", input="Request tokens", output="Response tokens"),
    TraceFormat.VIDUR: _Columns(arrival="arrived_at", input="num_prefill_tokens", output="num_decode_tokens"),
    TraceFormat.OWN: _Columns(arrival="arrival_s", input="input_tokens", output="output_tokens"),
}
_JSON = {
    TraceFormat.MOONCAKE: _Columns(
        arrival="timestamp", input="input_length", output="output_length",
        prefix="hash_ids", prefix_block=512, unit_s=1e-3,
    ),
    TraceFormat.BAILIAN: _Columns(
        arrival="timestamp", input="input_length", output="output_length", prefix="hash_ids", prefix_block=16
    ),
    TraceFormat.OWN: _Columns(
        arrival="arrival_s", input="input_tokens", output="output_tokens", prefix="prefix_ids", prefix_block=16
    ),
}  # fmt: skip


@dataclass(slots=True)
class _Rows:
    """What has been read so far."""

    arrival_s: list[float] = field(default_factory=list)
    input_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    prefixes: list[list[int]] = field(default_factory=list)
    extra: dict[str, list[int]] = field(default_factory=dict)
    left_out: int = 0


def read_trace(lines: Iterable[str], *, seed: int = 0, name: str = "trace") -> Trace:
    """Read a trace whose schema is told by its first line. `seed` spreads stamps inside their grid.

    Raises InputError with the number of the row (the first line of the file is row 1) and what was wrong with it.
    """
    source = iter(lines)
    first = next((line for line in source if line.strip()), None)
    if first is None:
        raise InputError(name, "nothing", "a trace has at least one request")
    first = first.removeprefix("\ufeff")
    if first.lstrip().startswith("{"):
        return _read_json(chain([first], source), seed, name)
    cells = _cells(chain([first], source), name)
    _, header = next(cells)
    known = _csv_format(header, name)
    rows = _Rows()
    columns = _CSV[known].with_extra(known, header)
    for number, row in cells:
        if row:
            if len(row) != len(header):
                raise InputError(f"{name} row {number}", len(row), f"the header has {len(header)} columns")
            _add(rows, number, dict(zip(header, row, strict=True)), columns)
    return _finish(rows, known, columns, seed=seed, name=name)


def _cells(lines: Iterable[str], name: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with its number; raises InputError for text that is no CSV, or for a cell of more than 131,072 characters."""
    number = 0
    try:
        for number, row in enumerate(csv.reader(lines), start=1):
            yield number, row
    except csv.Error as error:
        raise InputError(
            f"{name} row {number + 1}",
            str(error),
            "it must be CSV with short cells",
            next_step="Leave out columns that hold whole texts.",
        ) from None


def _csv_format(header: list[str], name: str) -> TraceFormat:
    for known, columns in _CSV.items():
        if {columns.arrival, columns.input, columns.output} <= set(header):
            return known
    schemas = "; ".join(f"{c.arrival},{c.input},{c.output}" for c in _CSV.values())
    raise InputError(f"{name} header", ",".join(header), f"it must have the columns of one of: {schemas}")


def _read_json(lines: Iterator[str], seed: int, name: str) -> Trace:
    head = list(islice(lines, 1))
    try:
        first = parse_json(head[0])
    except NOT_JSON:
        return _read_vllm("".join(chain(head, lines)), seed, name)
    if "input_lens" in first:
        return _read_vllm(head[0], seed, name)
    known = _json_format(first, name)
    columns = _JSON[known].with_extra(known, first)
    rows = _Rows()
    for number, line in enumerate(chain(head, lines), start=1):
        if line.strip():
            try:
                row = parse_json(line)
            except NOT_JSON as error:
                raise InputError(
                    f"{name} row {number}", line.strip(), f"it is not JSON ({_reason(error)})"
                ) from None
            if not isinstance(row, dict):
                raise InputError(f"{name} row {number}", row, "each line is one JSON object")
            _add(rows, number, row, columns)
    return _finish(rows, known, columns, seed=seed, name=name)


def _reason(error: Exception) -> str:
    """Why a text is no JSON, in the reader's own words where it has some."""
    return str(getattr(error, "msg", "nested too deeply, or a number without end"))


def _json_format(first: Mapping[str, Any], name: str) -> TraceFormat:
    if "chat_id" in first:
        return TraceFormat.BAILIAN
    if "timestamp" in first:
        return TraceFormat.MOONCAKE
    if "arrival_s" in first:
        return TraceFormat.OWN
    raise InputError(
        f"{name} row 1",
        ",".join(first),
        "it must have timestamp (Mooncake, Bailian), arrival_s, or input_lens (vLLM)",
    )


def _read_vllm(text: str, seed: int, name: str) -> Trace:
    try:
        result = parse_json(text)
    except NOT_JSON as error:
        row = getattr(error, "lineno", 1)
        raise InputError(f"{name} row {row}", text[:40], f"it is not JSON ({_reason(error)})") from None
    lists = [result.get(key) for key in ("start_times", "input_lens", "output_lens")]
    if not all(isinstance(values, list) for values in lists) or len({len(values) for values in lists}) != 1:
        raise InputError(
            name,
            ", ".join(map(str, result)),
            "start_times, input_lens and output_lens must be lists of one length",
            next_step="Run `vllm bench serve` with --save-result --save-detailed.",
        )
    columns = _Columns(arrival="start_times", input="input_lens", output="output_lens")
    rows = _Rows()
    for number, values in enumerate(zip(*lists, strict=True), start=1):
        named = dict(zip(("start_times", "input_lens", "output_lens"), values, strict=True))
        _add(rows, number, named, columns)
    return _finish(rows, TraceFormat.VLLM, columns, seed=seed, name=name)


def _number(number: int, row: Mapping[str, Any], column: str, *, whole: bool) -> float:
    value = row.get(column)
    kind = "a whole number" if whole else "a number"
    if value is None or isinstance(value, bool):
        raise InputError(f"row {number}, {column}", value, f"{kind} is needed")
    try:
        parsed = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"row {number}, {column}", value, f"{kind} is needed") from None
    if not isfinite(parsed) or parsed < 0 or (whole and parsed != int(parsed)):
        raise InputError(f"row {number}, {column}", value, f"{kind} from 0 up is needed")
    return parsed


def _stamp(number: int, row: Mapping[str, Any], columns: _Columns) -> float:
    """Seconds of an arrival: a number in the schema's unit, or a date (UTC where it names no zone)."""
    value = row.get(columns.arrival)
    if isinstance(value, str) and "-" in value.lstrip()[1:]:
        whole, _, rest = value.strip().partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        try:
            moment = datetime.fromisoformat(whole + rest[len(digits) :])
        except ValueError:
            raise InputError(f"row {number}, {columns.arrival}", value, "a date and time is needed") from None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp() + (float(f"0.{digits}") if digits else 0.0)
    return _number(number, row, columns.arrival, whole=False) * columns.unit_s


def _add(rows: _Rows, number: int, row: Mapping[str, Any], columns: _Columns) -> None:
    arrival_s = _stamp(number, row, columns)
    given = int(_number(number, row, columns.input, whole=True))
    answered = int(_number(number, row, columns.output, whole=True))
    if given == 0 or answered == 0:
        rows.left_out += 1
        return
    rows.arrival_s.append(arrival_s)
    rows.input_tokens.append(given)
    rows.output_tokens.append(answered)
    for column in columns.extra:
        rows.extra.setdefault(column, []).append(int(_number(number, row, column, whole=True)))
    if columns.prefix is not None:
        ids = row.get(columns.prefix, [])
        if not isinstance(ids, list) or not all(isinstance(one, int) and abs(one) < 2**63 for one in ids):
            raise InputError(
                f"row {number}, {columns.prefix}", ids, "a list of whole numbers of at most 64 bits is needed"
            )
        if len(ids) > -(-given // columns.prefix_block):
            raise InputError(
                f"row {number}, {columns.prefix}",
                len(ids),
                f"a prompt of {given} tokens has at most {-(-given // columns.prefix_block)} blocks",
            )
        rows.prefixes.append(ids)


def _finish(rows: _Rows, known: TraceFormat, columns: _Columns, *, seed: int, name: str) -> Trace:
    if not rows.arrival_s:
        raise InputError(
            name, f"{rows.left_out} rows left out", "a trace has at least one request with an answer"
        )
    stamps = np.array(rows.arrival_s)
    order = np.argsort(stamps, kind="stable")
    stamps = stamps[order] - stamps.min()
    grid_s = stamp_grid(stamps)
    if grid_s is not None:
        stamps = spread_stamps(stamps, grid_s, np.random.default_rng(seed))
    arrays: dict[str, Any] = {
        "input_tokens": np.array(rows.input_tokens)[order],
        "output_tokens": np.array(rows.output_tokens)[order],
    }
    for column, values in rows.extra.items():
        arrays[column] = np.array(values)[order]
    if any(rows.prefixes):
        ordered = [rows.prefixes[place] for place in order]
        arrays["prefix_ids"] = np.fromiter(chain.from_iterable(ordered), np.int64)
        arrays["prefix_count"] = np.array([len(ids) for ids in ordered])
        arrays["prefix_block"] = columns.prefix_block
    requests = RequestTable(arrival_s=stamps, name=name, **arrays)
    return Trace(requests=requests, format=known, left_out=rows.left_out, grid_s=grid_s)


def stamp_grid(arrival_s: Any) -> float | None:
    """The grid that rising stamps lie on, if most gaps are zero and all others multiples of the usual one."""
    gaps = np.diff(arrival_s)
    steps = gaps[gaps > 0]
    if len(gaps) == 0 or len(steps) == 0 or np.mean(gaps == 0) < GRID_SHARE:
        return None
    grid = float(np.median(steps))
    multiples = steps / grid
    return grid if np.allclose(multiples, np.round(multiples), atol=GRID_SLACK) else None


def spread_stamps(arrival_s: Any, grid_s: float, draw: np.random.Generator) -> Any:
    """Arrivals at random inside the grid cell that begins with their stamp."""
    return np.sort(arrival_s + draw.random(len(arrival_s)) * grid_s)
