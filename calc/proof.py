"""Prove a plan: run its traffic through the serving simulator, and say at which rate the promise breaks.

Closed forms give means. The proof simulates the chosen replicas with the scenario's own arrivals and lengths, checks
each target at its percentile, adds replicas until they hold, and raises the rate until they do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from calc import format as fmt
from calc.engine import LLAMA_CPP_ENGINES, Engine
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.flag_scope import default_step_tokens
from calc.memory.kv import sequence_bytes
from calc.replica_model import replica_model
from calc.result import Answer
from calc.scenario import Fidelity, Scenario
from calc.simulation import capacity, workload
from calc.simulation.cluster import Cluster, Router
from calc.simulation.disaggregation import MAX_REPLICAS, PrefillPool
from calc.simulation.link import Link
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import MAX_COUNT, EngineRules, Speculation, engine_rules
from calc.simulation.run import simulate
from calc.simulation.state import LoadState
from calc.simulation.step_table import StepTable
from calc.sized import replica_weight_bytes, timing_of
from calc.sizing import BLOCK_TOKENS, mean_context
from calc.slo import Slo
from calc.step.links import node_bytes_per_s
from calc.step_clock import step_clock, textbook_clock
from calc.units import DAY_S

REQUESTS_PER_REPLICA = 600
FEWEST_REQUESTS = 4_000
MOST_REQUESTS = 30_000
MOST_EXTRA_REPLICAS = 4  # times the planned number; past that the plan is wrong, not small
RATE_PRECISION = 0.04
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

    @property
    def headroom(self) -> float | None:
        """Traffic beyond the asked rate that the proven replicas still carry, as a share of it; None: not searched."""
        if self.breaks_at_per_s is None or self.rate_per_s <= 0:
            return None
        return self.breaks_at_per_s / self.rate_per_s - 1.0


def prove(result: Answer, *, seed: int = 0, told: Callable[[str], None] | None = None) -> Proof:
    """Simulate the answer's plan; raises InputError where there is nothing to prove.

    `told` hears what is being tried, for a progress line.
    """
    if result.fleet is None or not result.verdict.fits:
        raise InputError("plan", result.verdict.reason, "only a plan that works can be proven")
    replicas = result.fleet.replicas
    if replicas > MAX_REPLICAS:
        raise InputError(
            "replicas",
            replicas,
            f"a proof plays at most {MAX_REPLICAS:,}",
            next_step="Prove a part of the traffic, as much as one site takes, or plan without a proof.",
        )
    rate = result.fleet.rate_per_s
    slo = _targets(result)
    searched = Trials(
        requests=requests_of(result, seed=seed),
        rules=rules_of(result),
        step=clock_of(result, drafts=result.inputs.scenario.draft_tokens),
        slo=slo,
        pools=Pools.of(result),
    )
    say = told or (lambda _text: None)
    say(f"{replicas} replicas at {rate:.4g} requests/s")
    planned = _whole_trial(searched, rate_per_s=rate, replicas=replicas)
    if planned.result is None:
        raise InputError("simulation", "stopped early", "a trial without a percentile runs to its end")
    holds = planned.holds
    found, proven = (replicas, planned.result) if holds else (None, None)
    if not holds:
        for more in _more(replicas):
            say(f"{more} replicas")
            trial = _trial(searched, rate_per_s=rate, replicas=more)
            if trial.holds:
                found, proven = more, trial.result
                break
    breaks = None
    if found is not None and not _closed(searched):
        say("the rate at which the promise breaks")
        top = capacity.largest_rate(
            searched.searched(slo, replicas=found),
            replicas=searched.pools.decoding(found),
            precision=RATE_PRECISION,
        )
        breaks = max(rate, top.best.rate_per_s) if top.best else rate  # the rate itself was seen to hold
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
    job = proof.slo == Slo(e2e_s=DAY_S)
    if proof.replicas is None:
        most = MOST_EXTRA_REPLICAS * proof.planned_replicas
        what = "the queue grows" if job else f"the {measure} targets fail"
        return f"Refuted: {at} {what} even on {fmt.plural(most, 'replica')}."
    hold = "holds" if proof.replicas == 1 else "hold"
    what = (
        ("keeps up with" if proof.replicas == 1 else "keep up with")
        if job
        else f"{hold} the {measure} targets"
    )
    held = f"{fmt.plural(proof.replicas, 'replica')} {what} {at.removeprefix('at ') if job else at}"
    breaks = ""
    if proof.breaks_at_per_s is not None:
        breaks = f"; the promise breaks above {fmt.plain(proof.breaks_at_per_s, 'requests/s')}"
    if proof.holds:
        return f"Proven by simulation: {held}{breaks}."
    planned = fmt.plural(proof.planned_replicas, "replica")
    return f"The means planned {planned}; by simulation {held}{breaks}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """How replicas are put to use: all alike, or `prefill` of every `planned` for prompts alone.

    `schedulers`: those of one replica, see `Layout.schedulers`. `link`: between the pools. `server_s`: as for `Cluster`.
    """

    planned: int
    prefill: int
    schedulers: int
    link: Link
    server_s: float

    @classmethod
    def of(cls, result: Answer) -> Pools:
        fleet, layout, scenario = result.fleet, result.layout, result.inputs.scenario
        prompt = max(1, round(scenario.input_tokens))
        return cls(
            planned=fleet.replicas if fleet else 1,
            prefill=fleet.prefill_replicas if fleet else 0,
            schedulers=layout.schedulers,
            server_s=server_s_of(result),
            link=Link(
                bandwidth_bytes_per_s=node_bytes_per_s(result.inputs.offer.accelerator) * layout.tp,
                kv_bytes_per_token=sequence_bytes(result.inputs.spec, prompt, scenario.kv_format) / prompt,
                shared=False,
            ),
        )

    def prefilling(self, replicas: int) -> int:
        """Schedulers for prompts alone among so many replicas, in the planned ratio."""
        if not self.prefill:
            return 0
        share = round(replicas * self.prefill / self.planned)
        return min(max(1, share), replicas - 1) * self.schedulers

    def decoding(self, replicas: int) -> int:
        """Schedulers that decode."""
        return replicas * self.schedulers - self.prefilling(replicas)

    def cluster(self, replicas: int) -> Cluster:
        """The simulator's cluster of so many replicas."""
        prompts = self.prefilling(replicas)
        pool = PrefillPool(link=self.link, replicas=prompts) if prompts else None
        return Cluster(
            replicas=self.decoding(replicas),
            router=Router.LEAST_OUTSTANDING,
            prefill=pool,
            server_s=self.server_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What every trial of one proof shares: requests, rules, step times, targets, and how replicas are put to use."""

    requests: RequestTable
    rules: EngineRules
    step: StepTable
    slo: Slo
    pools: Pools

    def searched(self, slo: Slo, *, replicas: int) -> capacity.Searched:
        return capacity.Searched(
            requests=self.requests,
            rules=self.rules,
            step=self.step,
            slo=slo,
            cluster=self.pools.cluster(replicas),
        )


def _closed(trials: Trials) -> bool:
    """Whether users wait for their answers before they ask again."""
    return trials.requests.predecessor is not None


def _trial(trials: Trials, *, rate_per_s: float, replicas: int) -> capacity.Trial:
    """One load on so many replicas; open traffic stops as soon as the promise is lost."""
    if _closed(trials):
        return _closed_trial(trials, replicas=replicas)
    asked = trials.searched(trials.slo, replicas=replicas)
    return capacity.try_load(asked, rate_per_s=rate_per_s, replicas=trials.pools.decoding(replicas))


def _whole_trial(trials: Trials, *, rate_per_s: float, replicas: int) -> capacity.Trial:
    """The same to its end, so that all percentiles are known: targets as means never stop a trial early."""
    if _closed(trials):
        return _closed_trial(trials, replicas=replicas)
    means = trials.searched(replace(trials.slo, percentile=None), replicas=replicas)
    trial = capacity.try_load(means, rate_per_s=rate_per_s, replicas=trials.pools.decoding(replicas))
    stable = trial.result is not None and trial.result.state is not LoadState.SATURATED
    return replace(trial, holds=stable and trial.result is not None and trial.result.holds(trials.slo))


def _closed_trial(trials: Trials, *, replicas: int) -> capacity.Trial:
    """Users who wait: every first request of a user arrives at once and is not judged."""
    cluster = trials.pools.cluster(replicas)
    result = simulate(trials.requests, trials.rules, trials.step, cluster=cluster)
    later = None if trials.requests.predecessor is None else trials.requests.predecessor >= 0
    return capacity.Trial(
        rate_per_s=result.requests_per_s,
        replicas=replicas,
        holds=result.holds(trials.slo, later),
        result=result,
    )


def _more(replicas: int) -> tuple[int, ...]:
    """Larger deployments to try, a tenth more at a time."""
    counts = [replicas]
    while counts[-1] < MOST_EXTRA_REPLICAS * replicas:
        counts.append(max(counts[-1] + 1, int(counts[-1] * 1.1)))
    return tuple(counts[1:])


def _targets(result: Answer) -> Slo:
    """The scenario's targets; without any the promise is that the work is done within the day: that no queue grows."""
    slo = result.inputs.scenario.slo
    if not result.fleet or result.fleet.rate_per_s <= 0:
        raise InputError("rate", 0, "there is nothing to prove without traffic")
    return Slo(e2e_s=DAY_S) if is_job(slo) else slo


def is_job(slo: Slo) -> bool:
    """Whether only throughput counts: no target for single requests."""
    return slo.ttft_s is None and slo.tpot_s is None and slo.e2e_s is None


def requests_of(result: Answer, *, seed: int) -> RequestTable:
    """The scenario's traffic: arrivals with its CV or users who wait, lengths of its shapes, a shared prefix of its share."""
    given = result.inputs.scenario.workload
    replicas = result.fleet.replicas if result.fleet else 1
    count = int(np.clip(REQUESTS_PER_REPLICA * replicas, FEWEST_REQUESTS, MOST_REQUESTS))
    draw = np.random.default_rng(seed)
    share = given.prefix_share
    if given.reuse_after_s is not None and result.prefill is not None:
        share = result.prefill.cached_share
    if given.concurrency is not None:
        users = max(1, round(given.concurrency * given.peak_factor))
        return workload.closed_loop(
            draw,
            users=users,
            count=max(count, 4 * users),
            prompt=given.input,
            answer=given.output,
            prefix_share=share,
        )
    rate = (given.rate_per_s or 0.0) * given.peak_factor
    arrivals = workload.renewal_arrivals(draw, rate_per_s=rate, count=count, cv=given.arrival_cv)
    return workload.open_requests(draw, arrivals, prompt=given.input, answer=given.output, prefix_share=share)


TOKEN_BUDGET = 8192
PLACES = 1024


def rules_of(result: Answer) -> EngineRules:
    """The scheduler of the scenario's engine, on the pool that the memory step left."""
    scenario = result.inputs.scenario
    family = FAMILIES[Engine(scenario.engine)]
    schedulers = result.layout.schedulers
    tokens = max(BLOCK_TOKENS, _tokens_of_replica(result) // schedulers)
    allowed = [one for one in (scenario.max_seqs, _places_of_replica(result)) if one is not None]
    most = max(1, min(allowed) // schedulers) if allowed else None
    settings: dict[str, object] = {
        "max_seqs": most,
        "token_budget": _chunk(scenario, result.layout),
        "prefix_cache": None if scenario.prefix_caching else False,
        "speculation": _speculation(scenario),
    }
    if family != "vllm":
        return engine_rules(family, num_blocks=tokens, **settings)
    each = 1 + scenario.draft_tokens
    budget = scenario.max_batched_tokens or max(TOKEN_BUDGET, (most or PLACES) * each)
    places = min(most or PLACES, max(1, budget // each))
    settings |= {
        "block_size": BLOCK_TOKENS,
        "max_seqs": places,
        "token_budget": budget,
        "chunked_prefill": scenario.chunked_prefill,
    }
    return engine_rules(family, num_blocks=max(1, tokens // BLOCK_TOKENS), **settings)


def _chunk(scenario: Scenario, layout: Layout) -> int:
    """SGLang's prefill chunk of one rank; any prompt where they run whole (its flag is -1 then)."""
    if not scenario.chunked_prefill:
        return MAX_COUNT
    return scenario.max_batched_tokens or default_step_tokens(scenario.engine, TOKEN_BUDGET, layout)


def _tokens_of_replica(result: Answer) -> int:
    """Tokens that the caches of a whole replica hold; the ledger of an engine speaks of one attention rank's."""
    if result.sequences is None or result.ledger is None:
        return result.memory.tokens
    return result.memory.tokens * result.layout.attention_ranks


def _places_of_replica(result: Answer) -> int | None:
    """Requests that run at once however short they are: slots, of llama.cpp or of recurrent state; None where blocks decide."""
    if result.ledger is None or result.sequences is None:
        return None
    if result.ledger.engine in LLAMA_CPP_ENGINES:
        return result.sequences.fit
    slots = result.ledger.kv.most_requests
    return None if slots is None else slots * result.layout.attention_ranks


def _speculation(scenario: Scenario) -> Speculation | None:
    if scenario.draft_tokens == 0:
        return None
    return Speculation(drafts=scenario.draft_tokens, acceptance=scenario.acceptance)


def clock_of(result: Answer, *, drafts: int = 0) -> StepTable:
    """The step times of one replica, as the simulator reads them; of passes that verify `drafts` tokens a sequence."""
    inputs, scenario = result.inputs, result.inputs.scenario
    context = mean_context(scenario.workload)
    if scenario.fidelity == Fidelity.TEXTBOOK:
        timing = timing_of(inputs, result.layout, replica_weight_bytes(inputs))
        return textbook_clock(timing, context_tokens=context)
    model = replica_model(inputs, result.layout)
    return step_clock(model, context_tokens=context, prompt_tokens=scenario.input_tokens, drafts=drafts)


def server_s_of(result: Answer) -> float:
    """Seconds that the engine's server takes of every first token, by its profile; none at a fidelity without overheads.

    The closed form's other parts of a first token (steps waited, the prompt's time) are what the simulator plays.
    """
    if result.inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        return 0.0
    return max(0.0, float(replica_model(result.inputs, result.layout).first_token.server_s))


def _notes(result: Answer) -> tuple[str, ...]:
    scenario = result.inputs.scenario
    kept = scenario.input_tokens + scenario.output_tokens
    per_sequence = sequence_bytes(result.inputs.spec, round(kept), scenario.kv_format)
    schedulers = result.layout.schedulers
    beside = f", {schedulers} schedulers in each replica" if schedulers > 1 else ""
    notes = [
        f"scheduler rules of {FAMILIES[Engine(scenario.engine)]}, routed to the replica with the fewest requests{beside}",
        f"a pool of {result.memory.tokens:,} tokens per replica, {per_sequence:,} bytes per sequence",
    ]
    if scenario.reuse_after_s is not None and result.prefill is not None:
        share = fmt.percent(result.prefill.cached_share)
        notes.append(
            f"{share} of every prompt is simulated as one text that stays cached: what survives by the closed form, "
            "without the time of its way back"
        )
    if scenario.engine == Engine.TENSORRT_LLM:
        notes.append("TensorRT-LLM's in-flight batching is simulated by vLLM's rules")
    return tuple(notes)
