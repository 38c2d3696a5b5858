"""The constants that a profile holds: their names, the peak or unit of each, and what values they may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from calc.errors import InputError
from calc.provenance import Provenance
from calc.typed_fields import check_value, member_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """One constant: its value, what it is a share of (or its unit), and where it comes from.

    `error` is the median relative error of the fit that made it, over points that the fit did not see; None where it was
    not fitted alone.
    """

    value: float
    of: str
    provenance: Provenance
    error: float | None = None
    source: str = ""

    def as_json(self) -> dict[str, object]:
        return {
            "value": self.value,
            "of": self.of,
            "provenance": str(self.provenance),
            "error": self.error,
            "source": self.source,
        }


SHARE: Final = "share"  # prefix of the `of` of fractions, which lie between 0 and 1
LEAST_SHARE: Final = 1e-6  # less of a peak is no measurement; times are divided by it
MAY_BE_NOTHING: Final = ("prefill_attention.compute_fp8", "attention.bandwidth_8bit", "prefill.share")
LARGEST: Final = 1e6  # of anything else in a profile: seconds, tokens, factors

# What a device profile holds, and the peak or unit of each.
DEVICE_NUMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bandwidth.16bit": "share of memory bandwidth, 16-bit weights",
        "bandwidth.8bit": "share of memory bandwidth, 8-bit weights",
        "bandwidth.4bit": "share of memory bandwidth, 4-bit weights",
        "bandwidth.activations": "share of memory bandwidth, activations",
        "compute.16bit": "share of the dense 16-bit rate",
        "compute.fp8": "share of the dense fp8 rate",
        "compute.fp4": "share of the dense fp4 rate",
        "compute.int8": "share of the dense int8 rate",
        "compute.weight_only": "share of the dense 16-bit rate, weights dequantised on the way",
        "kernel_s": "seconds per kernel",
    }
)

# What an engine profile holds. Engines with matrix kernels of their own may state device numbers as well.
ENGINE_NUMBERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attention.bandwidth": "share of memory bandwidth, reading cached keys and values",
        "attention.sequence_s": "seconds per sequence and layer of decode attention with eight key-value heads",
        "attention.bandwidth_8bit": "share of memory bandwidth, reading keys and values of an 8-bit cache; 0: as of 16 bits",
        "attention.sequence_8bit_s": "seconds per sequence and layer over an 8-bit cache; 0: as over 16 bits",
        "latent_attention.bandwidth": "share of memory bandwidth, reading cached latents",
        "mixer.bandwidth": "share of memory bandwidth, reading and writing recurrent state",
        "prefill_attention.compute": "share of the dense 16-bit rate, long prompts",
        "prefill_attention.compute_fp8": "share of the dense fp8 rate, prompts over an 8-bit cache; 0: they run in 16 bits",
        "prefill_attention.half_tokens": "tokens of a prompt at which half of that share is reached",
        "experts.bandwidth": "share of what dense weights reach, reading experts",
        "experts.compute": "share of what dense weights reach, computing experts",
        "experts.compute_4bit": "share of what dense weights reach, computing 4-bit experts",
        "experts.passes": "times the counted traffic of routed activations, what caches and fused kernels leave of it",
        "experts.routing": "share of the distinct experts of uniform routing that real traffic touches",
        "activations.passes": "times the counted activation traffic",
        "quantising.share_8bit": "share of the inputs of 8-bit products that a pass of its own quantises",
        "collectives.factor": "times the fastest measured kernel, small messages",
        "layer_s": "seconds per layer",
        "layer.qk_norm_s": "seconds per layer with query and key norms",
        "layer.latent_s": "seconds per layer with latent attention",
        "layer.latent_8bit_s": "seconds per layer with latent attention in 8 bits",
        "layer.indexer_s": "seconds per layer with an indexer",
        "layer.indexer_prefill": "times the prefill attention of layers with an indexer",
        "layer.mixer_s": "seconds per layer with a recurrent mixer",
        "layer.experts_16bit_s": "seconds per expert layer, 16-bit or weight-only experts",
        "layer.experts_8bit_s": "seconds per expert layer, 8-bit experts",
        "layer.experts_4bit_s": "seconds per expert layer, 4-bit experts",
        "layer.quantised_activations_s": "seconds per layer whose attention quantises activations",
        "step_s": "seconds per step",
        "sequence_s": "seconds per sequence and step",
        "eager_layer_s": "seconds per layer of a step that no graph captures",
        "prefill.share": "share of the other requests' prefill work that a decoding request sees",
        "ttft.server_s": "seconds of server overhead before the first token",
        "ttft.steps": "decode steps that a prompt waits",
        "ttft.prefill": "times the prefill's own time",
    }
)


# Numbers that older profiles do not state, and what they mean there.
ENGINE_DEFAULTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "prefill_attention.compute_fp8": 0.0,
        "attention.bandwidth_8bit": 0.0,
        "attention.sequence_8bit_s": 0.0,
        "experts.passes": 1.0,
        "quantising.share_8bit": 1.0,
    }
)


def check_numbers(kind: str, numbers: Mapping[str, Number], known: Mapping[str, str]) -> None:
    """Raises InputError for a number that is not known, out of its range, or a share above one."""
    for name, number in numbers.items():
        if name not in known:
            raise InputError(f"{kind} number", name, f"known are {', '.join(known)}")
        if not 0 <= number.value <= LARGEST:
            raise InputError(name, number.value, f"it must be from 0 to {LARGEST:g}")
        if known[name].startswith(SHARE) and number.value > 1:
            raise InputError(name, number.value, "a share of a peak cannot exceed 1")
        if known[name].startswith(SHARE) and number.value < LEAST_SHARE and name not in MAY_BE_NOTHING:
            raise InputError(name, number.value, f"a share that is reached is at least {LEAST_SHARE:g}")


def number_from_json(data: object, name: str = "profile number") -> Number:
    """Read back a constant; raises InputError for a value, an origin or an error that is none."""
    if not isinstance(data, Mapping):
        raise InputError(name, data, "it must be an object with value, of and provenance")
    error = data.get("error")
    check_value(f"{name} value", data.get("value"), "float")
    check_value(f"{name} error", error, "float | None")
    for text in ("of", "source"):
        check_value(f"{name} {text}", data.get(text, ""), "str")
    return Number(
        value=float(data["value"]),
        of=data.get("of", ""),
        provenance=member_of(Provenance, data.get("provenance"), f"{name} provenance"),
        error=error,
        source=data.get("source", ""),
    )
