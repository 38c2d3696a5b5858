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

MLPERF: Final = "mlperf51"
MLPERF_NODE: Final = 8  # GPUs
NVIDIA_MAXIMA: Final = ("trt10", "trt12")

# Of what is free after loading, the share that the runs gave to the cache: NVIDIA's pages say 0.95 "in many cases" and 0.90
# where that ran out of memory; MLPerf's submitters tune it.
CACHE_SHARE: Final = 0.95
MOST_SEQUENCES: Final = 4096  # cap of trtllm-bench's rule, and more than any other engine is given

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


def most_tokens_per_s(
    point: PointMeasurement, spec: ModelSpec, model: StepModel
) -> tuple[float, float, float]:
    """Output tokens/s of all GPUs at the best batch and the best layout that the figure leaves open."""
    model = on_its_host(point, model)
    found = [
        _at_best_batch(point, spec, model if layout == point.layout else _rebuilt(model, layout))
        for layout in open_layouts(point, spec)
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


def most_sequences(point: PointMeasurement, spec: ModelSpec, model: StepModel) -> float:
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
    pool = ledger(spec, model.accelerator, layout, settings, nearest=False)
    if pool.kv.available_bytes <= 0:
        return 0.0
    return min(pool.kv.tokens / held_tokens * layout.attention_dp, MOST_SEQUENCES * layout.attention_dp)


def token_budget(sequences: float, *, input_tokens: float, output_tokens: float) -> float:
    """Tokens of a step that trtllm-bench sets for a scheduler of so many sequences.

    Source: tensorrt_llm/bench/build/tuning.py, `finetune_setting`: what keeps prompts and outputs in step, at least 2,048 and at most 32,768,
    rounded up. Ignores: that the rule estimates the sequences itself, a little differently.
    """
    wanted = min(sequences * (1.0 + input_tokens / output_tokens), 32_768.0)
    step = 256 if wanted < 4096 else 512 if wanted < 8192 else 1024
    return max(2048.0, step * math.ceil(wanted / step))


def _at_best_batch(point: PointMeasurement, spec: ModelSpec, model: StepModel) -> tuple[float, float, float]:
    """Output tokens/s at the best batch that memory holds, replicas side by side."""
    layout = model.layout
    replicas = max(1, round(point.gpus / layout.gpus_per_replica))
    most = most_sequences(point, spec, model)
    if most < 1:
        return 0.0, 0.0, 0.0
    slots = np.unique(np.rint(np.geomspace(1, most, 24)))
    work = OfflineWork(input_tokens=point.prompt_tokens, output_tokens=point.output_tokens)
    if point.group in NVIDIA_MAXIMA:
        schedulers = layout.attention_dp * layout.pp
        budget = token_budget(
            min(most / layout.attention_dp, MOST_SEQUENCES) / layout.pp,
            input_tokens=point.prompt_tokens,
            output_tokens=point.output_tokens,
        )
        lengths = (round(point.prompt_tokens), round(point.output_tokens))
        work = replace(work, requests=float(REQUESTS[lengths]), token_budget=budget)
        slots = slots[slots / schedulers < budget]
    steady = offline_tokens_per_s(model, work, slots=slots)
    best = int(np.argmax(steady.best))
    low, middle, high = (float(end[best]) for end in (steady.low, steady.best, steady.high))
    return replicas * low, replicas * middle, replicas * high
