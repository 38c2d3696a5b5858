"""An adapter: the model types that it reads, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calc.architectures.config_reader import ConfigReader
from calc.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`parse` turns a config whose `model_type` is one of `model_types` into a spec.

    `architectures`: class names that lead here where a config states no `model_type`.
    """

    model_types: tuple[str, ...]
    parse: Callable[[ConfigReader], ModelSpec]
    architectures: tuple[str, ...] = ()
