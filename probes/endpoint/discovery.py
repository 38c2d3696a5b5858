"""What the server is: engine, version, models, context length, slots, and its own counters. Every answer is optional."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from calc.engine import Engine
from calc.errors import ProbeError
from calc.json_text import NOT_JSON, parse_json
from probes.endpoint.client import EndpointClient
from probes.endpoint.dialects import Api

MOST_MODELS = 200
LONGEST_NAME = 300
SERIES = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})?\s+([-+0-9.eE]+|NaN)\s*$")
# Histograms of the engines, by what they measure: (series, ours). Means over a stage are differences of _sum over _count.
HISTOGRAMS: Mapping[str, str] = {
    "vllm:time_to_first_token_seconds": "ttft_s",
    "vllm:time_per_output_token_seconds": "tpot_s",
    "vllm:request_time_per_output_token_seconds": "tpot_s",
    "vllm:inter_token_latency_seconds": "tpot_s",
    "vllm:request_queue_time_seconds": "queue_s",
    "vllm:request_prefill_time_seconds": "prefill_s",
    "ridgebeam:time_to_first_token_seconds": "ttft_s",
    "ridgebeam:request_time_per_output_token_seconds": "tpot_s",
    "ridgebeam:request_queue_time_seconds": "queue_s",
    "sglang:time_to_first_token_seconds": "ttft_s",
    "sglang:time_per_output_token_seconds": "tpot_s",
    "sglang:inter_token_latency_seconds": "tpot_s",
}
WAITING = (
    "vllm:num_requests_waiting",
    "ridgebeam:num_requests_waiting",
    "sglang:num_queue_reqs",
    "llamacpp:requests_deferred",
)
ENGINE_OF_SERIES = (
    ("vllm:", Engine.VLLM),
    ("sglang:", Engine.SGLANG),
    ("llamacpp:", Engine.LLAMA_CPP),
    ("trtllm_", Engine.TENSORRT_LLM),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What discovery found. None or empty: the server does not say."""

    models: tuple[str, ...] = ()
    engine: str = ""
    version: str = ""
    slots: int | None = None
    context_tokens: int | None = None
    has_metrics: bool = False
    loaded: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "models": list(self.models),
            "engine": self.engine,
            "version": self.version,
            "slots": self.slots,
            "context_tokens": self.context_tokens,
            "has_metrics": self.has_metrics,
            "loaded": list(self.loaded),
        }


async def discover(client: EndpointClient) -> ServerFacts:
    """Ask for models, version, slots and metrics. Raises ProbeError where nothing answers at all."""
    if client.api is Api.OLLAMA:
        return await _ollama(client)
    listed = await _get_json(client, "/v1/models")
    metrics = await read_metrics(client)
    props = await _get_json(client, "/props")
    version = await _get_json(client, "/version")
    sglang = await _get_json(client, "/get_server_info") if "sglang" in str(listed).lower() else None
    if listed is None and props is None and version is None and not metrics:
        raise await _silent(client)
    entries = [e for e in (listed or {}).get("data") or () if isinstance(e, dict)]
    models = tuple(str(e["id"])[:LONGEST_NAME] for e in entries if isinstance(e.get("id"), str))[:MOST_MODELS]
    lengths = [e.get("max_model_len") for e in entries] + [_nested(e, "meta", "n_ctx_train") for e in entries]
    own = _nested(props, "default_generation_settings", "n_ctx")
    return ServerFacts(
        models=models,
        engine=_engine(metrics, props, entries),
        version=_version(version, props, sglang),
        slots=_whole(_nested(props, "total_slots")),
        context_tokens=_whole(own) or next((n for n in map(_whole, lengths) if n), None),
        has_metrics=bool(metrics),
    )


async def _silent(client: EndpointClient) -> ProbeError:
    answer = await client.get("/health")
    if answer is not None and answer[0] in {401, 403}:
        return ProbeError(
            f"{client.target.shown} refuses the credentials.", next_step="Give an API key, or another one."
        )
    if answer is not None and answer[0] == 503:
        return ProbeError(f"{client.target.shown} is still loading.", next_step="Wait until it is ready.")
    if answer is None:
        return ProbeError(
            f"No server answers at {client.target.shown}.",
            next_step="Check that it runs and on which port; the address is the server's, as in http://127.0.0.1:8000.",
        )
    return ProbeError(
        f"{client.target.shown} answers, but not as an OpenAI-compatible server.",
        next_step="Give the server's root address, or choose the Ollama API.",
    )


