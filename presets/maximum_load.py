"""Published maxima: output tokens/s of offline runs whose batch nobody published, predicted as their authors ran them.

What a figure leaves open is what its engine would have chosen: sequences by the engine's own memory rules, the token budget by
the rule of its benchmark, and the degree that its page does not state is the best one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from calc.engine import engine_named
from calc.layout import Layout
from calc.memory.engines import EngineSettings, ledger
from calc.model import ModelSpec
from calc.profile import Calibration
from calc.step import OfflineWork, StepModel, offline_tokens_per_s
from calc.step.links import PCIE_HOSTS
from presets.measurements import PointMeasurement
from presets.trtllm_bench import CACHE_SHARE, MOST_SEQUENCES, bench_settings

MLPERF: Final = "mlperf51"
MLPERF_NODE: Final = 8  # GPUs
NVIDIA_MAXIMA: Final = ("trt10", "trt12")

# Most requests that trtllm-bench, one Python process, hands over and collects in a second. At 128 tokens in and out NVIDIA's page has
# 308 on eight RTX PRO 6000 (trt10-106), which make a third more tokens/s with longer answers, and 311 on one B200 (trt10-101); a public
# run on an H100 with answers of 28 tokens has 248 (NVIDIA/TensorRT-LLM, issue 6294). Read off those two rows, which are therefore no
# check of it. Hosts differ: 188 on a GB200 (trt10-102), whose processor is a Grace.
BENCH_REQUESTS_PER_S: Final = 310.0
BENCH_REQUESTS_RANGE: Final = (188.0, 312.0)  # the slowest and the fastest of these runs

# Requests of a run by (prompt, output) tokens: TensorRT-LLM's performance overview of 1.0 and of the developer guide.
REQUESTS: Final[Mapping[tuple[int, int], int]] = MappingProxyType(
    {
        (128, 128): 30_000,
        (128, 2048): 3_000,
        (128, 4096): 1_500,
        (500, 2000): 3_000,
        (1000, 1000): 3_000,
        (1000, 2000): 1_500,
        (1024, 1024): 3_000,
        (1024, 8192): 1_500,
        (1024, 32768): 1_000,
        (2048, 128): 3_000,
        (2048, 2048): 1_500,
        (5000, 500): 1_500,
        (8192, 1024): 1_500,
        (20000, 2000): 1_000,
        (32768, 1024): 1_000,
    }
)


def most_tokens_per_s(point: PointMeasurement, model: StepModel) -> tuple[float, float, float]:
    """Output tokens/s of all GPUs at the best batch and the best layout that the figure leaves open."""
    model = on_its_host(point, model)
    found = [
        _at_best_batch(point, model if layout == point.layout else _rebuilt(model, layout))
        for layout in open_layouts(point, model.spec)
    ]
    return max(found, key=lambda ends: ends[1])


def on_its_host(point: PointMeasurement, model: StepModel) -> StepModel:
    """The model on the host of the figure: NVIDIA's maxima ran on NVIDIA's servers, on which the tables of links hold as they are."""
    if point.group not in NVIDIA_MAXIMA or model.accelerator.link_among(2) is not None:
        return model
    usual = PCIE_HOSTS * model.profile.number("collectives.factor")
    calibration = Calibration(scalars={"communication_factor": 1.0 / usual}, source=point.source)
    return _rebuilt(replace(model, profile=replace(model.profile, calibration=calibration)), model.layout)


def open_layouts(point: PointMeasurement, spec: ModelSpec) -> tuple[Layout, ...]:
    """Layouts that a maximum may have been reached with.

    A stated degree stands, but a mixture of experts may have spread its experts and attention over those GPUs. Where only
    the number of GPUs is stated (MLPerf's summary), any degrees in a node.
    """
    stated = point.layout
    if point.group == MLPERF:
        degrees = [(tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8) if tp * pp <= MLPERF_NODE]
        return tuple(Layout(tp=tp, pp=pp) for tp, pp in degrees if point.gpus % (tp * pp) == 0)
    if not spec.has_experts or stated.tp == 1 or stated.ep or stated.pp > 1:
        return (stated,)
    return stated, Layout(tp=stated.tp, ep=stated.tp, attention_dp=stated.tp)


def _rebuilt(model: StepModel, layout: Layout) -> StepModel:
    """The same question on another layout, or under another profile."""
    return StepModel.of(
        model.spec,
        model.accelerator,
        layout,
        model.profile,
        quantization=model.quantization,
        kv_dtype=model.kv_dtype,
    )


def most_sequences(point: PointMeasurement, model: StepModel) -> float:
    """Sequences that the caches of one replica hold, by the engine's own memory rules; zero where the weights leave no room.

    TensorRT-LLM admits a request only with room for all of its tokens, the others as it grows.
    """
    layout = model.layout
    held_tokens = point.prompt_tokens + point.output_tokens / (1.0 if point.engine == "tensorrt-llm" else 2.0)
    settings = EngineSettings(
        engine=engine_named(point.engine),
        memory_utilization=CACHE_SHARE,
        max_model_len=math.ceil(held_tokens),
        kv_dtype=model.kv_dtype,
        quantization=model.quantization,
    )
    pool = ledger(model.spec, model.accelerator, layout, settings, nearest=False)
    if pool.kv.available_bytes <= 0:
        return 0.0
    return min(pool.kv.tokens / held_tokens * layout.attention_dp, MOST_SEQUENCES * layout.attention_dp)


def _at_best_batch(point: PointMeasurement, model: StepModel) -> tuple[float, float, float]:
    """Output tokens/s at the best batch that memory holds, replicas side by side."""
    layout = model.layout
    replicas = max(1, round(point.gpus / layout.gpus_per_replica))
    most = most_sequences(point, model)
    if most < 1:
        return 0.0, 0.0, 0.0
    work = OfflineWork(input_tokens=point.prompt_tokens, output_tokens=point.output_tokens)
    if point.group in NVIDIA_MAXIMA:
        work, most = _as_benchmarked(point, work, model, most)
    slots = np.unique(np.rint(np.geomspace(1, most, 24)))
    steady = offline_tokens_per_s(model, work, slots=slots)
    best = int(np.argmax(steady.best))
    ends = (replicas * float(end[best]) for end in (steady.low, steady.best, steady.high))
    if point.group not in NVIDIA_MAXIMA:
        low, middle, high = ends
        return low, middle, high
    slowest, fastest = BENCH_REQUESTS_RANGE
    fed = (rate * point.output_tokens for rate in (slowest, BENCH_REQUESTS_PER_S, fastest))
    low, middle, high = (min(end, limit) for end, limit in zip(ends, fed, strict=True))
    return low, middle, high


def _as_benchmarked(
    point: PointMeasurement, work: OfflineWork, model: StepModel, most: float
) -> tuple[OfflineWork, float]:
    """(a run of trtllm-bench with the page's number of requests, sequences that its settings and the caches leave)."""
    schedulers = model.layout.schedulers
    settings = bench_settings(
        model,
        input_tokens=work.input_tokens,
        output_tokens=work.output_tokens,
        held=most / schedulers,
    )
    run = replace(
        work,
        requests=float(REQUESTS[round(point.prompt_tokens), round(point.output_tokens)]),
        token_budget=float(settings.tokens),
        graph_sizes=settings.graph_sizes,
    )
    return run, min(most, min(settings.sequences, settings.tokens - 1) * schedulers)
