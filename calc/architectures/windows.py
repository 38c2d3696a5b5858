"""Which layers look back over a window only: `layer_types` where the config has it, else the family's own rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from calc.architectures.config_reader import ConfigReader

FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"

Windows = list[int | None]
WindowRule = Callable[[ConfigReader, int], Windows]


def no_window(config: ConfigReader, layers: int) -> Windows:
    """Every layer sees everything; a config that says otherwise is refused."""
    listed_types(config, layers, allowed=(FULL,))
    return [None] * layers


def everywhere(config: ConfigReader, layers: int) -> Windows:
    """One window for all layers, where the config states one (Mistral, Phi-3, StarCoder 2)."""
    listed = listed_types(config, layers)
    window = stated_window(config)
    return _by_type(listed, window, config) if listed else [window] * layers


def listed(config: ConfigReader, layers: int) -> Windows:
    """Only as `layer_types` says; a config with a window and without the list is refused."""
    window = stated_window(config)
    kinds = listed_types(config, layers)
    if kinds is None and window is not None:
        raise config.unsupported("sliding_window", "layer_types must say which layers have it")
    return _by_type(kinds, window, config) if kinds else [None] * layers


def late_layers(config: ConfigReader, layers: int) -> Windows:
    """Qwen: with `use_sliding_window`, layers from `max_window_layers` on."""
    used = config.bool("use_sliding_window", default=False)
    window = stated_window(config)
    first = config.int("max_window_layers", default=28, low=0)
    listed = listed_types(config, layers)
    if not used:
        window = None
    if listed:
        return _by_type(listed, window, config)
    return [window if layer >= first else None for layer in range(layers)]


def patterned(period: int, field: str = "sliding_window_pattern") -> WindowRule:
    """Windows on all layers but each `period`-th (Gemma 3, Cohere 2, OLMo 3).

    `field` may state another period, or the pattern itself (EXAONE 4: "LLLG").
    """

    def rule(config: ConfigReader, layers: int) -> Windows:
        window = stated_window(config)
        listed = listed_types(config, layers)
        stated = config.raw(field, f"_{field}")
        if listed:
            return _by_type(listed, window, config)
        if isinstance(stated, str) and stated and set(stated) <= {"L", "G"}:
            return [window if stated[layer % len(stated)] == "L" else None for layer in range(layers)]
        every = config.optional_int(field, f"_{field}") or period
        return [window if (layer + 1) % every else None for layer in range(layers)]

    return rule


def stated_window(config: ConfigReader) -> int | None:
    """`sliding_window`; one that no sequence can outgrow (at least the longest position) bounds nothing."""
    window = config.optional_int("sliding_window")
    longest = config.optional_int("max_position_embeddings")
    return None if window is not None and longest is not None and window >= longest else window


def listed_types(
    config: ConfigReader, layers: int, allowed: tuple[str, ...] = (FULL, SLIDING)
) -> list[str] | None:
    """`layer_types`, one word for each layer."""
    return config.words("layer_types", allowed=allowed, length=layers)


def _by_type(listed: list[str], window: int | None, config: ConfigReader) -> Windows:
    if SLIDING in listed and not config.has("sliding_window"):
        raise config.unsupported(
            "sliding_window", "layer_types names sliding layers, whose window must be stated"
        )
    return [window if kind == SLIDING else None for kind in listed]
