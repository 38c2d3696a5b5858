"""Watts of a GPU that serves, and joules of a token, as ranges: from its power limit and from what it is busy with."""

from __future__ import annotations

from calc.arrays import Numbers, not_negative, positive_finite, share
from calc.cost import joules_per_token
from calc.provenance import Estimate, Provenance

IDLE_SHARE = (0.08, 0.12, 0.20)
"""Share of the power limit that a GPU with loaded weights draws while it waits: 60 to 140 W of a 700 W part."""
DECODE_SHARE = (0.20, 0.40, 0.70)
"""While it decodes: 137 to 300 W of 700 W on an H200 (arXiv 2605.11999, decode of four kinds of attention), more in
batches large enough to be limited by arithmetic."""
PREFILL_SHARE = (0.70, 0.90, 1.0)
"""While it computes prompts: at or near the limit (Patel et al., Characterizing Power Management Opportunities for LLMs
in the Cloud, ASPLOS 2024)."""


def watts_per_gpu(*, power_limit_w: float, prefill_share: float, decode_share: float) -> Estimate:
    """Mean watts of a GPU that spends these shares of its time on prompts and on decoding, and idles otherwise.

    Source: the shares of the limit above, weighted by time.
    Ignores: host, network and cooling (a factor on top), clock limits, and that large batches draw more.
    """
    positive_finite(power_limit_w=power_limit_w)
    share(prefill_share=prefill_share, decode_share=decode_share, busy_share=prefill_share + decode_share)
    low, best, high = (
        float(
            mean_watts(
                power_limit_w=power_limit_w,
                prefill_share=prefill_share,
                decode_share=decode_share,
                prefill_draw=PREFILL_SHARE[end],
                decode_draw=DECODE_SHARE[end],
                idle_draw=IDLE_SHARE[end],
            )
        )
        for end in range(3)
    )
    return Estimate(low=low, best=best, high=high, provenance=Provenance.ASSUMED)


def mean_watts(
    *,
    power_limit_w: Numbers,
    prefill_share: Numbers,
    decode_share: Numbers,
    prefill_draw: Numbers,
    decode_draw: Numbers,
    idle_draw: Numbers,
) -> Numbers:
    """Mean power by what a GPU does: shares of its time, each at a share of the power limit.

    Source: an average over time. Ignores: host, network and cooling, clock limits, and that large batches draw more.
    """
    idle = 1.0 - prefill_share - decode_share
    drawn = prefill_share * prefill_draw + decode_share * decode_draw + idle * idle_draw
    return power_limit_w * drawn


def watts_per_user(*, gpus: Numbers, power_w: Numbers, users: Numbers) -> Numbers:
    """Power of a replica's GPUs over the users that it serves at once.

    Source: definition. Ignores: host, network and cooling.
    """
    return gpus * power_w / users


def token_joules(watts: Estimate, *, gpus: float, tokens_per_s: float) -> Estimate:
    """Joules of one output token of a fleet of that many GPUs; prompts and idle time are paid by its outputs."""
    not_negative(gpus=gpus)
    low, best, high = (
        float(joules_per_token(gpus=gpus, power_w=w, tokens_per_s=tokens_per_s))
        for w in (watts.low, watts.best, watts.high)
    )
    return Estimate(low=low, best=best, high=high, provenance=watts.provenance)
