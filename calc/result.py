"""What an answer is: what was asked (`Inputs`), what can be had (`Offer`), and the six-step result (`Answer`)."""

from __future__ import annotations

from dataclasses import dataclass

from calc import format as fmt
from calc.accelerator import Accelerator
from calc.layout import Layout
from calc.memory.engines import Ledger
from calc.model import ModelSpec
from calc.profile import Profile
from calc.provenance import Estimate, Provenance, weakest
from calc.scenario import Scenario, Traffic
from calc.sizing import DecodeStep, FleetStep, Limit, MemoryStep, PrefillStep, SequencesStep
from calc.slo import Slo
from calc.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An accelerator that can be had, with the price of one per hour where one is known, and where that is from.

    `profile`: what the scenario's engine reaches on it; needed at every fidelity but the textbook's.
    `usd_per_gpu_hour_range`: cheapest and dearest price of the same kind that can be had now.
    """

    accelerator: Accelerator
    profile: Profile | None = None
    usd_per_gpu_hour: float | None = None
    price_note: str = ""
    usd_per_gpu_hour_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything `answer` needs: the scenario, what it names, and the catalogue to look for alternatives in.

    `stored_weight_bytes`: exact bytes of the checkpoint where its own metadata was read.
    """

    scenario: Scenario
    spec: ModelSpec
    offer: Offer
    model_note: str = ""
    stored_weight_bytes: int | None = None
    warnings: tuple[str, ...] = ()
    catalogue: tuple[Offer, ...] = ()
    engine_offers: tuple[tuple[str, Offer], ...] = ()  # the same accelerator under each other engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the chosen number of GPUs costs; None where no price is known or no token is made."""

    usd_per_hour: float | None
    usd_per_million_output: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The six-step answer for one accelerator. Where the verdict is "does not fit", later steps may be missing."""

    inputs: Inputs
    layout: Layout
    memory: MemoryStep
    sequences: SequencesStep | None
    decode: DecodeStep | None
    prefill: PrefillStep | None
    fleet: FleetStep | None
    ttft_s: Estimate | None
    tpot_s: Estimate | None
    cost: Cost
    verdict: Verdict
    assumptions: tuple[str, ...]
    ledger: Ledger | None = None  # the engine's memory, where the fidelity has one
    evidence: str = ""  # what the times stand on, in words
    nodes: int | None = None  # whole hosts that are paid for, where devices are bought so

    @property
    def output_tokens_per_s(self) -> float | None:
        """Output tokens per second that the whole plan makes at the traffic that is asked."""
        if self.fleet is None:
            return None
        return self.fleet.rate_per_s * self.inputs.scenario.output_tokens

    @property
    def tokens_per_s_per_gpu(self) -> float | None:
        """Output tokens per second that one GPU can make: of a full batch, and where prompts are timed, beside them."""
        if self.decode is None or self.fleet is None:
            return None
        whole = self.decode.tokens_per_s
        if self.ledger is not None and self.fleet.busy > 0:
            output = self.inputs.scenario.output_tokens
            whole = self.fleet.rate_per_s / self.fleet.busy * output
        return whole / self.layout.gpus_per_replica

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment, those of whole nodes included; of one replica when nothing serves."""
        if self.nodes is not None:
            return self.nodes * self.inputs.offer.accelerator.host_devices
        replicas = self.fleet.replicas if self.fleet else 1
        return self.layout.gpus_per_replica * replicas


def question(inputs: Inputs) -> str:
    """What is asked, in one sentence: the model, its traffic, its targets."""
    scenario = inputs.scenario
    tokens = f"{fmt.count(scenario.input_tokens)} tokens in and {fmt.count(scenario.output_tokens)} out"
    if scenario.traffic == Traffic.USERS:
        load = f"to {fmt.plural(scenario.users, 'user')} at once, each request {tokens}"
    else:
        load = f"at {fmt.plain(scenario.rate_per_s, 'requests/s')} of {tokens}"
    targets = [f"{name} within {fmt.seconds(value)}" for name, value in _targets(scenario.slo) if value]
    who = (
        ""
        if scenario.slo.percentile is None
        else f" for {fmt.significant(scenario.slo.percentile)}% of requests"
    )
    promise = f", {' and '.join(targets)}{who}" if targets else ""
    return f"Which GPUs serve {inputs.spec.id} {load}{promise}?"


def _targets(slo: Slo) -> tuple[tuple[str, float | None], ...]:
    return ("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("the whole answer", slo.e2e_s)


SPARE = 0.5
"""A lone replica below this share of the sequences that it could run is not bound by anything yet (our choice)."""


def headline(result: Answer, *, most_nearest: int | None = None) -> str:
    """The answer in one sentence; where nothing works, with the nearest changes that would, or the first `most_nearest`."""
    accelerator = result.inputs.offer.accelerator
    if not result.verdict.fits or result.sequences is None or result.fleet is None:
        nearest = "; ".join(change.text for change in result.verdict.nearest[:most_nearest])
        end = f" Nearest that would work: {nearest}." if nearest else ""
        reason = result.verdict.reason.rstrip(".")
        return f"Does not work: {reason}.{end}"
    serve = "serves" if result.gpus == 1 else "serve"
    nodes = f" ({fmt.plural(result.nodes, 'whole node')})" if result.nodes is not None else ""
    return (
        f"{result.gpus:,} x {accelerator.name}{nodes} {serve} this. {_limit(result.sequences, result.fleet)}"
    )


LIMITS = {
    Limit.KV_MEMORY: "KV memory",
    Limit.TPOT: "The TPOT target",
    Limit.TTFT: "The TTFT target",
    Limit.E2E: "The end-to-end target",
    Limit.ENGINE: "The engine's own limit",
    Limit.MAX_SEQS: "The sequence limit",
    Limit.PREFIX_HITS: "Text that comes back to the cache",
}


def _limit(sequences: SequencesStep, fleet: FleetStep) -> str:
    """What stops a replica from running more sequences, beside those that run; one that has room to spare says so."""
    by_memory = sequences.binding is Limit.KV_MEMORY
    number = sequences.fit if by_memory else sequences.batch
    held = fmt.plural(number, "sequence")
    most = f"{held} {'fits' if number == 1 else 'fit'}" if by_memory else f"{held} at most"
    where = f"{most} per replica" if fleet.replicas > 1 else most
    binds = "binds" if fleet.replicas > 1 or fleet.active > SPARE * sequences.batch else "would bind first"
    in_flight = fmt.count(fleet.active)
    active = "fewer than one is" if fleet.active < 1 else f"{in_flight} {'is' if in_flight == '1' else 'are'}"
    over = f" over {fmt.plural(fleet.replicas, 'replica')}" if fleet.replicas > 1 else ""
    return (
        f"{LIMITS[sequences.binding]} {binds}: {where}, {active} active at peak{over}.{_work(fleet, number)}"
    )


def _work(fleet: FleetStep, number: float) -> str:
    """Why there are several replicas where one would hold all sequences in flight; empty where it would not."""
    if fleet.replicas - fleet.prefill_replicas < 2 or fleet.active > number:
        return ""
    return f" Prompts and answers keep {fmt.significant(fleet.busy)} of {fmt.plural(fleet.replicas, 'replica')} busy."


def evidence(result: Answer) -> Provenance:
    """The weakest evidence under the answer's times."""
    kinds = [e.provenance for e in (result.ttft_s, result.tpot_s) if e is not None]
    return weakest(*kinds) if kinds else Provenance.EXACT
