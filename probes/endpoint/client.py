"""The client: one streamed request, stamped when bytes arrive and read afterwards, every way of failing named.

A thin layer over httpx2 (the HTTP client that huggingface_hub brings). Times are `perf_counter` seconds since the client
was made. A read is stamped before it is parsed, so that parsing never counts as latency.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

from calc.endpoint.samples import Fault, Sample, tags_of
from calc.json_text import NOT_JSON, parse_json
from probes.endpoint.dialects import MEDIA, PATHS, Api, Ask, Delta, body_of, error_words, read_line
from probes.endpoint.safety import ApiKey, Target

CONNECT_S = 10.0
FIRST_BYTE_S = 120.0
SILENCE_S = 60.0
REQUEST_S = 300.0
DRAIN_S = 0.25
MOST_STALE = 64  # kept connections that may turn out to be closed, one after the other
LARGEST_ERROR = 64_000
LARGEST_ANSWER = 4_000_000
BYTES_PER_TOKEN = (
    4_000  # a chunk with counts and timings is a few hundred bytes; beyond this a server sends something else
)
TOO_LONG_WORDS = (
    "context length",
    "context size",
    "maximum context",
    "too long",
    "exceed_context",
    "exceeds the available",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds that a request may take: to connect, to the first byte, in silence, in all."""

    connect_s: float = CONNECT_S
    first_byte_s: float = FIRST_BYTE_S
    silence_s: float = SILENCE_S
    request_s: float = REQUEST_S


# A kept connection was closed before it carried a byte of the answer: nothing was asked, so it is asked again.
_STALE: tuple[Fault | None, str] = (Fault.DROPPED, "a kept connection was closed")


@dataclass(slots=True)
class _Stream:
    """What has been read of one stream."""

    api: Api
    max_tokens: int
    rest: bytes = b""
    first_s: float | None = None
    last_s: float | None = None
    first_chunk_tokens: int = 1
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    server: dict[str, float] = field(default_factory=dict)
    chunks: int = 0
    empty_chunks: int = 0
    opened_empty_s: float | None = None
    end_s: float | None = None
    finished: bool = False
    error: str = ""
    size: int = 0
    done: bool = False

    def feed(self, data: bytes, now_s: float) -> None:
        """Bytes that arrived at `now_s`."""
        self.size += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self._line(line, now_s)

    def close(self, now_s: float) -> None:
        """The stream has ended; a last line without its end still counts."""
        if self.rest.strip():
            self._line(self.rest, now_s)
        self.rest = b""

    def _line(self, line: bytes, now_s: float) -> None:
        delta = read_line(self.api, line)
        if delta.ignored or self.error:
            return
        if delta.error:
            self.error = delta.error
            return
        self.done = self.done or delta.done
        self.finished = self.finished or delta.finished
        self._counts(delta)
        if delta.text:
            self.chunks += 1
            if self.first_s is None:
                self.first_s = now_s
                self.first_chunk_tokens = max(1, delta.output_tokens or 1)
            self.last_s = now_s
        elif not (delta.done or delta.finished or delta.counts_only):
            if self.first_s is None:
                self.opened_empty_s = now_s
            else:
                self.empty_chunks += 1

    def _counts(self, delta: Delta) -> None:
        """The latest count of each kind wins: running counts grow, the last is the whole."""
        for name in ("output_tokens", "prompt_tokens", "cached_tokens"):
            value = getattr(delta, name)
            if value is not None:
                setattr(self, name, value)
        self.server.update(delta.server)

    @property
    def opened_empty(self) -> bool:
        """Whether an empty chunk came in a read before the first token's: a client that stamps it is wrong."""
        return self.opened_empty_s is not None and (self.first_s or 0.0) > self.opened_empty_s

    @property
    def too_much(self) -> bool:
        return self.size > LARGEST_ANSWER + BYTES_PER_TOKEN * self.max_tokens


