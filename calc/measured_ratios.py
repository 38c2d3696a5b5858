"""How a measurement is read: a rate from an amount and a time, and how far two numbers are from each other."""

from __future__ import annotations

from calc.arrays import Numbers, not_negative, positive, positive_finite


def timed_rate_per_s(*, amount: Numbers, seconds: Numbers) -> Numbers:
    """Bytes, FLOP or tokens per second, from how many there were and how long they took.

    Source: definition of a rate. Ignores: how the time varied; a median call stands for all.
    """
    positive_finite(amount=amount, seconds=seconds)
    return amount / seconds


def measured_tpot_s(*, last_token_s: Numbers, ttft_s: Numbers, later_tokens: Numbers) -> Numbers:
    """Time per output token of one stream, in seconds: from its first delta to its last, over the tokens in between.

    Source: vLLM's benchmark definitions (TPOT excludes the first token). Ignores: how uneven the gaps are.
    """
    not_negative(ttft_s=ttft_s)
    positive_finite(last_token_s=last_token_s, later_tokens=later_tokens)
    return (last_token_s - ttft_s) / later_tokens


def ratio_to_reference(*, measured: Numbers, reference: Numbers) -> Numbers:
    """A number over the one that it is held against: a rate over its datasheet, a time over its prediction.

    Source: definition of a ratio. Ignores: the ranges of both.
    """
    positive(measured=measured, reference=reference)
    return measured / reference


def relative_error(*, predicted: Numbers, measured: Numbers) -> Numbers:
    """How far a prediction is off, as a signed share of the measurement.

    Source: definition of the relative error. Ignores: that the measurement itself scatters from run to run.
    """
    positive_finite(predicted=predicted, measured=measured)
    return predicted / measured - 1


def mean_of(*, total: Numbers, points: Numbers) -> Numbers:
    """The arithmetic mean from a sum and a count.

    Source: definition. Ignores: how the values spread.
    """
    not_negative(total=total)
    positive_finite(points=points)
    return total / points
