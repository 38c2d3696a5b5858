"""Time of a collective over a group of GPUs: a start-up time and a bandwidth that grows with the message.

    t(bytes) = alpha + (bytes + sqrt(bytes * half_bytes)) / beta

`bytes` is the tensor that each rank ends with (all-reduce, all-gather) or starts with (reduce-scatter, all-to-all).
`beta` is the rate at which the tensor is done, not the bus bandwidth: where the switch adds up in the fabric, bus bandwidth
as 2(n-1)/n bytes over time exceeds the link, while beta does not.

Source of the form: measured all-reduce times of four engines on nine systems (the square root is what small and middle sizes
lose); a plain alpha-beta line misses them by 9% in the median, this by 4%.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.errors import InputError
from calc.provenance import Provenance
from calc.typed_fields import checked_fields, member_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCurve:
    """One collective over `ranks` GPUs of one fabric.

    `beta_of_link`: tensor rate over the accelerator's one-way link rate (at most 1). `error`: median error of the fit over
    message sizes that it did not see.
    """

    ranks: int
    alpha_s: float
    beta_of_link: float
    half_bytes: float
    provenance: Provenance = Provenance.FITTED
    error: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.ranks < 2 or min(self.alpha_s, self.half_bytes) < 0:
            raise InputError(
                "link curve",
                (self.ranks, self.alpha_s, self.half_bytes),
                "it joins two ranks or more, and neither its start nor its half size is negative",
            )
        if not 0 < self.beta_of_link <= 1:
            raise InputError("beta_of_link", self.beta_of_link, "it is a share of the link rate, from 0 to 1")

    def seconds(self, message_bytes: Any, link_bytes_per_s: float) -> Any:
        """Time of one call; zero for an empty message."""
        size = np.asarray(message_bytes, dtype=float)
        time = self.alpha_s + (size + np.sqrt(size * self.half_bytes)) / (
            self.beta_of_link * link_bytes_per_s
        )
        return np.where(size > 0, time, 0.0)

    def as_json(self) -> dict[str, object]:
        return {
            "ranks": self.ranks,
            "alpha_s": self.alpha_s,
            "beta_of_link": self.beta_of_link,
            "half_bytes": self.half_bytes,
            "provenance": str(self.provenance),
            "error": self.error,
            "source": self.source,
        }


def curve_for(curves: Sequence[LinkCurve], ranks: int) -> LinkCurve:
    """The curve of the smallest measured group that holds `ranks`, or of the largest one below it."""
    if not curves:
        raise InputError("curves", (), "a profile needs at least one link curve")
    ordered = sorted(curves, key=lambda curve: curve.ranks)
    return next((curve for curve in ordered if curve.ranks >= ranks), ordered[-1])


def curve_from_json(data: object) -> LinkCurve:
    """Read back what `LinkCurve.as_json` wrote; raises InputError for what it did not."""
    if not isinstance(data, Mapping):
        raise InputError("link curve", data, "it must be an object")
    provenance = member_of(Provenance, data.get("provenance", "fitted"), "link curve provenance")
    given = {name: value for name, value in data.items() if name != "provenance"}
    return LinkCurve(**checked_fields(LinkCurve, given, what="link curve"), provenance=provenance)
