"""Public measurements as our own tables of facts, and how each is predicted: serving points and single runs.

`serving.csv`: TTFT and TPOT at fixed concurrency. Restated from NVIDIA aiconfigurator-core 0.12.0, silicon_sample.csv
(Apache-2.0, copyright NVIDIA Corporation & affiliates); copies and rows of unknown layout left out; `use` says which rows
are clean and what is wrong with the others. `points.csv`: single-user runs, static batches, maximum-load figures, each
with the page it was read from. Both are written by scripts/write_measurements.py.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from calc.layout import Layout
from calc.operators import ForwardPass

FOLDER: Final = Path(__file__).parent
# InferenceX-style runs draw both lengths evenly from 0.8 to 1.0 of the nominal.
INFERENCEX_LENGTH_SHARE: Final = 0.9
LLAMA_CPP_MICRO_BATCH: Final = 512  # tokens that llama.cpp computes at a time by default
# Models whose configs were added when all constants stood: no fit sees their rows, which makes them a check of everything else.
NEVER_FITTED: Final = ("openai/gpt-oss-20b", "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMeasurement:
    """TTFT and TPOT of a replica at fixed concurrency."""

    row: int
    model: str
    checkpoint: str
    quantization: str | None
    kv_dtype: str
    accelerator: str
    engine: str
    version: str
    date: str
    model_class: str
    layout: Layout
    input_tokens: float
    output_tokens: float
    concurrency: float
    ttft_s: float
    tpot_s: float
    use: str
    source: str

    @property
    def group(self) -> tuple[str, str, str]:
        """(model, accelerator, engine): what is held out together. R1 is V3's architecture, and the rows share runs."""
        return self.model.replace("DeepSeek-R1", "DeepSeek-V3"), self.accelerator, self.engine


@dataclass(frozen=True, slots=True, kw_only=True)
class PointMeasurement:
    """One published figure.

    `metric`: decode_tokens_per_s, prefill_tokens_per_s, batch_latency_s, tpot_s, ttft_s, or most_tokens_per_s (a maximum of
    unknown batch).
    """

    id: str
    group: str
    model: str
    quantization: str | None
    kv_dtype: str
    accelerator: str
    engine: str
    version: str
    layout: Layout
    gpus: int
    batch: float | None
    depth_tokens: float
    prompt_tokens: float
    output_tokens: float
    metric: str
    value: float
    source: str

    @property
    def observed_s(self) -> float:
        """The figure as seconds of the passes that `passes` lists."""
        batch = self.batch or 1.0
        if self.metric == "decode_tokens_per_s":
            return batch / self.value
        if self.metric == "prefill_tokens_per_s":
            return batch * self.prompt_tokens / self.value
        return self.value

    def passes(self) -> tuple[tuple[ForwardPass, float], ...]:
        """(forward pass, how often) whose time is the figure."""
        batch = self.batch or 1.0
        context = self.depth_tokens + self.prompt_tokens + self.output_tokens / 2.0
        decode = ForwardPass.decode(batch, context)
        if self.metric in ("decode_tokens_per_s", "tpot_s"):
            return ((decode, 1.0),)
        if self.metric == "batch_latency_s":
            return ((self._prompt(self.prompt_tokens, batch), 1.0), (decode, self.output_tokens))
        micro = LLAMA_CPP_MICRO_BATCH if self.engine in ("llama.cpp", "ollama") else self.prompt_tokens
        tokens = min(self.prompt_tokens, float(micro))
        chunks = self.prompt_tokens * batch / tokens
        stages = self.layout.pp
        overlap = (chunks + stages - 1.0) / (chunks * stages)  # stages work on different micro-batches
        return ((self._prompt(tokens, 1.0), chunks * overlap),)

    def _prompt(self, tokens: float, sequences: float) -> ForwardPass:
        prefix = self.depth_tokens + (self.prompt_tokens - tokens) / 2.0
        return ForwardPass.prefill(tokens, sequences=sequences, prefix=prefix)


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


@cache
def serving() -> tuple[ServingMeasurement, ...]:
    """All serving measurements, clean and not, in the order of their source."""
    out = []
    for row in _rows("serving"):
        share = INFERENCEX_LENGTH_SHARE if row["source"] == "inferencex" else 1.0
        ep = int(row["expert_parallel"])
        out.append(
            ServingMeasurement(
                row=int(row["row"]),
                model=row["model"],
                checkpoint=row["checkpoint"],
                quantization=row["quantization"] or None,
                kv_dtype=row["kv_dtype"],
                accelerator=row["accelerator"],
                engine=row["engine"],
                version=row["version"],
                date=row["date"],
                model_class=row["class"],
                layout=Layout(
                    tp=int(row["gpus"]), ep=ep if ep > 1 else 0, attention_dp=int(row["attention_dp"])
                ),
                input_tokens=float(row["input_tokens"]) * share,
                output_tokens=float(row["output_tokens"]) * share,
                concurrency=float(row["concurrency"]),
                ttft_s=float(row["ttft_s"]),
                tpot_s=float(row["tpot_s"]),
                use=row["use"],
                source=row["source"],
            )
        )
    return tuple(out)


@cache
def points() -> tuple[PointMeasurement, ...]:
    """All single figures."""
    return tuple(
        PointMeasurement(
            id=row["id"],
            group=row["group"],
            model=row["model"],
            quantization=row["quantization"] or None,
            kv_dtype=row["kv_dtype"],
            accelerator=row["accelerator"],
            engine=row["engine"],
            version=row["version"],
            layout=Layout(
                tp=int(row["tp"]), pp=int(row["pp"]), attention_dp=int(row["attention_dp"]), ep=int(row["ep"])
            ),
            gpus=int(row["gpus"]),
            batch=float(row["batch"]) if row["batch"] else None,
            depth_tokens=float(row["depth"]),
            prompt_tokens=float(row["prompt_tokens"]),
            output_tokens=float(row["output_tokens"]),
            metric=row["metric"],
            value=float(row["value"]),
            source=row["source"],
        )
        for row in _rows("points")
    )
