"""Operators of what mixes tokens: attention by kind, the indexer of sparse attention, recurrent mixers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from calc.model import Attention, CompressedAttention, Indexer, LatentAttention, Mixer, Part, Split, Weight
from calc.operators.rows import Driver, Kind, Operator, Reads
from calc.operators.surroundings import ACTIVATION_BYTES, Surroundings, is_matrix, product_bytes
from calc.quantization import FORMATS

STATE_FLOP_PER_ELEMENT = 6.0  # decay, outer product, add, and the read-out: two FLOP each but the decay


def attention_operators(attention: Attention, around: Surroundings) -> Iterator[Operator]:
    """Projections, scores over the cache or the prompt, and the output of one attention layer."""
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
        "kv_heads": kv_heads,
    }
    if attention.cross:
        yield around.operator("cross attention", Kind.ATTENTION, reads=Reads.ENCODER_CACHE, **shared)
    elif attention.causal and around.causal_cache:
        yield around.operator(
            "decode attention",
            Kind.ATTENTION,
            driver=Driver.DECODE_TOKENS,
            reads=Reads.DECODE_CACHE,
            format=around.attention_format,
            **shared,
        )
        yield around.operator(
            "prefill attention",
            Kind.PREFILL_ATTENTION,
            driver=Driver.PREFILL_TOKENS,
            reads=Reads.PROMPT,
            format=around.attention_format,
            **shared,
        )
    else:
        yield around.operator("encoder attention", Kind.PREFILL_ATTENTION, reads=Reads.ENCODER_SELF, **shared)
    outward = [w for w in attention.weights if w.split is Split.ROW]
    yield from around.gemm("output projection", outward, ranks=ranks)
    yield from around.all_reduce("attention all-reduce", ranks)


def latent_attention_operators(attention: LatentAttention, around: Surroundings) -> Iterator[Operator]:
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
    yield from _latent_products(attention, around, expanded=expanded, selected=selected)
    yield from around.gemm("output projection", outward, ranks=ranks)
    yield from around.all_reduce("attention all-reduce", ranks)


def _latent_products(
    attention: LatentAttention, around: Surroundings, *, expanded: float, selected: float
) -> Iterator[Operator]:
    """The up projections and the attention itself, absorbed for decoding and expanded for prompts.

    expanded: elements of the key and value up projections on this rank; selected: cached tokens that a query reads.
    """
    heads = max(1.0, attention.n_heads / around.degrees.attention)
    latent, rope = attention.kv_lora_rank, attention.rope_dim
    cache_bytes = (latent + rope) * around.kv_element_bytes
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
            **product_bytes(
                heads * (attention.nope_dim + attention.value_dim), heads * latent, FORMATS["bf16"]
            ),
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


def _indexer(
    indexer: Indexer, weights: Iterable[Weight], around: Surroundings, *, stride: float = 1.0
) -> Iterator[Operator]:
    """The selector of sparse attention: projects, writes its key, scores every cached key, keeps the best."""
    if not indexer.owns_keys:
        return
    own = [w for w in weights if w.part is Part.INDEXER]
    yield from around.gemm("indexer projections", own, ranks=1)
    key_bytes = float(indexer.engine_key_bytes)
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


def compressed_attention_operators(
    attention: CompressedAttention, around: Surroundings
) -> Iterator[Operator]:
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


def mixer_operators(mixer: Mixer, around: Surroundings) -> Iterator[Operator]:
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
