"""Formats that weights and caches are stored in, and the bytes of a model in them: scales and zero points counted.

A `StoredFormat` turns a tensor's shape into bytes. `FORMATS` is the registry; `stored_bytes` sums a spec as published,
`weight_bytes` answers "what if it were stored in ...", with embeddings, head, norms, routers and towers left in 16 bit
as the quantisers leave them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from calc.errors import InputError
from calc.gguf_mixtures import MEANS, MIXTURES, tensor_type, uniform
from calc.model import ModelSpec, Part, Role, Weight
from calc.parameters import APART, owned_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFormat:
    """How a matrix (..., out, in) is laid out on disk and in memory.

    `bits`: payload of one element. `group`: elements along the input that share a scale, with `group_bytes` for scale
    and zero point (fractions of a byte for packed zeros). `block`: rows x columns that share one scale of
    `block_bytes`. `row_bytes`: per output row. `input_bytes`: per input column. `matrix_bytes`: per matrix.
    `activations`: the type that a matmul with such weights computes in (weight-only formats dequantise to 16 bit).
    """

    name: str
    bits: float
    group: int | None = None
    group_bytes: float = 0.0
    block: tuple[int, int] | None = None
    block_bytes: float = 0.0
    row_bytes: float = 0.0
    input_bytes: float = 0.0
    matrix_bytes: float = 0.0
    activations: str = "bf16"
    source: str = ""

    def tensor_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of one tensor of `shape`, all scales included."""
        if len(shape) < 2:
            return _up(shape[0] * self.bits / 8) if shape else _up(self.bits / 8)
        n_out, n_in = shape[-2], shape[-1]
        matrices = prod(shape[:-2])
        total = n_out * n_in * self.bits / 8
        if self.group is not None:
            total += n_out * -(-n_in // self.group) * self.group_bytes
        if self.block is not None:
            total += -(-n_out // self.block[0]) * -(-n_in // self.block[1]) * self.block_bytes
        total += n_out * self.row_bytes + n_in * self.input_bytes + self.matrix_bytes
        return matrices * _up(total)

    @property
    def bytes_per_element(self) -> float:
        """Payload and group scales of one element of a large matrix; what is paid per row or matrix is left out."""
        per_group = self.group_bytes / self.group if self.group else 0.0
        per_block = self.block_bytes / prod(self.block) if self.block else 0.0
        return self.bits / 8 + per_group + per_block


def _up(value: float) -> int:
    return int(-(-value // 1))


_AWQ: Final = "AutoAWQ: int32-packed qweight, packed zeros, fp16 scales"
_GPTQ: Final = "GPTQModel: int32-packed qweight and zeros, fp16 scales, int32 g_idx per input"
_CT: Final = (
    "compressed-tensors: packed weight, scale per group or channel in 16 bit, weight_shape as two int64"
)
_MODELOPT: Final = "NVIDIA ModelOpt: weight scale and input scale in fp32 per matrix"
_BNB: Final = "bitsandbytes: absmax per 64 elements, its 16- and 256-entry code books"
_GGML: Final = "ggml block layouts (ggml-common.h)"


_PLAIN: Final = (
    StoredFormat(name="bf16", bits=16),
    StoredFormat(name="fp16", bits=16, activations="fp16"),
    StoredFormat(name="fp32", bits=32, activations="fp32"),
    StoredFormat(name="int32", bits=32),
)

_EIGHT_BIT: Final = (
    StoredFormat(name="fp8", bits=8, matrix_bytes=8, activations="fp8", source=_MODELOPT),
    StoredFormat(name="fp8-channel", bits=8, row_bytes=2, activations="fp8", source=_CT),
    StoredFormat(
        name="fp8-row", bits=8, row_bytes=4, activations="fp8", source="FBGEMM: fp32 scale per output row"
    ),
    StoredFormat(
        name="fp8-block",
        bits=8,
        block=(128, 128),
        block_bytes=4,
        activations="fp8",
        source="DeepSeek-V3: weight_scale_inv, fp32 per 128 x 128",
    ),
    StoredFormat(
        name="fp8-block-bf16", bits=8, block=(128, 128), block_bytes=2, activations="fp8", source=_CT
    ),
    StoredFormat(
        name="fp8-block-e8m0",
        bits=8,
        block=(128, 128),
        block_bytes=1,
        activations="fp8",
        source="DeepSeek-V4: one-byte power-of-two scale per 128 x 128",
    ),
    StoredFormat(name="mxfp8", bits=8, group=32, group_bytes=1, activations="fp8", source="OCP MX v1.0"),
    StoredFormat(name="int8", bits=8, row_bytes=2, activations="int8", source=_CT),
    StoredFormat(name="int8-weight", bits=8, row_bytes=2, source=_CT),
    StoredFormat(
        name="bnb-8bit", bits=8, row_bytes=4, activations="int8", source="bitsandbytes LLM.int8: SCB"
    ),
)

_FOUR_BIT: Final = (
    StoredFormat(
        name="mxfp4", bits=4, group=32, group_bytes=1, source="OCP MX v1.0: E2M1 with an E8M0 scale per 32"
    ),
    StoredFormat(
        name="nvfp4", bits=4, group=16, group_bytes=1, matrix_bytes=8, activations="nvfp4", source=_MODELOPT
    ),
    StoredFormat(name="nvfp4-weight", bits=4, group=16, group_bytes=1, matrix_bytes=8, source=_MODELOPT),
    StoredFormat(name="int4-channel", bits=4, row_bytes=2, matrix_bytes=16, source=_CT),
    StoredFormat(name="awq", bits=4, group=128, group_bytes=2.5, source=_AWQ),
    StoredFormat(name="gptq", bits=4, group=128, group_bytes=2.5, input_bytes=4, source=_GPTQ),
    StoredFormat(
        name="bnb-4bit", bits=4, group=64, group_bytes=1 + 4 / 256, matrix_bytes=64 + 1024, source=_BNB
    ),
    StoredFormat(name="bnb-4bit-single", bits=4, group=64, group_bytes=4, matrix_bytes=64, source=_BNB),
)

_GROUPED: Final = tuple(
    form
    for size in (32, 64, 128)
    for form in (
        StoredFormat(name=f"int4-g{size}", bits=4, group=size, group_bytes=2, matrix_bytes=16, source=_CT),
        StoredFormat(name=f"int8-g{size}", bits=8, group=size, group_bytes=2, matrix_bytes=16, source=_CT),
        StoredFormat(name=f"awq-g{size}", bits=4, group=size, group_bytes=2.5, source=_AWQ),
        StoredFormat(name=f"gptq-g{size}", bits=4, group=size, group_bytes=2.5, input_bytes=4, source=_GPTQ),
        StoredFormat(name=f"gptq8-g{size}", bits=8, group=size, group_bytes=3, input_bytes=4, source=_GPTQ),
    )
)

# ggml types: (elements of a block, its bytes), scales inside.
_BLOCKS: Final = {
    "q4_0": (32, 18),
    "q4_1": (32, 20),
    "q5_0": (32, 22),
    "q5_1": (32, 24),
    "q8_0": (32, 34),
    "q2_k": (256, 84),
    "q3_k": (256, 110),
    "q4_k": (256, 144),
    "q5_k": (256, 176),
    "q6_k": (256, 210),
    "iq1_s": (256, 50),
    "iq1_m": (256, 56),
    "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74),
    "iq2_s": (256, 82),
    "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
    "iq4_nl": (32, 18),
    "iq4_xs": (256, 136),
}

_GGUF: Final = tuple(
    StoredFormat(name=name, bits=8 * size / elements, source=_GGML)
    for name, (elements, size) in _BLOCKS.items()
)


def _mean(name: str, less: str, more: str, share: float) -> StoredFormat:
    """A tensor that has the larger ggml type in `share` of the layers and the smaller one in the others."""
    (few, small), (many, large) = _BLOCKS[less], _BLOCKS[more]
    bits = 8 * ((1 - share) * small / few + share * large / many)
    return StoredFormat(name=name, bits=bits, source=_GGML)


_MEANS: Final = tuple(_mean(name, *types) for name, types in MEANS.items())

FORMATS: Final[dict[str, StoredFormat]] = {
    form.name: form for form in (*_PLAIN, *_EIGHT_BIT, *_FOUR_BIT, *_GROUPED, *_GGUF, *_MEANS)
}

# What a model can be asked to be stored in: the formats, and llama.cpp's mixtures of them.
WHAT_IF: Final = (*(name for name in FORMATS if name not in MEANS and name != "int32"), *MIXTURES)

# What a cache element may be stored in: (elements of a block, bytes of a block).
KV_FORMATS: Final[dict[str, tuple[int, int]]] = {
    "bf16": (1, 2),
    "fp16": (1, 2),
    "fp32": (1, 4),
    "fp8": (1, 1),
    "int8": (1, 1),
    "nvfp4": (16, 9),  # 8 bytes and one fp8 scale
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
}

QUANTIZED_PARTS: Final = (Part.ATTENTION, Part.MIXER, Part.MLP, Part.EXPERTS, Part.SHARED_EXPERTS)


def stored_format(name: str) -> StoredFormat:
    """The format called `name`; raises InputError for another one."""
    if name not in FORMATS:
        raise InputError("format", name, f"known formats are {', '.join(WHAT_IF)}")
    return FORMATS[name]


def cache_bytes(elements: int, kv_dtype: str) -> int:
    """Bytes of `elements` cached elements; a started block counts whole."""
    if kv_dtype not in KV_FORMATS:
        raise InputError("kv_dtype", kv_dtype, f"known are {', '.join(KV_FORMATS)}")
    block, size = KV_FORMATS[kv_dtype]
    return -(-elements // block) * size


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightBytes:
    """Bytes of all weights: the model itself, by format, and what only drafting uses (MTP, draft) apart."""

    stored: int
    by_format: dict[str, int]
    apart: int = 0


def stored_bytes(spec: ModelSpec) -> WeightBytes:
    """The checkpoint as published, each tensor in the format that the config tells."""
    return _summed(spec, quantization=None)


def beside_as_stored(spec: ModelSpec, formats: Sequence[str]) -> list[tuple[str, int, float]]:
    """(format, bytes of all weights in it, times those as they are stored) for each of `formats`."""
    now = stored_bytes(spec).stored
    sizes = [(name, weight_bytes(spec, name).stored) for name in formats]
    return [(name, size, size / now) for name, size in sizes]


def weight_bytes(spec: ModelSpec, quantization: str | None = None) -> WeightBytes:
    """The weights in another format: matrices of attention, mixers, feed-forward layers and experts of text stacks.

    Embeddings, head, norms, biases, routers, indexers, convolutions and towers stay as they are stored, where that is
    a 16- or 32-bit format, and count as bf16 where the checkpoint quantises them. GGUF names change embeddings and
    head too. None: as published.
    """
    if quantization is not None and quantization not in MIXTURES:
        stored_format(quantization)
    return _summed(spec, quantization)


def format_after(weight: Weight, role: Role, quantization: str) -> str:
    """The format of one tensor when the model is requantised to `quantization`."""
    mixture = MIXTURES.get(quantization)
    form = stored_format(quantization if mixture is None else mixture.main)
    plain = weight.stored if weight.stored in ("bf16", "fp16", "fp32") else "bf16"
    if form.bits >= 16:
        return quantization
    matrix = len(weight.shape) >= 2 and not weight.name.endswith(("conv1d", "conv"))
    if weight.part is Part.UNSTATED:
        return form.name
    if form.source == _GGML:
        if not matrix or weight.part not in (*QUANTIZED_PARTS, Part.EMBEDDING, Part.LM_HEAD):
            return plain
        is_head = weight.part is Part.LM_HEAD or weight.tied
        return tensor_type(mixture or uniform(quantization), weight.name, weight.shape[-1], is_head=is_head)
    text = role not in (Role.VISION, Role.AUDIO)
    return quantization if matrix and text and weight.part in QUANTIZED_PARTS else plain


def _summed(spec: ModelSpec, quantization: str | None) -> WeightBytes:
    by_format: Counter[str] = Counter()
    apart = 0
    for role, count, weight in _all_weights(spec):
        name = weight.stored if quantization is None else format_after(weight, role, quantization)
        size = count * FORMATS[name].tensor_bytes(weight.shape)
        if role in APART:
            apart += size
        else:
            by_format[name] += size
    return WeightBytes(stored=sum(by_format.values()), by_format=dict(by_format), apart=apart)


def _all_weights(spec: ModelSpec) -> Iterator[tuple[Role, int, Weight]]:
    for weight in (*spec.embeddings, *spec.lm_head):
        yield Role.DECODER, 1, weight
    for stack in spec.stacks:
        for count, weight in owned_weights(stack):
            yield stack.role, count, weight
