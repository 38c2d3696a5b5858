"""Speculative decoding at a real batch: a verify pass of the model and the draft's passes, for the tokens they make."""

from __future__ import annotations

from typing import Any

import numpy as np

from calc.errors import InputError
from calc.operators import ForwardPass
from calc.provenance import Estimate
from calc.step.estimate import StepModel


def speculative_tpot_s(
    model: StepModel,
    *,
    batch: Any,
    context: Any,
    drafts: int,
    tokens_per_pass: float,
    draft: StepModel | None = None,
) -> Estimate:
    """Seconds per output token when every pass verifies `drafts` draft tokens and yields `tokens_per_pass` on average.

    draft: the model that proposes them one after the other, on the same GPUs; None for proposals that cost nothing (n-grams).
    `tokens_per_pass` is from 1 to drafts + 1; `calc.speculative` gives it from an acceptance rate.

    Ignores: rejected tokens' cache entries, and that acceptance falls along a draft's passes (it is in tokens_per_pass).
    """
    if drafts < 0:
        raise InputError("drafts", drafts, "it must be zero or more")
    if not 1.0 <= tokens_per_pass <= drafts + 1.0:
        raise InputError("tokens_per_pass", tokens_per_pass, f"it must be from 1 to {drafts + 1}")
    total = model.step(ForwardPass.verify(batch, context, drafts=drafts)).total
    if draft is not None and drafts:
        total = total.plus(draft.step(ForwardPass.decode(batch, context)).total.scaled(float(drafts)))
    return total.scaled(np.reciprocal(float(tokens_per_pass)))