async def _ollama(client: EndpointClient) -> ServerFacts:
    version, tags = await _get_json(client, "/api/version"), await _get_json(client, "/api/tags")
    running = await _get_json(client, "/api/ps")
    if version is None and tags is None:
        raise await _silent(client)
    return ServerFacts(
        models=_names(tags)[:MOST_MODELS],
        engine=str(Engine.OLLAMA),
        version=str((version or {}).get("version", ""))[:80],
        loaded=_names(running),
    )


async def ollama_context(client: EndpointClient, model: str) -> int | None:
    """The longest context that an Ollama model was made for; None where it does not say."""
    answer = await client.post("/api/show", {"model": model})
    data = _object(answer[1]) if answer and answer[0] == 200 else None
    info = (data or {}).get("model_info")
    if not isinstance(info, dict):
        return None
    return next(
        (n for key, value in info.items() if key.endswith(".context_length") and (n := _whole(value))), None
    )


def _names(data: Mapping[str, Any] | None) -> tuple[str, ...]:
    entries = (data or {}).get("models") or ()
    return tuple(
        str(e["name"])[:LONGEST_NAME]
        for e in entries
        if isinstance(e, dict) and isinstance(e.get("name"), str)
    )


def _engine(
    metrics: Mapping[str, float], props: Mapping[str, Any] | None, entries: list[dict[str, Any]]
) -> str:
    for prefix, engine in ENGINE_OF_SERIES:
        if any(name.startswith(prefix) for name in metrics):
            return str(engine)
    if props is not None and "total_slots" in props:
        return str(Engine.LLAMA_CPP)
    owner = str(entries[0].get("owned_by", "")).lower() if entries else ""
    known = {
        "vllm": Engine.VLLM,
        "sglang": Engine.SGLANG,
        "llamacpp": Engine.LLAMA_CPP,
        "tensorrt_llm": Engine.TENSORRT_LLM,
    }
    return str(known.get(owner, ""))


def _version(*documents: Mapping[str, Any] | None) -> str:
    for document in documents:
        for name in ("version", "build_info"):
            value = (document or {}).get(name)
            if isinstance(value, str) and value:
                return value[:80]
    return ""


async def read_metrics(client: EndpointClient) -> dict[str, float]:
    """Prometheus series of `/metrics` summed over their labels; empty where there are none."""
    answer = await client.get("/metrics")
    if answer is None or answer[0] != 200:
        return {}
    return parse_metrics(answer[1])


def parse_metrics(text: str) -> dict[str, float]:
    """Series by name, summed over labels; histogram buckets are passed over."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        match = SERIES.match(line)
        if match is None or match[1].endswith("_bucket"):
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        found[match[1]] = found.get(match[1], 0.0) + value
    return found


def means_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Server-side means of what happened between two readings, by our names: `ttft_s`, `tpot_s`, `queue_s`, `prefill_s`."""
    found: dict[str, float] = {}
    for series, name in HISTOGRAMS.items():
        count = after.get(f"{series}_count", 0.0) - before.get(f"{series}_count", 0.0)
        total = after.get(f"{series}_sum", 0.0) - before.get(f"{series}_sum", 0.0)
        if count >= 1 and 0 <= total < inf and name not in found:
            found[name] = total / count
    return found


def waiting(metrics: Mapping[str, float]) -> float | None:
    """Requests that wait in the server's own queue."""
    return next((metrics[name] for name in WAITING if name in metrics), None)


async def _get_json(client: EndpointClient, path: str) -> dict[str, Any] | None:
    answer = await client.get(path)
    return _object(answer[1]) if answer is not None and answer[0] == 200 else None


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = parse_json(text)
    except NOT_JSON:
        return None
    return data if isinstance(data, dict) else None


def _nested(data: object, *names: str) -> object:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1e9 else None
