"""A plan's load, replicas and GPUs as worked formulas: what one replica sees, how many it takes, what each GPU makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from calc.arrays import first
from calc.expected import tokens_of_pass
from calc.queueing.closed_forms import md1_mean_wait_s
from calc.replica_model import replica_model
from calc.result import Answer
from calc.scenario import Traffic
from calc.sizing import FleetStep, users_per_slot
from calc.step import ServingPoint
from calc.textbook import gpus_to_buy
from calc.worked.formula import Worked
from calc.worked.serving import worked_serving

PROMPTS, DECODERS = "replicas that compute prompts", "replicas that decode"
BEFORE_SPARE = "replicas that the work takes; more are bought for what may fail, or to fill whole nodes"


def at_this_load(result: Answer) -> tuple[Worked, ...]:
    """The serving point at which a replica of the plan works; where prompts have their own, its TTFT waits for others there."""
    fleet, output = result.fleet, result.inputs.scenario.workload.output.mean_tokens
    if fleet is None:
        return ()
    if not fleet.prefill_replicas:
        users = max(1.0, fleet.active_per_replica)
        return worked_serving(serving_of(result, users), users=users, output_tokens=output)
    users = fleet.users_of_decoder
    point = serving_of(result, users)
    lines = worked_serving(point, users=users, output_tokens=output)
    prompt_s = first(point.prefill_s) / result.layout.schedulers
    return (
        *lines,
        *_waits(fleet, prompt_s=first(point.prefill_s), ttft_s=first(point.ttft_s.best), work_s=prompt_s),
    )


def _waits(fleet: FleetStep, *, prompt_s: float, ttft_s: float, work_s: float) -> Iterator[Worked]:
    """The wait of a prompt for those before it, and TTFT with it."""
    yield Worked(
        formula="prefill_gpus",
        inputs={"rate_per_s": fleet.rate_per_s, "prefill_s": work_s},
        result=fleet.prefill_busy,
        about=PROMPTS,
    )
    busy = fleet.prefill_busy / fleet.prefill_replicas
    wait_s = float(md1_mean_wait_s(utilisation=busy, service_s=prompt_s))
    yield Worked(
        formula="md1_mean_wait_s",
        inputs={"utilisation": busy, "service_s": prompt_s},
        result=wait_s,
        about=PROMPTS,
    )
    yield Worked(
        formula="pool_ttft_s",
        inputs={"ttft_s": ttft_s, "mean_wait_s": wait_s},
        result=ttft_s + wait_s,
        about=PROMPTS,
    )


def serving_of(result: Answer, users: float) -> ServingPoint:
    """The plan's replica at one concurrency."""
    workload = result.inputs.scenario.workload
    prompt, cached = prompt_of(result)
    return replica_model(result.inputs, result.layout).serving(
        input_tokens=prompt,
        output_tokens=workload.output.mean_tokens,
        concurrency=np.array([users]),
        prefix_tokens=cached,
        drafts=result.inputs.scenario.draft_tokens,
        tokens_per_pass=tokens_of_pass(result.inputs.scenario),
        disaggregated=result.inputs.scenario.disaggregated,
        load_s=result.prefill.load_s if result.prefill is not None else 0.0,
    )


def prompt_of(result: Answer) -> tuple[float, float]:
    """(tokens of a prompt, those of them that a cache holds) at the answer's load."""
    if result.prefill is not None:
        return result.prefill.prompt_tokens, result.prefill.cached_tokens
    workload = result.inputs.scenario.workload
    prompt = workload.input.mean_tokens
    return prompt, min(prompt * workload.prefix_share, prompt - 1.0)


def worked_replicas(result: Answer) -> Iterator[Worked]:
    """Replicas: from work per second and headroom, from users over slots, or of each pool."""
    fleet, scenario = result.fleet, result.inputs.scenario
    if fleet is None or result.sequences is None:
        return
    if fleet.prefill_replicas:
        yield from _replicas(result, fleet.prefill_busy, fleet.prefill_replicas, PROMPTS)
        yield from _replicas(result, fleet.decode_busy, fleet.replicas - fleet.prefill_replicas, DECODERS)
    elif scenario.traffic == Traffic.RATE:
        yield from _replicas(result, fleet.busy, fleet.replicas, "replicas")
    else:
        inputs = {
            "users": float(scenario.users * scenario.peak_factor),
            "headroom": scenario.headroom,
            "batch": float(max(1, result.sequences.batch)),
        }
        count = users_per_slot(**inputs)
        about = "replicas" if count == fleet.replicas else BEFORE_SPARE
        yield Worked(formula="users_per_slot", inputs=inputs, result=count, about=about)


