"""Speculative decoding in closed form: tokens per target pass, speed-up, and where it stops paying.

A draft proposes k tokens, the target checks all of them in one pass and keeps those up to the first rejection, plus one
of its own. `acceptance` is the chance that a proposed token is kept, given that all before it were.
"""

from __future__ import annotations

import numpy as np

from calc.arrays import Numbers, not_negative, positive_finite, scalar, share, share_below_one
from calc.errors import InputError


def tokens_per_pass(*, acceptance: Numbers, drafts: Numbers) -> Numbers:
    """Expected tokens of one target pass with k drafts: (1 - a^(k+1))/(1 - a); k + 1 when everything is accepted.

    Source: Leviathan et al. 2023 (arXiv 2211.17192), equation 1. Ignores: that acceptance falls along a draft.
    """
    share(acceptance=acceptance)
    not_negative(drafts=drafts)
    a = np.asarray(acceptance, dtype=float)
    certain = a == 1.0
    safe = np.where(certain, 0.5, a)
    return scalar(np.where(certain, np.asarray(drafts) + 1.0, (1.0 - safe ** (drafts + 1.0)) / (1.0 - safe)))


def tokens_per_pass_limit(*, acceptance: Numbers) -> Numbers:
    """Tokens per target pass as the draft grows without bound: 1/(1 - a).

    Source: limit of Leviathan et al. 2023 (arXiv 2211.17192), equation 1. Ignores: that acceptance falls along a draft.
    """
    share_below_one(acceptance=acceptance)
    return scalar(1.0 / (1.0 - np.asarray(acceptance, dtype=float)))


def tokens_of_pass(*, drafts: int, accepted: int) -> int:
    """Tokens that one pass yields: the accepted drafts and the target's own token.

    Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1. Ignores: an end-of-sequence token inside the draft.
    """
    not_negative(drafts=drafts, accepted=accepted)
    if accepted > drafts:
        raise InputError("accepted", accepted, f"only {drafts} tokens were drafted")
    return accepted + 1


def speedup(*, acceptance: Numbers, drafts: Numbers, draft_cost: Numbers) -> Numbers:
    """Speed-up when checking k + 1 tokens costs no more than one: tokens per pass / (k·c + 1).

    `draft_cost` c is the time of one draft pass over that of one target pass.

    Source: Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.8. Ignores: that checking costs more at large batch.
    """
    not_negative(draft_cost=draft_cost)
    return tokens_per_pass(acceptance=acceptance, drafts=drafts) / (drafts * draft_cost + 1.0)


def speedup_at_batch(
    *, acceptance: Numbers, drafts: Numbers, step_s: Numbers, verify_s: Numbers, draft_step_s: Numbers
) -> Numbers:
    """Speed-up with real step times: tokens per pass · T(B) / (T(B·(k+1)) + k·T_draft(B)).

    `step_s` is a plain decode step of the batch, `verify_s` a step that carries k + 1 tokens per sequence,
    `draft_step_s` one step of the draft. Below 1 it costs more than it brings, as it does in large batches.

    Source: Liu et al. 2024 (SmartSpec, arXiv 2406.14066), section 4. Ignores: time of sampling and of rejected cache.
    """
    positive_finite(step_s=step_s, verify_s=verify_s)
    not_negative(draft_step_s=draft_step_s)
    gain = tokens_per_pass(acceptance=acceptance, drafts=drafts) * step_s
    return gain / (verify_s + drafts * draft_step_s)


def best_draft_length(*, acceptance: float, draft_cost: float, longest: int = 32) -> int:
    """The number of drafts, up to `longest`, with the largest `speedup`; 0 when drafting never pays.

    Source: Leviathan et al. 2023 (arXiv 2211.17192), section 3.4. Ignores: that checking costs more at large batch.
    """
    not_negative(longest=longest)
    lengths = np.arange(longest + 1)
    return int(np.argmax(speedup(acceptance=acceptance, drafts=lengths, draft_cost=draft_cost)))


def sample_accepted(*, acceptance: float, drafts: int, uniforms: Numbers) -> Numbers:
    """Accepted drafts of each pass, from uniform numbers in [0, 1): a geometric count cut at `drafts`.

    Takes the random numbers instead of drawing them, so that equal numbers give equal passes.

    Source: inverse of P(accepted >= j) = a^j. Ignores: that passes of one text are not independent.
    """
    share(acceptance=acceptance)
    not_negative(drafts=drafts)
    thresholds = float(acceptance) ** np.arange(1, int(drafts) + 1)
    return np.sum(np.asarray(uniforms)[..., None] < thresholds, axis=-1)
