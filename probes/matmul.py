"""Matrix products `x @ W.T` in every compute format, with operands as engines lay them out, and the answer's check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from probes.harness import Bench, checked

BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
# Largest difference to fp32 relative to the largest result. 16-bit rounding of operands and result is below 1%; e4m3
# keeps 3 bits of fraction.
TOLERANCE = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 3e-2, "fp16": 2e-2, "fp8": 0.12, "int8": 1e-6}
CHECKED_ROWS = 4
INT8_FEWEST_ROWS = 32  # torch._int_mm on CUDA refuses 16 rows and fewer
INT8_LARGEST = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A weight as stored, (out, in), and what it is in a model."""

    name: str
    out_features: int
    in_features: int

    def weight_bytes(self, form: str) -> int:
        return self.out_features * self.in_features * BYTES[form]

    def flop(self, tokens: int) -> float:
        return 2.0 * tokens * self.out_features * self.in_features


# Llama 3 8B, the most measured shapes there are; a chosen model brings its own.
DEFAULT_SHAPES = (
    Shape(name="gate_up", out_features=28_672, in_features=4096),
    Shape(name="down", out_features=4096, in_features=14_336),
    Shape(name="qkv", out_features=6144, in_features=4096),
    Shape(name="o", out_features=4096, in_features=4096),
    Shape(name="lm_head", out_features=128_256, in_features=4096),
)
# On a CPU smaller ones show the same and end sooner.
CPU_SHAPES = (
    Shape(name="gate_up", out_features=8192, in_features=2048),
    Shape(name="down", out_features=2048, in_features=8192),
    Shape(name="qkv", out_features=3072, in_features=2048),
    Shape(name="o", out_features=2048, in_features=2048),
)


def shapes(bench: Bench) -> tuple[Shape, ...]:
    """The weights to multiply with."""
    return CPU_SHAPES if bench.on_cpu else DEFAULT_SHAPES


def torch_type(form: str) -> torch.dtype:
    """The torch type of operands in a compute format."""
    if form == "fp8":
        return torch.float8_e4m3fnuz if _needs_fnuz() else torch.float8_e4m3fn
    plain = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    return plain.get(form, torch.int8)


def _needs_fnuz() -> bool:
    """MI300 computes in the fp8 without infinities and negative zero."""
    if not torch.version.hip:
        return False
    return "gfx94" in str(getattr(torch.cuda.get_device_properties(0), "gcnArchName", ""))


def allow_tf32(*, allowed: bool) -> None:
    """TF32 on or off for fp32 products, by the switch that this torch has."""
    matmul = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        matmul.fp32_precision = "tf32" if allowed else "ieee"
    else:
        matmul.allow_tf32 = allowed


def operand(bench: Bench, rows: int, columns: int, form: str) -> torch.Tensor:
    """A random operand in a compute format."""
    if form == "int8":
        values = bench.randn(rows, columns, scale=INT8_LARGEST / 3)
        return values.round().clamp(-INT8_LARGEST, INT8_LARGEST).to(torch.int8)
    return bench.randn(rows, columns, dtype=torch_type(form), scale=columns**-0.5)


def product(form: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """`x @ W.T` in a compute format; fp8 with one scale per tensor and a bf16 result."""
    if form == "int8":
        return lambda x, weight: torch._int_mm(x, weight.t())  # noqa: SLF001 - the only int8 product that torch has
    if form == "fp8":
        return _scaled
    return lambda x, weight: torch.mm(x, weight.t())


def _scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    one = _one(x.device)
    scaled = getattr(functional, "scaled_mm", None)
    kinds = getattr(functional, "ScalingType", None)
    if scaled is not None and kinds is not None:
        return scaled(
            x,
            weight.t(),
            one,
            kinds.TensorWise,
            one,
            kinds.TensorWise,
            output_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
    return torch._scaled_mm(  # noqa: SLF001 - what older torch has in place of functional.scaled_mm
        x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


_ONES: dict[str, torch.Tensor] = {}


def _one(device: torch.device) -> torch.Tensor:
    """A scale of one on the device, made once: making it inside a graph would be timed with it."""
    return _ONES.setdefault(str(device), torch.ones((), device=device))


def answer_error(x: torch.Tensor, weight: torch.Tensor, got: torch.Tensor, form: str) -> float:
    """The difference of a product to fp32 on a few rows; raises WrongAnswerError beyond the format's tolerance."""
    rows = min(CHECKED_ROWS, x.shape[0])
    columns = min(256, weight.shape[0])
    expected = x[:rows].float().cpu() @ weight[:columns].float().cpu().t()
    return checked(got[:rows, :columns].cpu(), expected, tolerance=TOLERANCE[form])
