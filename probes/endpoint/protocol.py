"""The run: discovery, warm-up, TTFT by prompt length, TPOT alone, levels of concurrency, an open loop, a cached pass.

Everything goes out through one `Run`, which keeps the budget and the time limits, tells progress, and records what it did.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from calc.endpoint.plan import SAFETY, WARM_WORDS, Budget, TestPlan, budget_of
from calc.endpoint.samples import SCHEMA_VERSION, Fault, Sample
from calc.errors import InputError, ProbeError
from probes.endpoint.client import EndpointClient, Limits
from probes.endpoint.dialects import Api, Ask
from probes.endpoint.discovery import (
    ServerFacts,
    discover,
    means_between,
    ollama_context,
    read_metrics,
    waiting,
)
from probes.endpoint.pace import LAG_LIMIT_S, ClientCost, LoopLag, measure_client
from probes.endpoint.prompts import LengthRule, PromptMaker
from probes.endpoint.safety import ApiKey, Target

RUN_KIND = "ridgebeam endpoint run"
WARM_TOKENS = 8
FAILURES_IN_A_ROW = 5  # a stage whose requests all fail tells nothing more
METRICS_EVERY_S = 0.5
FIRST_LOOK_S = 0.1  # a stage of short answers is over before the second look

Progress = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Run:
    """One run in progress: what may still be sent, and what has been seen."""

    client: EndpointClient
    plan: TestPlan
    model: str
    facts: ServerFacts
    progress: Progress
    budget: Budget
    maker: PromptMaker = field(default_factory=PromptMaker)
    rule: LengthRule = field(default_factory=LengthRule)
    extras: bool = True
    context_tokens: int | None = None
    samples: list[Sample] = field(default_factory=list)
    server_means: dict[str, dict[str, float]] = field(default_factory=dict)
    waiting: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sent: int = 0
    spent_tokens: int = 0

    @property
    def out_of_budget(self) -> bool:
        return self.spent_tokens > SAFETY * self.budget.tokens or self.client.now_s > self.plan.total_limit_s

    async def ask(self, stage: str, *, prompt: str, tokens: int, scheduled_s: float | None = None) -> Sample:
        """One request, recorded. A server that refuses the extras is asked again without them, once for the whole run."""
        sample = await self.client.ask(self._ask(prompt, tokens), stage=stage, scheduled_s=scheduled_s)
        if self.extras and sample.fault == Fault.BAD_REQUEST:
            self.extras = False
            plain = await self.client.ask(self._ask(prompt, tokens), stage=stage)
            if plain.ok:
                self.notes.append("The server refuses ignore_eos; answers may be shorter than asked.")
                sample = plain
            else:
                self.extras = True
        self.samples.append(sample)
        self.sent += 1
        self.spent_tokens += (sample.prompt_tokens or 0) + (sample.output_tokens or sample.chunks)
        self.progress(
            {
                "event": "progress",
                "stage": stage,
                "done": self.sent,
                "total": self.budget.requests,
                "fault": sample.fault,
            }
        )
        return sample

    def _ask(self, prompt: str, tokens: int) -> Ask:
        return Ask(
            model=self.model,
            prompt=prompt,
            max_tokens=tokens,
            extras=self.extras,
            context_tokens=self.context_tokens,
        )

    def prompt_of(self, tokens: int) -> str:
        return self.maker.make(self.rule.words_for(tokens))

    # ---- stages ---------------------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        """Two short requests and a long one: connections, kernels, and how many tokens a word makes."""
        seen = []
        for words in WARM_WORDS:
            sample = await self.ask("warm-up", prompt=self.maker.make(words), tokens=WARM_TOKENS)
            if not sample.ok:
                raise _failed_warm_up(sample)
            if sample.prompt_tokens is not None:
                seen.append((words, sample.prompt_tokens))
        self.rule = LengthRule.fitted(seen)
        if not seen:
            self.notes.append(
                "The server reports no token counts: prompt lengths are guesses, TPOT is not measured."
            )

    async def by_prompt_length(self) -> None:
        """TTFT one request at a time at each length; shuffled, so that a drift does not look like a length."""
        lengths = [n for n in self.plan.prompt_lengths for _ in range(self.plan.prompt_repeats)]
        random.Random(0).shuffle(lengths)  # noqa: S311 - an order, no secret
        too_long: set[int] = set()
        for length in lengths:
            if self.out_of_budget or (too_long and length >= min(too_long)):
                continue
            sample = await self.ask("prefill", prompt=self.prompt_of(length), tokens=self.plan.prompt_output)
            if sample.fault == Fault.TOO_LONG:
                too_long.add(length)
        if too_long:
            self.notes.append(f"Prompts of {min(too_long):,} tokens do not fit the server's context.")

    async def decode_alone(self) -> None:
        await self._one_by_one(
            "decode", self.plan.decode_repeats, self.plan.decode_input, self.plan.decode_tokens
        )

    async def _one_by_one(self, stage: str, repeats: int, input_tokens: int, output_tokens: int) -> None:
        failures = 0
        deadline = self.client.now_s + self.plan.stage_limit_s
        for _ in range(repeats):
            if self.out_of_budget or self.client.now_s > deadline or failures >= FAILURES_IN_A_ROW:
                break
            sample = await self.ask(stage, prompt=self.prompt_of(input_tokens), tokens=output_tokens)
            failures = 0 if sample.ok else failures + 1

    async def closed_loop(self, concurrency: int) -> None:
        """Keep `concurrency` requests in flight until as many as planned were issued."""
        stage, left = f"concurrency {concurrency}", self.plan.requests_at(concurrency)
        deadline = self.client.now_s + self.plan.stage_limit_s
        failures = 0

        async def user() -> None:
            nonlocal left, failures
            while left > 0 and not self.out_of_budget and self.client.now_s < deadline:
                if failures >= FAILURES_IN_A_ROW + concurrency:
                    return
                left -= 1
                sample = await self.ask(
                    stage, prompt=self.prompt_of(self.plan.level_input), tokens=self.plan.level_output
                )
                failures = 0 if sample.ok else failures + 1
                if not sample.ok:
                    await asyncio.sleep(0.05)  # a server that refuses at once is not hammered

        async with self._observed(stage):
            await asyncio.gather(*(user() for _ in range(concurrency)))
        if left > 0:
            self.notes.append(f"{stage}: {left} requests were not sent within {self.plan.stage_limit_s:g} s.")

    async def open_loop(self) -> None:
        """Poisson arrivals at the rate; latency counts from the scheduled moment, late or not."""
        rate = self.plan.open_rate_per_s
        if rate is None:
            return
        gaps = random.Random(1)  # noqa: S311 - arrivals, no secret
        due, tasks = self.client.now_s, []
        async with self._observed("open loop"):
            for _ in range(self.plan.open_requests):
                due += gaps.expovariate(rate)
                if (wait := due - self.client.now_s) > 0:
                    await asyncio.sleep(wait)
                if self.out_of_budget:
                    break
                prompt = self.prompt_of(self.plan.level_input)
                tasks.append(
                    asyncio.create_task(
                        self.ask("open loop", prompt=prompt, tokens=self.plan.level_output, scheduled_s=due)
                    )
                )
            await asyncio.gather(*tasks)

    async def cached_pass(self) -> None:
        """Each length twice with the same prompt: what a prefix cache saves, on purpose."""
        for length in self.plan.prompt_lengths:
            prompt = self.prompt_of(length)
            for stage in ("uncached", "cached"):
                if not self.out_of_budget:
                    await self.ask(stage, prompt=prompt, tokens=self.plan.prompt_output)

    def _observed(self, stage: str) -> _Observed:
        return _Observed(self, stage)


class _Observed:
    """The server's own counters around a stage, and the longest queue it showed meanwhile."""

    def __init__(self, run: Run, stage: str) -> None:
        self._run, self._stage = run, stage
        self._before: dict[str, float] = {}
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._run.facts.has_metrics:
            self._before = await read_metrics(self._run.client)
            self._watch = asyncio.create_task(self._queue())

    async def __aexit__(self, *_: object) -> None:
        if self._watch is None:
            return
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        means = means_between(self._before, await read_metrics(self._run.client))
        if means:
            self._run.server_means[self._stage] = means

    async def _queue(self) -> None:
        longest = self._run.waiting
        pause_s = FIRST_LOOK_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = METRICS_EVERY_S
            now = waiting(await read_metrics(self._run.client))
            if now is not None:
                longest[self._stage] = max(now, longest.get(self._stage, 0.0))


