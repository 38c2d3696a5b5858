"""The constants of device and engine profiles that are fitted, with their priors, and the profile that a set of them means.

Unknowns are few, positive, and have log-normal priors from kernel tables (see `parameters`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calc.profile import DeviceProfile, EngineProfile, Profile, Schedule
from calc.profile_numbers import DEVICE_NUMBERS, ENGINE_NUMBERS, Number
from calc.provenance import Provenance
from presets.profiles import PARENTS

FAMILY = {
    "h100-sxm5-80gb": "hopper",
    "h200-sxm-141gb": "hopper",
    "b200-sxm-180gb": "blackwell",
    "b300-sxm-288gb": "blackwell",
    "gb200-gpu": "blackwell",
}
ENGINES = ("vllm", "sglang", "tensorrt-llm")
US = 1e-6
OLD = "1.1"  # TensorRT-LLM up to 1.1 is slower on latent attention in 8 bits


@dataclass(frozen=True)
class Parameter:
    """A fitted number: where it goes (scope is a family, an engine or ""), its prior and the prior's log-width."""

    name: str
    scope: str
    prior: float
    width: float
    limit: float = np.inf


def parameters() -> list[Parameter]:
    """All fitted constants with their priors: kernel tables for shares, round numbers for overheads."""
    out = [
        Parameter("bandwidth.16bit", "hopper", 0.87, 0.06, 1),
        Parameter("bandwidth.16bit", "blackwell", 0.80, 0.08, 1),
        Parameter("bandwidth.4bit", "blackwell", 0.70, 0.10, 1),
        Parameter("compute.16bit", "hopper", 0.80, 0.10, 1),  # compute: medians of the GEMM curves of
        Parameter("compute.16bit", "blackwell", 0.68, 0.10, 1),  # H100, H200, B200, GB200 over three engines
        Parameter("compute.fp8", "hopper", 0.67, 0.12, 1),
        Parameter("compute.fp8", "blackwell", 0.55, 0.12, 1),
        Parameter("compute.fp4", "blackwell", 0.46, 0.12, 1),
        Parameter("compute.weight_only", "", 0.60, 0.15, 1),
        Parameter("latent_attention.bandwidth", "", 0.60, 0.20, 1),
        Parameter("prefill_attention.compute", "", 0.55, 0.15, 1),
        Parameter("experts.compute", "", 0.55, 0.25, 1),
        Parameter("experts.compute_4bit", "", 0.75, 0.20, 1),
        Parameter("experts.routing", "", 0.75, 0.12, 1),
        Parameter("activations.passes", "", 1.5, 0.35),
        Parameter("activations.passes", "tensorrt-llm", 1.1, 0.35),
        Parameter("layer.qk_norm_s", "", 10 * US, 0.35),
        Parameter("layer.latent_s", "", 20 * US, 0.35),
        Parameter("layer.latent_8bit_s", "tensorrt-llm@1.1", 50 * US, 0.5),
        Parameter("layer.indexer_s", "", 40 * US, 0.5),
        Parameter("layer.indexer_prefill", "", 2.0, 0.4),
        Parameter("layer.mixer_s", "", 30 * US, 0.4),
        Parameter("layer.experts_16bit_s", "", 20 * US, 0.35),
        Parameter("layer.experts_8bit_s", "", 25 * US, 0.35),
        Parameter("layer.experts_4bit_s", "", 8 * US, 0.5),
        Parameter("layer.quantised_activations_s", "", 7 * US, 0.35),
        Parameter("step_s", "", 650 * US, 0.3),
    ]
    for engine, layer in zip(ENGINES, (22, 22, 12), strict=True):
        out += [
            Parameter("layer_s", engine, layer * US, 0.3),
            Parameter("sequence_s", engine, 16 * US, 0.3),
            Parameter("collectives.factor", engine, 1.15, 0.10),
            Parameter("eager_layer_s", engine, 50 * US, 0.35),
        ]
    return out


