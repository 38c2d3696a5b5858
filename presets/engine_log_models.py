"""The model of a public start-up log: a config of the same shapes, a known config with changed fields, or cache layers alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from calc.architectures import parse
from calc.errors import RidgebeamError
from calc.model import Attention, Block, LatentAttention, ModelSpec, Role, Run, Stack
from presets.engine_logs import EngineLog, readings, shapes

LAYER_TEXT = {"first 24": 24, "first 32": 32, "first 48": 48}


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
    for key in shape.get("drop_text", ()):
        base["text_config"].pop(key, None)
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
