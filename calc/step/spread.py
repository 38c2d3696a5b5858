"""Ranges of predicted times: made here and nowhere else, from held-out errors and from how close the evidence is.

The 80% range is best/x to best*x. x is the class's held-out spread (dense, experts, latent) and grows with every step away
from the data: another model or GPU of a fitted family, a related family or engine, a datasheet alone. Factors multiply.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from calc.layout import Layout
from calc.model import CompressedAttention, LatentAttention, ModelSpec, Moe
from calc.profile import Evidence, Profile
from calc.provenance import Estimate


def model_class(spec: ModelSpec) -> str:
    """Class of the ranges: "latent" for latent attention, "experts" for other mixtures of experts, else "dense"."""
    kinds = {type(sublayer) for stack in spec.stacks for _, sublayer in stack.sublayers()}
    if kinds & {LatentAttention, CompressedAttention}:
        return "latent"
    return "experts" if Moe in kinds else "dense"


def spread_factor(spec: ModelSpec, profile: Profile, *, first_token: bool = False) -> float:
    """Half-width x of the 80% range of a time under a profile."""
    spread = profile.spread
    if profile.evidence is Evidence.CALIBRATED:
        return spread["calibrated"]
    factor = spread[model_class(spec)]
    if profile.evidence is Evidence.SAME_MODEL_AND_GPU:
        factor = spread[f"{model_class(spec)}, same model"]
    elif profile.evidence is Evidence.RELATED:
        factor *= spread["related"]
    elif profile.evidence is Evidence.DATASHEET:
        factor *= spread["datasheet"]
    if first_token:
        factor = max(factor, spread["time to first token"])
    return factor


def ranks_factor(layout: Layout, profile: Profile) -> float:
    """How much wider a range is where attention ranks step together: no clean measurement has them.

    They are taken to be as far from the data as a related engine. Source: of 46 public figures with attention ranks (22 serving
    points, 24 maxima) 28% lie in the range without this, 85% with it. A measured endpoint speaks for itself.
    """
    alone = layout.attention_dp <= 1 or profile.evidence is Evidence.CALIBRATED
    return 1.0 if alone else profile.spread["related"]


def ranged(seconds: Any, *, factor: float, floor: Any, profile: Profile) -> Estimate:
    """The range of an expected time; no end of it lies under `floor`, what the datasheet's peaks allow."""
    best = np.maximum(seconds, floor)
    return Estimate(
        low=np.maximum(best / factor, floor), best=best, high=best * factor, provenance=profile.provenance
    )