# Numbers that serving points do not tell apart; from kernel tables and arithmetic.
FIXED_DEVICE = {
    "bandwidth.8bit": None,  # the 16-bit share
    "bandwidth.activations": 0.8,
    "compute.int8": 0.55,
    "bandwidth.16bit": 0.75,
    "compute.16bit": 0.6,
    "compute.fp8": 0.5,
    "compute.fp4": 0.4,
    "kernel_s": 2.0 * US,
}
FIXED_ENGINE = {
    "prefill_attention.compute_fp8": 0.0,
    "attention.bandwidth_8bit": 0.0,
    "attention.sequence_8bit_s": 0.0,
    "mixer.bandwidth": 0.7,
    "prefill_attention.half_tokens": 500.0,
    "experts.bandwidth": 0.92,
    "experts.passes": 1.0,
    "quantising.share_8bit": 1.0,
    "layer.latent_8bit_s": 0.0,
    "layer_s": 10.0 * US,
    "sequence_s": 5.0 * US,
    "collectives.factor": 1.15,
    "eager_layer_s": 0.0,
    "prefill.share": 1.0,
    "ttft.server_s": 0.02,
    "ttft.steps": 5.0,
    "ttft.prefill": 1.3,
}


# Engines for one user start a prompt at once: no burst, no queue of steps. llama.cpp's first token comes 3.3 and 3.9 ms after its own prompt
# time at the median (loopback, `python -m bench endpoint`), whatever its steps take.
LOCAL_FIRST_TOKEN = {"ttft.server_s": 0.004, "ttft.steps": 0.0, "ttft.prefill": 1.0}


# Medians of kernel curves (fit_kernels), which tell apart what serving points do not. TensorRT-LLM computes prompts in 8 bits over an
# 8-bit cache. Decode attention by family, engine and cache: Hopper's kernels lose over 8-bit caches, on Blackwell engines are alike, and
# the RTX PRO 6000 has tables of its own (vLLM's have 0.97 too, and so has a public run of vLLM on one card; on two cards, whose messages are
# then all that is left to be wrong, they would leave 16% of another: see docs/accuracy.md). Experts: of the passes over routed activations half stay in the L2 of cards where it is large
# beside the memory's rate (96 and 128 MB; two cards, three engines: curves with that factor free give 0.5 there, 1.0 to 1.3 elsewhere).
FROM_KERNELS = {
    ("prefill_attention.compute_fp8", "tensorrt-llm"): 0.41,
    ("experts.passes", "ada"): 0.5,
    ("experts.passes", "blackwell-gddr"): 0.5,
    ("experts.compute_4bit", "blackwell-gddr"): 1.0,
    ("attention.bandwidth", ""): 0.845,
    ("attention.sequence_s", ""): 0.14 * US,
    ("attention.bandwidth", "blackwell-gddr"): 0.971,
    ("attention.sequence_s", "blackwell-gddr"): 0.11 * US,
    ("attention.bandwidth", "vllm/hopper"): 0.917,
    ("attention.sequence_s", "vllm/hopper"): 0.19 * US,
    ("attention.bandwidth_8bit", "vllm/hopper"): 0.739,
    ("attention.sequence_8bit_s", "vllm/hopper"): 0.202 * US,
    ("attention.bandwidth", "sglang/hopper"): 0.952,
    ("attention.sequence_s", "sglang/hopper"): 0.155 * US,
    ("attention.bandwidth_8bit", "sglang/hopper"): 0.596,
    ("attention.sequence_8bit_s", "sglang/hopper"): 0.163 * US,
    ("attention.bandwidth", "tensorrt-llm/hopper"): 0.847,
    ("attention.sequence_s", "tensorrt-llm/hopper"): 0.245 * US,
    ("attention.bandwidth_8bit", "tensorrt-llm/hopper"): 0.851,
    ("attention.sequence_8bit_s", "tensorrt-llm/hopper"): 0.067 * US,
    ("attention.bandwidth", "blackwell"): 0.961,
    ("attention.sequence_s", "blackwell"): 0.071 * US,
    ("attention.bandwidth_8bit", "blackwell"): 0.945,
    ("attention.sequence_8bit_s", "blackwell"): 0.059 * US,
}


