"""One request to a running server, as the client saw it: `Sample`, with times on the client's own clock.

TTFT is counted to the first delta that is not empty (content, reasoning, text or tool call), because a stream may open
with a chunk that holds only a role. TPOT is (last - first)/(n - 1) with n from the server's own count, because a chunk is
not a token; where the first chunk is known to hold m tokens it is (last - first)/(n - m).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from calc.errors import InputError
from calc.typed_fields import checked_fields

CACHED_SHARE_LIMIT = 0.05  # a prompt of which more was cached does not measure a prefill; assumed
TEMPLATE_TOKENS = (
    16  # the chat template in front of the nonce is the same in every prompt; one block of vLLM's cache
)
BUFFERED_GAP_S = 1e-4  # no server makes tokens of one stream ten thousand times a second; assumed
BUFFERED_FEWEST = 4
MERGED_TOKENS_PER_CHUNK = (
    1.5  # plain decoding gives 1.04 to 1.09 where UTF-8 is held back; measured on llama.cpp
)
SCHEMA_VERSION = 1
MOST_TOKENS = 1_000_000_000  # of one request, far beyond any context
COUNTED = (
    "asked_tokens", "prompt_tokens", "output_tokens", "cached_tokens", "first_chunk_tokens", "chunks",
)  # fmt: skip
"""The fields of a sample that count what is never negative."""


class Tag(StrEnum):
    """What is unusual about a sample, by name."""

    NO_USAGE = "no token counts from the server"
    CACHED = "prompt was cached"
    CACHE_UNKNOWN = "server does not say what was cached"
    BUFFERED = "not streaming: all tokens arrived at once"
    MERGED = "several tokens per chunk"
    ROLE_FIRST = "opened with an empty chunk"
    EMPTY_CHUNKS = "empty chunks in the stream"
    NEW_CONNECTION = "opened a connection"
    SHORT = "fewer tokens than asked"
    NO_DONE = "stream ended without an end mark"


class Fault(StrEnum):
    """Why a request failed, by name."""

    REFUSED = "connection refused"
    RATE_LIMITED = "429 rate limited"
    OVERLOADED = "503 overloaded"
    CREDENTIALS = "credentials refused"
    TOO_LONG = "context too long"
    BAD_REQUEST = "request refused"
    SERVER_ERROR = "server error"
    REDIRECT = "redirect refused"
    NOT_A_STREAM = "wrong content type"
    SLOW_HEADERS = "no answer in time"
    STALLED = "stream stalled"
    NEVER_ENDS = "stream did not end in time"
    DROPPED = "dropped mid-stream"
    ERROR_IN_STREAM = "error in the stream"
    NOTHING = "no tokens"
    TOO_MUCH = "more data than asked"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One request. Seconds on a clock that starts with the run; None: not known or never happened.

    `scheduled_s`: when an open loop wanted to send it (a closed loop: when it was sent). `first_s`, `last_s`: first and
    last delta that was not empty; `end_s`: the stream's end. `prompt_tokens`, `output_tokens`, `cached_tokens`: the
    server's counts. `first_chunk_tokens`: tokens in the first delta where the server says so.
    `server`: its own view, seconds and counts under its own names (see `probes.endpoint.dialects`).
    """

    stage: str
    scheduled_s: float
    start_s: float
    first_s: float | None = None
    last_s: float | None = None
    end_s: float | None = None
    connect_s: float = 0.0
    asked_tokens: int = 0
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    first_chunk_tokens: int = 1
    chunks: int = 0
    fault: str | None = None
    detail: str = ""
    tags: tuple[str, ...] = ()
    server: Mapping[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.fault is None and self.first_s is not None

    @property
    def ttft_s(self) -> float | None:
        """From the scheduled time to the first delta that is not empty."""
        return None if self.first_s is None else self.first_s - self.scheduled_s

    @property
    def e2e_s(self) -> float | None:
        return None if self.last_s is None else self.last_s - self.scheduled_s

    @property
    def tpot_s(self) -> float | None:
        """(last - first)/(n - m), m tokens in the first chunk; None for one token, unknown counts or a buffered stream."""
        if self.first_s is None or self.last_s is None or self.output_tokens is None:
            return None
        later = self.output_tokens - self.first_chunk_tokens
        if later < 1 or Tag.BUFFERED in self.tags:
            return None
        return (self.last_s - self.first_s) / later

    @property
    def measures_prefill(self) -> bool:
        """Whether TTFT says something about a prefill: not cached, not buffered."""
        return self.ok and Tag.CACHED not in self.tags and Tag.BUFFERED not in self.tags

    def as_json(self) -> dict[str, Any]:
        record = {f.name: getattr(self, f.name) for f in fields(self)}
        return record | {"tags": list(self.tags), "server": dict(self.server)}


def sample_from_json(data: object) -> Sample:
    """Read a sample back; raises InputError for a record of another form, and for times or counts that cannot be."""
    if not isinstance(data, Mapping):
        raise InputError("sample", data, "it must be a sample that a run wrote")
    known = {f.name for f in fields(Sample)}  # a newer version may have added others
    values = checked_fields(Sample, {k: v for k, v in data.items() if k in known}, what="sample")
    sample = Sample(**values)
    for name in COUNTED:
        count = getattr(sample, name)
        if count is not None and not 0 <= count <= MOST_TOKENS:
            raise InputError(f"sample {name}", count, f"it must be from 0 to {MOST_TOKENS:,}")
    began = min(sample.scheduled_s, sample.start_s)
    times = [t for t in (began, sample.first_s, sample.last_s) if t is not None]
    if times != sorted(times) or (sample.end_s is not None and sample.end_s < began):
        raise InputError("sample times", times, "a request begins, then its first token comes, then its last")
    return sample


def tags_of(sample: Sample, *, empty_chunks: int, opened_empty: bool, ended: bool) -> tuple[str, ...]:
    """The tags that a finished sample earns. `ended`: an end mark was seen."""
    n = sample.output_tokens
    earned = {
        Tag.NO_USAGE: n is None,
        Tag.CACHE_UNKNOWN: sample.cached_tokens is None,
        Tag.CACHED: _cached(sample),
        Tag.BUFFERED: _buffered(sample),
        Tag.MERGED: n is not None and bool(sample.chunks) and n > MERGED_TOKENS_PER_CHUNK * sample.chunks,
        Tag.ROLE_FIRST: opened_empty,
        Tag.EMPTY_CHUNKS: empty_chunks > 0,
        Tag.NEW_CONNECTION: sample.connect_s > 0,
        Tag.SHORT: n is not None and n < sample.asked_tokens,
        Tag.NO_DONE: not ended,
    }
    return tuple(str(tag) for tag, holds in earned.items() if holds)


def _cached(sample: Sample) -> bool:
    cached, prompt = sample.cached_tokens, sample.prompt_tokens
    return bool(cached and prompt and cached - TEMPLATE_TOKENS > CACHED_SHARE_LIMIT * prompt)


def _buffered(sample: Sample) -> bool:
    if sample.first_s is None or sample.last_s is None:
        return False
    counted = sample.output_tokens if sample.output_tokens is not None else sample.chunks
    return counted >= BUFFERED_FEWEST and sample.last_s - sample.first_s < BUFFERED_GAP_S * (counted - 1)
