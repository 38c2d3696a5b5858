"""The numbers of *Simulate traffic* and *Compare GPUs* as worked formulas."""

from __future__ import annotations

from collections.abc import Iterator

from calc.energy import DECODE_SHARE, IDLE_SHARE, PREFILL_SHARE, mean_watts
from calc.frontier import Operating
from calc.proof import clock_of
from calc.result import Answer
from calc.simulation.results import SimulationResult
from calc.simulation.step_table import StepTable
from calc.worked.bill import BEST
from calc.worked.formula import Worked


def worked_run(result: Answer, ran: SimulationResult) -> tuple[Worked, ...]:
    """A run's goodput, its requests in flight, and its clock for one decode pass of the plan's batch."""
    finished = ran.requests_per_s
    mean_s = ran.spread("e2e_s").mean
    lines = [worked_goodput(result, ran)]
    if mean_s is not None:
        lines.append(
            Worked(
                formula="requests_in_system",
                inputs={"arrivals_per_s": finished, "time_in_system_s": mean_s},
                result=finished * mean_s,
                about="mean requests in flight, from the run's own mean",
            )
        )
    return (*lines, *_clock(result))


def worked_goodput(result: Answer, ran: SimulationResult) -> Worked:
    """Requests per second that met every target: those that finished less those that missed one."""
    finished, good = ran.requests_per_s, ran.goodput_per_s(result.inputs.scenario.slo)
    return Worked(
        formula="goodput_per_s",
        inputs={"finished_per_s": finished, "missed_per_s": finished - good},
        result=good,
    )


def _clock(result: Answer) -> tuple[Worked, ...]:
    if result.decode is None:
        return ()
    return (worked_pass(clock_of(result), result.decode.batch, round(result.decode.context_tokens)),)


def worked_pass(table: StepTable, batch: int, context: int) -> Worked:
    """One decode pass on the simulator's clock: `batch` sequences with `context` cached tokens each."""
    attended = batch * context
    inside = batch * min(context, table.window)
    return Worked(
        formula="clock_pass_s",
        inputs={
            "base_s": table.seconds(0, batch),
            "attended_slope_s": table.kv_s,
            "attended_tokens": attended,
            "window_slope_s": table.window_s,
            "window_tokens": inside,
            "pair_slope_s": table.attention_s,
            "prompt_pairs": 0.0,
        },
        result=table.seconds(0, batch, attended, 0.0, inside),
        about=f"the simulator's clock: one decode pass of {batch} sequences with {context} cached tokens each",
    )


def worked_operating(
    point: Operating, *, output_tokens: float, baseline: Operating | None = None
) -> tuple[Worked, ...]:
    """A point of the frontier: what a user gets, what a GPU makes, what a million tokens cost, and that beside the baseline."""
    about = f"{point.gpu}, {point.layout}, batch {point.batch}"
    step_s = 1.0 / point.user_tokens_per_s
    seen = about if point.e2e_s is None else f"{about}: TPOT, with the prompts of others between the steps"
    lines = [
        Worked(
            formula="user_tokens_per_s",
            inputs={"step_s": step_s},
            result=point.user_tokens_per_s,
            about=seen,
        ),
    ]
    if point.e2e_s is None:
        lines.append(
            Worked(
                formula="gpu_tokens_per_s",
                inputs={
                    "gpus": point.gpus,
                    "prefill_s": point.ttft_s,
                    "output_tokens": output_tokens,
                    "step_s": step_s,
                    "batch": point.batch,
                },
                result=point.tokens_per_s_per_gpu,
                about=about,
            )
        )
    else:
        lines += [
            Worked(
                formula="e2e_s",
                inputs={"ttft_s": point.ttft_s, "tpot_s": step_s, "output_tokens": output_tokens},
                result=point.e2e_s,
                about=about,
            ),
            Worked(
                formula="replica_tokens_per_s",
                inputs={"users": point.batch, "output_tokens": output_tokens, "e2e_s": point.e2e_s},
                result=point.tokens_per_s_per_gpu * point.gpus,
                about=f"{about}, all {point.gpus} GPUs",
            ),
        ]
    price = point.usd_per_gpu_hour
    if price is not None and point.usd_per_million is not None and point.tokens_per_usd is not None:
        lines += [
            Worked(
                formula="usd_per_million_tokens",
                inputs={"usd_per_hour": price, "tokens_per_s": point.tokens_per_s_per_gpu},
                result=point.usd_per_million,
                about=about,
            ),
            Worked(
                formula="tokens_per_usd",
                inputs={"usd_per_million": point.usd_per_million},
                result=point.tokens_per_usd,
                about=about,
            ),
        ]
    if baseline is not None:
        lines.append(_against(point, baseline, about))
    return (*lines, *_power(point, about))


def _against(point: Operating, baseline: Operating, about: str) -> Worked:
    factor, per_dollar = point.against(baseline)
    mine, theirs = (
        one.tokens_per_usd if per_dollar else one.tokens_per_s_per_gpu for one in (point, baseline)
    )
    return Worked(
        formula="ratio_to_reference",
        inputs={"measured": mine or 0.0, "reference": theirs or 0.0},
        result=factor,
        about=f"{about}: tokens per {'dollar' if per_dollar else 'second and GPU'} over the baseline's",
    )


def _power(point: Operating, about: str) -> Iterator[Worked]:
    """What its GPUs draw for a user while all users are served."""
    if point.power_limit_w is None or point.watts_per_user is None:
        return
    draw = {
        "power_limit_w": point.power_limit_w,
        "prefill_share": point.prefill_share,
        "prefill_draw": PREFILL_SHARE[BEST],
        "decode_share": 1.0 - point.prefill_share,
        "decode_draw": DECODE_SHARE[BEST],
        "idle_draw": IDLE_SHARE[BEST],
    }
    watts = float(mean_watts(**draw))
    yield Worked(formula="mean_watts", inputs=draw, result=watts, about=about)
    yield Worked(
        formula="watts_per_user",
        inputs={"gpus": point.gpus, "power_w": watts, "users": point.batch},
        result=point.watts_per_user.best,
        about=about,
    )
