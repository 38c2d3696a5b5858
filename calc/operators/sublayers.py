"""Operators of one block's sublayers: which GEMMs an engine fuses, which cache is read, what goes over the links.

Projections are told apart by their shapes and splits, not by their names, so that every family reads alike: matrices that
read the block's width are fused into one GEMM (query, key, value; gate and up; a mixer's input), matrices that are split
along their inputs write back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf

from calc.model import (
    Attention,
    CompressedAttention,
    Indexer,
    LatentAttention,
    Mixer,
    Mlp,
    Moe,
    Part,
    Split,
    Sublayer,
    Weight,
)
from calc.operators.sharding import Degrees, rank_share
from calc.operators.table import Driver, Kind, Operator, Reads
from calc.quantization import FORMATS

ACTIVATION_BYTES = 2.0  # engines keep activations in 16 bits between operators
LOGIT_BYTES = 4.0  # sampling works on fp32 logits
ELEMENTWISE_PASSES = 2.0  # a norm or a gate reads its input once and writes its output once
STATE_FLOP_PER_ELEMENT = 6.0  # decay, outer product, add, and the read-out: two FLOP each but the decay


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a sublayer's operators need to know of the model and layout around it."""

    group: str
    count: float
    width: int
    degrees: Degrees
    format_of: Callable[[Weight], str]
    kv_element_bytes: float
    driver: Driver = Driver.TOKENS
    causal_cache: bool = True  # a decoder; encoders and towers keep no cache

    def operator(self, name: str, kind: Kind, **values: object) -> Operator:
        """A row of this block."""
        defaults: dict[str, object] = {"driver": self.driver}
        return Operator(name=name, group=self.group, kind=kind, count=self.count, **{**defaults, **values})  # type: ignore[arg-type]

    def stored_bytes(self, weight: Weight) -> float:
        """Bytes of a weight in the format that it is served in."""
        return float(FORMATS[self.format_of(weight)].tensor_bytes(weight.shape))

    def gemm(
        self,
        name: str,
        weights: Iterable[Weight],
        *,
        ranks: int,
        n_kv_heads: int = 1,
        driver: Driver | None = None,
    ) -> Iterator[Operator]:
        """One fused GEMM over matrices that read the same input; nothing where there are none."""
        matrices = [w for w in weights if is_matrix(w)]
        if not matrices:
            return
        share = {id(w): rank_share(w, ranks=ranks, n_kv_heads=n_kv_heads) for w in matrices}
        elements = sum(w.elements * share[id(w)] for w in matrices)
        inputs = max(w.shape[-1] * (1.0 / ranks if w.split is Split.ROW else 1.0) for w in matrices)
        yield self.operator(
            name,
            Kind.GEMM,
            format=self.format_of(max(matrices, key=lambda w: w.elements)),
            driver=self.driver if driver is None else driver,
            weight_bytes=sum(self.stored_bytes(w) * share[id(w)] for w in matrices),
            flop_per_token=2.0 * elements,
            activation_bytes_per_token=ACTIVATION_BYTES * (inputs + elements / max(inputs, 1.0)),
        )

    def elementwise(self, name: str, elements: float, *, driver: Driver | None = None) -> Operator:
        """An operator that reads and writes `elements` per token."""
        return self.operator(
            name,
            Kind.ELEMENTWISE,
            driver=self.driver if driver is None else driver,
            activation_bytes_per_token=ACTIVATION_BYTES * ELEMENTWISE_PASSES * elements,
        )

    def all_reduce(self, name: str, ranks: int) -> Iterator[Operator]:
        """Sum of the ranks' partial outputs, one width per token."""
        if ranks > 1:
            yield self.operator(
                name,
                Kind.ALL_REDUCE,
                ranks=ranks,
                message_bytes_per_token=ACTIVATION_BYTES * self.width,
            )


LONGEST_KERNEL = 8  # depthwise convolutions of mixers reach over at most this many tokens


def is_matrix(weight: Weight) -> bool:
    """Whether a weight takes part in a matrix product (not a bias, a norm, or a depthwise convolution)."""
    return len(weight.shape) >= 2 and weight.shape[-1] > LONGEST_KERNEL


