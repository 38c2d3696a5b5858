"""What is sent and how each line of the answer reads, per API: OpenAI chat, OpenAI completions, Ollama's own.

A line becomes a `Delta`: whether it holds text, what the server counts so far, and its own timings. Server timings keep one
set of names: `prompt_s` (uncached tokens only), `prompt_n` (tokens that it covers), `cached_n`, `per_token_s`, `load_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from calc.endpoint.samples import MOST_TOKENS
from calc.json_text import NOT_JSON, parse_json
from calc.units import NS

LONGEST_LINE = 4_000_000
TEXT_FIELDS = ("content", "reasoning_content", "reasoning", "text", "refusal", "response", "thinking")
DONE_MARK = "[DONE]"


class Api(StrEnum):
    """How to talk to the server. Chat falls back to completions where a server has no chat template."""

    CHAT = "openai"
    COMPLETIONS = "openai-completions"
    OLLAMA = "ollama"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """One line of a stream."""

    text: bool = False
    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    server: Mapping[str, float] = field(default_factory=dict)
    finished: bool = False
    done: bool = False
    error: str = ""
    ignored: bool = False
    counts_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: the prompt, how many tokens to make, and how freely to use a server's own options.

    `extras`: send what vLLM, SGLang and llama.cpp know and a strict server refuses (`ignore_eos`, running counts).
    `context_tokens`: the context length to ask Ollama for, the same in every request, so that it does not load again.
    """

    model: str
    prompt: str
    max_tokens: int
    extras: bool = True
    context_tokens: int | None = None


PATHS: Mapping[Api, str] = {
    Api.CHAT: "/v1/chat/completions",
    Api.COMPLETIONS: "/v1/completions",
    Api.OLLAMA: "/api/generate",
}
MEDIA: Mapping[Api, tuple[str, ...]] = {
    Api.CHAT: ("text/event-stream",),
    Api.COMPLETIONS: ("text/event-stream",),
    Api.OLLAMA: ("application/x-ndjson", "application/json"),
}


def body_of(api: Api, ask: Ask) -> dict[str, Any]:
    """The request's JSON."""
    if api is Api.OLLAMA:
        options: dict[str, Any] = {"num_predict": ask.max_tokens}
        if ask.context_tokens:
            options["num_ctx"] = ask.context_tokens
        return {"model": ask.model, "prompt": ask.prompt, "stream": True, "options": options}
    body: dict[str, Any] = {
        "model": ask.model,
        "max_tokens": ask.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if api is Api.CHAT:
        body["messages"] = [{"role": "user", "content": ask.prompt}]
    else:
        body["prompt"] = ask.prompt
    if ask.extras:
        body |= {"ignore_eos": True, "timings_per_token": True}
        body["stream_options"]["continuous_usage_stats"] = True
    return body


def read_line(api: Api, line: bytes) -> Delta:
    """The delta of one line; blank lines, comments and other SSE fields are `ignored`."""
    if len(line) > LONGEST_LINE:
        return Delta(error="a line of more than 4 MB")
    text = line.decode("utf-8", errors="replace").strip()
    if api is not Api.OLLAMA:
        if not text.startswith("data:"):
            return _refused(text) if text.startswith("{") else Delta(ignored=True)
        text = text[5:].strip()
        if text == DONE_MARK:
            return Delta(done=True)
    return _read_object(api, text) if text else Delta(ignored=True)


def _read_object(api: Api, text: str) -> Delta:
    try:
        data = parse_json(text)
    except NOT_JSON:
        return Delta(error="a line that is not JSON")
    if not isinstance(data, dict):
        return Delta(error="a line that is not an object")
    return _ollama(data) if api is Api.OLLAMA else _openai(data)


def _refused(text: str) -> Delta:
    """A bare JSON object within an event stream: servers write errors so."""
    try:
        data = parse_json(text)
    except NOT_JSON:
        return Delta(error="a line that is neither an event nor JSON")
    return Delta(error=error_words(data) or "an object outside of any event")


def error_words(data: object) -> str:
    """What an error object says, in one line; empty where there is none."""
    if not isinstance(data, dict):
        return ""
    error = data.get("error", data.get("detail"))
    if not error and data.get("object") == "error":
        error = data.get("message")
    if isinstance(error, dict):
        error = error.get("message") or error.get("type") or "an error without words"
    return " ".join(str(error).split())[:300] if error else ""


def _object(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under a key; empty where there is none or something else stands there."""
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _openai(data: Mapping[str, Any]) -> Delta:
    if words := error_words(data):
        return Delta(error=words)
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    delta = _object(choice, "delta") or choice
    usage, timings = _object(data, "usage"), _object(data, "timings")
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached is None:
        cached = _count(timings.get("cache_n"))
    prompt = _count(usage.get("prompt_tokens"))
    if prompt is None and timings:
        prompt = _sum(_count(timings.get("prompt_n")), cached)
    output = _count(usage.get("completion_tokens"))
    return Delta(
        text=_has_text(delta),
        output_tokens=output if output is not None else _count(timings.get("predicted_n")),
        prompt_tokens=prompt,
        cached_tokens=cached,
        server=_llama_timings(timings),
        finished=bool(choice.get("finish_reason")),
        counts_only=not choice,
    )


def _has_text(delta: Mapping[str, Any]) -> bool:
    """Content, reasoning, text or a tool call: anything that the model wrote."""
    if any(isinstance(delta.get(name), str) and delta[name] for name in TEXT_FIELDS):
        return True
    return bool(delta.get("tool_calls") or delta.get("function_call"))


def _llama_timings(timings: Mapping[str, Any]) -> dict[str, float]:
    found = {
        "prompt_s": _scaled(timings.get("prompt_ms"), 1e-3),
        "prompt_n": _scaled(timings.get("prompt_n"), 1.0),
        "cached_n": _scaled(timings.get("cache_n"), 1.0),
        "per_token_s": _scaled(timings.get("predicted_per_token_ms"), 1e-3),
    }
    return {name: value for name, value in found.items() if value is not None}


def _ollama(data: Mapping[str, Any]) -> Delta:
    """Durations are in ns; `prompt_eval_duration` covers the uncached tokens only."""
    if words := error_words(data):
        return Delta(error=words)
    done = bool(data.get("done"))
    message = _object(data, "message")
    prompt, output = _count(data.get("prompt_eval_count")), _count(data.get("eval_count"))
    cached = _count(data.get("prompt_eval_cached_count"))
    found: dict[str, float | None] = {}
    if done:
        per_token = _scaled(data.get("eval_duration"), NS)
        found = {
            "prompt_s": _scaled(data.get("prompt_eval_duration"), NS),
            "prompt_n": None if prompt is None else float(prompt - (cached or 0)),
            "cached_n": None if cached is None else float(cached),
            "per_token_s": per_token / output if per_token is not None and output else None,
            "load_s": _scaled(data.get("load_duration"), NS),
        }
    return Delta(
        text=_has_text(data) or _has_text(message),
        output_tokens=output if done else None,
        prompt_tokens=prompt if done else None,
        cached_tokens=cached if done else None,
        server={name: value for name, value in found.items() if value is not None},
        finished=done,
        done=done,
    )


def _count(value: object) -> int | None:
    """A count of tokens, where it is one: a server may write anything."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None else first + (second or 0)


def _scaled(value: object, factor: float) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        return None
    return float(value) * factor
