"""Traces of requests: the user's own files, and workloads restated from published statistics.

No trace is bundled; `PUBLISHED` holds the numbers from which like traffic can be generated.
"""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import BinaryIO

from calc.errors import InputError, SourceError, SourceFault
from calc.simulation.trace_formats import Trace, read_trace
from calc.workload import Lengths, LengthShape, Workload

MAX_TRACE_BYTES = 8 * 2**30  # uncompressed text; the largest public trace has 27 million rows
MAX_UPLOADED_BYTES = 2**28  # what an upload may unpack to: 90 kB of gzip hold ten million rows
MAX_UPLOADED_ROWS = 1_000_000  # a row takes ten microseconds of the one core that all visitors share
MAX_ROW_BYTES = 16 * 2**20  # a row with its whole prompt as text
_GZIP_MAGIC = b"\x1f\x8b"
_P95 = 1.6449  # standard normal


def open_trace(path: str | Path, *, seed: int = 0) -> Trace:
    """Read a trace file, gzip or not; its schema is found from its first line."""
    file = Path(path)
    try:
        with file.open("rb") as raw:
            return _read(raw, name=file.name, seed=seed, most_bytes=MAX_TRACE_BYTES, most_rows=None)
    except FileNotFoundError:
        raise SourceError(SourceFault.NOT_FOUND, f"No trace at {file}.") from None
    except OSError as error:
        raise SourceError(SourceFault.UNREADABLE, f"{file} could not be read: {error.strerror}.") from None


def uploaded_trace(data: bytes, *, name: str, seed: int = 0) -> Trace:
    """Read the bytes of a trace that somebody sent, gzip or not; what they unpack to is capped more tightly than a file's."""
    return _read(
        io.BytesIO(data), name=name, seed=seed, most_bytes=MAX_UPLOADED_BYTES, most_rows=MAX_UPLOADED_ROWS
    )


def _read(raw: BinaryIO, *, name: str, seed: int, most_bytes: int, most_rows: int | None) -> Trace:
    packed = raw.read(2) == _GZIP_MAGIC
    raw.seek(0)
    source = gzip.GzipFile(fileobj=raw) if packed else raw
    capped = io.BufferedReader(_Capped(source, most_bytes, most_rows))
    try:
        with io.TextIOWrapper(capped, encoding="utf-8", newline="") as text:
            return read_trace(text, seed=seed, name=name)
    except UnicodeDecodeError:
        raise InputError(name, "bytes", "a trace is UTF-8 text, CSV or JSON Lines, gzip or not") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise SourceError(SourceFault.UNREADABLE, f"{name} could not be unpacked: {error}.") from None


class _Capped(io.RawIOBase):
    """A binary stream that refuses to deliver more than a trace can hold: in all, in rows, or in one row."""

    def __init__(self, source: object, most_bytes: int, most_rows: int | None) -> None:
        self._source = source
        self._most = self._left = most_bytes
        self._most_rows = most_rows
        self._rows = self._row = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        count: int = self._source.readinto(buffer)  # type: ignore[attr-defined]
        self._left -= count
        if self._left < 0:
            raise SourceError(SourceFault.TOO_LARGE, f"A trace may unpack to {self._most:,} bytes of text.")
        text = bytes(memoryview(buffer)[:count])  # type: ignore[arg-type]
        self._rows += text.count(b"\n")
        if self._most_rows is not None and self._rows > self._most_rows:
            raise SourceError(
                SourceFault.TOO_LARGE,
                f"A trace that is uploaded may hold {self._most_rows:,} rows.",
                next_step="Take a part of it, or run `ridgebeam simulate --trace` on your own machine.",
            )
        row_end = text.rfind(b"\n")
        self._row = self._row + count if row_end < 0 else count - row_end
        if self._row > MAX_ROW_BYTES:
            raise SourceError(SourceFault.TOO_LARGE, f"A row of a trace may hold {MAX_ROW_BYTES:,} bytes.")
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTraffic:
    """Statistics of a public trace: arrivals as rate and CV, lengths by mean, median and 95th percentile."""

    name: str
    rate_per_s: float
    arrival_cv: float
    input_mean: float
    input_p50: float
    input_p95: float
    output_mean: float
    output_p50: float
    output_p95: float
    source: str

    def workload(self) -> Workload:
        """Like traffic: renewal arrivals and lognormal lengths of the same mean and spread."""
        return Workload(
            input=_lognormal(self.input_mean, self.input_p50, self.input_p95),
            output=_lognormal(self.output_mean, self.output_p50, self.output_p95),
            rate_per_s=self.rate_per_s,
            arrival_cv=self.arrival_cv,
        )


def _lognormal(mean: float, median: float, p95: float) -> Lengths:
    """Lognormal with the trace's mean, and the spread between its median and its 95th percentile."""
    sigma = log(p95 / median) / _P95
    return Lengths(
        mean_tokens=mean, shape=LengthShape.LOGNORMAL, cv=(2.718281828459045 ** (sigma * sigma) - 1) ** 0.5
    )


_AZURE = "Azure Public Dataset, LLM inference trace 2023 (CC-BY 4.0); Patel et al., Splitwise, ISCA 2024"
_MOONCAKE = "Mooncake trace, FAST 2025 (Apache-2.0); Qin et al."
_SERVEGEN = "ServeGen deepseek-r1 pool, one eighth of its rate (Apache-2.0), arXiv 2505.09999"

PUBLISHED: tuple[PublishedTraffic, ...] = (
    PublishedTraffic(
        name="azure-code", rate_per_s=2.57, arrival_cv=13.15, source=_AZURE,
        input_mean=2048, input_p50=1469, input_p95=7303, output_mean=27.9, output_p50=13, output_p95=90,
    ),
    PublishedTraffic(
        name="azure-conversation", rate_per_s=5.53, arrival_cv=1.09, source=_AZURE,
        input_mean=1155, input_p50=1020, input_p95=4083, output_mean=211, output_p50=129, output_p95=451,
    ),
    PublishedTraffic(
        # its stamps lie on a grid of three seconds, so that its CV says nothing; 1 is assumed
        name="mooncake-conversation", rate_per_s=3.40, arrival_cv=1.0, source=_MOONCAKE,
        input_mean=12035, input_p50=6909, input_p95=39551, output_mean=343, output_p50=350, output_p95=698,
    ),
    PublishedTraffic(
        name="deepseek-r1", rate_per_s=1.98, arrival_cv=1.58, source=_SERVEGEN,
        input_mean=1252, input_p50=208, input_p95=6554, output_mean=1533, output_p50=795, output_p95=5718,
    ),
)  # fmt: skip


def published(name: str) -> PublishedTraffic:
    """The published traffic of that name."""
    for traffic in PUBLISHED:
        if traffic.name == name:
            return traffic
    raise InputError("traffic", name, f"choose one of {', '.join(t.name for t in PUBLISHED)}")
