"""A replica at fixed concurrency as worked formulas: the fixed point that gives TPOT and TTFT, and the rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from calc.arrays import first
from calc.step import ServingPoint
from calc.worked.formula import Worked

FIXED_POINT: Final = (
    "users", "decode_step_s", "extra_s", "decoding_share", "prefill_seen", "decode_s", "decoding", "tpot_s", "ttft_s",
    "prefill_s", "prefill_share", "turn_s",
)  # fmt: skip
"""Parts of a serving point that its formulas share."""


def worked_serving(point: ServingPoint, *, users: float, output_tokens: float) -> tuple[Worked, ...]:
    """A serving point of one concurrency: the fixed point that gives TPOT and TTFT, and the replica's rate."""
    e2e_s, ttft_s, tpot_s = (first(time.best) for time in (point.e2e_s, point.ttft_s, point.tpot_s))
    return (
        *_fixed_point(point, output_tokens=output_tokens),
        Worked(
            formula="e2e_s",
            inputs={"ttft_s": ttft_s, "tpot_s": tpot_s, "output_tokens": output_tokens},
            result=e2e_s,
        ),
        Worked(
            formula="replica_tokens_per_s",
            inputs={"users": users, "output_tokens": output_tokens, "e2e_s": e2e_s},
            result=first(point.tokens_per_s.best),
        ),
    )


def _fixed_point(point: ServingPoint, *, output_tokens: float) -> Iterator[Worked]:
    """TPOT and TTFT of those who share the replica, each in terms of the other."""
    found = {name: first(getattr(point.parts, name)) for name in FIXED_POINT}
    own = {"output_tokens": output_tokens, "step_s": found["decode_step_s"]}
    waited, ttft_s = point.parts.first_token, first(point.ttft_s.best)
    yield Worked(
        formula="request_decode_s",
        inputs=own | {name: found[name] for name in ("prefill_seen", "users", "decoding_share", "extra_s")},
        result=found["decode_s"],
    )
    yield Worked(
        formula="tpot_under_load_s",
        inputs={"decode_s": found["decode_s"], "output_tokens": output_tokens},
        result=first(point.tpot_s.best),
    )
    yield Worked(
        formula="prefill_busy_share",
        inputs=own | {"decode_s": found["decode_s"]},
        result=found["prefill_share"],
    )
    yield Worked(
        formula="ttft_under_load_s",
        inputs={
            "server_s": float(waited.server_s),
            "steps_waited": float(waited.steps),
            "tpot_s": found["tpot_s"],
            "prefill_times": float(waited.prefill),
            "prefill_s": found["prefill_s"],
            "prefill_busy": found["prefill_share"],
            "turn_s": found["turn_s"],
            "text_arrives_s": ttft_s - found["ttft_s"],
        },
        result=ttft_s,
    )
    yield Worked(
        formula="decoding_sequences",
        inputs={name: found[name] for name in ("users", "decode_s", "ttft_s")},
        result=found["decoding"],
    )
