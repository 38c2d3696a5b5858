"""How many sequences decode at once: the batch at which tokens leave as fast as they are asked for.

B sequences take a step of T(B) seconds; requests at λ per second with n output tokens keep B = λ·n·T(B) of them running
(Little's law on the running batch). Where no batch up to the largest satisfies that, the system is saturated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from calc.arrays import not_negative, positive_finite
from calc.errors import InputError
from calc.queueing.closed_forms import decode_balance_step_s
from calc.saturation import State, state_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLoad:
    """The running batch and its step. When saturated, `step_s` is infinite and `batch` the largest.

    `utilisation`: tokens asked for over tokens that the largest batch makes. `full_step_s`: the step of that batch.
    """

    batch: float
    step_s: float
    utilisation: float
    full_step_s: float

    @property
    def state(self) -> State:
        return state_of(self.utilisation)


def decode_load(
    *, rate_per_s: float, output_tokens: float, step_s: Callable[[Any], Any], largest_batch: int
) -> DecodeLoad:
    """The smallest batch B with B = λ·n·T(B), for any step time T that takes an array of batches.

    T must not fall as the batch grows. Batches are real numbers here: a mean.

    Source: Little 1961 on the running batch. Ignores: that the batch fluctuates (`LoadDependentSharing` does not), and
    bursts.
    """
    not_negative(rate_per_s=rate_per_s)
    positive_finite(output_tokens=output_tokens, largest_batch=largest_batch)
    wanted = rate_per_s * output_tokens
    batches = np.arange(1.0, largest_batch + 1.0)
    steps = np.broadcast_to(np.asarray(step_s(batches), dtype=float), batches.shape)
    positive_finite(step_s=steps)
    if np.any(np.diff(steps) < -1e-12 * steps[:-1]):
        raise InputError(
            "step_s", "a step that gets shorter", "the step must not get shorter as the batch grows"
        )
    best = float(np.max(batches / steps))
    full = float(steps[-1])
    utilisation = wanted / best
    if utilisation >= 1.0:
        return DecodeLoad(batch=float(largest_batch), step_s=inf, utilisation=utilisation, full_step_s=full)
    enough = int(np.argmax(batches / steps > wanted))
    high, low = float(batches[enough]), float(batches[enough - 1]) if enough else 0.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        # Below one sequence the step is still that of one: a sequence that runs is a whole one.
        if middle > wanted * float(np.asarray(step_s(np.array([max(1.0, middle)])), dtype=float).item()):
            high = middle
        else:
            low = middle
    at = float(np.asarray(step_s(np.array([max(1.0, high)])), dtype=float).item())
    return DecodeLoad(batch=high, step_s=at, utilisation=utilisation, full_step_s=full)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineStep:
    """A step of continuous batching: fixed + per prefill token + per decoding sequence + per cached token, in seconds."""

    fixed_s: float
    prefill_s_per_token: float
    decode_s_per_sequence: float
    kv_s_per_token: float

    def __post_init__(self) -> None:
        positive_finite(fixed_s=self.fixed_s)
        not_negative(
            prefill_s_per_token=self.prefill_s_per_token,
            decode_s_per_sequence=self.decode_s_per_sequence,
            kv_s_per_token=self.kv_s_per_token,
        )


def chunked_prefill_service_s(
    *, step: AffineStep, prompt_tokens: Any, token_budget: int, batch: float, context_tokens: float
) -> Any:
    """Seconds that each prompt keeps the steps' prefill budget, while `batch` sequences decode in the same steps.

    A prompt takes ceil(T / (budget - batch)) steps, each with the fixed and the decoding part of a step, and its tokens'
    own time. As the service of an `MG1`, that gives the TTFT of one replica under Poisson traffic.

    Source: Agrawal et al. 2024 (Sarathi-Serve, arXiv 2403.02310), section 4. Ignores: chunks of two prompts in one step,
    and the wait for the running step to end.
    """
    positive_finite(prompt_tokens=prompt_tokens, token_budget=token_budget)
    not_negative(batch=batch, context_tokens=context_tokens)
    if batch >= token_budget:
        raise InputError("token_budget", token_budget, f"decoding takes {batch:.4g} tokens of it already")
    prompts = np.asarray(prompt_tokens, dtype=float)
    per_step = step.fixed_s + batch * (step.decode_s_per_sequence + step.kv_s_per_token * context_tokens)
    return prompts * step.prefill_s_per_token + np.ceil(prompts / (token_budget - batch)) * per_step


def affine_decode_load(
    *, step: AffineStep, rate_per_s: float, input_tokens: float, output_tokens: float, context_tokens: float
) -> DecodeLoad:
    """The running batch when prefills share the steps and nothing bounds the batch: T = fixed / (1 - x).

    x = λ·(n_in·c_prefill + n_out·(c_decode + c_kv·context)) is the share of each second that grows with the work; from
    1 on the system is saturated. `context_tokens` is the mean over output tokens of what a sequence has cached.

    Source: the step's balance λ·n·T = B solved for T. Ignores: token budgets and batch caps, which saturate earlier,
    and fluctuation.
    """
    not_negative(rate_per_s=rate_per_s, context_tokens=context_tokens)
    positive_finite(input_tokens=input_tokens, output_tokens=output_tokens)
    per_output = step.decode_s_per_sequence + step.kv_s_per_token * context_tokens
    x = rate_per_s * (input_tokens * step.prefill_s_per_token + output_tokens * per_output)
    if x >= 1.0:
        return DecodeLoad(batch=inf, step_s=inf, utilisation=x, full_step_s=inf)
    step_s = float(decode_balance_step_s(fixed_s=step.fixed_s, busy_share=x))
    return DecodeLoad(
        batch=rate_per_s * output_tokens * step_s, step_s=step_s, utilisation=x, full_step_s=inf
    )
