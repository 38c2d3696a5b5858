"""From a `ModelSpec` and a `Layout` to the operators of a forward pass: `compile_operators`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from calc.errors import InputError
from calc.layout import Layout
from calc.model import (
    Attention,
    Block,
    Mixer,
    Mlp,
    ModelSpec,
    Moe,
    Part,
    Role,
    Stack,
    Sublayer,
    Weight,
)
from calc.operators.rows import FEATURES, Driver, Kind, Operator
from calc.operators.sharding import Degrees, rank_share
from calc.operators.sublayers import sublayer_operators
from calc.operators.surroundings import (
    ACTIVATION_BYTES,
    LOGIT_BYTES,
    Surroundings,
    is_matrix,
    product_bytes,
)
from calc.operators.table import Operators
from calc.quantization import FORMATS, KV_FORMATS, StoredFormat, format_after

ENCODERS = (Role.ENCODER, Role.VISION, Role.AUDIO)
SAMPLING_PASSES = 3.0  # softmax, top-p or top-k mask, draw
EIGHT_BITS = 8
GATHERED_LOGIT_BYTES = 2.0  # logits cross the links in 16 bits


@lru_cache(maxsize=256)
def compile_operators(
    spec: ModelSpec,
    layout: Layout,
    *,
    quantization: str | None = None,
    kv_dtype: str = "bf16",
    lora_rank: int = 0,
    lora_adapters: int = 1,
) -> Operators:
    """The operators of one forward pass on one GPU of a replica, all pipeline stages of its tensor rank together.

    quantization: None for the formats of the checkpoint, or what it is requantised to (`calc.quantization`). lora_rank
    above zero adds `lora_adapters` distinct adapters on every matrix of the decoder. Draft and
    multi-token-prediction stacks are not part of the pass. Raises `InputError` for a model that states only its total.

    Ignores: the residual traffic that fused kernels save, and the padding of batch sizes to captured graphs.
    """
    if any(weight.part is Part.UNSTATED for stack in spec.stacks for weight in stack.weights):
        raise InputError(
            "model",
            spec.id,
            "it states only totals, and an operator table needs its layers",
            next_step="Use the textbook fidelity for this model.",
        )
    if kv_dtype not in KV_FORMATS:
        raise InputError("kv_dtype", kv_dtype, f"known are {', '.join(KV_FORMATS)}")
    degrees = Degrees.of(layout)
    rows: list[Operator] = []
    rows += _inputs(spec)
    for stack in spec.stacks:
        if stack.role in (Role.MTP, Role.DRAFT):
            continue
        rows += _stack(spec, stack, degrees, kv_dtype, quantization)
    if lora_rank:
        rows += _adapters(spec, degrees, rank=lora_rank, adapters=lora_adapters)
    rows += _outputs(spec, degrees, quantization)
    if layout.pp > 1:
        rows.append(
            Operator(
                name="pipeline hop",
                group="pipeline",
                kind=Kind.POINT_TO_POINT,
                count=float(layout.pp - 1),
                message_bytes_per_token=ACTIVATION_BYTES * spec.width / degrees.attention,
                ranks=2,
            )
        )
    return Operators.of(rows, _features(spec, quantization))


def _features(spec: ModelSpec, quantization: str | None) -> dict[str, float]:
    """Layers of the decoder (of every stack, where there is none) by what costs them fixed time.

    A layer is a pair of sublayers: families that write one sublayer per block count half.
    """
    found: dict[str, float] = dict.fromkeys(FEATURES, 0.0)
    stacks = (spec.decoder,) if spec.decoder is not None else spec.stacks
    for stack in stacks:
        format_of = _format_of(stack.role, quantization)
        for count, sublayer in stack.sublayers():
            found["layers"] += count / 2.0
            for name in _sublayer_features(sublayer, format_of):
                found[name] += count
    return found


def _sublayer_features(sublayer: Sublayer, format_of: Callable[[Weight], str]) -> Iterator[str]:
    """Which of `FEATURES` a sublayer adds."""
    matrices = [w for w in sublayer.weights if is_matrix(w)]
    form = FORMATS[format_of(max(matrices, key=lambda w: w.elements)) if matrices else "bf16"]
    if isinstance(sublayer, Moe):
        yield _expert_feature(form)
        return
    if isinstance(sublayer, Mlp):
        return
    if form.activations in ("fp8", "nvfp4", "int8"):
        yield "quantised_activations"
    if isinstance(sublayer, Mixer):
        yield "mixer"
    elif isinstance(sublayer, Attention):
        if sublayer.qk_norm:
            yield "qk_norm"
    else:
        yield "latent"
        if form.bits == EIGHT_BITS:
            yield "latent_8bit"
        if sublayer.indexer is not None:
            yield "indexer"


def _expert_feature(form: StoredFormat) -> str:
    if form.activations == "nvfp4":
        return "experts_4bit"
    if form.name == "mxfp4":
        return "experts_mxfp4"
    return "experts_8bit" if form.bits == EIGHT_BITS else "experts_16bit"


def _format_of(role: Role, quantization: str | None) -> Callable[[Weight], str]:
    """The format that a weight of a stack is served in."""
    if quantization is None:
        return lambda weight: weight.stored
    return lambda weight: format_after(weight, role, quantization)


def _stack(
    spec: ModelSpec, stack: Stack, degrees: Degrees, kv_dtype: str, quantization: str | None
) -> Iterator[Operator]:
    """Operators of a stack; equal blocks are one group, wherever they stand."""
    counts: dict[Block, int] = {}
    for run in stack.runs:
        counts[run.block] = counts.get(run.block, 0) + run.count
    is_encoder = stack.role in ENCODERS
    alone = is_encoder and spec.decoder is None
    driver = Driver.PREFILL_TOKENS if alone else Driver.ENCODER_TOKENS if is_encoder else Driver.TOKENS
    for index, (block, count) in enumerate(counts.items()):
        around = Surroundings(
            group=f"{stack.role} {_describe(block)} {index}"
            if len(counts) > 1
            else f"{stack.role} {_describe(block)}",
            count=float(count),
            width=stack.width,
            degrees=degrees,
            format_of=_format_of(stack.role, quantization),
            kv_element_bytes=KV_FORMATS[kv_dtype][1] / KV_FORMATS[kv_dtype][0],
            driver=driver,
            causal_cache=not is_encoder,
            attention_format="fp8" if kv_dtype == "fp8" else "bf16",
        )
        for sublayer in block.sublayers:
            yield from sublayer_operators(sublayer, around)
    yield from _loose_weights(stack, driver, degrees, _format_of(stack.role, quantization))


def _describe(block: Block) -> str:
    """A short name of a block: what its sublayers are."""
    return "+".join(type(sublayer).__name__.lower() for sublayer in block.sublayers)


def _loose_weights(
    stack: Stack, driver: Driver, degrees: Degrees, format_of: Callable[[Weight], str]
) -> Iterator[Operator]:
    """Projectors, patch embeddings and other matrices that belong to no block; a final norm."""
    matrices = [
        w for w in stack.weights if is_matrix(w) and w.part not in (Part.POSITION, Part.EMBEDDING, Part.NORM)
    ]
    for weight in matrices:
        share = rank_share(weight, ranks=degrees.dense)
        yield Operator(
            name=weight.name,
            group=f"ends of {stack.role}",
            kind=Kind.GEMM,
            format=format_of(weight),
            driver=driver,
            weight_bytes=FORMATS[format_of(weight)].tensor_bytes(weight.shape) * share,
            flop_per_token=2.0 * weight.elements * share,
            **product_bytes(weight.elements / weight.shape[0], weight.shape[0], FORMATS[format_of(weight)]),
        )
    yield Operator(
        name="final norm",
        group=f"ends of {stack.role}",
        kind=Kind.ELEMENTWISE,
        driver=driver,
        activation_bytes_per_token=ACTIVATION_BYTES * 4.0 * stack.width,
    )


def _inputs(spec: ModelSpec) -> Iterator[Operator]:
    if spec.embeddings:
        yield Operator(
            name="embedding",
            group="inputs",
            kind=Kind.ELEMENTWISE,
            activation_bytes_per_token=ACTIVATION_BYTES * 2.0 * spec.width,
        )


def _outputs(spec: ModelSpec, degrees: Degrees, quantization: str | None) -> Iterator[Operator]:
    """Output head, gathering of its shards, sampling."""
    if spec.decoder is None:
        return
    heads = [w for w in (spec.lm_head or spec.embeddings[:1]) if is_matrix(w)]
    format_of = _format_of(Role.DECODER, quantization)
    for head in heads:
        yield Operator(
            name="output head",
            group="outputs",
            kind=Kind.GEMM,
            format=format_of(head),
            driver=Driver.OUTPUT_ROWS,
            weight_bytes=FORMATS[format_of(head)].tensor_bytes(head.shape) / degrees.dense,
            flop_per_token=2.0 * head.elements / degrees.dense,
            **product_bytes(spec.width, spec.vocab_size / degrees.dense, FORMATS[format_of(head)]),
        )
    if degrees.dense > 1:
        yield Operator(
            name="logits all-gather",
            group="outputs",
            kind=Kind.ALL_GATHER,
            driver=Driver.OUTPUT_ROWS,
            ranks=degrees.dense,
            message_bytes_per_token=GATHERED_LOGIT_BYTES * spec.vocab_size,
        )
    yield Operator(
        name="sampling",
        group="outputs",
        kind=Kind.ELEMENTWISE,
        driver=Driver.OUTPUT_ROWS,
        activation_bytes_per_token=LOGIT_BYTES * SAMPLING_PASSES * spec.vocab_size,
        kernels=SAMPLING_PASSES,
    )


def _adapters(spec: ModelSpec, degrees: Degrees, *, rank: int, adapters: int) -> Iterator[Operator]:
    """Low-rank adapters on every matrix of the decoder's blocks: two thin GEMMs each, grouped by adapter."""
    decoder = spec.decoder
    if decoder is None:
        return
    touched: Callable[[Weight], bool] = lambda w: is_matrix(w) and w.part in (Part.ATTENTION, Part.MLP)  # noqa: E731
    for run in decoder.runs:
        matrices = [w for w in run.block.weights() if touched(w)]
        elements = sum(rank * (w.shape[-1] + w.shape[-2]) for w in matrices) / degrees.dense
        if elements:
            yield Operator(
                name="adapters",
                group=f"{decoder.role} adapters",
                kind=Kind.GEMM,
                count=float(run.count),
                weight_bytes=ACTIVATION_BYTES * elements * adapters,
                flop_per_token=2.0 * elements,
                **product_bytes(rank * len(matrices), rank * len(matrices), FORMATS["bf16"]),
                kernels=2.0 * len(matrices) / 2.0,
            )
