"""Which engine serves which format on which accelerator: one table for plans, levers, nearest changes and pages.

A row names an engine, a scheme (a family of stored formats or of cache formats) and the hardware that it needs. What is
in no row is not served. Typed and made-up accelerators, whose kind nobody knows, are not judged.

Sources, read 2026-11-30: vLLM, docs/features/quantization/README.md ("Supported Hardware") and fp8.md, int8.md,
getting_started/installation/gpu.md (0.31, 0.32), vllm/platforms/rocm.py (`supports_fp8`: gfx94, gfx95, gfx12), issue
26431 and pull request 24577 (8-bit caches on Ampere), int8_w8a8.md and pull request 25935 (no INT8 product from compute
capability 10.0 on); SGLang, docs/advanced_features/quantization.md ("Platform Compatibility") and pull request 28137
(`int8_scaled_mm` is built for capabilities 7.5 to 9.0); TensorRT-LLM, supported-hardware.html and the support matrix of
0.18 (precisions by architecture); ModelOpt, support matrix; llama.cpp, README ("Supported backends"). Where a document
is silent the row is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from calc.accelerator import Accelerator, Confirmation
from calc.engine import Engine
from calc.errors import InputError
from calc.gguf_mixtures import MIXTURES
from calc.model import ModelSpec
from calc.quantization import FORMATS, stored_bytes, stored_format, weight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Hardware that a scheme needs under one engine.

    nvidia: lowest compute capability, None where NVIDIA parts do not run it; below: capabilities from here on do not.
    native: from this capability on the product is computed in the format itself, below it weights are dequantised.
    amd: architectures by their LLVM names (prefixes). intel, x86, arm, apple: Intel GPUs, x86 hosts, Arm hosts, Apple GPUs.
    other: further architectures, which the engine's hardware plugins serve.
    """

    nvidia: float | None = None
    below: float | None = None
    amd: tuple[str, ...] = ()
    intel: bool = False
    x86: bool = False
    arm: bool = False
    apple: bool = False
    other: tuple[str, ...] = ()
    note: str = ""


MI300: Final = ("gfx94", "gfx95")
ROCM_VLLM: Final = ("gfx90a", "gfx94", "gfx95", "gfx11", "gfx12")
ROCM_LLAMA: Final = ("gfx9", "gfx10", "gfx11", "gfx12")
EVERYWHERE: Final = Needs(nvidia=5.0, amd=ROCM_LLAMA, intel=True, x86=True, arm=True, apple=True)
MARLIN: Final = "below compute capability 8.9 weights only, by Marlin kernels"
KEPT_ONLY: Final = (
    "below compute capability 8.9 kept in 8 bit and multiplied in 16 (FlashInfer or Triton attention)"
)

WEIGHTS: Final[Mapping[tuple[Engine, str], Needs]] = MappingProxyType(
    {
        (Engine.VLLM, "16 bit"): Needs(
            nvidia=7.0, amd=ROCM_VLLM, intel=True, x86=True, arm=True, other=("Gaudi", "TPU")
        ),
        (Engine.VLLM, "fp8"): Needs(nvidia=7.5, amd=(*MI300, "gfx12"), other=("Gaudi",), note=MARLIN),
        (Engine.VLLM, "int8"): Needs(nvidia=7.5, below=10.0, x86=True, other=("TPU",)),
        (Engine.VLLM, "int4"): Needs(nvidia=7.5, intel=True, x86=True),
        (Engine.VLLM, "weight-only 8 bit"): Needs(nvidia=7.5, intel=True, x86=True),
        (Engine.VLLM, "bitsandbytes"): Needs(nvidia=7.0),
        (Engine.VLLM, "mxfp4"): Needs(nvidia=8.0, amd=MI300),
        (Engine.VLLM, "nvfp4"): Needs(
            nvidia=8.0, note="below compute capability 10.0 weights only, by Marlin kernels"
        ),
        (Engine.VLLM, "gguf"): Needs(nvidia=7.0, amd=ROCM_VLLM),
        (Engine.SGLANG, "16 bit"): Needs(nvidia=7.5, amd=MI300, x86=True),
        (Engine.SGLANG, "fp8"): Needs(nvidia=8.0, amd=MI300, note=MARLIN),
        (Engine.SGLANG, "int8"): Needs(nvidia=8.0, below=10.0, amd=MI300, x86=True),
        (Engine.SGLANG, "int4"): Needs(nvidia=8.0, amd=MI300),
        (Engine.SGLANG, "weight-only 8 bit"): Needs(nvidia=8.0, amd=MI300),
        (Engine.SGLANG, "bitsandbytes"): Needs(nvidia=8.0),
        (Engine.SGLANG, "mxfp4"): Needs(nvidia=9.0, amd=MI300),
        (Engine.SGLANG, "nvfp4"): Needs(nvidia=10.0, amd=("gfx90a", "gfx94")),
        (Engine.SGLANG, "gguf"): Needs(nvidia=8.0),
        (Engine.TENSORRT_LLM, "16 bit"): Needs(nvidia=8.0),
        (Engine.TENSORRT_LLM, "fp8"): Needs(nvidia=8.9),
        (Engine.TENSORRT_LLM, "int8"): Needs(nvidia=8.0, below=10.0),
        (Engine.TENSORRT_LLM, "int4"): Needs(nvidia=8.0),
        (Engine.TENSORRT_LLM, "mxfp4"): Needs(nvidia=9.0),
        (Engine.TENSORRT_LLM, "nvfp4"): Needs(nvidia=10.0),
        (Engine.LLAMA_CPP, "16 bit"): EVERYWHERE,
        (Engine.LLAMA_CPP, "gguf"): EVERYWHERE,
        (Engine.LLAMA_CPP, "mxfp4"): EVERYWHERE,
    }
)

