"""How many GPUs: work per second for prefill and decode, headroom, and which limit binds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from calc.arrays import Numbers, ceil_count, not_negative, positive_finite
from calc.errors import InputError

Named = TypeVar("Named")


def prefill_gpus(*, rate_per_s: Numbers, prefill_s: Numbers) -> Numbers:
    """GPUs' worth of prefill work that arrives per second: rate · seconds each.

    Source: utilisation law (work per second). Ignores: queueing, which needs headroom on top.
    """
    not_negative(rate_per_s=rate_per_s, prefill_s=prefill_s)
    return rate_per_s * prefill_s


def decode_gpus(*, rate_per_s: Numbers, output_tokens: Numbers, tokens_per_s: Numbers) -> Numbers:
    """GPUs' worth of decode work that arrives per second: rate · tokens each / tokens per second of one GPU.

    Source: utilisation law. Ignores: that a GPU below its full batch makes fewer tokens per second.
    """
    not_negative(rate_per_s=rate_per_s, output_tokens=output_tokens)
    positive_finite(tokens_per_s=tokens_per_s)
    return rate_per_s * output_tokens / tokens_per_s


def gpus_to_buy(*, busy_gpus: Numbers, headroom: Numbers) -> Numbers:
    """Whole GPUs for `busy_gpus` of work with headroom h on top: ceil(busy·(1 + h)).

    Source: our definition of headroom (1 + h times the work, not utilisation 1 - h). Ignores: that one replica may
    need several GPUs.
    """
    not_negative(busy_gpus=busy_gpus, headroom=headroom)
    return ceil_count(busy_gpus * (1.0 + headroom))


def binding_limit(limits: Mapping[Named, float]) -> Named:
    """The limit that allows least, where `limits` says how much each allows (in sequences, or in one other unit).

    The first named wins a tie. Source: definition. Ignores: limits that are not given.
    """
    if not limits:
        raise InputError("limits", limits, "name at least one limit and what it allows")
    return min(limits, key=limits.__getitem__)
