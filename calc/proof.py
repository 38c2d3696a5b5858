"""Prove a plan: run its traffic through the serving simulator, and say at which rate the promise breaks.

Closed forms give means. The proof simulates the chosen replicas with the scenario's own arrivals and lengths, checks
each target at its percentile, adds replicas until they hold, and raises the rate until they do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from calc import format as fmt
from calc.engine import Engine
from calc.errors import InputError
from calc.expected import replica_curve
from calc.memory.kv import sequence_bytes
from calc.result import Answer
from calc.scenario import Fidelity
from calc.simulation import capacity, workload
from calc.simulation.cluster import Cluster, Router
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import EngineRules, engine_rules
from calc.simulation.step_table import StepTable
from calc.sized import replica_weight_bytes, timing_of
from calc.sizing import BLOCK_TOKENS, mean_context
from calc.slo import Slo
from calc.step_clock import step_clock, textbook_clock

REQUESTS_PER_REPLICA = 400
FEWEST_REQUESTS = 3_000
MOST_REQUESTS = 40_000
MOST_EXTRA_REPLICAS = 4  # times the planned number; past that the plan is wrong, not small
RATE_PRECISION = 0.03
FAMILIES = {
    Engine.VLLM: "vllm",
    Engine.SGLANG: "sglang",
    Engine.TENSORRT_LLM: "vllm",  # in-flight batching with a token budget, as vLLM's rules
    Engine.LLAMA_CPP: "vllm",
    Engine.OLLAMA: "vllm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What the simulator says of a plan.

    `planned`: the simulation of the planned replicas. `replicas`: the fewest that hold the promise, None when not even
    four times the plan does. `proven`: their simulation. `breaks_at_per_s`: the highest rate that `replicas` still hold.
    """

    slo: Slo
    rate_per_s: float
    planned_replicas: int
    planned: SimulationResult
    holds: bool
    replicas: int | None
    proven: SimulationResult | None
    breaks_at_per_s: float | None
    requests: int
    notes: tuple[str, ...]


def prove(result: Answer, *, seed: int = 0, told: Callable[[str], None] | None = None) -> Proof:
    """Simulate the answer's plan; raises InputError where there is nothing to prove.

    `told` hears what is being tried, for a progress line.
    """
    if result.fleet is None or not result.verdict.fits:
        raise InputError("plan", result.verdict.reason, "only a plan that works can be proven")
    replicas = result.fleet.replicas
    rate = result.fleet.rate_per_s
    slo = _targets(result)
    searched = capacity.Searched(
        requests=requests_of(result, seed=seed),
        rules=rules_of(result),
        step=clock_of(result),
        slo=slo,
        cluster=Cluster(router=Router.LEAST_OUTSTANDING),
    )
    say = told or (lambda _text: None)
    say(f"{replicas} replicas at {rate:.4g} requests/s")
    planned = capacity.try_load(_without_percentile(searched), rate_per_s=rate, replicas=replicas)
    if planned.result is None:
        raise InputError("simulation", "stopped early", "a trial without a percentile runs to its end")
    holds = planned.result.holds(slo) and planned.holds
    found, proven = (replicas, planned.result) if holds else (None, None)
    if not holds:
        for more in _more(replicas):
            say(f"{more} replicas")
            trial = capacity.try_load(searched, rate_per_s=rate, replicas=more)
            if trial.holds:
                found, proven = more, trial.result
                break
    breaks = None
    if found is not None:
        say("the rate at which the promise breaks")
        top = capacity.largest_rate(searched, replicas=found, precision=RATE_PRECISION)
        breaks = top.best.rate_per_s if top.best else None
    return Proof(
        slo=slo,
        rate_per_s=rate,
        planned_replicas=replicas,
        planned=planned.result,
        holds=holds,
        replicas=found,
        proven=proven,
        breaks_at_per_s=breaks,
        requests=len(searched.requests),
        notes=_notes(result),
    )


def headline_of(proof: Proof) -> str:
    """The proof in one sentence or two."""
    at = f"at {fmt.plain(proof.rate_per_s, 'requests/s')}"
    measure = "mean" if proof.slo.percentile is None else f"p{proof.slo.percentile:g}"
    if proof.replicas is None:
        most = MOST_EXTRA_REPLICAS * proof.planned_replicas
        return f"Refuted: {at} the {measure} targets fail even on {fmt.plural(most, 'replica')}."
    hold = "holds" if proof.replicas == 1 else "hold"
    held = f"{fmt.plural(proof.replicas, 'replica')} {hold} the {measure} targets {at}"
    breaks = ""
    if proof.breaks_at_per_s is not None:
        breaks = f"; the promise breaks above {fmt.plain(proof.breaks_at_per_s, 'requests/s')}"
    if proof.holds:
        return f"Proven by simulation: {held}{breaks}."
    planned = fmt.plural(proof.planned_replicas, "replica")
    return f"The means planned {planned}; by simulation {held}{breaks}."