def sublayer_operators(sublayer: Sublayer, around: Surroundings) -> Iterator[Operator]:
    """All operators of one sublayer, its norm and its collective included."""
    yield around.elementwise("norm", 2.0 * around.width)  # the residual is added in the same kernel
    if isinstance(sublayer, Attention):
        yield from _attention(sublayer, around)
    elif isinstance(sublayer, LatentAttention):
        yield from _latent_attention(sublayer, around)
    elif isinstance(sublayer, CompressedAttention):
        yield from _compressed_attention(sublayer, around)
    elif isinstance(sublayer, Mixer):
        yield from _mixer(sublayer, around)
    elif isinstance(sublayer, Mlp):
        yield from _mlp(sublayer, around)
    else:
        yield from _moe(sublayer, around)


def _attention(attention: Attention, around: Surroundings) -> Iterator[Operator]:
    ranks = around.degrees.attention
    heads = max(1.0, attention.n_heads / ranks)
    kv_heads = max(1.0, attention.n_kv_heads / ranks)
    value_dim = attention.value_head_dim or attention.head_dim
    pair_flop = 2.0 * heads * (attention.head_dim + value_dim)
    kv_bytes = kv_heads * (attention.head_dim + value_dim) * around.kv_element_bytes
    inward = [w for w in attention.weights if w.split is not Split.ROW]
    encoder_side = [w for w in inward if attention.cross and w.split is Split.KV_HEADS]
    own = [w for w in inward if w not in encoder_side]
    yield from around.gemm("qkv projection", own, ranks=ranks, n_kv_heads=attention.n_kv_heads)
    if encoder_side:
        yield from around.gemm(
            "cross key and value projection",
            encoder_side,
            ranks=ranks,
            n_kv_heads=attention.n_kv_heads,
            driver=Driver.ENCODER_TOKENS,
        )
    if attention.qk_norm:
        yield around.elementwise("query and key norm", (heads + kv_heads) * attention.head_dim)
    yield replace(
        around.elementwise("rope and cache write", (heads + 2 * kv_heads) * attention.head_dim),
        kv_bytes_per_token=kv_bytes if attention.cached_elements_per_token and not attention.cross else 0.0,
    )
    shared = {
        "window": float(attention.window or inf),
        "chunk": float(attention.chunk or inf),
        "flop_per_pair": pair_flop,
        "kv_bytes_per_cached_token": kv_bytes,
        "activation_bytes_per_token": ACTIVATION_BYTES * 2.0 * heads * attention.head_dim,
    }
    if attention.cross:
        yield around.operator("cross attention", Kind.ATTENTION, reads=Reads.ENCODER_CACHE, **shared)
    elif attention.causal and around.causal_cache:
        yield around.operator(
            "decode attention",
            Kind.ATTENTION,
            driver=Driver.DECODE_TOKENS,
            reads=Reads.DECODE_CACHE,
            **shared,
        )
        yield around.operator(
            "prefill attention",
            Kind.PREFILL_ATTENTION,
            driver=Driver.PREFILL_TOKENS,
            reads=Reads.PROMPT,
            **shared,
        )
    else:
        yield around.operator("encoder attention", Kind.PREFILL_ATTENTION, reads=Reads.ENCODER_SELF, **shared)
    outward = [w for w in attention.weights if w.split is Split.ROW]
    yield from around.gemm("output projection", outward, ranks=ranks)
    yield from around.all_reduce("attention all-reduce", ranks)


