"""How long it takes: one decode step, one prefill, the whole request.

Symbols of the docstrings: P parameters, b bytes per parameter, B batch (sequences), C context (cached tokens that a
sequence reads in a step), k KV bytes per token, W bandwidth, F peak FLOP/s.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf

import numpy as np

from calc.arrays import Numbers, floor_count, not_negative, positive, positive_finite, positive_share, scalar
from calc.errors import InputError

FLOP_PER_PARAMETER = 2.0
"""One multiply and one add for each weight that a token meets (Kaplan et al. 2020, arXiv 2001.08361, section 2.1)."""


class EndToEnd(StrEnum):
    """How many decode steps a request of n output tokens is said to take; sources disagree."""

    AFTER_PREFILL = "n - 1"  # ours: the prefill ends with the first output
    EVERY_OUTPUT = "n"  # the prefill yields no output; the Example 8B numbers count so

    def decode_steps(self, output_tokens: Numbers) -> Numbers:
        """Decode steps of a request with `output_tokens` outputs."""
        positive_finite(output_tokens=output_tokens)
        return output_tokens - 1 if self is EndToEnd.AFTER_PREFILL else output_tokens


def step_bytes(
    *,
    params: Numbers,
    bytes_per_param: Numbers,
    batch: Numbers = 1,
    context: Numbers = 0,
    kv_bytes_per_token: Numbers = 0,
) -> Numbers:
    """Bytes that one decode step reads: the weights once, and every sequence's cache, P·b + B·C·k.

    Source: Pope et al. 2022 (arXiv 2211.05102), section 2. Ignores: activations and writes.
    """
    positive_finite(params=params, bytes_per_param=bytes_per_param, batch=batch)
    not_negative(context=context, kv_bytes_per_token=kv_bytes_per_token)
    return params * bytes_per_param + batch * context * kv_bytes_per_token


def decode_memory_s(
    *,
    params: Numbers,
    bytes_per_param: Numbers,
    bandwidth_bytes_per_s: Numbers,
    batch: Numbers = 1,
    context: Numbers = 0,
    kv_bytes_per_token: Numbers = 0,
) -> Numbers:
    """Seconds to read what one decode step reads, at full bandwidth: (P·b + B·C·k)/W.

    Source: Pope et al. 2022 (arXiv 2211.05102), section 2. Ignores: that no card reaches its datasheet bandwidth.
    """
    positive(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    read = step_bytes(
        params=params,
        bytes_per_param=bytes_per_param,
        batch=batch,
        context=context,
        kv_bytes_per_token=kv_bytes_per_token,
    )
    return read / bandwidth_bytes_per_s


def decode_compute_s(*, params: Numbers, batch: Numbers, peak_flop_per_s: Numbers) -> Numbers:
    """Seconds of arithmetic in one decode step, at the peak: 2·P·B/F.

    Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1. Ignores: attention's own FLOP, and that matmuls of few
    rows stay below the peak.
    """
    positive_finite(params=params, batch=batch)
    positive(peak_flop_per_s=peak_flop_per_s)
    return FLOP_PER_PARAMETER * params * batch / peak_flop_per_s


def decode_step_s(
    *,
    params: Numbers,
    bytes_per_param: Numbers,
    bandwidth_bytes_per_s: Numbers,
    peak_flop_per_s: Numbers = inf,
    batch: Numbers = 1,
    context: Numbers = 0,
    kv_bytes_per_token: Numbers = 0,
) -> Numbers:
    """Seconds of one decode step: max((P·b + B·C·k)/W, 2·P·B/F). Each sequence gets one token.

    An infinite peak leaves the memory side alone.

    Source: roofline (Williams et al. 2009) over the counts of Pope et al. 2022 (arXiv 2211.05102). Ignores: kernel
    launches, communication, the soft corner between the two limits, and every efficiency below 1.
    """
    memory = decode_memory_s(
        params=params,
        bytes_per_param=bytes_per_param,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        batch=batch,
        context=context,
        kv_bytes_per_token=kv_bytes_per_token,
    )
    compute = decode_compute_s(params=params, batch=batch, peak_flop_per_s=peak_flop_per_s)
    return scalar(np.maximum(memory, compute))


def verify_step_s(
    *,
    params: Numbers,
    bytes_per_param: Numbers,
    bandwidth_bytes_per_s: Numbers,
    drafts: Numbers,
    peak_flop_per_s: Numbers = inf,
    batch: Numbers = 1,
    context: Numbers = 0,
    kv_bytes_per_token: Numbers = 0,
) -> Numbers:
    """Seconds of a step that checks k drafted tokens of each sequence: max((P·b + B·C·k_kv)/W, 2·P·B·(k + 1)/F).

    It reads what a plain step reads and computes k + 1 tokens for each sequence.

    Source: the decode step with k + 1 tokens a sequence; Leviathan et al. 2023 (arXiv 2211.17192), section 3.3, take
    the memory side for granted. Ignores: the draft's own passes, attention over the drafted tokens.
    """
    not_negative(drafts=drafts)
    memory = decode_memory_s(
        params=params,
        bytes_per_param=bytes_per_param,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        batch=batch,
        context=context,
        kv_bytes_per_token=kv_bytes_per_token,
    )
    tokens = batch * (np.asarray(drafts) + 1)
    compute = decode_compute_s(params=params, batch=tokens, peak_flop_per_s=peak_flop_per_s)
    return scalar(np.maximum(memory, compute))


def tokens_per_s(*, batch: Numbers, step_s: Numbers) -> Numbers:
    """Output tokens per second of all sequences together: B / step.

    Source: definition. Ignores: time that the card spends on prefill.
    """
    positive_finite(batch=batch, step_s=step_s)
    return batch / step_s


def largest_batch(
    *,
    tpot_limit_s: Numbers,
    params: Numbers,
    bytes_per_param: Numbers,
    bandwidth_bytes_per_s: Numbers,
    peak_flop_per_s: Numbers = inf,
    context: Numbers = 0,
    kv_bytes_per_token: Numbers = 0,
) -> Numbers:
    """The largest batch whose decode step keeps the TPOT limit; 0 when even one sequence does not, inf without any limit.

    Source: the decode step solved for B. Ignores: kernel launches, communication, every efficiency below 1, prefills that
    stall decoding.
    """
    positive_finite(tpot_limit_s=tpot_limit_s, params=params, bytes_per_param=bytes_per_param)
    positive(bandwidth_bytes_per_s=bandwidth_bytes_per_s, peak_flop_per_s=peak_flop_per_s)
    not_negative(context=context, kv_bytes_per_token=kv_bytes_per_token)
    room = tpot_limit_s * bandwidth_bytes_per_s - params * bytes_per_param
    per_sequence = np.asarray(context * kv_bytes_per_token, dtype=float)
    no_limit = np.where(np.asarray(room) >= 0, inf, 0.0)
    by_memory = np.where(per_sequence > 0, room / np.where(per_sequence > 0, per_sequence, 1.0), no_limit)
    by_compute = tpot_limit_s * peak_flop_per_s / (FLOP_PER_PARAMETER * params)
    return floor_count(np.maximum(np.minimum(by_memory, by_compute), 0.0))


def prefill_flop(*, params: Numbers, prompt_tokens: Numbers, cached_tokens: Numbers = 0) -> Numbers:
    """FLOP of a prefill: 2·P per prompt token that no prefix cache holds.

    Source: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1. Ignores: attention's own FLOP (quadratic in the prompt),
    and that the embedding table is looked up, not multiplied.
    """
    positive_finite(params=params, prompt_tokens=prompt_tokens)
    not_negative(cached_tokens=cached_tokens)
    if np.any(np.asarray(cached_tokens) >= np.asarray(prompt_tokens)):
        raise InputError(
            "cached_tokens",
            cached_tokens,
            f"at least one of the {prompt_tokens} prompt tokens must be computed to yield the first output",
        )
    return FLOP_PER_PARAMETER * params * (prompt_tokens - cached_tokens)


def prefill_s(
    *,
    params: Numbers,
    prompt_tokens: Numbers,
    peak_flop_per_s: Numbers,
    mfu: Numbers = 1.0,
    cached_tokens: Numbers = 0,
) -> Numbers:
    """Seconds to prefill one prompt alone, 2·P·(T - cached)/(MFU·F): its TTFT when it does not queue.

    Source: Kaplan et al. 2020 (arXiv 2001.08361) for the FLOP; MFU as defined by Chowdhery et al. 2022 (arXiv
    2204.02311). Ignores: the read of the weights, which bounds short prompts, attention's own FLOP, queueing.
    """
    positive_finite(peak_flop_per_s=peak_flop_per_s)
    positive_share(mfu=mfu)
    flop = prefill_flop(params=params, prompt_tokens=prompt_tokens, cached_tokens=cached_tokens)
    return flop / (mfu * peak_flop_per_s)


def e2e_s(
    *,
    ttft_s: Numbers,
    tpot_s: Numbers,
    output_tokens: Numbers,
    convention: EndToEnd = EndToEnd.AFTER_PREFILL,
) -> Numbers:
    """Seconds of a whole request: TTFT + (n - 1)·TPOT, or + n·TPOT in the other convention.

    Source: vLLM's benchmark definitions (TPOT excludes the first token); other sources count n.
    Ignores: that TPOT changes while the batch changes.
    """
    not_negative(ttft_s=ttft_s, tpot_s=tpot_s)
    return ttft_s + convention.decode_steps(output_tokens) * tpot_s
