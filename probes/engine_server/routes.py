"""The routes: OpenAI's completions and chat completions (a subset, named below), models, health, metrics.

Known: model, prompt (text or tokens), messages, max_tokens, max_completion_tokens, temperature, top_p, seed, stream,
stream_options, ignore_eos. What would change the answer and is not known (n, stop, logprobs, tools, ...) is refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from calc.errors import InputError, RidgebeamError
from calc.json_text import NOT_JSON, parse_json
from probes.engine.engine import Engine
from probes.engine.sampling import Sampling
from probes.engine.scheduler import Request
from probes.engine_server.text import Pieces, Tokenizer, chat_text

LARGEST_BODY = 8_000_000
DEFAULT_TOKENS = {"text_completion": 16, "chat.completion": 256}
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "stop": (None, [], ""),
    "logprobs": (None, False),
    "echo": (None, False),
    "suffix": (None, ""),
    "tools": (None, []),
    "response_format": (None, {"type": "text"}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
}
HOSTS = ["127.0.0.1", "localhost", "[::1]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """An engine, how it reads and writes text, and what it is called."""

    engine: Engine
    tokenizer: Tokenizer
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as its JSON says."""

    kind: str
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    ignore_eos: bool
    stream: bool
    usage_at_end: bool
    usage_always: bool


def application(service: Service) -> Starlette:
    """The routes of one service. A page of another origin that resolves to this machine is refused by its Host."""

    async def completions(http: HttpRequest) -> Response:
        return await _answer(service, http, "text_completion")

    async def chat(http: HttpRequest) -> Response:
        return await _answer(service, http, "chat.completion")

    async def models(_: HttpRequest) -> Response:
        card = {
            "id": service.name,
            "object": "model",
            "owned_by": "ridgebeam",
            "max_model_len": service.engine.decoder.shape.positions,
        }
        return JSONResponse({"object": "list", "data": [card]})

    async def health(_: HttpRequest) -> Response:
        return (
            JSONResponse({"error": service.engine.failure}, 503)
            if service.engine.failure
            else JSONResponse({})
        )

    async def metrics(_: HttpRequest) -> Response:
        return PlainTextResponse(metrics_text(service.engine))

    return Starlette(
        routes=[
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/chat/completions", chat, methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", health),
            Route("/metrics", metrics),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)],
    )


async def _answer(service: Service, http: HttpRequest, kind: str) -> Response:
    arrived: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def listener(request: Request, token: int) -> None:
        with suppress(RuntimeError):  # the server has stopped, and nobody listens
            loop.call_soon_threadsafe(arrived.put_nowait, (token, request.finished))

    try:
        asked = read_body(service, await _body(http), kind)
        ends = () if asked.ignore_eos else service.engine.decoder.shape.end_tokens
        request = service.engine.submit(
            asked.prompt, asked.max_tokens, sampling=asked.sampling, end_tokens=ends, listener=listener
        )
    except RidgebeamError as error:
        return _refusal(str(error), 400 if isinstance(error, InputError) else 503)
    writer = _Writer(service, request, asked)
    if asked.stream:
        return StreamingResponse(writer.events(arrived), media_type="text/event-stream")
    text = ""
    try:
        while not writer.finished:
            text += writer.piece(*await arrived.get())
    finally:
        service.engine.abort(request)
    if writer.finished == "abort":
        return _refusal(service.engine.failure or "The request was dropped.", 500)
    return JSONResponse(writer.envelope(writer.choice(text), asked.kind) | {"usage": writer.usage})


async def _body(http: HttpRequest) -> dict[str, Any]:
    data = b""
    async for part in http.stream():
        data += part
        if len(data) > LARGEST_BODY:
            raise InputError("body", len(data), f"it may have {LARGEST_BODY:,} bytes")
    try:
        found = parse_json(data)
    except NOT_JSON:
        found = None
    if not isinstance(found, dict):
        raise InputError("body", data[:40], "it must be a JSON object")
    return found


def _refusal(words: str, status: int) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": words, "type": kind}}, status)


def read_body(service: Service, body: Mapping[str, Any], kind: str) -> Asked:
    """What a request asks for; InputError names the field that is wrong or not known here."""
    for name, allowed in NEUTRAL.items():
        if body.get(name) not in allowed:
            raise InputError(name, body[name], "this server does not have it; leave it out")
    prompt = _prompt(service.tokenizer, body, kind)
    room = service.engine.decoder.shape.positions - len(prompt)
    tokens = (
        body.get("max_completion_tokens") or body.get("max_tokens") or min(DEFAULT_TOKENS[kind], max(1, room))
    )
    if not isinstance(tokens, int) or isinstance(tokens, bool):
        raise InputError("max_tokens", tokens, "it must be a whole number")
    options = body.get("stream_options") or {}
    seed = body.get("seed")
    if not isinstance(options, dict) or not (seed is None or isinstance(seed, int)):
        raise InputError("stream_options or seed", (options, seed), "an object, and a whole number")
    return Asked(
        kind=kind,
        prompt=prompt,
        max_tokens=tokens,
        sampling=Sampling(
            temperature=_number(body, "temperature", 1.0), top_p=_number(body, "top_p", 1.0), seed=seed
        ),
        ignore_eos=bool(body.get("ignore_eos")),
        stream=bool(body.get("stream")),
        usage_at_end=bool(options.get("include_usage")),
        usage_always=bool(options.get("continuous_usage_stats")),
    )