CACHES: Final[Mapping[tuple[Engine, str], Needs]] = MappingProxyType(
    {
        (Engine.VLLM, "16 bit"): WEIGHTS[Engine.VLLM, "16 bit"],
        (Engine.VLLM, "fp8"): Needs(nvidia=8.0, amd=MI300, note=KEPT_ONLY),
        (Engine.VLLM, "nvfp4"): Needs(nvidia=10.0),
        (Engine.SGLANG, "16 bit"): WEIGHTS[Engine.SGLANG, "16 bit"],
        (Engine.SGLANG, "fp8"): Needs(nvidia=8.0, amd=MI300, note=KEPT_ONLY),
        (Engine.TENSORRT_LLM, "16 bit"): WEIGHTS[Engine.TENSORRT_LLM, "16 bit"],
        (Engine.TENSORRT_LLM, "fp8"): Needs(nvidia=8.9),
        (Engine.TENSORRT_LLM, "int8"): Needs(nvidia=8.0, below=10.0),
        (Engine.TENSORRT_LLM, "nvfp4"): Needs(nvidia=10.0),
        (Engine.LLAMA_CPP, "16 bit"): EVERYWHERE,
        (Engine.LLAMA_CPP, "ggml"): EVERYWHERE,
    }
)

WHAT_RUNS: Final[Mapping[Engine, Engine]] = MappingProxyType({Engine.OLLAMA: Engine.LLAMA_CPP})
SIXTEEN_BITS: Final = 16
# How the names of formats that are dequantised on the way begin, and their scheme.
BEGINNINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bnb": "bitsandbytes",
        "mxfp4": "mxfp4",
        "nvfp4": "nvfp4",
        "int8": "weight-only 8 bit",
        "gptq8": "weight-only 8 bit",
        "int4": "int4",
        "awq": "int4",
        "gptq": "int4",
    }
)
X86: Final = (
    "Zen 3",
    "Zen 4",
    "Zen 5",
    "Sapphire Rapids",
    "Sapphire Rapids HBM",
    "Emerald Rapids",
    "Granite Rapids",
)
INTEL_GPUS: Final = ("Xe-HPC", "Xe-HPG", "Xe2-HPG")


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """Whether a format is served; `why` is the reason where it is not, and a remark where it is."""

    served: bool
    why: str = ""

    def __bool__(self) -> bool:
        return self.served


def engine_support(engine: Engine | str, accelerator: Accelerator) -> Support:
    """Whether the engine runs on the accelerator at all: whether it serves 16-bit weights there."""
    return weight_support("bf16", engine, accelerator)


def check_engine(engine: Engine | str, accelerator: Accelerator) -> None:
    """Raises `InputError` where the engine does not run on the accelerator, naming those that do."""
    support = engine_support(engine, accelerator)
    if not support:
        running = [str(other) for other in Engine if engine_support(other, accelerator)]
        raise InputError(
            "engine",
            str(engine),
            support.why,
            next_step=f"Engines that run there: {', '.join(running) or 'none that is modelled'}.",
        )


def weight_support(quantization: str, engine: Engine | str, accelerator: Accelerator) -> Support:
    """Whether `engine` serves weights stored as `quantization` on `accelerator`; raises InputError for an unknown name."""
    what = f"weights in {quantization}"
    return _support(WEIGHTS, weight_scheme(quantization), what, engine, accelerator)


def cache_support(kv_dtype: str, engine: Engine | str, accelerator: Accelerator) -> Support:
    """Whether `engine` keeps the KV cache as `kv_dtype` on `accelerator`."""
    return _support(CACHES, cache_scheme(kv_dtype), f"a KV cache in {kv_dtype}", engine, accelerator)


