"""The JSON of verb `model`, apart from the rest of the contract: it needs no numpy, so that the verb answers at once."""

from __future__ import annotations

from typing import Any

from calc.memory.kv import (
    cross_bytes_per_encoder_token,
    indexer_bytes_per_token,
    kv_bytes_per_token,
    sequence_bytes,
    state_bytes_per_sequence,
    state_elements,
    windows,
)
from calc.model import ModelSpec
from calc.parameters import count_parameters
from calc.quantization import stored_bytes


def model_json(spec: ModelSpec, *, context: int | None, kv_dtype: str, stored: int | None) -> dict[str, Any]:
    """Verb `model`: parameters, stored bytes, cache and state. `stored`: the checkpoint's own bytes, where known."""
    params = count_parameters(spec)
    weights = stored_bytes(spec)
    conv, recurrent = state_elements(spec)
    lengths = sorted({n for n in (1024, 8192, 32768, 131072, context, spec.max_positions) if n})
    return {
        "model": spec.id,
        "architecture": spec.architecture,
        "params": {
            "total": params.total,
            "active": params.active,
            "embedding": params.embedding,
            "lm_head": params.lm_head,
            "tied": params.tied,
            "parts": params.parts,
        },
        "weight_bytes": {
            "stored": weights.stored,
            "by_format": weights.by_format,
            "checkpoint": stored,
        },
        "kv": {
            "bytes_per_token": kv_bytes_per_token(spec, kv_dtype),
            "windows": [
                {"layers": w.layers, "window": w.window, "bytes_per_token": w.bytes_per_token}
                for w in windows(spec, kv_dtype)
            ],
            "indexer_bytes_per_token": indexer_bytes_per_token(spec, kv_dtype),
            "cross_bytes_per_encoder_token": cross_bytes_per_encoder_token(spec, kv_dtype),
            "state_bytes_per_sequence": state_bytes_per_sequence(spec),
            "state_elements": {"conv": conv, "recurrent": recurrent},
        },
        "sequence_bytes": {str(n): sequence_bytes(spec, n, kv_dtype) for n in lengths},
        "max_context": spec.max_positions,
    }