def _replicas(result: Answer, busy: float, bought: int, about: str) -> Iterator[Worked]:
    """Whole replicas for so much work; where more were bought, what the formula gives is said to be less."""
    inputs = {"busy_gpus": busy, "headroom": result.inputs.scenario.headroom}
    needed = max(1, int(gpus_to_buy(**inputs)))
    said = (
        about
        if needed == bought
        else f"{about}: {bought:,} are bought, for a target, for what may fail or to fill nodes"
    )
    yield Worked(formula="gpus_to_buy", inputs=inputs, result=needed, about=said)


def worked_gpus(result: Answer) -> Worked:
    """GPUs of all replicas, or of the whole hosts that they stand in."""
    if result.nodes is not None:
        units, each, about = result.nodes, result.inputs.offer.accelerator.host_devices, "GPUs of whole hosts"
    else:
        units = result.fleet.replicas if result.fleet is not None else 1
        each, about = result.layout.gpus_per_replica, "GPUs of all replicas"
    inputs = {"units": float(units), "gpus_each": float(each)}
    return Worked(formula="gpus_of_units", inputs=inputs, result=result.gpus, about=about)


def worked_utilisation(result: Answer) -> Iterator[Worked]:
    """The busy share of what is bought."""
    if result.fleet is not None:
        fleet = result.fleet
        yield Worked(
            formula="fleet_utilisation",
            inputs={"busy_gpus": fleet.busy, "replicas": fleet.replicas},
            result=fleet.utilization,
            about="busy",
        )


def worked_capacity(result: Answer) -> Iterator[Worked]:
    """Output tokens per second that one GPU can make: a replica's, over its GPUs."""
    fleet, decode, whole = result.fleet, result.decode, result.tokens_per_s_per_gpu
    if fleet is None or decode is None or whole is None:
        return
    about, gpus = "tokens/s per GPU, with all the work that it can take", result.layout.gpus_per_replica
    if result.ledger is not None and fleet.busy > 0:
        yield Worked(
            formula="busy_replica_tokens_per_s",
            inputs={
                "rate_per_s": fleet.rate_per_s,
                "output_tokens": result.inputs.scenario.output_tokens,
                "busy_gpus": fleet.busy,
            },
            result=whole * gpus,
            about=about,
        )
    else:
        yield Worked(
            formula="tokens_per_s",
            inputs={
                "batch": decode.batch * tokens_of_pass(result.inputs.scenario),
                "step_s": float(decode.time.step_s.best),
            },
            result=decode.tokens_per_s,
            about=about,
        )
    yield Worked(
        formula="each_gpu_tokens_per_s",
        inputs={"tokens_per_s": whole * gpus, "gpus": float(gpus)},
        result=whole,
        about=about,
    )


def worked_cost(result: Answer) -> Iterator[Worked]:
    """What the deployment costs an hour and per million output tokens, where a price is known."""
    price, cost = result.inputs.offer.usd_per_gpu_hour, result.cost
    if price is None or cost.usd_per_hour is None or result.output_tokens_per_s is None:
        return
    yield Worked(
        formula="usd_per_hour",
        inputs={"gpus": result.gpus, "usd_per_gpu_hour": price},
        result=cost.usd_per_hour,
    )
    if cost.usd_per_million_output is not None:
        yield Worked(
            formula="usd_per_million_tokens",
            inputs={"usd_per_hour": cost.usd_per_hour, "tokens_per_s": result.output_tokens_per_s},
            result=cost.usd_per_million_output,
        )


def at_the_target(result: Answer, batch: int) -> Iterator[Worked]:
    """TPOT with so many sequences that decode together and prompts of others between the steps."""
    output = result.inputs.scenario.workload.output.mean_tokens
    lines = worked_serving(serving_of(result, float(batch)), users=float(batch), output_tokens=output)
    for line in lines:
        if line.formula in ("request_decode_s", "tpot_under_load_s"):
            yield replace(
                line, about=f"with {batch:,} sequences, the most of those tried that keep the TPOT target"
            )


def full_replica(result: Answer) -> Iterator[Worked]:
    """What a replica makes that runs as many sequences as it may, and the replicas' worth of work by it."""
    fleet, sequences, scenario = result.fleet, result.sequences, result.inputs.scenario
    if fleet is None or sequences is None:
        return
    output, users = scenario.workload.output.mean_tokens, float(max(1, sequences.batch))
    *_, rate = worked_serving(serving_of(result, users), users=users, output_tokens=output)
    yield replace(rate, about="a replica that runs as many as it may")
    yield Worked(
        formula="busy_replicas",
        inputs={"rate_per_s": fleet.rate_per_s, "output_tokens": output, "tokens_per_s": rate.result},
        result=fleet.busy,
    )