def formats_support(
    formats: tuple[str, ...], kv_dtype: str, engine: Engine | str, accelerator: Accelerator
) -> Support:
    """Whether all weight formats of a model and its cache format are served: the first that is not says why."""
    remark = ""
    for support in (
        engine_support(engine, accelerator),
        *(weight_support(name, engine, accelerator) for name in formats),
        cache_support(kv_dtype, engine, accelerator),
    ):
        if not support:
            return support
        remark = remark or support.why
    return Support(served=True, why=remark)


_served: dict[tuple[int, str], tuple[ModelSpec, tuple[str, ...]]] = {}
KEPT_SERVED = 1024


def served_formats(spec: ModelSpec, quantization: str) -> tuple[str, ...]:
    """The stored formats of a model's matrices when served as `quantization` ("auto": as the checkpoint is).

    Kept by the spec's identity: hashing a spec of hundreds of weights takes longer than a ledger.
    """
    found = _served.get((id(spec), quantization))
    if found is not None and found[0] is spec:
        return found[1]
    counted = stored_bytes(spec) if quantization == "auto" else weight_bytes(spec, quantization)
    formats = tuple(name for name in counted.by_format if name != "int32")
    if len(_served) >= KEPT_SERVED:
        _served.pop(next(iter(_served)), None)
    _served[id(spec), quantization] = (spec, formats)
    return formats


def not_served(
    spec: ModelSpec, quantization: str, kv_dtype: str, engine: Engine | str, accelerator: Accelerator
) -> tuple[str, ...]:
    """A warning for numbers of formats that the engine does not serve on the accelerator; nothing where it serves them.

    For answers that state what sizes or times come to (a ledger, a step); a plan refuses such formats.
    """
    support = formats_support(served_formats(spec, quantization), kv_dtype, engine, accelerator)
    return (
        () if support else (f"{support.why}: it would refuse to start, and this is what it would come to.",)
    )


@lru_cache(maxsize=512)
def weight_scheme(quantization: str) -> str:
    """The scheme that a stored format belongs to: what decides which kernels serve it."""
    form = None if quantization in MIXTURES else stored_format(quantization)
    if form is not None and form.bits >= SIXTEEN_BITS:
        return "16 bit"
    if form is not None and form.activations in ("fp8", "int8") and not form.name.startswith("bnb"):
        return form.activations
    return next((scheme for start, scheme in BEGINNINGS.items() if quantization.startswith(start)), "gguf")


def cache_scheme(kv_dtype: str) -> str:
    """The scheme of a cache format."""
    name = kv_dtype.lower()
    if name in ("auto", "bf16", "fp16", "fp32"):
        return "16 bit"
    if name.startswith("fp8"):
        return "fp8"
    return "ggml" if name in FORMATS and weight_scheme(name) == "gguf" else name


def _support(
    table: Mapping[tuple[Engine, str], Needs],
    scheme: str,
    what: str,
    engine: Engine | str,
    accelerator: Accelerator,
) -> Support:
    if _unknown_kind(accelerator):
        return Support(served=True)
    runs = WHAT_RUNS.get(Engine(engine), Engine(engine))
    if not _has(WEIGHTS[runs, "16 bit"], accelerator):
        return Support(served=False, why=f"{engine} does not run on {accelerator.name}")
    needs = table.get((runs, scheme))
    if needs is None:
        return Support(served=False, why=f"{engine} does not serve {what}")
    if _has(needs, accelerator):
        return Support(served=True, why=needs.note if _capability(accelerator) is not None else "")
    return Support(served=False, why=f"{engine} does not serve {what} on {accelerator.name}")


def _unknown_kind(accelerator: Accelerator) -> bool:
    """Made-up parts of lessons, and typed ones that do not say what they are."""
    typed = accelerator.confirmation is Confirmation.TYPED and not accelerator.compute_capability
    return typed or accelerator.confirmation is Confirmation.MADE_UP


def _has(needs: Needs, accelerator: Accelerator) -> bool:
    """Whether the accelerator is one of those that the row names."""
    capability = _capability(accelerator)
    if capability is not None:
        from_here = needs.nvidia is not None and capability >= needs.nvidia
        return from_here and (needs.below is None or capability < needs.below)
    kinds = (
        (needs.intel, accelerator.arch in INTEL_GPUS),
        (needs.x86, accelerator.arch in X86),
        (needs.arm, accelerator.arch.startswith("Neoverse")),
        (needs.apple, accelerator.vendor == "Apple"),
        (True, accelerator.arch in needs.other),
        (bool(needs.amd), (accelerator.compute_capability or "").startswith(needs.amd or ("none",))),
    )
    return any(named and is_one for named, is_one in kinds)


def _capability(accelerator: Accelerator) -> float | None:
    """The CUDA compute capability; None for what is not of NVIDIA."""
    text = accelerator.compute_capability or ""
    return float(text) if text.replace(".", "", 1).isdigit() else None
