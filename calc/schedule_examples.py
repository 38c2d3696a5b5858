"""Requests that show what schedulers differ in: the lessons' answers, a long prompt among chats, the scenario's own."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from calc.memory.kv import sequence_bytes
from calc.proof import clock_of
from calc.result import Answer
from calc.simulation import workload as arrivals
from calc.simulation.link import Link
from calc.simulation.requests import RequestTable
from calc.simulation.step_table import StepTable

LESSON_PROMPT_TOKENS = 32
"""Prompt of the lessons' requests (assumed: they give none; short, so that answers decide)."""
PLAIN_STEP_S = 0.02
"""A pass, whatever it computes, where the scenario has no plan that serves (assumed)."""
CHAT_PROMPT_TOKENS, CHAT_ANSWER_TOKENS = 128, 80
LONGEST_PROMPT_TOKENS = 8192
SHARE_OF_CONTEXT = 0.75
"""The long prompt's share of the model's context, so that its answer fits too (assumed)."""
STEPS_BEFORE_LONG = 12
LOAD = 0.9
"""Arrivals over what the slots serve, in the scenario's traffic (assumed: busy, not overloaded)."""
PASSES_WANTED = 1_000
NETWORK_BYTES_PER_S = 12.5e9
"""100 Gbit/s, the Ethernet case of splitwise-sim (github.com/Mutinifni/splitwise-sim)."""
LINK_LATENCY_S = 1e-3
"""From the last byte of one engine to the first token of the other (assumed: a connector's round of messages)."""


class Example(StrEnum):
    """What can be scheduled."""

    FIRST_LESSON = "answers of 10, 20, 50 and 200 tokens"
    SECOND_LESSON = "answers of 50, 100, 200 and 500 tokens"
    LONG_PROMPT = "a long prompt among chats"
    SCENARIO = "the scenario's traffic"


LESSONS = {Example.FIRST_LESSON: (10, 20, 50, 200), Example.SECOND_LESSON: (50, 100, 200, 500)}
"""Tokens of the four answers in each lesson."""


def step_of(result: Answer) -> StepTable:
    """The scenario's own step times; equal steps where nothing serves, because slots are told apart all the same."""
    if result.fleet is None:
        return StepTable.affine(fixed_s=PLAIN_STEP_S, prefill_s=0.0, decode_s=0.0, kv_s=0.0)
    return clock_of(result)


def link_of(result: Answer) -> Link:
    """Between a prefill and a decode engine of the scenario: the accelerator's own link, or a network's where it has none."""
    scenario, accelerator = result.inputs.scenario, result.inputs.offer.accelerator
    prompt = max(1, round(scenario.input_tokens))
    return Link(
        bandwidth_bytes_per_s=accelerator.link_bytes_per_s or NETWORK_BYTES_PER_S,
        kv_bytes_per_token=sequence_bytes(result.inputs.spec, prompt, scenario.kv_format) / prompt,
        latency_s=LINK_LATENCY_S,
    )


def example_requests(
    example: Example, result: Answer, step: StepTable, *, slots: int, rounds: int, seed: int
) -> RequestTable:
    """The requests of an example; `rounds`: how often the lessons' four answers come, or the slots are filled."""
    if example in LESSONS:
        return lesson_requests(LESSONS[example], rounds=rounds)
    if example is Example.LONG_PROMPT:
        return long_prompt_requests(result, step, slots=slots)
    return _scenario_requests(result, step, slots=slots, rounds=rounds, seed=seed)


def lesson_requests(answers: tuple[int, ...], *, rounds: int) -> RequestTable:
    """The answers in the lesson's order, `rounds` times over, all there from the start."""
    outputs = np.tile(np.asarray(answers, dtype=np.int64), rounds)
    return RequestTable(
        arrival_s=np.zeros(len(outputs)),
        input_tokens=np.full(len(outputs), LESSON_PROMPT_TOKENS, dtype=np.int64),
        output_tokens=outputs,
    )


def long_prompt_tokens(result: Answer) -> int:
    """As long as the model's context lets a prompt be, up to 8,192 tokens."""
    longest = result.inputs.spec.max_positions or LONGEST_PROMPT_TOKENS
    return max(1, min(LONGEST_PROMPT_TOKENS, int(SHARE_OF_CONTEXT * longest)))


def long_prompt_requests(result: Answer, step: StepTable, *, slots: int) -> RequestTable:
    """Chats in all slots but one, and a long prompt that arrives while they speak; chats wait behind it."""
    chats = max(1, slots - 1)
    speaking = step.seconds(0, chats, float(chats * CHAT_PROMPT_TOKENS))
    times = [0.0] * chats + [STEPS_BEFORE_LONG * speaking] * (1 + chats)
    prompts = [CHAT_PROMPT_TOKENS] * chats + [long_prompt_tokens(result)] + [CHAT_PROMPT_TOKENS] * chats
    return RequestTable(
        arrival_s=np.asarray(times),
        input_tokens=np.asarray(prompts, dtype=np.int64),
        output_tokens=np.full(len(times), CHAT_ANSWER_TOKENS, dtype=np.int64),
    )


def _scenario_requests(
    result: Answer, step: StepTable, *, slots: int, rounds: int, seed: int
) -> RequestTable:
    given = result.inputs.scenario.workload
    context = given.input.mean_tokens + given.output.mean_tokens / 2
    served_per_s = slots / (given.output.mean_tokens * step.seconds(0, slots, slots * context))
    most = max(slots + 1, round(PASSES_WANTED * slots / given.output.mean_tokens))
    count = min(slots * rounds, most)
    draw = np.random.default_rng(seed)
    times = arrivals.renewal_arrivals(draw, rate_per_s=LOAD * served_per_s, count=count, cv=given.arrival_cv)
    return arrivals.open_requests(draw, times, prompt=given.input, answer=given.output)