def _latent_attention(attention: LatentAttention, around: Surroundings) -> Iterator[Operator]:
    """MLA: absorbed into the latent space for decoding, expanded to full heads for prompts."""
    ranks = around.degrees.attention
    heads = max(1.0, attention.n_heads / ranks)
    latent, rope = attention.kv_lora_rank, attention.rope_dim
    own = [w for w in attention.weights if w.part is not Part.INDEXER]
    outward = [w for w in own if w.split is Split.ROW]
    expanding = [w for w in own if is_matrix(w) and w.shape[-1] == latent and w not in outward]
    query_up = [
        w
        for w in own
        if is_matrix(w) and w.shape[-1] == attention.q_lora_rank and w not in (*outward, *expanding)
    ]
    inward = [w for w in own if w not in (*outward, *expanding, *query_up)]
    yield from around.gemm("latent down projection", inward, ranks=ranks)
    yield around.elementwise("latent norms", (attention.q_lora_rank or 0) + latent)
    yield from around.gemm("query up projection", query_up, ranks=ranks)
    cache_bytes = (latent + rope) * around.kv_element_bytes
    yield replace(
        around.elementwise("rope and cache write", heads * rope + latent + rope),
        kv_bytes_per_token=cache_bytes,
    )
    selected = inf
    if attention.indexer is not None:
        selected = float(attention.indexer.top_k)
        yield from _indexer(attention.indexer, attention.weights, around)
    expanded = sum(w.elements for w in expanding) / ranks
    for name, driver in (
        ("absorbed projections", Driver.DECODE_TOKENS),
        ("key and value expansion", Driver.PREFIX_AND_PREFILL),
    ):
        yield around.operator(
            name,
            Kind.GEMM,
            driver=driver,
            weight_bytes=ACTIVATION_BYTES * expanded,  # engines keep these matrices dequantised
            flop_per_token=2.0 * expanded,
            activation_bytes_per_token=ACTIVATION_BYTES
            * heads
            * (attention.nope_dim + attention.value_dim + latent),
            kernels=2.0,
        )
    yield around.operator(
        "decode attention",
        Kind.LATENT_ATTENTION,
        driver=Driver.DECODE_TOKENS,
        reads=Reads.DECODE_CACHE,
        window=selected,
        flop_per_pair=2.0 * heads * (2.0 * latent + rope),
        kv_bytes_per_cached_token=cache_bytes,
        activation_bytes_per_token=ACTIVATION_BYTES * heads * (2.0 * latent + rope),
    )
    yield around.operator(
        "prefill attention",
        Kind.PREFILL_ATTENTION,
        driver=Driver.PREFILL_TOKENS,
        reads=Reads.PROMPT,
        window=selected,
        flop_per_pair=2.0 * heads * (attention.nope_dim + rope + attention.value_dim),
        kv_bytes_per_cached_token=cache_bytes,
        activation_bytes_per_token=ACTIVATION_BYTES
        * heads
        * (2.0 * attention.nope_dim + rope + attention.value_dim),
    )
    yield from around.gemm("output projection", outward, ranks=ranks)
    yield from around.all_reduce("attention all-reduce", ranks)


INDEX_KEY_SCALE_BYTES = 4.0  # engines keep index keys in fp8 with one fp32 scale each


def _indexer(
    indexer: Indexer, weights: Iterable[Weight], around: Surroundings, *, stride: float = 1.0
) -> Iterator[Operator]:
    """The selector of sparse attention: projects, writes its key, scores every cached key, keeps the best."""
    if not indexer.owns_keys:
        return
    own = [w for w in weights if w.part is Part.INDEXER]
    yield from around.gemm("indexer projections", own, ranks=1)
    key_bytes = indexer.head_dim + INDEX_KEY_SCALE_BYTES
    for name, driver, reads in (
        ("indexer scores", Driver.DECODE_TOKENS, Reads.DECODE_CACHE),
        ("indexer scores of prompts", Driver.PREFILL_TOKENS, Reads.PROMPT),
    ):
        yield around.operator(
            name,
            Kind.INDEXER,
            driver=driver,
            reads=reads,
            stride=stride,
            format="fp8",
            flop_per_pair=2.0 * indexer.n_heads * indexer.head_dim,
            kv_bytes_per_cached_token=key_bytes,
            kv_bytes_per_token=key_bytes / stride,
            activation_bytes_per_token=ACTIVATION_BYTES * indexer.n_heads * indexer.head_dim,
            kernels=2.0,
        )


def _compressed_attention(attention: CompressedAttention, around: Surroundings) -> Iterator[Operator]:
    """Window attention and attention over selected compressed entries: one vector is key and value for all heads."""
    ranks = around.degrees.attention
    heads = max(1.0, attention.n_heads / ranks)
    own = [w for w in attention.weights if w.part is not Part.INDEXER]
    outward = [w for w in own if w.split is Split.ROW]
    inward = [w for w in own if is_matrix(w) and w not in outward and w.shape[-1] == around.width]
    inner = [w for w in own if is_matrix(w) and w not in (*outward, *inward)]
    yield from around.gemm("input projections", inward, ranks=ranks)
    yield from around.gemm("query up projection", inner, ranks=ranks)
    entry_bytes = attention.entry_elements * around.kv_element_bytes
    ratio = float(attention.ratio or 0)
    yield replace(
        around.elementwise("rope and cache write", heads * attention.head_dim),
        kv_bytes_per_token=entry_bytes * (1.0 + (1.0 / ratio if ratio else 0.0)),
    )
    parts = [("window", float(attention.window), 1.0)]
    if ratio:
        selected = inf
        if attention.indexer is not None:
            selected = float(attention.indexer.top_k)
            yield from _indexer(attention.indexer, attention.weights, around, stride=ratio)
        parts.append(("compressed", selected, ratio))
    for part, limit, stride in parts:
        for phase, kind, driver, reads in (
            ("decode", Kind.LATENT_ATTENTION, Driver.DECODE_TOKENS, Reads.DECODE_CACHE),
            ("prefill", Kind.PREFILL_ATTENTION, Driver.PREFILL_TOKENS, Reads.PROMPT),
        ):
            yield around.operator(
                f"{phase} attention, {part}",
                kind,
                driver=driver,
                reads=reads,
                window=limit,
                stride=stride,
                flop_per_pair=4.0 * heads * attention.head_dim,
                kv_bytes_per_cached_token=entry_bytes,
                activation_bytes_per_token=ACTIVATION_BYTES * 2.0 * heads * attention.head_dim,
            )
    yield from around.gemm("output projection", outward, ranks=ranks)
    yield from around.all_reduce("attention all-reduce", ranks)