def _without_percentile(searched: capacity.Searched) -> capacity.Searched:
    """The same search with targets as means: such a trial is never stopped early, so that all percentiles are known."""
    return replace(searched, slo=replace(searched.slo, percentile=None))


def _more(replicas: int) -> tuple[int, ...]:
    """Larger deployments to try, a tenth more at a time."""
    counts = [replicas]
    while counts[-1] < MOST_EXTRA_REPLICAS * replicas:
        counts.append(max(counts[-1] + 1, int(counts[-1] * 1.1)))
    return tuple(counts[1:])


def _targets(result: Answer) -> Slo:
    slo = result.inputs.scenario.slo
    if slo.ttft_s is None and slo.tpot_s is None and slo.e2e_s is None:
        raise InputError(
            "targets", "none", "a promise to prove needs at least one target (TTFT, TPOT, end to end)"
        )
    if result.inputs.scenario.workload.rate_per_s is None:
        raise InputError(
            "traffic", "users", "give requests per second: a closed loop slows its own arrivals down"
        )
    if not result.fleet or result.fleet.rate_per_s <= 0:
        raise InputError("rate", 0, "there is nothing to prove without traffic")
    return slo


def requests_of(result: Answer, *, seed: int) -> RequestTable:
    """The scenario's traffic: arrivals with its CV, lengths of its shapes, one shared prefix of its share."""
    given = result.inputs.scenario.workload
    replicas = result.fleet.replicas if result.fleet else 1
    count = int(np.clip(REQUESTS_PER_REPLICA * replicas, FEWEST_REQUESTS, MOST_REQUESTS))
    draw = np.random.default_rng(seed)
    rate = (given.rate_per_s or 0.0) * given.peak_factor
    arrivals = workload.renewal_arrivals(draw, rate_per_s=rate, count=count, cv=given.arrival_cv)
    return workload.open_requests(
        draw, arrivals, prompt=given.input, answer=given.output, prefix_share=given.prefix_share
    )


def rules_of(result: Answer) -> EngineRules:
    """The scheduler of the scenario's engine, on the pool that the memory step left."""
    scenario = result.inputs.scenario
    family = FAMILIES[Engine(scenario.engine)]
    tokens = max(BLOCK_TOKENS, result.memory.tokens)
    settings: dict[str, int | None] = {"max_seqs": scenario.max_seqs or None}
    if family == "vllm":
        places = scenario.max_seqs or 1024
        settings = {"block_size": BLOCK_TOKENS, "max_seqs": places, "token_budget": max(8192, places)}
        return engine_rules(family, num_blocks=max(1, tokens // BLOCK_TOKENS), **settings)
    return engine_rules(family, num_blocks=tokens, **settings)


def clock_of(result: Answer) -> StepTable:
    """The step times of one replica, as the simulator reads them."""
    inputs, scenario = result.inputs, result.inputs.scenario
    context = mean_context(scenario.workload)
    if scenario.fidelity == Fidelity.TEXTBOOK:
        timing = timing_of(inputs, result.layout, replica_weight_bytes(inputs))
        return textbook_clock(timing, context_tokens=context)
    if inputs.offer.profile is None:
        raise InputError("profile", None, "a step model needs a profile")
    replica = replica_curve(
        inputs.spec, inputs.offer.accelerator, result.layout, inputs.offer.profile, scenario, fit=1
    )
    return step_clock(replica.model, context_tokens=context, prompt_tokens=scenario.input_tokens)


def _notes(result: Answer) -> tuple[str, ...]:
    scenario = result.inputs.scenario
    kept = scenario.input_tokens + scenario.output_tokens
    per_sequence = sequence_bytes(result.inputs.spec, round(kept), scenario.kv_format)
    notes = [
        f"scheduler rules of {FAMILIES[Engine(scenario.engine)]}, routed to the replica with the fewest requests",
        f"a pool of {result.memory.tokens:,} tokens per replica, {per_sequence:,} bytes per sequence",
    ]
    if scenario.engine == Engine.TENSORRT_LLM:
        notes.append("TensorRT-LLM's in-flight batching is simulated by vLLM's rules")
    return tuple(notes)
