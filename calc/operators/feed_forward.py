"""Operators of feed-forward layers: dense ones, mixtures of experts, and the exchange of tokens between ranks."""

from __future__ import annotations

from collections.abc import Iterator

from calc.model import Mlp, Moe, Part, Split
from calc.operators.rows import Kind, Operator
from calc.operators.sharding import Degrees
from calc.operators.surroundings import ACTIVATION_BYTES, Surroundings, computed_bytes
from calc.quantization import FORMATS


def mlp_operators(mlp: Mlp, around: Surroundings) -> Iterator[Operator]:
    """The two or three products of a dense feed-forward layer, and the sum over its ranks."""
    ranks = around.degrees.dense
    outward = [w for w in mlp.weights if w.split is Split.ROW]
    inward = [w for w in mlp.weights if w not in outward]
    yield from around.gemm("gate and up projection" if mlp.gated else "up projection", inward, ranks=ranks)
    yield around.elementwise("activation", 1.5 * mlp.intermediate / ranks)
    yield from around.gemm("down projection", outward, ranks=ranks)
    yield from around.all_reduce("feed-forward all-reduce", ranks)


def moe_operators(moe: Moe, around: Surroundings) -> Iterator[Operator]:
    """Router, routed experts as two grouped GEMMs, shared experts beside them, and the exchange of tokens."""
    degrees = around.degrees
    router = [w for w in moe.weights if w.part is Part.ROUTER]
    shared = [w for w in moe.weights if w.part is Part.SHARED_EXPERTS]
    routed = [w for w in moe.weights if w.part is Part.EXPERTS and len(w.shape) >= 2]
    yield from around.gemm("router", router, ranks=1)
    form = around.format_of(max(routed, key=lambda w: w.elements)) if routed else "bf16"
    yield from _exchange("expert dispatch", moe, around, element_bytes=_dispatched_bytes(form, degrees))
    elements = sum(w.elements for w in routed)
    yield around.operator(
        "experts",
        Kind.EXPERTS,
        format=form,
        weight_bytes=sum(around.stored_bytes(w) for w in routed) / degrees.experts,
        flop_per_token=2.0 * elements * moe.top_k / moe.n_experts / degrees.experts,
        activation_bytes_per_token=_routed_bytes(moe, around, form),
        n_experts=float(moe.n_experts),
        top_k=float(moe.top_k),
        token_ranks=float(degrees.token_ranks),
        kernels=2.0,  # two grouped GEMMs; sorting and summing is part of the layer's own time in a profile
    )
    outward = [w for w in shared if w.split is Split.ROW]
    inward = [w for w in shared if w not in outward]
    yield from around.gemm("shared experts up projection", inward, ranks=degrees.dense)
    yield from around.gemm("shared experts down projection", outward, ranks=degrees.dense)
    yield from _exchange("expert combine", moe, around, element_bytes=ACTIVATION_BYTES)
    if degrees.token_ranks == 1:
        yield from around.all_reduce("feed-forward all-reduce", degrees.experts)


DISPATCH_BYTES = 1.0  # wide expert parallelism sends tokens in fp8 and gets sums back in 16 bits


def _routed_bytes(moe: Moe, around: Surroundings, form: str) -> float:
    """Bytes that one token's routed copies read and write between the kernels of an expert layer, per GPU.

    Each copy is read and written while tokens are sorted by expert, read by the first product, written by the second in 16 bits and read by the
    weighted sum; gate and up are written in 16 bits, read by the activation, written again and read by the second product.
    Source: the kernels' own inputs and outputs. Expert layers of public kernel tables (five shapes, three engines) are met within 9.6%
    by it, shapes held out, where fewer passes leave 10.5%. Ignores: engines that fuse the activation.
    """
    degrees = around.degrees
    narrow = computed_bytes(FORMATS[form])
    hidden = (3.0 * ACTIVATION_BYTES + 2.0 * narrow) * around.width / degrees.expert_parallel
    inner = (4.0 * ACTIVATION_BYTES + 2.0 * narrow) * moe.expert_intermediate / degrees.experts
    return moe.top_k * (hidden + inner)


def _dispatched_bytes(form: str, degrees: Degrees) -> float:
    """Bytes of one element of a token on its way to the experts; sums come back in 16 bits.

    Within a node tokens are quantised before they are gathered where the experts' format has activations with one scale or in
    FP4; block-scaled fp8 is quantised behind the exchange.
    Source: TensorRT-LLM's all-gather dispatch ("always post-quant"), FlashInfer's in vLLM and SGLang; DeepEP's README.
    """
    if degrees.nodes > 1:
        return DISPATCH_BYTES
    stored = FORMATS[form]
    one_scale = stored.block is None and stored.group is None
    return computed_bytes(stored) if one_scale or stored.activations == "nvfp4" else ACTIVATION_BYTES


def _exchange(name: str, moe: Moe, around: Surroundings, *, element_bytes: float) -> Iterator[Operator]:
    """Tokens of several attention ranks meeting in one expert layer.

    Within a node engines gather all tokens and scatter the sums; across nodes each token goes to the ranks of its experts.
    """
    degrees = around.degrees
    if degrees.token_ranks == 1:
        return
    if degrees.nodes > 1:
        copies = min(moe.top_k, degrees.expert_parallel)
        yield around.operator(
            name,
            Kind.ALL_TO_ALL,
            ranks=degrees.experts,
            message_bytes_per_token=element_bytes * around.width * copies,
        )
        return
    yield around.operator(
        name,
        Kind.ALL_GATHER if name.endswith("dispatch") else Kind.REDUCE_SCATTER,
        ranks=degrees.experts,
        message_bytes_per_token=element_bytes * around.width,
        token_ranks=float(degrees.token_ranks),
    )
