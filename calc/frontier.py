"""What an accelerator can offer: tokens per second and GPU against tokens per second and user, over layouts and batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calc.cost import tokens_per_usd
from calc.curves import decode_seconds
from calc.energy import watts_per_gpu
from calc.errors import InputError, MissingSpec
from calc.provenance import Estimate
from calc.result import Answer, Inputs, Offer
from calc.scenario import Scenario
from calc.sized import answer_for
from calc.sizing import mean_context
from calc.units import HOUR_S

DEGREES = (1, 2, 4, 8)
BATCHES = tuple(2**power for power in range(11))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """One way to run one replica: its layout and batch, and what users and the owner get from it.

    `user_tokens_per_s`: one over the decode step. `tokens_per_s_per_gpu`: output tokens, with the prefill work of the
    same requests counted. `usd_per_million`: None where no price is known. `fits`: the cache holds that batch.
    `watts_per_user`: of the GPUs, from the power limit; None where none is published.
    """

    gpu: str
    layout: str
    gpus: int
    batch: int
    user_tokens_per_s: float
    tokens_per_s_per_gpu: float
    ttft_s: float
    usd_per_million: float | None
    fits: bool
    usd_per_gpu_hour: float | None = None
    watts_per_user: Estimate | None = None

    @property
    def tokens_per_usd(self) -> float | None:
        return (
            None
            if self.usd_per_million is None
            else float(tokens_per_usd(usd_per_million=self.usd_per_million))
        )


ASKED = (
    "traffic", "rate_per_s", "users", "arrival_cv", "peak_factor", "ttft_s", "tpot_s", "e2e_s", "percentile", "headroom",
)  # fmt: skip


def offered(scenario: Scenario) -> Scenario:
    """The scenario without its traffic and targets, on which no point depends."""
    return replace(scenario, **{name: getattr(Scenario(), name) for name in ASKED})


def operating_points(inputs: Inputs, offer: Offer) -> tuple[Operating, ...]:
    """Every layout of up to a node and every batch in powers of two; none where the model fits in no layout.

    An accelerator without a rate that the fidelity needs has no points.
    """
    points: list[Operating] = []
    for tp in DEGREES:
        if tp > max(1, min(DEGREES[-1], offer.accelerator.host_devices)):
            break
        asked = replace(
            inputs,
            offer=offer,
            catalogue=(),
            scenario=replace(
                inputs.scenario, gpu=offer.accelerator.id, gpu_json="", tp=tp, kv_bytes_per_gpu=None
            ),
        )
        try:
            points += _of_layout(answer_for(asked, asked.scenario.layout))
        except (InputError, MissingSpec):
            continue
    return tuple(points)


def _of_layout(result: Answer) -> list[Operating]:
    if result.sequences is None or result.prefill is None:
        return []
    scenario, offer = result.inputs.scenario, result.inputs.offer
    gpus = result.layout.gpus_per_replica
    batch = np.array(BATCHES, dtype=float)
    seconds = decode_seconds(result, scenario.fidelity, mean_context(scenario.workload))(batch)
    step_s = np.asarray(seconds.best, dtype=float)
    prefill_s = float(result.prefill.prefill_s.best)
    per_token_s = prefill_s / scenario.output_tokens + step_s / batch  # of the replica, for one output token
    return [
        Operating(
            gpu=offer.accelerator.name,
            layout=result.layout.label,
            gpus=gpus,
            batch=size,
            user_tokens_per_s=float(1.0 / step_s[i]),
            tokens_per_s_per_gpu=float(1.0 / (per_token_s[i] * gpus)),
            ttft_s=prefill_s,
            usd_per_million=None
            if offer.usd_per_gpu_hour is None
            else float(offer.usd_per_gpu_hour * gpus * per_token_s[i] * 1e6 / HOUR_S),
            fits=size <= result.sequences.fit,
            usd_per_gpu_hour=offer.usd_per_gpu_hour,
            watts_per_user=_watts_per_user(
                offer,
                gpus=gpus,
                batch=size,
                prefill_share=prefill_s / scenario.output_tokens / per_token_s[i],
            ),
        )
        for i, size in enumerate(BATCHES)
    ]


def _watts_per_user(offer: Offer, *, gpus: int, batch: int, prefill_share: float) -> Estimate | None:
    """Watts of a replica's GPUs over the users in its batch, all of them busy."""
    limit = offer.accelerator.power_w
    if limit is None:
        return None
    share = min(1.0, float(prefill_share))
    watts = watts_per_gpu(power_limit_w=limit, prefill_share=share, decode_share=1.0 - share)
    return watts.scaled(gpus / batch)


def frontier(points: tuple[Operating, ...]) -> tuple[Operating, ...]:
    """The points that fit and that no other beats in both directions, from the slowest user to the fastest."""
    best: list[Operating] = []
    for point in sorted(
        (p for p in points if p.fits), key=lambda p: (-p.user_tokens_per_s, -p.tokens_per_s_per_gpu)
    ):
        if not best or point.tokens_per_s_per_gpu > best[-1].tokens_per_s_per_gpu:
            best.append(point)
    return tuple(reversed(best))


def at_interactivity(points: tuple[Operating, ...], user_tokens_per_s: float) -> Operating | None:
    """The point with the most tokens per GPU among those that give each user at least that speed; None: there is none."""
    fast = [p for p in points if p.fits and p.user_tokens_per_s >= user_tokens_per_s]
    return max(fast, key=lambda p: p.tokens_per_s_per_gpu, default=None)