class EndpointClient:
    """Requests to one target. Use as `async with EndpointClient.open(...) as client`."""

    def __init__(
        self, http: httpx2.AsyncClient, target: Target, api: Api, key: ApiKey, limits: Limits
    ) -> None:
        self._http, self.target, self.api, self._key, self.limits = http, target, api, key, limits
        self.started = time.perf_counter()
        self.reuse = True  # until a connection that the server promised to keep turns out to be closed
        self.watch: Callable[[bytes, float], None] | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, target: Target, api: Api, *, key: ApiKey | None = None, limits: Limits | None = None
    ) -> AsyncIterator[EndpointClient]:
        """A client without a connection limit, without proxies of the environment, and that follows no redirects."""
        limits = limits or Limits()
        timeout = httpx2.Timeout(
            limits.silence_s, connect=limits.connect_s, read=max(limits.silence_s, limits.first_byte_s)
        )
        async with httpx2.AsyncClient(
            timeout=timeout,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=30.0),
            follow_redirects=False,
            trust_env=False,
        ) as http:
            yield cls(http, target, api, key or ApiKey(), limits)

    @property
    def now_s(self) -> float:
        return time.perf_counter() - self.started

    def _headers(self) -> dict[str, str]:
        keep = {} if self.reuse else {"Connection": "close"}
        return {"Host": self.target.host_header, "Accept-Encoding": "identity", **keep, **self._key.headers}

    def _extensions(self, trace: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = {"sni_hostname": self.target.host} if self.target.scheme == "https" else {}
        return found | ({"trace": trace} if trace else {})

    async def get(
        self, path: str, *, largest: int = 2_000_000, limit_s: float = 5.0
    ) -> tuple[int, str] | None:
        """(status, text) of a small document, or None where there is no answer. Never follows a redirect."""
        return await self._document("GET", path, None, largest, limit_s)

    async def post(
        self, path: str, body: Mapping[str, Any], *, limit_s: float = 10.0
    ) -> tuple[int, str] | None:
        """The same for a question with a JSON body."""
        return await self._document("POST", path, body, 2_000_000, limit_s)

    async def _document(
        self, method: str, path: str, body: Mapping[str, Any] | None, largest: int, limit_s: float
    ) -> tuple[int, str] | None:
        request = self._http.build_request(
            method,
            self.target.connect_root + path,
            headers=self._headers(),
            json=body,
            extensions=self._extensions(),
        )
        try:
            async with asyncio.timeout(limit_s):
                response = await self._http.send(request, stream=True)
                try:
                    data = await _read_up_to(response, largest)
                finally:
                    await response.aclose()
        except (httpx2.HTTPError, TimeoutError):
            return None
        return response.status_code, data.decode("utf-8", errors="replace")

    async def ask(self, ask: Ask, *, stage: str, scheduled_s: float | None = None) -> Sample:
        """Send one request and follow its stream to the end; never raises for what a server does."""
        stream = _Stream(api=self.api, max_tokens=ask.max_tokens)
        connect: list[float] = []
        try:
            async with asyncio.timeout(self.limits.request_s):
                start, connect = self.now_s, []
                answer = await self._follow(ask, stream, connect)
                tries = 0
                while answer is _STALE and tries < MOST_STALE:
                    self.reuse, tries = False, tries + 1
                    start, connect = self.now_s, []
                    answer = await self._follow(ask, stream, connect)
                fault, detail = answer
        except TimeoutError:
            fault, detail = (
                (Fault.NEVER_ENDS, f"cut off after {self.limits.request_s:g} s")
                if stream.size
                else (Fault.SLOW_HEADERS, f"nothing within {self.limits.request_s:g} s")
            )
        end = stream.end_s or self.now_s
        stream.close(end)
        sample = Sample(
            stage=stage,
            scheduled_s=start if scheduled_s is None else scheduled_s,
            start_s=start,
            asked_tokens=ask.max_tokens,
        )
        if fault is None and stream.error:
            fault, detail = Fault.ERROR_IN_STREAM, stream.error
        if fault is None and stream.first_s is None:
            fault, detail = Fault.NOTHING, "the stream ended without a token"
        return self._finished(sample, stream, fault, detail, end_s=end, connect_s=sum(connect))

    async def _follow(self, ask: Ask, stream: _Stream, connect: list[float]) -> tuple[Fault | None, str]:
        """Fill `stream`; the fault that ended it, if one did."""
        request = self._http.build_request(
            "POST",
            self.target.connect_root + PATHS[self.api],
            headers=self._headers(),
            json=body_of(self.api, ask),
            extensions=self._extensions(_connect_trace(connect)),
        )
        try:
            async with asyncio.timeout(self.limits.first_byte_s):
                response = await self._http.send(request, stream=True)
        except TimeoutError:
            return Fault.SLOW_HEADERS, f"no answer within {self.limits.first_byte_s:g} s"
        except httpx2.ConnectError:
            return Fault.REFUSED, f"{self.target.shown} does not take connections"
        except httpx2.TimeoutException:
            return Fault.SLOW_HEADERS, "the connection timed out"
        except httpx2.HTTPError as error:
            if not connect:  # an old connection; whoever else holds one finds out the same way
                return _STALE
            return Fault.DROPPED, f"before the answer: {type(error).__name__}"
        try:
            refusal = await self._refusal(response)
            return refusal or await self._read(response, stream)
        finally:
            await response.aclose()

    async def _read(self, response: httpx2.Response, stream: _Stream) -> tuple[Fault | None, str]:
        chunks = response.aiter_raw()
        try:
            while True:
                async with asyncio.timeout(self.limits.silence_s):
                    data = await anext(chunks, None)
                if data is None:
                    break
                now = self.now_s
                stream.feed(data, now)
                if self.watch is not None:
                    self.watch(data, now + self.started)
                if stream.done:
                    stream.end_s = now
                    await _drain(chunks)
                    break
                if stream.too_much:
                    return Fault.TOO_MUCH, f"{stream.size} bytes for {stream.max_tokens} tokens"
        except (httpx2.TimeoutException, TimeoutError):
            return Fault.STALLED, f"silent for {self.limits.silence_s:g} s"
        except httpx2.HTTPError as error:
            return Fault.DROPPED, f"after {stream.chunks} chunks with text: {type(error).__name__}"
        if not (stream.done or stream.finished or stream.error) and stream.first_s is not None:
            return Fault.DROPPED, f"after {stream.chunks} chunks with text: closed without an end mark"
        return None, ""

    async def _refusal(self, response: httpx2.Response) -> tuple[Fault, str] | None:
        """The fault of an answer that is no stream, in the server's words without the key; None for a stream."""
        code = response.status_code
        kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
        if code == 200 and kind in MEDIA[self.api]:
            return None
        if 300 <= code < 400:
            return Fault.REDIRECT, f"the server answered {code}; redirects are not followed"
        try:
            async with asyncio.timeout(self.limits.silence_s):
                text = (await _read_up_to(response, LARGEST_ERROR)).decode("utf-8", errors="replace")
        except (httpx2.HTTPError, TimeoutError):
            text = ""
        words = self._key.hidden(_words(text))
        if code == 200:
            return Fault.NOT_A_STREAM, f"{kind or 'no content type'} instead of {MEDIA[self.api][0]}"
        return _fault_of(code, text), f"HTTP {code}: {words}" if words else f"HTTP {code}"

    def _finished(
        self,
        sample: Sample,
        stream: _Stream,
        fault: Fault | None,
        detail: str,
        *,
        end_s: float,
        connect_s: float,
    ) -> Sample:
        finished = replace(
            sample,
            first_s=stream.first_s,
            last_s=stream.last_s,
            end_s=end_s,
            connect_s=connect_s,
            prompt_tokens=stream.prompt_tokens,
            output_tokens=stream.output_tokens,
            cached_tokens=stream.cached_tokens,
            first_chunk_tokens=stream.first_chunk_tokens,
            chunks=stream.chunks,
            fault=None if fault is None else str(fault),
            detail=self._key.hidden(detail),
            server=stream.server,
        )
        if not finished.ok:
            return finished
        tags = tags_of(
            finished,
            empty_chunks=stream.empty_chunks,
            opened_empty=stream.opened_empty,
            ended=stream.done or self.api is Api.OLLAMA,
        )
        return replace(finished, tags=tags)


def _connect_trace(connect: list[float]) -> Any:
    """A trace that adds up the seconds spent on opening a connection and on TLS."""
    began: dict[str, float] = {}

    async def trace(name: str, _: Mapping[str, Any]) -> None:
        kind, _, state = name.rpartition(".")
        if kind.endswith(("connect_tcp", "start_tls")):
            if state == "started":
                began[kind] = time.perf_counter()
            elif kind in began:
                connect.append(time.perf_counter() - began.pop(kind))

    return trace


async def _drain(chunks: AsyncIterator[bytes]) -> None:
    """Read what follows the end mark, so that the connection can be used again; a server that keeps it open is left."""
    with suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass


async def _read_up_to(response: httpx2.Response, largest: int) -> bytes:
    data = b""
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) >= largest:
            break
    return data[:largest]


def _words(text: str) -> str:
    try:
        found = error_words(parse_json(text))
    except NOT_JSON:
        found = ""
    return found or " ".join(text.split())[:200]


def _fault_of(code: int, text: str) -> Fault:
    if code == 429:
        return Fault.RATE_LIMITED
    if code == 503:
        return Fault.OVERLOADED
    if code in {401, 403}:
        return Fault.CREDENTIALS
    if code in {400, 413, 422} and any(words in text.lower() for words in TOO_LONG_WORDS):
        return Fault.TOO_LONG
    return Fault.BAD_REQUEST if code < 500 else Fault.SERVER_ERROR
