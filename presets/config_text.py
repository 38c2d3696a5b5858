"""Untrusted JSON text -> a config object, or an error that says what the text is instead.

Nothing is executed, nothing is fetched: JSON only, with a cap on size and on nesting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from calc.architectures import read_config
from calc.errors import InputError, UnsupportedArchitecture, shown
from calc.json_text import parse_json
from calc.units import MIB

CONFIG_FILE = "config.json"
QUANTIZATION_FILE = "hf_quant_config.json"  # what ModelOpt puts beside it
MAX_CONFIG_BYTES = 4 * MIB  # the largest published one that we know has 0.93 MB (an hf_quant_config.json)

_PASTE = "Paste the model's config.json: one JSON object that names a model_type."

_SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")

# Files that lie beside config.json and are pasted in its place, each known by a field that only it has.
_OTHER_FILES: tuple[tuple[str, str, str], ...] = (
    ("weight_map", "model.safetensors.index.json", _PASTE),
    ("tokenizer_class", "tokenizer_config.json", _PASTE),
    ("added_tokens", "tokenizer.json", _PASTE),
    ("peft_type", "adapter_config.json", "An adapter has no sizes of its own: take its base model."),
    ("_from_model_config", "generation_config.json", _PASTE),
    ("image_processor_type", "preprocessor_config.json", _PASTE),
)


def parse_config(text: str | bytes, *, name: str = "config") -> dict[str, object]:
    """The JSON object in `text`; `InputError` names what was found where it is none.

    `name` is what messages call the text ("pasted config", a path). Infinity, which published configs contain, is read.
    """
    if isinstance(text, bytes):
        text = _decoded(text, name)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_CONFIG_BYTES:
        allowed = f"a config has at most {MAX_CONFIG_BYTES // MIB} MiB"
        raise InputError(name, f"{len(text)} characters", allowed, next_step=_PASTE)
    text = text.lstrip("\ufeff")
    if not text.strip():
        raise InputError(name, "nothing", "it must be a JSON object", next_step=_PASTE)
    try:
        value = parse_json(text)
    except RecursionError as error:
        allowed = "it is nested deeper than any config"
        raise InputError(name, text[:40], allowed, next_step=_PASTE) from error
    except ValueError as error:  # JSONDecodeError, and numbers with thousands of digits
        allowed = f"it must be JSON{_where(error)}"
        raise InputError(name, _excerpt(text), allowed, next_step=_PASTE) from error
    if not isinstance(value, dict):
        allowed = f"it must be a JSON object {{...}}, not {_kind(value)}"
        raise InputError(name, _excerpt(text), allowed, next_step=_PASTE)
    return value


def check_is_model_config(config: Mapping[str, object], *, name: str = "config") -> None:
    """Refuse by name an object that is no config of a language model: another file, a diffusion or an image model."""
    if "model_type" in config:
        return
    if "_class_name" in config or "_diffusers_version" in config:
        raise UnsupportedArchitecture(
            "_class_name",
            config.get("_class_name", "a diffusers part"),
            "only language models are planned, and this is part of an image or video pipeline (diffusers)",
            next_step="Choose a model that generates text.",
        )
    if "pretrained_cfg" in config or ("architecture" in config and "num_classes" in config):
        raise UnsupportedArchitecture(
            "architecture",
            config.get("architecture"),
            "only language models are planned, and this is an image model (timm)",
            next_step="Choose a model that generates text.",
        )
    for field, file, advice in _OTHER_FILES:
        if field in config:
            raise InputError(name, f"a {file} (it has {field})", "it must be a config.json", next_step=advice)
    sizes = read_config(config, model_id=name)
    if "num_hidden_layers" in config:  # an impossible size is named before the missing model_type is
        sizes.layers()
    for field in _SIZES:
        if field in config:
            sizes.int(field)


def _decoded(data: bytes, name: str) -> str:
    if data[:4] == b"GGUF":
        raise InputError(name, "a GGUF file", "it must be JSON", next_step="Give its path, ending in .gguf.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        allowed = "it must be JSON in UTF-8, and this is binary or in another encoding"
        raise InputError(name, data[:16], allowed, next_step=_PASTE) from error


def _excerpt(text: str) -> str:
    """The beginning of `text` on one line."""
    return " ".join(text[:200].split())[:60]


def _where(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f" (line {error.lineno}, column {error.colno}: {error.msg})"
    return f" ({shown(str(error))})"


def _kind(value: object) -> str:
    names: dict[type, str] = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
