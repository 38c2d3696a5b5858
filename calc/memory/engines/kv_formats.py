"""How engines store cached keys and values: the formats of `calc.quantization`, and what engines add to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from calc.errors import InputError
from calc.quantization import KV_FORMATS


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKvFormat:
    """`bytes_per_element` of K and V with block scales included; `head_scale_bytes` per token, head and K or V."""

    name: str
    bytes_per_element: float
    head_scale_bytes: int = 0


# Beyond the plain formats: an fp32 scale for each token and head, and the latent layout of sparse attention.
ENGINE_KV_FORMATS: Final[dict[str, EngineKvFormat]] = {
    name: EngineKvFormat(name=name, bytes_per_element=size / block)
    for name, (block, size) in KV_FORMATS.items()
} | {
    "fp8_per_token_head": EngineKvFormat(
        name="fp8_per_token_head", bytes_per_element=1.0, head_scale_bytes=4
    ),
    "int8_per_token_head": EngineKvFormat(
        name="int8_per_token_head", bytes_per_element=1.0, head_scale_bytes=4
    ),
    "fp8_ds_mla": EngineKvFormat(name="fp8_ds_mla", bytes_per_element=1.0),
}
_ALIASES: Final = {
    "float32": "fp32",
    "f32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "bfloat16": "bf16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
}


def engine_kv_format(name: str) -> EngineKvFormat:
    """The format of a name as engines' flags spell it, or `InputError` listing the known ones."""
    key = name.strip().lower()
    key = _ALIASES.get(key, key)
    if key not in ENGINE_KV_FORMATS:
        raise InputError("kv_dtype", name, f"it must be one of {', '.join(ENGINE_KV_FORMATS)}")
    return ENGINE_KV_FORMATS[key]