def _prompt(tokenizer: Tokenizer, body: Mapping[str, Any], kind: str) -> list[int]:
    if kind == "chat.completion":
        messages = body.get("messages")
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise InputError("messages", messages, "it must be a list of messages")
        return tokenizer.encode(chat_text(tokenizer, messages))
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return tokenizer.encode(prompt)
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return prompt
    raise InputError("prompt", prompt, "it must be one text, or a list of tokens")


def _number(body: Mapping[str, Any], name: str, default: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(name, value, "it must be a number")
    return float(value)


class _Writer:
    """One answer on its way out: token by token, as the API words it."""

    def __init__(self, service: Service, request: Request, asked: Asked) -> None:
        self._service, self._request, self._asked = service, request, asked
        self._pieces = Pieces(service.tokenizer)
        self._count = 0
        self._created = int(time.time())
        self.finished = ""

    def piece(self, token: int, finished: str) -> str:
        """The text that a token brings; an end token brings none."""
        self.finished = "abort" if token < 0 else finished
        if token < 0:
            return ""
        self._count += 1
        return "" if finished == "stop" else self._pieces.add(token, last=bool(finished))

    @property
    def usage(self) -> dict[str, Any]:
        prompt = len(self._request.prompt)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._count,
            "total_tokens": prompt + self._count,
            "prompt_tokens_details": {"cached_tokens": self._request.cached},
        }

    def choice(self, text: str, *, delta: bool = False) -> dict[str, Any]:
        content: dict[str, Any] = {"text": text}
        if self._asked.kind == "chat.completion":
            content = {"delta" if delta else "message": {"role": "assistant", "content": text}}
        return {"index": 0, "finish_reason": self.finished or None, **content}

    def envelope(self, choice: dict[str, Any] | None, kind: str) -> dict[str, Any]:
        return {
            "id": f"ridgebeam-{self._request.number}",
            "object": kind,
            "created": self._created,
            "model": self._service.name,
            "choices": [] if choice is None else [choice],
        }

    async def events(self, arrived: asyncio.Queue[tuple[int, str]]) -> AsyncIterator[bytes]:
        """Server-sent events; whoever hangs up frees the request's place."""
        kind = self._asked.kind + (".chunk" if self._asked.kind == "chat.completion" else "")
        try:
            while not self.finished:
                token, finished = await arrived.get()
                text = self.piece(token, finished)
                if token < 0:
                    yield _event(
                        {
                            "error": {
                                "message": self._service.engine.failure or "dropped",
                                "type": "server_error",
                            }
                        }
                    )
                    return
                event = self.envelope(self.choice(text, delta=True), kind)
                yield _event(event | ({"usage": self.usage} if self._asked.usage_always else {}))
            if self._asked.usage_at_end:
                yield _event(self.envelope(None, kind) | {"usage": self.usage})
            yield b"data: [DONE]\n\n"
        finally:
            self._service.engine.abort(self._request)


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + b"\n\n"


def metrics_text(engine: Engine) -> str:
    """Counters in Prometheus' text form, under our own prefix; names after vLLM's."""
    counters, scheduler = engine.counters, engine.scheduler
    lines = {
        "time_to_first_token_seconds_sum": counters.ttft_s,
        "time_to_first_token_seconds_count": counters.requests,
        "request_queue_time_seconds_sum": counters.queue_s,
        "request_queue_time_seconds_count": counters.requests,
        "request_time_per_output_token_seconds_sum": counters.tpot_s,
        "request_time_per_output_token_seconds_count": counters.tpot_requests,
        "prompt_tokens_total": counters.prompt_tokens,
        "cached_tokens_total": counters.cached_tokens,
        "generation_tokens_total": counters.answer_tokens,
        "num_preemptions_total": counters.preemptions,
        "passes_total": counters.passes,
        "num_requests_running": len(scheduler.running),
        "num_requests_waiting": len(scheduler.waiting),
        "kv_cache_usage_perc": scheduler.pages.num_used_blocks / scheduler.pages.num_blocks,
    }
    return "".join(f"ridgebeam:{name} {value}\n" for name, value in lines.items())