# What an engine's source says. TensorRT-LLM's gate and its attention write the 8 bits that the next product reads (`swiglu` with a scale in
# modules/gated_mlp.py, `has_quant_scale` in modules/attention.py); what norms feed is quantised apart: 2 h of the 2 h + q + i inputs of a
# layer, 31% in Llama 3.1 8B and 70B, 23% in Qwen3-32B.
FROM_SOURCE = {("quantising.share_8bit", "tensorrt-llm"): 0.3}


@dataclass(frozen=True)
class Origin:
    """Where a fitted number is from, and the median held-out error of the fit that made it."""

    source: str
    error: float | None


def number(name: str, value: float, origin: Origin | None = None) -> Number:
    """A constant with its origin; without one it is assumed."""
    of = DEVICE_NUMBERS.get(name) or ENGINE_NUMBERS[name]
    if origin is None:
        return Number(value=value, of=of, provenance=Provenance.ASSUMED)
    return Number(value=value, of=of, provenance=Provenance.FITTED, error=origin.error, source=origin.source)


def profile_of(
    values: dict[tuple[str, str], float],
    family: str,
    engine: str,
    *,
    version: str = "",
    links: dict[str, tuple],
    origins: dict[tuple[str, str], Origin] | None = None,
) -> Profile:
    """The profile that a set of constants means for one family, engine and version.

    A constant is taken from its closest scope: engine on a family, engine and version, engine, family, all.
    """
    parent = PARENTS.get(family, family)
    scopes = (
        f"{engine}/{family}",
        f"{engine}/{parent}",
        *([f"{engine}@{version}"] if version else []),
        engine,
    )

    def pick(name: str, default: float | None, order: tuple[str, ...]) -> Number:
        for scope in order:
            if (name, scope) in values:
                return number(name, values[name, scope], (origins or {}).get((name, scope)))
        if default is None:
            raise KeyError(name, order)
        return number(name, default)

    device = {}
    for name in DEVICE_NUMBERS:
        default = FIXED_DEVICE.get(name)
        if name in ("bandwidth.8bit", "bandwidth.4bit"):
            default = pick("bandwidth.16bit", 0.8, (family, parent, "")).value
        device[name] = pick(name, default, (family, parent, ""))
    own = {name: pick(name, 0.0, scopes) for name in DEVICE_NUMBERS if _own(values, name, scopes)}
    fixed = FIXED_ENGINE if engine in ENGINES else FIXED_ENGINE | LOCAL_FIRST_TOKEN
    engine_numbers = {
        name: pick(name, fixed.get(name), (*scopes, family, parent, "")) for name in ENGINE_NUMBERS
    }
    curves = links.get(family, links.get(parent, links["ampere"]))
    return Profile(
        device=DeviceProfile(
            family=family,
            accelerators=tuple(a for a, f in FAMILY.items() if f == family),
            numbers=device,
            all_reduce=curves[0],
            all_gather=curves[1],
        ),
        engine=EngineProfile(
            engine=engine,
            version=version,
            schedule=SCHEDULES.get(engine, Schedule.SINGLE_USER),
            families=(family,) if (f"{engine}/{family}" in {scope for _, scope in values}) else (),
            numbers={**engine_numbers, **_own_kernels(own)},
            chunk_tokens=512 if engine in ("llama.cpp", "ollama") else 8192,
        ),
    )


def _own_kernels(own: dict[str, Number]) -> dict[str, Number]:
    """What an engine's own kernels reach of the device: a format that was not measured is as one that was."""
    filled = dict(own)
    read = own.get("bandwidth.8bit") or own.get("bandwidth.16bit") or own.get("bandwidth.4bit")
    if read is not None:
        for name in ("bandwidth.16bit", "bandwidth.8bit", "bandwidth.4bit"):
            filled.setdefault(name, read)
    computed = own.get("compute.16bit") or own.get("compute.weight_only")
    if computed is not None:
        filled.setdefault("compute.weight_only", computed)
        filled.setdefault("compute.16bit", computed)
    return filled


def _own(values: dict[tuple[str, str], float], name: str, scopes: tuple[str, ...]) -> bool:
    return any((name, scope) in values for scope in scopes if scope)


SCHEDULES = {
    "vllm": Schedule.MIXED,
    "tensorrt-llm": Schedule.MIXED,
    "sglang": Schedule.PREFILL_FIRST,
}
