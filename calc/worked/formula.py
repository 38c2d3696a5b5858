"""A formula of the registry with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """One formula with its numbers: the registry's id, its inputs, the number that is shown, and what it is about."""

    formula: str
    inputs: Mapping[str, float]
    result: float
    about: str = ""
