"""Result files of load-test tools as observations to calibrate with: vLLM bench, SGLang, GuideLLM, llama-bench, AIPerf.

The forms differ and so do the names: vLLM's TPOT, GuideLLM's inter-token latency and AIPerf's inter-token latency are our TPOT,
(end to end - TTFT)/(n - 1); GuideLLM's own TPOT includes the first token and is not read. Text comes in, nothing is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from calc.endpoint.calibration import Observation, Quantity
from calc.endpoint.run import KIND, LARGEST_CHARS, bare_run, run_from_json
from calc.errors import InputError
from calc.json_text import NOT_JSON, parse_json
from calc.units import MS, NS, US


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTestFile:
    """What a file held: the tool that wrote it, the model that it names, and the points."""

    tool: str
    model: str
    observations: tuple[Observation, ...]


def read_load_test(text: str) -> LoadTestFile:
    """The observations of a result file, JSON or JSON lines. Raises InputError where no known tool wrote it."""
    records = _records(text)
    for tool, applies, read in TOOLS:
        own = [record for record in records if applies(record)]
        if own:
            found = tuple(point for record in own for point in read(record))
            if not found:
                raise InputError(tool, "no usable point", "a result needs token counts, and TTFT or TPOT")
            return LoadTestFile(tool=tool, model=_model(own[0]), observations=found)
    raise InputError(
        "load test file",
        sorted(records[0])[:8] if records else "nothing",
        f"it must come from {', '.join(tool for tool, _, _ in TOOLS)}",
    )


def _records(text: str) -> list[dict[str, Any]]:
    if len(text) > LARGEST_CHARS:
        raise InputError("load test file", f"{len(text)} characters", f"at most {LARGEST_CHARS} are read")
    try:
        data = parse_json(text)
    except RecursionError:
        raise InputError("load test file", text[:40], "it is nested too deeply") from None
    except ValueError:
        data = [_line(line) for line in text.splitlines() if line.strip()]
    return [record for record in (data if isinstance(data, list) else [data]) if isinstance(record, dict)]


def _line(line: str) -> object:
    try:
        return parse_json(line)
    except NOT_JSON:
        raise InputError("load test file", line[:40], "it must be JSON, or one JSON object a line") from None


def _model(record: Mapping[str, Any]) -> str:
    for name in ("model_id", "model", "model_filename", "model_name"):
        value = record.get(name)
        if isinstance(value, str):
            return value[:300]
    return ""


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        return None
    return float(value)


def _nested(data: object, *names: str) -> object:
    for name in names:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def _points(
    *,
    inputs: float | None,
    outputs: float | None,
    users: float | None,
    ttft_s: float | None,
    tpot_s: float | None,
    tokens_per_s: float | None,
    origin: str,
) -> Iterable[Observation]:
    """The points of one result; nothing where its lengths or its concurrency are unknown."""
    if not (inputs and outputs and users):
        return
    values = ((Quantity.TTFT, ttft_s), (Quantity.TPOT, tpot_s), (Quantity.THROUGHPUT, tokens_per_s))
    for quantity, value in values:
        if value and outputs >= 2:
            yield Observation(
                quantity=quantity,
                input_tokens=inputs,
                output_tokens=outputs,
                concurrency=max(1.0, users),
                value=value,
                origin=origin,
            )


def _ms(value: object) -> float | None:
    found = _number(value)
    return None if found is None else found * MS


def _serve(record: Mapping[str, Any]) -> Iterable[Observation]:
    """VLLM's and SGLang's `bench serve`: one object of medians in ms. Closed loops only: an open loop has no fixed concurrency."""
    completed = _number(record.get("completed"))
    users = _number(record.get("max_concurrency"))
    totals = (_number(record.get("total_input_tokens")), _number(record.get("total_output_tokens")))
    if completed is None or totals[0] is None or totals[1] is None:
        return ()
    return _points(
        inputs=totals[0] / completed,
        outputs=totals[1] / completed,
        users=users if users is not None else _number(record.get("concurrency")),
        ttft_s=_ms(record.get("median_ttft_ms")),
        tpot_s=_ms(record.get("median_tpot_ms")),
        tokens_per_s=_number(record.get("output_throughput")),
        origin="bench serve",
    )


def _guidellm(record: Mapping[str, Any]) -> Iterable[Observation]:
    """GuideLLM: one benchmark per strategy; medians over successful requests."""
    for benchmark in record.get("benchmarks") or ():

        def of(name: str, statistic: str, own: object = benchmark) -> float | None:
            return _number(_nested(own, "metrics", name, "successful", statistic))

        yield from _points(
            inputs=of("prompt_token_count", "mean"),
            outputs=of("output_token_count", "mean"),
            users=of("request_concurrency", "mean"),
            ttft_s=_ms(of("time_to_first_token_ms", "median")),
            tpot_s=_ms(of("inter_token_latency_ms", "median")),
            tokens_per_s=of("output_tokens_per_second", "mean"),
            origin="guidellm",
        )


def _llama_bench(record: Mapping[str, Any]) -> Iterable[Observation]:
    """llama-bench: a prompt (`n_prompt`) or a generation (`n_gen`) behind `n_depth` cached tokens, one sequence, no server."""
    prompt, made = _number(record.get("n_prompt")), _number(record.get("n_gen"))
    depth, whole_ns = _number(record.get("n_depth")) or 0.0, _number(record.get("avg_ns"))
    if whole_ns is None or (prompt and made):
        return
    if prompt and not depth:
        yield Observation(
            quantity=Quantity.TTFT,
            input_tokens=prompt,
            output_tokens=2.0,
            concurrency=1.0,
            value=whole_ns * NS,
            origin=f"pp{prompt:g}",
        )
    if made and made >= 2:
        yield Observation(
            quantity=Quantity.TPOT,
            input_tokens=max(1.0, depth),
            output_tokens=made,
            concurrency=1.0,
            value=whole_ns * NS / made,
            origin=f"tg{made:g}",
        )


def _aiperf(record: Mapping[str, Any]) -> Iterable[Observation]:
    """AIPerf and genai-perf: statistics by metric, each with its unit."""
    users = _number(_nested(record, "input_config", "loadgen", "concurrency"))
    if users is None:
        users = _number(_nested(record, "input_config", "perf_analyzer", "stimulus", "concurrency"))
    return _points(
        inputs=_statistic(record, "input_sequence_length", "avg"),
        outputs=_statistic(record, "output_sequence_length", "avg"),
        users=users,
        ttft_s=_statistic(record, "time_to_first_token", "p50"),
        tpot_s=_statistic(record, "inter_token_latency", "p50"),
        tokens_per_s=_statistic(record, "output_token_throughput", "avg"),
        origin="aiperf",
    )


def _statistic(record: Mapping[str, Any], metric: str, statistic: str) -> float | None:
    """One statistic in base units: metrics in ms, us or ns come out in seconds."""
    value = _number(_nested(record, metric, statistic))
    scale = {"ms": MS, "us": US, "ns": NS}.get(str(_nested(record, metric, "unit")), 1.0)
    return None if value is None else value * scale


def _own(record: Mapping[str, Any]) -> Iterable[Observation]:
    """A run of our own, bare or within a report."""
    from calc.endpoint.calibration import observations_of

    return observations_of(run_from_json(bare_run(record)))


TOOLS: Final[
    tuple[
        tuple[str, Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any]], Iterable[Observation]]],
        ...,
    ]
] = (
    ("Ridgebeam", lambda r: KIND in {r.get("kind"), _nested(r, "run", "kind")}, _own),
    ("GuideLLM", lambda r: isinstance(r.get("benchmarks"), list), _guidellm),
    ("llama-bench", lambda r: "n_gen" in r and "avg_ts" in r, _llama_bench),
    ("vLLM bench serve or SGLang bench_serving", lambda r: "median_ttft_ms" in r, _serve),
    ("AIPerf or genai-perf", lambda r: "time_to_first_token" in r, _aiperf),
)
