"""The roofline's closed forms: ridge point, arithmetic intensities, and the share of the peak that memory lets through."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from calc.arrays import Numbers, positive, positive_finite, scalar


class Bound(StrEnum):
    """What sets the time of an operator or of a step."""

    MEMORY = "memory"
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    OVERHEAD = "overhead"


def ridge_flop_per_byte(*, peak_flop_per_s: Numbers, bandwidth_bytes_per_s: Numbers) -> Numbers:
    """The intensity at which both limits meet, F/W, in FLOP per byte.

    Source: Williams, Waterman, Patterson 2009 (CACM 52(4)). Ignores: that neither peak is reached.
    """
    positive_finite(peak_flop_per_s=peak_flop_per_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return peak_flop_per_s / bandwidth_bytes_per_s


def intensity_flop_per_byte(*, flop: Numbers, all_bytes: Numbers) -> Numbers:
    """FLOP per byte of an operator or of a whole pass.

    Source: Williams, Waterman, Patterson 2009 (CACM 52(4)). Ignores: bytes that caches on the chip keep from the memory.
    """
    positive_finite(all_bytes=all_bytes)
    return flop / all_bytes


def attainable_flop_per_s(
    *, intensity_flop_per_byte: Numbers, peak_flop_per_s: Numbers, bandwidth_bytes_per_s: Numbers
) -> Numbers:
    """The FLOP/s that an intensity allows, min(F, I·W).

    Source: Williams, Waterman, Patterson 2009 (CACM 52(4)). Ignores: caches, launches, the soft corner at the ridge.
    """
    positive(
        intensity_flop_per_byte=intensity_flop_per_byte,
        peak_flop_per_s=peak_flop_per_s,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
    )
    return scalar(np.minimum(peak_flop_per_s, intensity_flop_per_byte * bandwidth_bytes_per_s))


def attainable_share(*, intensity_flop_per_byte: Numbers, ridge_flop_per_byte: Numbers) -> Numbers:
    """The share of the peak that an intensity allows, min(1, I/ridge).

    Source: Williams, Waterman, Patterson 2009 (CACM 52(4)). Ignores: caches, launches, the soft corner at the ridge.
    """
    positive(intensity_flop_per_byte=intensity_flop_per_byte, ridge_flop_per_byte=ridge_flop_per_byte)
    return scalar(np.minimum(1.0, np.divide(intensity_flop_per_byte, ridge_flop_per_byte)))


def matmul_intensity(
    *, tokens: Numbers, d_in: Numbers, d_out: Numbers, bytes_per_element: Numbers
) -> Numbers:
    """FLOP per byte of multiplying `tokens` rows by a d_in x d_out weight; weight, input and output move once.

    2·T·d_in·d_out / (bytes·(d_in·d_out + T·d_in + T·d_out)).

    Source: count of multiplies and of elements. Ignores: tiles that are read again, and cache hits.
    """
    positive_finite(tokens=tokens, d_in=d_in, d_out=d_out, bytes_per_element=bytes_per_element)
    elements = d_in * d_out + tokens * d_in + tokens * d_out
    return 2.0 * tokens * d_in * d_out / (bytes_per_element * elements)


def weights_only_intensity(*, tokens: Numbers, bytes_per_param: Numbers) -> Numbers:
    """FLOP per byte when only the read of the weights counts: 2·T/b, for T tokens that share one read.

    Source: count of multiplies and of bytes. Ignores: activations, and the cache that every sequence reads.
    """
    positive_finite(tokens=tokens, bytes_per_param=bytes_per_param)
    return 2.0 * tokens / bytes_per_param


def decode_attention_intensity(
    *, n_heads: Numbers, n_kv_heads: Numbers, bytes_per_element: Numbers
) -> Numbers:
    """FLOP per byte of decode attention: each cached key and value serves n_heads/n_kv_heads queries.

    Independent of batch and context, because every sequence reads its own cache.

    Source: arithmetic of q·K and p·V: 4·t·d·n_heads FLOP over 2·t·d·n_kv_heads·bytes.
    Ignores: the query, the output and the softmax, O(d) against O(t·d).
    """
    positive_finite(n_heads=n_heads, n_kv_heads=n_kv_heads, bytes_per_element=bytes_per_element)
    return 2.0 * n_heads / (n_kv_heads * bytes_per_element)


def memory_bound_batch(
    *, bytes_per_param: Numbers, peak_flop_per_s: Numbers, bandwidth_bytes_per_s: Numbers
) -> Numbers:
    """The number of tokens in a step at which the weights' arithmetic takes as long as their read: b·ridge/2.

    Source: the intensity of reading weights, set equal to the ridge. Ignores: the cache, which moves the crossing to larger
    batches or away altogether.
    """
    positive_finite(bytes_per_param=bytes_per_param)
    ridge = ridge_flop_per_byte(peak_flop_per_s=peak_flop_per_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    return bytes_per_param * ridge / 2.0