def _failed_warm_up(sample: Sample) -> ProbeError:
    steps = {
        Fault.CREDENTIALS: "Give an API key, or another one.",
        Fault.RATE_LIMITED: "Wait until the server's limit allows requests again.",
        Fault.NOT_A_STREAM: "The server must stream: check what stands between it and here.",
        Fault.REDIRECT: "Type the address that the server redirects to, if you trust it.",
        Fault.REFUSED: "Check that the server runs and on which port.",
    }
    return ProbeError(
        f"The first request failed: {sample.fault}. {sample.detail}".strip(),
        next_step=steps.get(Fault(str(sample.fault)), "Check the model's name and the server's log."),
    )


async def measure(
    target: Target,
    api: Api,
    plan: TestPlan,
    *,
    key: ApiKey | None = None,
    model: str = "",
    limits: Limits | None = None,
    progress: Progress = lambda _: None,
    client_cost: bool = True,
) -> dict[str, Any]:
    """Run the protocol and return the run as a record (see docs/endpoints.md). Raises ProbeError where nothing can be said."""
    limits = limits or Limits(request_s=max(plan.stage_limit_s, 30.0))
    progress(
        {
            "event": "progress",
            "stage": "the client itself",
            "done": 0,
            "total": budget_of(plan).requests,
            "fault": None,
        }
    )
    cost = await measure_client(streams=max(plan.concurrency, default=1)) if client_cost else None
    async with EndpointClient.open(target, api, key=key, limits=limits) as client, LoopLag() as lag:
        facts = await discover(client)
        chosen = _model(model, facts)
        if api is Api.OLLAMA:
            facts = replace(
                facts, context_tokens=facts.context_tokens or await ollama_context(client, chosen)
            )
        fitted = plan.within(facts.context_tokens)
        run = Run(
            client=client, plan=fitted, model=chosen, facts=facts, progress=progress, budget=budget_of(fitted)
        )
        if api is Api.OLLAMA:
            run.context_tokens = _ollama_context(fitted, facts)
        progress({"event": "facts", "facts": facts.as_json(), "model": chosen, "budget": run.budget.words})
        await _with_fallback(run)
        await _stages(run)
        return _record(run, target, lag, cost)


