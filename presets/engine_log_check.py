"""Predicted against logged for the public start-up logs: specs and settings of a row, and the quantities to compare.

Three questions, each with its own rows: does the KV arithmetic give the logged tokens from the logged bytes; are the
weights right; is the whole pool right when nothing is taken from the log but its settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from calc.architectures import parse
from calc.errors import RidgebeamError
from calc.layout import Layout
from calc.memory.engines import Engine, EngineSettings, ledger
from calc.model import Attention, Block, LatentAttention, ModelSpec, Role, Run, Stack
from calc.units import GIB
from presets.engine_log_cards import card_of
from presets.engine_logs import EngineLog, flag_number, is_legacy, readings, release_of, shapes

HALF_DIGIT_BYTES = 0.005 * GIB  # logs print two decimals of GiB
LAYER_TEXT = {"first 24": 24, "first 32": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One quantity of one row. `error` is relative, `rounding` the relative half digit of what the log printed."""

    case_id: str
    quantity: str
    predicted: float
    logged: float
    rounding: float = 0.0

    @property
    def error(self) -> float:
        return self.predicted / self.logged - 1 if self.logged else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """All comparisons of a row, or why there are none."""

    case_id: str
    comparisons: tuple[Comparison, ...] = ()
    unusable: str = ""

    @property
    def worst(self) -> Comparison | None:
        return max(self.comparisons, key=lambda c: abs(c.error), default=None)


def spec_of(log: EngineLog, configs: Path) -> ModelSpec | str:
    """The model of a row, or the reason why there is none. `configs` is a folder of config files."""
    reading = readings().get(log.case_id)
    if reading is not None and reading.unusable:
        return reading.unusable
    name = (reading.config if reading else None) or log.config
    if not name:
        return "no config of the same shapes is at hand"
    try:
        return named_spec(name, configs)
    except RidgebeamError as error:
        return f"the model is refused: {error.message}"


@cache
def named_spec(name: str, configs: Path) -> ModelSpec:
    """A spec by config name, or "shape:NAME" for a shape of the readings."""
    if not name.startswith("shape:"):
        return parse(json.loads((configs / f"{name}.json").read_text(encoding="utf-8")), model_id=name)
    shape = shapes()[name.removeprefix("shape:")]
    if "layers" in shape:
        return _cache_only_spec(name, shape["layers"])
    base = json.loads((configs / f"{shape['base']}.json").read_text(encoding="utf-8"))
    for key in shape.get("drop", ()):
        base.pop(key, None)
    base.update(_cut(base, shape.get("fields", {})))
    for section, fields in (("text_config", shape.get("text")), ("vision_config", shape.get("vision"))):
        if fields:
            base[section] = base[section] | _cut(base[section], fields)
    return parse(base, model_id=name)


