"""Rates that operators run at: a datasheet and a profile turned into bytes/s and FLOP/s per kind and stored format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calc.accelerator import Accelerator
from calc.operators import FEATURES, KINDS, Kind, Operators
from calc.profile import Profile
from calc.quantization import FORMATS, StoredFormat
from calc.units import GB

Array = NDArray[np.float64]

# One lane, one way, usable, in GB/s: PCIe 3.0 base specification and after.
PCIE_LANE_BYTES_PER_S: Final = {
    "gen3": 0.985 * GB,
    "gen4": 1.969 * GB,
    "gen5": 3.938 * GB,
    "gen6": 7.563 * GB,
}
DEFAULT_LINK_BYTES_PER_S: Final = 16 * PCIE_LANE_BYTES_PER_S["gen4"]
SIXTEEN_BITS = 16


def link_bytes_per_s(accelerator: Accelerator, devices: int = 2) -> float:
    """One-way rate of a device to its peers when `devices` of them talk: their own links, else PCIe, else PCIe 4.0 x16.

    Own links serve only the devices that they join: a bridge two, a mesh each peer by its own link, a rack all of it.
    """
    own = accelerator.link_among(devices)
    return bus_bytes_per_s(accelerator) if own is None else own


def bus_bytes_per_s(accelerator: Accelerator) -> float:
    """One-way rate of a device to its host: its PCIe slot, or PCIe 4.0 x16 where none is stated."""
    words = accelerator.pcie.replace("×", "x").split()
    if words and words[0] in PCIE_LANE_BYTES_PER_S:
        lanes = next((word[1:] for word in words if word.startswith("x") and word[1:].isdigit()), "16")
        return PCIE_LANE_BYTES_PER_S[words[0]] * int(lanes)
    return DEFAULT_LINK_BYTES_PER_S


def compute_class(
    form: StoredFormat, accelerator: Accelerator, profile: Profile | None = None
) -> tuple[str, float]:
    """(compute class of a profile, peak FLOP/s) of a matmul with weights in `form` on this device.

    A quantised type that the device, or the engine of a profile, cannot compute in is dequantised to 16 bits on the way: no
    gain in compute.
    """
    name, rate = _compute_rate(form, accelerator, profile)
    return name, accelerator.rate(rate).flop_per_s


def _compute_rate(
    form: StoredFormat, accelerator: Accelerator, profile: Profile | None = None
) -> tuple[str, str]:
    """(compute class of a profile, name of the device's rate)."""
    rates = accelerator.rates
    if form.activations in ("fp8", "int8") and form.activations in rates:
        return f"compute.{form.activations}", form.activations
    if form.activations == "nvfp4" and "fp4" in rates:
        return "compute.fp4", "fp4"
    own_kernels = profile is not None and "compute.weight_only" in profile.engine.numbers
    if form.name == "mxfp4" and "fp4" in rates and "fp8" in rates and not own_kernels:
        # Serving engines multiply MXFP4 weights with MXFP8 activations. llama.cpp has one matrix kernel for all of its
        # formats, MXFP4 among them, with activations in 8-bit integers (ggml-org/llama.cpp, pull request 17906).
        return "compute.fp8", "fp8"
    return ("compute.16bit" if form.bits >= SIXTEEN_BITS else "compute.weight_only"), _rate_16bit(accelerator)


def _rate_16bit(accelerator: Accelerator) -> str:
    """Name of the rate that 16-bit weights run at."""
    return "bf16" if "bf16" in accelerator.rates else "fp16"


# Decode attention runs a block of threads for each sequence and key-value head: what a sequence costs beside its bytes was
# measured with eight heads (kernel tables, 32 query heads on 8), and goes with their number on a GPU. More than eight, each
# with fewer query heads, were not measured and are charged as eight.
MEASURED_KV_HEADS: Final = 8.0


def kv_head_share(kv_heads: Array) -> Array:
    """Share of the measured time per sequence that so many key-value heads of a GPU take."""
    return np.minimum(kv_heads / MEASURED_KV_HEADS, 1.0)


HALVED_EXPONENT: Final = (
    6.0  # of the soft minimum; 3 would have the prompt below take 7% longer than measured
)


def reached_flop_per_s(name: str, accelerator: Accelerator, profile: Profile, rate: str) -> float:
    """FLOP/s that a share of a peak comes to on this part.

    Some parts (GeForce) add up in 32 bits at half the rate that their matrix units, caches and memory paths are built
    for. A share found on parts of the whole rate says what those paths feed; the halved units then bind softly:

        1/r^6 = 1/(share F_whole)^6 + 1/F_halved^6

    Source: rates of both accumulations in NVIDIA's Ada and Blackwell papers. On an RTX 5090 it gives 3.5 s for the
    28,600-token prompt that AccelMark measured in 3.48 s, from shares of the RTX PRO 6000.
    """
    peak, share = accelerator.rate(rate).flop_per_s, profile.number(name)
    whole = accelerator.short_accumulate_rates.get("fp16" if rate == "bf16" else rate)
    if whole is None or share == 0 or profile.speaks_for_device(name):
        return share * peak
    fed = share * whole.flop_per_s
    return float((fed**-HALVED_EXPONENT + peak**-HALVED_EXPONENT) ** (-1.0 / HALVED_EXPONENT))


def _bandwidth_class(form: StoredFormat) -> str:
    if form.bits >= SIXTEEN_BITS:
        return "bandwidth.16bit"
    return "bandwidth.8bit" if form.bits > 6 else "bandwidth.4bit"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateTable:
    """What each (kind, stored format) reaches on one device with one engine: arrays of shape (kinds, formats).

    `fixed_s`: seconds per unit of each feature; the rest are single numbers. One device and engine here; `stacked` puts
    several along a leading axis for fits over many.
    """

    bytes_per_s: Array
    flop_per_s: Array
    sequence_s: Array
    half_tokens: Array
    activation_bytes_per_s: Array
    kernel_s: Any
    fixed_s: Array
    step_s: Any
    step_sequence_s: Any
    eager_layer_s: Any
    indexed_prompts: Any
    exponent: float

    @classmethod
    def stacked(cls, tables: Sequence[RateTable]) -> RateTable:
        """Several tables with a leading axis, in order."""
        joined = {
            column.name: np.stack([np.asarray(getattr(table, column.name)) for table in tables])
            for column in fields(cls)
            if column.name != "exponent"
        }
        return cls(**joined, exponent=tables[0].exponent)


def _fixed_name(feature: str, accelerator: Accelerator) -> str:
    """The profile's number for a feature; MXFP4 experts run as a fused 4-bit path only where the device computes in fp4."""
    if feature == "layers":
        return "layer_s"
    if feature == "experts_mxfp4":
        feature = "experts_4bit" if "fp4" in accelerator.rates else "experts_16bit"
    return f"layer.{feature}_s"


def _decode_attention(form: str, profile: Profile) -> tuple[float, float]:
    """(share of bandwidth, seconds per sequence) over a cache in `form`: engines differ more over 8 bits than over 16."""
    share, sequence_s = profile.number("attention.bandwidth"), profile.number("attention.sequence_s")
    if form != "fp8":
        return share, sequence_s
    return (
        profile.number("attention.bandwidth_8bit") or share,
        profile.number("attention.sequence_8bit_s") or sequence_s,
    )


def rate_table(formats: Sequence[str], accelerator: Accelerator, profile: Profile) -> RateTable:
    """Rates under a profile."""
    bandwidth = accelerator.bandwidth_bytes_per_s
    shape = (len(KINDS), len(formats))
    read, compute = np.full(shape, bandwidth), np.full(shape, inf)
    sequence, half = np.zeros(shape), np.zeros(shape)
    number = profile.number
    row = {kind: index for index, kind in enumerate(KINDS)}
    for column, name in enumerate(formats):
        form = FORMATS[name]
        share = number(_bandwidth_class(form))
        compute_name, rate = _compute_rate(form, accelerator, profile)
        dense = reached_flop_per_s(compute_name, accelerator, profile, rate)
        four_bit = form.bits <= 4 and compute_name == "compute.fp4"
        read[row[Kind.GEMM], column] = share * bandwidth
        compute[row[Kind.GEMM], column] = dense
        read[row[Kind.EXPERTS], column] = share * number("experts.bandwidth") * bandwidth
        compute[row[Kind.EXPERTS], column] = dense * number(
            "experts.compute_4bit" if four_bit else "experts.compute"
        )
    attention = reached_flop_per_s(
        "prefill_attention.compute", accelerator, profile, _rate_16bit(accelerator)
    )
    compute[row[Kind.ATTENTION]] = attention
    read[row[Kind.LATENT_ATTENTION]] = number("latent_attention.bandwidth") * bandwidth
    compute[row[Kind.LATENT_ATTENTION]] = attention
    read[row[Kind.PREFILL_ATTENTION]] = number("attention.bandwidth") * bandwidth
    compute[row[Kind.PREFILL_ATTENTION]] = attention
    half[row[Kind.PREFILL_ATTENTION]] = number("prefill_attention.half_tokens")
    if "fp8" in formats and "fp8" in accelerator.rates:
        narrow = reached_flop_per_s("prefill_attention.compute_fp8", accelerator, profile, "fp8")
        gain = max(narrow / attention, 1.0)
        at = row[Kind.PREFILL_ATTENTION], formats.index("fp8")
        compute[at], half[at] = gain * compute[at], gain * half[at]  # the softmax does not gain
    read[row[Kind.INDEXER]] = number("attention.bandwidth") * bandwidth
    compute[row[Kind.INDEXER]] = attention
    read[row[Kind.MIXER]] = number("mixer.bandwidth") * bandwidth
    compute[row[Kind.MIXER]] = attention
    for column, name in enumerate(formats):
        share, sequence[row[Kind.ATTENTION], column] = _decode_attention(name, profile)
        read[row[Kind.ATTENTION], column] = share * bandwidth
    passes = np.ones(shape)
    passes[row[Kind.EXPERTS]] = number("experts.passes")
    passes[[row[Kind.ELEMENTWISE], row[Kind.MIXER], row[Kind.INDEXER]]] = number("activations.passes")
    for column, name in enumerate(formats):
        if name == "fp8":  # one scale a matrix: known before, so that the kernel in front can write 8 bits
            passes[row[Kind.GEMM], column] = number("quantising.share_8bit")
    fixed = np.array([number(_fixed_name(name, accelerator)) for name in FEATURES])
    return RateTable(
        bytes_per_s=read,
        flop_per_s=compute,
        sequence_s=sequence,
        half_tokens=half,
        activation_bytes_per_s=number("bandwidth.activations") * bandwidth / passes,
        kernel_s=number("kernel_s"),
        fixed_s=fixed,
        step_s=number("step_s"),
        step_sequence_s=number("sequence_s"),
        eager_layer_s=number("eager_layer_s"),
        indexed_prompts=number("layer.indexer_prefill"),
        exponent=profile.exponent,
    )


def datasheet_rates(formats: Sequence[str], accelerator: Accelerator) -> RateTable:
    """Rates of the roofline: every peak is reached and nothing costs fixed time."""
    shape = (len(KINDS), len(formats))
    compute = np.full(shape, accelerator.flop_per_s_16bit.flop_per_s)
    for column, name in enumerate(formats):
        peak = compute_class(FORMATS[name], accelerator)[1]
        compute[[KINDS.index(Kind.GEMM), KINDS.index(Kind.EXPERTS)], column] = peak
        if name == "fp8" and "fp8" in accelerator.rates:
            compute[KINDS.index(Kind.PREFILL_ATTENTION), column] = peak
    return RateTable(
        bytes_per_s=np.full(shape, accelerator.bandwidth_bytes_per_s),
        flop_per_s=compute,
        sequence_s=np.zeros(shape),
        half_tokens=np.zeros(shape),
        activation_bytes_per_s=np.full(shape, inf),
        kernel_s=0.0,
        fixed_s=np.zeros(len(FEATURES)),
        step_s=0.0,
        step_sequence_s=0.0,
        eager_layer_s=0.0,
        indexed_prompts=1.0,
        exponent=inf,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """A `RateTable` looked up for every operator: arrays that broadcast to (operators, candidates).

    `short_prompt_rows` are the operators that short prompts slow, `sequence_rows` those that cost time per sequence.
    """

    bytes_per_s: Array
    flop_per_s: Array
    sequence_s: Array
    half_tokens: Array
    activation_bytes_per_s: Array
    kernel_s: Any
    fixed_s: Array  # (features, 1 or candidates)
    step_s: Any
    step_sequence_s: Any
    eager_layer_s: Any
    indexed_prompts: Any
    exponent: float
    short_prompt_rows: NDArray[np.intp] = field(init=False, repr=False)
    sequence_rows: NDArray[np.intp] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name, values in (("short_prompt_rows", self.half_tokens), ("sequence_rows", self.sequence_s)):
            object.__setattr__(self, name, np.flatnonzero(values.any(axis=1)))

    @classmethod
    def of(cls, table: RateTable, operators: Operators, which: NDArray[np.intp] | None = None) -> Rates:
        """Rates of each operator; `which` picks the stacked table of each candidate."""
        kind, form = operators.kind_index, operators.format_index
        at = (kind, form) if which is None else (which[None, :], kind, form)

        def scalar(value: Any) -> Any:
            return value if which is None else value[which]

        return cls(
            bytes_per_s=table.bytes_per_s[at],
            flop_per_s=table.flop_per_s[at],
            sequence_s=table.sequence_s[at] * kv_head_share(operators.numbers["kv_heads"]),
            half_tokens=table.half_tokens[at],
            activation_bytes_per_s=table.activation_bytes_per_s[at],
            kernel_s=scalar(table.kernel_s),
            fixed_s=table.fixed_s[:, None] if which is None else table.fixed_s[which].T,
            step_s=scalar(table.step_s),
            step_sequence_s=scalar(table.step_sequence_s),
            eager_layer_s=scalar(table.eager_layer_s),
            indexed_prompts=scalar(table.indexed_prompts),
            exponent=table.exponent,
        )