async def _with_fallback(run: Run) -> None:
    """Warm up; a server without a chat template is asked for completions instead."""
    try:
        await run.warm_up()
    except ProbeError:
        fault = run.samples[-1].fault
        if run.client.api is not Api.CHAT or fault not in {Fault.BAD_REQUEST, Fault.SERVER_ERROR}:
            raise
        run.client.api = Api.COMPLETIONS
        try:
            await run.warm_up()
        except ProbeError:
            run.client.api = Api.CHAT
            raise
        run.notes.append("The server takes no chat: measured with plain completions.")


async def _stages(run: Run) -> None:
    for stage in (
        run.by_prompt_length,
        run.decode_alone,
        *((lambda n=n: run.closed_loop(n)) for n in run.plan.concurrency),
        run.open_loop,
        run.cached_pass if run.plan.cached_pass else None,
    ):
        if stage is not None and not run.out_of_budget:
            await stage()
    if run.out_of_budget:
        run.notes.append("The run was cut short by its limit of tokens or time.")


def _model(wanted: str, facts: ServerFacts) -> str:
    if wanted:
        return wanted
    for known in (facts.loaded, facts.models):
        if known:
            return known[0]
    raise InputError(
        "model", "none", "the server lists no models", next_step="Name the model that it serves."
    )


def _ollama_context(plan: TestPlan, facts: ServerFacts) -> int:
    """One context length for the whole run: the default of Ollama would cut long prompts silently."""
    longest = max(
        *plan.prompt_lengths, plan.level_input + plan.level_output, plan.decode_input + plan.decode_tokens
    )
    needed = longest + plan.prompt_output + 256
    return min(needed, facts.context_tokens or needed)


def _record(run: Run, target: Target, lag: LoopLag, cost: ClientCost | None) -> dict[str, Any]:
    late = lag.quantile(0.99)
    if late is not None and late > LAG_LIMIT_S:
        run.notes.append(
            f"The client was busy: its event loop was {late * 1e3:.0f} ms late at the 99th percentile."
        )
    return {
        "kind": RUN_KIND,
        "schema": SCHEMA_VERSION,
        "target": target.shown,
        "api": str(run.client.api),
        "model": run.model,
        "server": run.facts.as_json(),
        "plan": run.plan.as_json(),
        "wall_s": run.client.now_s,
        "samples": [sample.as_json() for sample in run.samples],
        "server_means": run.server_means,
        "waiting": run.waiting,
        "client": {
            "loop_lag_p50_s": lag.quantile(0.5),
            "loop_lag_p99_s": late,
            "null_server": None if cost is None else cost.as_json(),
        },
        "notes": list(dict.fromkeys(run.notes)),
    }
