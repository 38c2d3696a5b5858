"""Our stored bytes against what the checkpoint's own headers say, which are the truth; the difference is explained."""

from __future__ import annotations

from dataclasses import dataclass

from calc.model import ModelSpec
from calc.quantization import FORMATS, stored_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCheck:
    """`difference_bytes` is the headers' total minus ours; `why` names a known reason, or that there is none."""

    ours_bytes: int
    headers_bytes: int
    difference_bytes: int
    why: str


def check_weights(spec: ModelSpec, headers_bytes: int) -> WeightCheck:
    """Compare the bytes that follow from the config with those of the safetensors headers."""
    stored = stored_bytes(spec)
    difference = headers_bytes - stored.stored
    head = FORMATS[spec.dtype].tensor_bytes((spec.vocab_size, spec.width)) if spec.tied else 0
    known = {0: "equal to the byte"}
    if head:
        known[head] = "the checkpoint stores the tied head a second time"
    if stored.apart:
        known[stored.apart] = (
            "the checkpoint carries prediction layers, which are not part of the model itself"
        )
    why = known.get(difference)
    if why is None:
        small = abs(difference) * 1000 <= stored.stored
        why = (
            "buffers, scales or formats that the config does not tell"
            if small
            else "not explained by the config"
        )
    return WeightCheck(
        ours_bytes=stored.stored, headers_bytes=headers_bytes, difference_bytes=difference, why=why
    )
