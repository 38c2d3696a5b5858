"""What is stored: weights, KV cache, and the sequences that fit in what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calc.arrays import Numbers, ceil_count, floor_count, not_negative, positive_finite, scalar


def weight_bytes(*, params: Numbers, bytes_per_param: Numbers) -> Numbers:
    """Bytes of all weights, P·b.

    Source: definition. Ignores: scales of quantised formats, tensors kept in another format, padding.
    """
    positive_finite(params=params, bytes_per_param=bytes_per_param)
    return params * bytes_per_param


def kv_bytes_per_token(
    *, layers: Numbers, n_kv_heads: Numbers, head_dim: Numbers, bytes_per_element: Numbers
) -> Numbers:
    """Bytes of keys and values that one token adds, over all layers: 2·L·n_kv·d·bytes.

    Source: Kwon et al. 2023 (arXiv 2309.06180), section 3; Shazeer 2019 (arXiv 1911.02150) for n_kv < n_heads.
    Ignores: windows, latents and fixed states (counted per model elsewhere), block rounding, scales of quantised caches.
    """
    positive_finite(
        layers=layers, n_kv_heads=n_kv_heads, head_dim=head_dim, bytes_per_element=bytes_per_element
    )
    return 2 * layers * n_kv_heads * head_dim * bytes_per_element


def cached_bytes_per_token(
    *, layers: Numbers, cached_elements: Numbers, bytes_per_element: Numbers
) -> Numbers:
    """Bytes that one token adds to `layers` equal layers, whatever each keeps of it: keys and values, or one latent.

    Source: DeepSeek-AI 2024 (arXiv 2405.04434), section 2.1.2: a latent of 512 and a rotary key of 64 elements per layer.
    Ignores: windows and fixed states, block rounding.
    """
    positive_finite(layers=layers, cached_elements=cached_elements, bytes_per_element=bytes_per_element)
    return layers * cached_elements * bytes_per_element


def sequence_kv_bytes(*, tokens: Numbers, kv_bytes_per_token: Numbers) -> Numbers:
    """Cache bytes of one sequence of `tokens` tokens.

    Source: definition. Ignores: block rounding.
    """
    not_negative(tokens=tokens)
    positive_finite(kv_bytes_per_token=kv_bytes_per_token)
    return tokens * kv_bytes_per_token


def cache_bytes(*, memory_bytes: Numbers, weight_bytes: Numbers, reserved_bytes: Numbers = 0.0) -> Numbers:
    """Bytes left for the cache: memory less weights less what is kept for other uses; negative when they do not fit.

    Source: definition. Ignores: activations, graphs and the driver, unless the reserve holds them.
    """
    positive_finite(memory_bytes=memory_bytes, weight_bytes=weight_bytes)
    not_negative(reserved_bytes=reserved_bytes)
    return memory_bytes - weight_bytes - reserved_bytes


def tokens_that_fit(*, cache_bytes: Numbers, kv_bytes_per_token: Numbers) -> Numbers:
    """Whole tokens that the cache holds; 0 where nothing is left.

    Source: definition. Ignores: that blocks are whole.
    """
    positive_finite(kv_bytes_per_token=kv_bytes_per_token)
    return floor_count(np.maximum(cache_bytes, 0) / kv_bytes_per_token)


def sequences_reserved(*, tokens: Numbers, reserved_tokens: Numbers) -> Numbers:
    """Sequences when each reserves room for its longest possible length from the start.

    Source: the "reserved" waste of Kwon et al. 2023 (arXiv 2309.06180), section 3.1. Ignores: fragmentation between
    reservations.
    """
    not_negative(tokens=tokens)
    positive_finite(reserved_tokens=reserved_tokens)
    return floor_count(tokens / reserved_tokens)


def sequences_paged(*, tokens: Numbers, sequence_tokens: Numbers, block_size: Numbers = 16) -> Numbers:
    """Sequences when each holds whole blocks for the tokens that it really has.

    Source: Kwon et al. 2023 (arXiv 2309.06180), section 4. Ignores: shared prefixes, and that sequences differ.
    """
    not_negative(tokens=tokens)
    positive_finite(sequence_tokens=sequence_tokens, block_size=block_size)
    pool_blocks = floor_count(tokens / block_size)
    return floor_count(pool_blocks / ceil_count(sequence_tokens / block_size))


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallelShare:
    """What one GPU of a tensor-parallel group holds, and the cache of the whole group."""

    weight_bytes_per_gpu: Numbers
    cache_bytes: Numbers
    kv_heads_per_gpu: Numbers


def tensor_parallel_share(
    *,
    params: Numbers,
    bytes_per_param: Numbers,
    tp: Numbers,
    memory_bytes_per_gpu: Numbers,
    n_kv_heads: Numbers,
    reserved_bytes_per_gpu: Numbers = 0.0,
) -> TensorParallelShare:
    """Weights and KV heads divided evenly over `tp` GPUs; each GPU keeps at least one KV head.

    `cache_bytes` counts each token once: past n_kv GPUs the heads are copied, so the copies are taken off.

    Source: Shoeybi et al. 2019 (Megatron-LM, arXiv 1909.08053), section 3. Ignores: what every rank copies (norms,
    routers), padding of the vocabulary, communication buffers.
    """
    positive_finite(tp=tp, n_kv_heads=n_kv_heads)
    weights = weight_bytes(params=params, bytes_per_param=bytes_per_param) / tp
    left = cache_bytes(
        memory_bytes=memory_bytes_per_gpu, weight_bytes=weights, reserved_bytes=reserved_bytes_per_gpu
    )
    heads = np.maximum(1, ceil_count(np.asarray(n_kv_heads) / tp))
    copies = heads * np.asarray(tp) / n_kv_heads
    return TensorParallelShare(
        weight_bytes_per_gpu=weights,
        cache_bytes=scalar(left * tp / copies),
        kv_heads_per_gpu=int(heads) if np.ndim(heads) == 0 else heads,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaParameters:
    """Exact parameter counts of a Llama-style decoder, by part."""

    attention_per_layer: int
    mlp_per_layer: int
    norms_per_layer: int
    layers: int
    embedding_and_output: int
    final_norm: int

    @property
    def layer(self) -> int:
        return self.attention_per_layer + self.mlp_per_layer + self.norms_per_layer

    @property
    def all_layers(self) -> int:
        return self.layers * self.layer

    @property
    def total(self) -> int:
        return self.all_layers + self.embedding_and_output + self.final_norm


def llama_parameters(
    *,
    hidden_size: int,
    num_attention_heads: int,
    num_key_value_heads: int,
    head_dim: int,
    intermediate_size: int,
    vocab_size: int,
    num_hidden_layers: int,
    tie_word_embeddings: bool,
    qk_norm: bool = False,
) -> LlamaParameters:
    """Parameters of a Llama-style decoder: GQA attention, SwiGLU, two RMSNorms a layer, no biases.

    Attention d·(n_h + 2·n_kv)·h + n_h·h·d, MLP 3·d·f, norms 2·d (and 2·h with query and key norms).

    Source: Touvron et al. 2023 (arXiv 2302.13971), section 2.2. Ignores: biases and every other architecture; a model
    is counted from its config by `calc.architectures` and `calc.parameters`.
    """
    positive_finite(
        hidden_size=hidden_size,
        num_attention_heads=num_attention_heads,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        num_hidden_layers=num_hidden_layers,
    )
    queries, keys = num_attention_heads * head_dim, num_key_value_heads * head_dim
    return LlamaParameters(
        attention_per_layer=hidden_size * (queries + 2 * keys) + queries * hidden_size,
        mlp_per_layer=3 * hidden_size * intermediate_size,
        norms_per_layer=2 * hidden_size + (2 * head_dim if qk_norm else 0),
        layers=num_hidden_layers,
        embedding_and_output=vocab_size * hidden_size * (1 if tie_word_embeddings else 2),
        final_norm=hidden_size,
    )