def _mixer(mixer: Mixer, around: Surroundings) -> Iterator[Operator]:
    """A recurrent mixer: projections, and a state that every sequence reads and writes once per step."""
    ranks = around.degrees.attention
    outward = [w for w in mixer.weights if w.split is Split.ROW]
    inward = [w for w in mixer.weights if is_matrix(w) and w not in outward and w.shape[-1] == around.width]
    inner = [w for w in mixer.weights if is_matrix(w) and w not in (*outward, *inward)]
    yield from around.gemm("mixer input projection", inward, ranks=ranks)
    yield from around.gemm("mixer inner projections", inner, ranks=ranks)
    state = (
        mixer.recurrent_elements * FORMATS[mixer.recurrent_format].bytes_per_element
        + mixer.conv_elements * FORMATS[mixer.conv_format].bytes_per_element
    ) / ranks
    yield around.operator(
        "state update",
        Kind.MIXER,
        flop_per_token=STATE_FLOP_PER_ELEMENT * mixer.recurrent_elements / ranks,
        state_bytes_per_sequence=2.0 * state,
        activation_bytes_per_token=ACTIVATION_BYTES * 2.0 * around.width,
        kernels=2.0,
    )
    yield from around.gemm("mixer output projection", outward, ranks=ranks)
    yield from around.all_reduce("mixer all-reduce", ranks)


def _mlp(mlp: Mlp, around: Surroundings) -> Iterator[Operator]:
    ranks = around.degrees.dense
    outward = [w for w in mlp.weights if w.split is Split.ROW]
    inward = [w for w in mlp.weights if w not in outward]
    yield from around.gemm("gate and up projection" if mlp.gated else "up projection", inward, ranks=ranks)
    yield around.elementwise("activation", 1.5 * mlp.intermediate / ranks)
    yield from around.gemm("down projection", outward, ranks=ranks)
    yield from around.all_reduce("feed-forward all-reduce", ranks)


def _moe(moe: Moe, around: Surroundings) -> Iterator[Operator]:
    """Router, routed experts as two grouped GEMMs, shared experts beside them, and the exchange of tokens."""
    degrees = around.degrees
    router = [w for w in moe.weights if w.part is Part.ROUTER]
    shared = [w for w in moe.weights if w.part is Part.SHARED_EXPERTS]
    routed = [w for w in moe.weights if w.part is Part.EXPERTS and len(w.shape) >= 2]
    yield from around.gemm("router", router, ranks=1)
    yield from _exchange("expert dispatch", moe, around, element_bytes=DISPATCH_BYTES)
    elements = sum(w.elements for w in routed)
    yield around.operator(
        "experts",
        Kind.EXPERTS,
        format=around.format_of(max(routed, key=lambda w: w.elements)) if routed else "bf16",
        weight_bytes=sum(around.stored_bytes(w) for w in routed) / degrees.experts,
        flop_per_token=2.0 * elements * moe.top_k / moe.n_experts / degrees.experts,
        activation_bytes_per_token=ACTIVATION_BYTES
        * moe.top_k
        / degrees.experts
        * (2.0 * around.width * degrees.experts / degrees.expert_parallel + 3.0 * moe.expert_intermediate),
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
        message_bytes_per_token=ACTIVATION_BYTES * around.width,
        token_ranks=float(degrees.token_ranks),
    )