def _cut(base: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with "first N" turned into the first N entries of the base's list."""
    return {
        key: list(base[key])[: LAYER_TEXT[value]] if isinstance(value, str) and value in LAYER_TEXT else value
        for key, value in fields.items()
    }


def _cache_only_spec(name: str, layers: list[dict[str, Any]]) -> ModelSpec:
    """A model of which only the caches are known: no weights, so it can test KV arithmetic and nothing else."""
    runs = []
    for layer in layers:
        sublayer: Attention | LatentAttention
        if layer["kind"] == "latent":
            sublayer = LatentAttention(
                n_heads=1, kv_lora_rank=layer["rank"], rope_dim=layer["rope"], nope_dim=1, value_dim=1
            )
        else:
            sublayer = Attention(
                n_heads=layer["kv_heads"],
                n_kv_heads=layer["kv_heads"],
                head_dim=layer["head_dim"],
                window=layer.get("window"),
            )
        runs.append(Run(count=layer["count"], block=Block(sublayers=(sublayer,))))
    return ModelSpec(
        id=name,
        architecture="cache layers only",
        model_type="cache-only",
        vocab_size=1,
        width=1,
        embeddings=(),
        lm_head=(),
        tied=True,
        stacks=(Stack(role=Role.DECODER, width=1, runs=tuple(runs)),),
        max_positions=None,
    )


def settings_of(log: EngineLog) -> EngineSettings:
    """The settings that a row states or that its reading adds; nothing of what the engine reported."""
    reading = readings().get(log.case_id)
    batched, seqs = flag_number(log, "max_num_batched_tokens"), flag_number(log, "max_num_seqs")
    values: dict[str, Any] = {
        "engine": engine_of(log),
        "version": release_of(log),
        "legacy_engine": is_legacy(log) if "vllm" in log.engine else None,
        "memory_utilization": log.utilization,
        "max_model_len": log.max_model_len,
        "block_size": log.block_size if not _hybrid_block(log) else None,
        "kv_dtype": kv_dtype_of(log),
        "max_batched_tokens": int(batched) if batched else None,
        "max_seqs": int(seqs) if seqs else None,
        "enforce_eager": "enforce_eager" in log.flags,
        "chunked_prefill": True if "chunked prefill" in log.flags else None,
        "offline": "offline" in log.flags,
    }
    if reading is not None:
        values |= dict(reading.settings)
    return EngineSettings(**values)


def _hybrid_block(log: EngineLog) -> bool:
    """Whether the block size that a log reports is the engine's own alignment rather than a flag."""
    return (log.block_size or 0) > 256


def engine_of(log: EngineLog) -> Engine:
    """The engine of a row."""
    name = log.engine.lower()
    for key, engine in (
        ("vllm", Engine.VLLM),
        ("sglang", Engine.SGLANG),
        ("tensorrt", Engine.TENSORRT_LLM),
        ("ollama", Engine.OLLAMA),
    ):
        if key in name:
            return engine
    return Engine.LLAMA_CPP


def kv_dtype_of(log: EngineLog) -> str | None:
    """The cache format that the column names, or None for the engine's own."""
    text = log.kv_dtype.lower()
    found = re.match(r"(fp8\w*|nvfp4|q8_0|q4_0|bf16|fp16|f16)", text)
    return found[1] if found else None


def layout_of(log: EngineLog) -> Layout:
    """The layout of a row; experts are spread over TP (and DP) where the log says so."""
    return Layout(
        tp=log.tp, pp=log.pp, dp=log.dp, ep=log.tp * log.dp if log.ep and log.tp * log.dp > 1 else 0
    )


def check_kv(log: EngineLog, configs: Path) -> RowResult:
    """KV arithmetic alone: the logged bytes in, tokens, blocks, concurrency or needed bytes out."""
    spec = spec_of(log, configs)
    if isinstance(spec, str):
        return RowResult(case_id=log.case_id, unusable=spec)
    settings = settings_of(log)
    available = settings.available_kv_bytes if settings.available_kv_bytes is not None else log.kv_bytes
    if available is None and log.needed_bytes is None:
        return RowResult(case_id=log.case_id, unusable="the log states no bytes of the KV cache")
    settings = replace(settings, available_kv_bytes=available or 1.0)
    try:
        kv = ledger(spec, card_of(log), layout_of(log), settings).kv
    except RidgebeamError as error:
        return RowResult(case_id=log.case_id, unusable=f"refused: {error.message}")
    printed = 2 if settings.engine is Engine.SGLANG else 1  # SGLang prints K and V apart, each rounded
    digits = printed * HALF_DIGIT_BYTES / available if available else 0.0
    found: list[Comparison] = []

    def compare(quantity: str, predicted: float, logged: float | None, rounding: float) -> None:
        if logged:
            found.append(
                Comparison(
                    case_id=log.case_id,
                    quantity=quantity,
                    predicted=predicted,
                    logged=logged,
                    rounding=rounding,
                )
            )

    if available and available > 0:
        compare("tokens", kv.printed_tokens, log.tokens, digits)
        compare("blocks", kv.num_blocks, log.blocks, digits)
        if log.max_model_len and log.concurrency:
            compare("concurrency", kv.max_concurrency, log.concurrency, digits + 0.005 / log.concurrency)
    if log.needed_bytes:
        compare("needed bytes", kv.needed_bytes, log.needed_bytes, HALF_DIGIT_BYTES / log.needed_bytes)
    if not found:
        return RowResult(
            case_id=log.case_id, unusable="the log states neither tokens, blocks nor needed bytes"
        )
    return RowResult(case_id=log.case_id, comparisons=tuple(found))
