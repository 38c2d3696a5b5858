"""Fit of how a first token comes about on light loads: the server's own time, decode steps waited, times the prefill itself."""

from __future__ import annotations

import numpy as np
from fit_constants import ENGINES
from fit_serving import Fit
from scipy.optimize import least_squares

from calc.step.serving import FirstToken

FIRST_PRIOR = np.log([0.02, 5.0, 1.3])
FIRST_WIDTH = np.array([1.0, 0.6, 0.3])
BURST_PRIOR, BURST_WIDTH = np.log(0.5), 1.0
FIRST_STRENGTH = 5.0  # engines have few models each; priors keep them from learning the models


def first_token_fit(fit: Fit, keep: np.ndarray) -> dict[str, np.ndarray]:
    """Per engine server seconds, decode steps waited and times the prefill, on light loads; and the burst of vendor runs.

    Vendor runs start all requests together: a mean request waits for a share of the other prompts.
    """
    rows = keep & (fit.users <= 8)
    groups = np.array(["|".join(row.group) for row in fit.rows])[rows]
    count = {name: np.sum(groups == name) for name in np.unique(groups)}
    weight = np.array([count[name] ** -0.35 for name in groups])
    weight /= weight.mean()
    start = np.concatenate([np.tile(FIRST_PRIOR, len(ENGINES)), [BURST_PRIOR]])
    width = np.concatenate([np.tile(FIRST_WIDTH, len(ENGINES)), [BURST_WIDTH]])

    def residual(v: np.ndarray) -> np.ndarray:
        miss = (np.log(first_tokens(fit, unpacked(v)) / fit.ttft)[rows]) * weight
        robust = np.sign(miss) * np.sqrt(2 * (np.sqrt(1 + (miss / 0.3) ** 2) - 1))
        return np.concatenate([robust, FIRST_STRENGTH * (v - start) / width])

    return unpacked(least_squares(residual, start).x)


def unpacked(v: np.ndarray) -> dict[str, np.ndarray]:
    values = np.exp(v)
    return {engine: values[3 * i : 3 * i + 3] for i, engine in enumerate(ENGINES)} | {"burst": values[-1:]}


def first_token_values(found: dict[str, np.ndarray]) -> dict[tuple[str, str], float]:
    names = ("ttft.server_s", "ttft.steps", "ttft.prefill")
    return {
        (name, engine): float(v) for engine in ENGINES for name, v in zip(names, found[engine], strict=True)
    }


def first_tokens(fit: Fit, found: dict[str, np.ndarray]) -> np.ndarray:
    engine = [row.engine for row in fit.rows]
    a, b, s = (np.array([found[e][i] for e in engine]) for i in range(3))
    first = FirstToken(server_s=a, steps=b, prefill=s)
    seconds = first.seconds(
        tpot_s=fit.last.tpot_s, prefill_s=fit.prefill_s, prefill_share=fit.last.prefill_share
    )
    return seconds + found["burst"][0] * fit.together * (fit.users - 1) / 2 * fit.prefill_s
