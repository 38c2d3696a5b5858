"""Config dict -> `ModelSpec`: one adapter per family, a plain tuple as registry, and refusal by name of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calc.architectures import (
    deepseek,
    deepseek_v4,
    delta_hybrids,
    dense_llama,
    encoder_decoder,
    encoders,
    gemma,
    gemma3n,
    gemma4,
    gpt,
    hybrids,
    internvl,
    lfm2,
    mixtures,
    multimodal,
    nemotron,
    opt,
    phi,
    qwen_next,
    recent_mixtures,
    remote_code,
    rwkv,
    uneven,
    uniform_mixtures,
    zamba2,
)
from calc.architectures.checkpoint import stored_as_published
from calc.architectures.config_reader import ConfigReader
from calc.architectures.family import Family
from calc.architectures.unread import refuse_unread
from calc.errors import InputError, UnsupportedArchitecture
from calc.model import ModelSpec

ADAPTERS: Final[tuple[Family, ...]] = (
    *dense_llama.FAMILIES,
    *phi.FAMILIES,
    *gemma.FAMILIES,
    *opt.FAMILIES,
    *gpt.FAMILIES,
    *remote_code.FAMILIES,
    *mixtures.FAMILIES,
    *uniform_mixtures.FAMILIES,
    *deepseek.FAMILIES,
    *deepseek_v4.FAMILIES,
    *hybrids.FAMILIES,
    *lfm2.FAMILIES,
    *nemotron.FAMILIES,
    *qwen_next.FAMILIES,
    *multimodal.FAMILIES,
    *recent_mixtures.FAMILIES,
    *delta_hybrids.FAMILIES,
    *gemma3n.FAMILIES,
    *internvl.FAMILIES,
    *gemma4.FAMILIES,
    *uneven.FAMILIES,
    *rwkv.FAMILIES,
    *zamba2.FAMILIES,
    *encoders.FAMILIES,
    *encoder_decoder.FAMILIES,
)

_BY_MODEL_TYPE: Final = {name: family for family in ADAPTERS for name in family.model_types}
_BY_ARCHITECTURE: Final = {name: family for family in ADAPTERS for name in family.architectures}


def known_model_types() -> tuple[str, ...]:
    """Every model_type that is understood, in alphabetical order."""
    return tuple(sorted(_BY_MODEL_TYPE))


def parse(
    config: Mapping[str, object], *, model_id: str, hf_quant_config: Mapping[str, object] | None = None
) -> ModelSpec:
    """The spec of a model from its config.json, and from the hf_quant_config.json that ModelOpt checkpoints add.

    Raises InputError for a field that cannot be used, and UnsupportedArchitecture for a model_type, a value or a
    structural field that is not understood: nothing is guessed.
    """
    return parse_reader(read_config(config, model_id=model_id), hf_quant_config)


def read_config(config: Mapping[str, object], *, model_id: str) -> ConfigReader:
    """The reader of a config, before parsing; afterwards its `read` lists the fields that were used."""
    if not isinstance(config, Mapping):
        raise InputError("config", type(config).__name__, "it must be a JSON object with named fields")
    return ConfigReader(config, model_id=model_id)


def parse_reader(reader: ConfigReader, hf_quant_config: Mapping[str, object] | None = None) -> ModelSpec:
    """As `parse`, on a reader whose record of fields the caller wants to see."""
    spec = find_family(reader).parse(reader)
    refuse_unread(reader)
    return stored_as_published(spec, reader, hf_quant_config)


def find_family(reader: ConfigReader) -> Family:
    """The adapter for a config: by model_type, or by class name where it states no model_type."""
    model_type = reader.raw("model_type")
    names = reader.raw("architectures")
    first = names[0] if isinstance(names, list) and names else None
    if model_type is None and isinstance(first, str) and first in _BY_ARCHITECTURE:
        return _BY_ARCHITECTURE[first]
    if isinstance(model_type, str) and model_type in _BY_MODEL_TYPE:
        return _BY_MODEL_TYPE[model_type]
    raise UnsupportedArchitecture(
        "model_type",
        model_type,
        f"this architecture ({first or 'no class name stated'}) is not known",
        next_step=f"{_nearest(model_type)}Choose a model of a known family, or paste a config with its layers and heads.",
    )


def _nearest(model_type: object) -> str:
    """A sentence with the known types that are spelled alike, or nothing."""
    from difflib import get_close_matches  # only where a model is refused: it is slow to import

    alike = get_close_matches(str(model_type), known_model_types(), n=3) if model_type else []
    return f"Spelled alike and known: {', '.join(alike)}. " if alike else ""
