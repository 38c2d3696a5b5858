"""A replica at fixed concurrency as worked formulas: the fixed point that gives TPOT and TTFT, and the rate."""

from __future__ import annotations

import numpy as np

from calc.step import ServingPoint
from calc.worked import Worked


def worked_serving(point: ServingPoint, *, users: float, output_tokens: float) -> tuple[Worked, ...]:
    """A serving point of one concurrency: the fixed point that gives TPOT and TTFT, and the replica's rate."""
    parts = point.parts
    one = {
        name: float(np.ravel(getattr(parts, name))[0])
        for name in (
            "users",
            "decode_step_s",
            "extra_s",
            "decoding_share",
            "prefill_seen",
            "decode_s",
            "decoding",
            "tpot_s",
            "ttft_s",
            "prefill_s",
            "prefill_share",
        )
    }
    first, own = parts.first_token, {"output_tokens": output_tokens, "step_s": one["decode_step_s"]}
    e2e_s, rate = float(np.ravel(point.e2e_s.best)[0]), float(np.ravel(point.tokens_per_s.best)[0])
    tpot_s, ttft_s = float(np.ravel(point.tpot_s.best)[0]), float(np.ravel(point.ttft_s.best)[0])
    return (
        Worked(
            formula="request_decode_s",
            inputs=own | {name: one[name] for name in ("prefill_seen", "users", "decoding_share", "extra_s")},
            result=one["decode_s"],
        ),
        Worked(
            formula="tpot_under_load_s",
            inputs={"decode_s": one["decode_s"], "output_tokens": output_tokens},
            result=tpot_s,
        ),
        Worked(
            formula="prefill_busy_share",
            inputs=own | {"decode_s": one["decode_s"]},
            result=one["prefill_share"],
        ),
        Worked(
            formula="ttft_under_load_s",
            inputs={
                "server_s": float(first.server_s),
                "steps_waited": float(first.steps),
                "tpot_s": one["tpot_s"],
                "prefill_times": float(first.prefill),
                "prefill_s": one["prefill_s"],
                "prefill_busy": one["prefill_share"],
                "text_arrives_s": ttft_s - one["ttft_s"],
            },
            result=ttft_s,
        ),
        Worked(
            formula="decoding_sequences",
            inputs={"users": one["users"], "decode_s": one["decode_s"], "ttft_s": one["ttft_s"]},
            result=one["decoding"],
        ),
        Worked(
            formula="e2e_s",
            inputs={"ttft_s": ttft_s, "tpot_s": tpot_s, "output_tokens": output_tokens},
            result=e2e_s,
        ),
        Worked(
            formula="replica_tokens_per_s",
            inputs={"users": users, "output_tokens": output_tokens, "e2e_s": e2e_s},
            result=rate,
        ),
    )
