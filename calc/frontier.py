"""What an accelerator can offer: tokens per second and GPU against tokens per second and user, over layouts and batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calc.cost import tokens_per_usd
from calc.curves import decode_seconds
from calc.energy import watts_per_gpu, watts_per_user
from calc.errors import InputError, MissingSpec
from calc.expected import tokens_of_pass
from calc.measured_ratios import ratio_to_reference
from calc.provenance import Estimate
from calc.replica_model import replica_model
from calc.result import Answer, Inputs, Offer
from calc.scenario import Fidelity, Scenario
from calc.sized import answer_on
from calc.sizing import PrefillStep, mean_context
from calc.units import HOUR_S

Array = npt.NDArray[np.float64]

DEGREES = (1, 2, 4, 8)
BATCHES = tuple(2**power for power in range(11))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """One way to run one replica: its layout and batch, and what users and the owner get from it.

    `batch`: users who each wait for their answer and ask again. `user_tokens_per_s`: one over TPOT, prompts of the others
    between the steps counted; `tokens_per_s_per_gpu`: output tokens; `ttft_s`: as the same users see it. Where prompts have
    GPUs of their own, and in the textbook, which has no steps that share both, a user's TPOT is one decode step, the work of
    prompts counts against the GPUs, and `ttft_s` is that of a prompt alone; `e2e_s` is then None.
    `usd_per_million`: None where no price is known. `fits`: the cache holds that batch.
    `watts_per_user`: of the GPUs, from their power limit `power_limit_w` and the share of their time that goes to prompts;
    None where no limit is published.
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
    e2e_s: float | None = None
    power_limit_w: float | None = None
    prefill_share: float = 0.0

    def against(self, other: Operating) -> tuple[float, bool]:
        """(times the other's tokens per dollar, True); times its tokens per GPU, False, where a price is missing."""
        mine, theirs = self.tokens_per_usd, other.tokens_per_usd
        if mine is not None and theirs is not None:
            return float(ratio_to_reference(measured=mine, reference=theirs)), True
        return float(
            ratio_to_reference(measured=self.tokens_per_s_per_gpu, reference=other.tokens_per_s_per_gpu)
        ), False

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
                inputs.scenario.on(offer.accelerator.id),
                tp=tp,
                pp=1,
                dp=1,
                nodes=1,
                kv_bytes_per_gpu=None,
            ),
        )
        try:
            points += _of_layout(answer_on(asked, asked.scenario.layout))
        except (InputError, MissingSpec):
            continue
    return tuple(points)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """One replica at every batch: seconds per token of a user, output tokens per second, share of time for prompts."""

    tpot_s: Array
    tokens_per_s: Array
    ttft_s: Array
    prefill_share: Array
    e2e_s: Array | None = None


def _of_layout(result: Answer) -> list[Operating]:
    if result.sequences is None or result.prefill is None:
        return []
    scenario, offer = result.inputs.scenario, result.inputs.offer
    gpus = result.layout.gpus_per_replica
    apart = scenario.fidelity == Fidelity.TEXTBOOK or scenario.disaggregated
    pace = _apart(result, result.prefill) if apart else _shared(result, result.prefill)
    price = offer.usd_per_gpu_hour
    return [
        Operating(
            gpu=offer.accelerator.name,
            layout=result.layout.label,
            gpus=gpus,
            batch=size,
            user_tokens_per_s=float(1.0 / pace.tpot_s[i]),
            tokens_per_s_per_gpu=float(pace.tokens_per_s[i] / gpus),
            ttft_s=float(pace.ttft_s[i]),
            usd_per_million=None
            if price is None
            else float(price * gpus * 1e6 / HOUR_S / pace.tokens_per_s[i]),
            fits=size <= result.sequences.fit,
            usd_per_gpu_hour=price,
            watts_per_user=_watts_per_user(
                offer, gpus=gpus, batch=size, prefill_share=float(pace.prefill_share[i])
            ),
            e2e_s=None if pace.e2e_s is None else float(pace.e2e_s[i]),
            power_limit_w=offer.accelerator.power_w,
            prefill_share=min(1.0, float(pace.prefill_share[i])),
        )
        for i, size in enumerate(BATCHES)
    ]


def _apart(result: Answer, prefill: PrefillStep) -> _Pace:
    """Prompts and decode steps that do not mix: each takes its own time."""
    scenario = result.inputs.scenario
    batch = np.array(BATCHES, dtype=float)
    seconds = decode_seconds(result, scenario.fidelity, mean_context(scenario.workload))(batch)
    step_s = np.asarray(seconds.best, dtype=float)
    prefill_s = float(prefill.prefill_s.best)
    per_token_s = prefill_s / scenario.output_tokens + step_s / batch  # of the replica, for one output token
    return _Pace(
        tpot_s=step_s,
        tokens_per_s=1.0 / per_token_s,
        ttft_s=np.full(len(batch), prefill_s),
        prefill_share=prefill_s / scenario.output_tokens / per_token_s,
    )


def _shared(result: Answer, prefill: PrefillStep) -> _Pace:
    """Prompts and decode steps on the same GPUs, as users who wait for their answers see them."""
    scenario = result.inputs.scenario
    batch = np.array(BATCHES, dtype=float)
    point = replica_model(result.inputs, result.layout).serving(
        input_tokens=scenario.input_tokens,
        output_tokens=scenario.output_tokens,
        concurrency=batch,
        prefix_tokens=prefill.cached_tokens,
        drafts=scenario.draft_tokens,
        tokens_per_pass=tokens_of_pass(scenario),
        load_s=prefill.load_s,
    )
    tpot_s, tokens_per_s, ttft_s, share, e2e_s = (
        np.broadcast_to(np.asarray(values, dtype=float), batch.shape)
        for values in (
            point.tpot_s.best, point.tokens_per_s.best, point.ttft_s.best, point.prefill_share, point.e2e_s.best,
        )
    )  # fmt: skip
    return _Pace(tpot_s=tpot_s, tokens_per_s=tokens_per_s, ttft_s=ttft_s, prefill_share=share, e2e_s=e2e_s)


def _watts_per_user(offer: Offer, *, gpus: int, batch: int, prefill_share: float) -> Estimate | None:
    """Watts of a replica's GPUs over the users in its batch, all of them busy."""
    limit = offer.accelerator.power_w
    if limit is None:
        return None
    share = min(1.0, float(prefill_share))
    watts = watts_per_gpu(power_limit_w=limit, prefill_share=share, decode_share=1.0 - share)
    return watts.scaled(float(watts_per_user(gpus=gpus, power_w=1.0, users=batch)))


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
