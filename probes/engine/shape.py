"""What the decoder looks like: the numbers of a Qwen3 or Llama config. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calc.errors import InputError, UnsupportedArchitecture

KINDS = ("qwen3", "llama")


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Rope:
    """Llama 3.1's stretching of the long rotary wavelengths. Source: transformers, modeling_rope_utils.py."""

    factor: float
    low_frequency_factor: float
    high_frequency_factor: float
    original_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """A decoder of grouped-query attention with rotary positions, RMS norms and a gated SiLU feed-forward."""

    kind: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    norm_epsilon: float
    rope_base: float
    rope_scaling: Llama3Rope | None
    attention_bias: bool
    mlp_bias: bool
    tied: bool
    positions: int
    end_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "heads", "kv_heads", "head_dim", "intermediate"):
            if getattr(self, name) < 1:
                raise InputError(name, getattr(self, name), "it must be positive")
        if self.heads % self.kv_heads:
            raise InputError("num_key_value_heads", self.kv_heads, f"it must divide the {self.heads} heads")
        if self.head_dim % 2:
            raise InputError("head_dim", self.head_dim, "rotary positions need an even one")

    def check_lengths(self, prompt: Sequence[int], count: int) -> None:
        """Raise InputError for a prompt with unknown tokens or none, and for an answer of `count` tokens that does not fit."""
        if not prompt or min(prompt) < 0 or max(prompt) >= self.vocabulary:
            raise InputError(
                "prompt", len(prompt), f"one token or more, each from 0 to {self.vocabulary - 1}"
            )
        if count < 1 or len(prompt) + count > self.positions:
            raise InputError(
                "max_tokens",
                count,
                f"the context length is {self.positions}, the prompt has {len(prompt)}",
            )

    @property
    def qk_norm(self) -> bool:
        """Qwen3 norms each head's query and key."""
        return self.kind == "qwen3"


def shape_of(config: Mapping[str, Any]) -> DecoderShape:
    """The shape that a config.json describes. Other architectures, windows and rotary kinds are refused by name."""
    kind = config.get("model_type")
    if kind not in KINDS:
        raise UnsupportedArchitecture(
            "model_type",
            kind,
            f"the reference engine runs {' and '.join(KINDS)}",
            next_step="Name such a model, or a preset such as Qwen/Qwen3-0.6B; the calculators know many more.",
        )
    if config.get("use_sliding_window"):
        raise UnsupportedArchitecture(
            "use_sliding_window", True, "the reference engine has full attention only"
        )
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedArchitecture("hidden_act", config["hidden_act"], "only silu is known")
    heads = _whole(config, "num_attention_heads")
    ends = config.get("eos_token_id")
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    return DecoderShape(
        kind=str(kind),
        vocabulary=_whole(config, "vocab_size"),
        width=_whole(config, "hidden_size"),
        layers=_whole(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_whole(config, "num_key_value_heads", heads),
        head_dim=_whole(config, "head_dim", _whole(config, "hidden_size") // heads),
        intermediate=_whole(config, "intermediate_size"),
        norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
        rope_base=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
        rope_scaling=_scaling(rope),
        attention_bias=bool(config.get("attention_bias", False)),
        mlp_bias=bool(config.get("mlp_bias", False)),
        tied=bool(config.get("tie_word_embeddings", False)),
        positions=_whole(config, "max_position_embeddings", 2048),
        end_tokens=tuple(ends) if isinstance(ends, list) else () if ends is None else (int(ends),),
    )


def _whole(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
        raise InputError(name, value, "the config must give a positive whole number")
    return value


def _scaling(rope: Mapping[str, Any]) -> Llama3Rope | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise UnsupportedArchitecture("rope_type", kind, "the reference engine knows default and llama3")
    return Llama3Rope(
        factor=float(rope["factor"]),
        low_frequency_factor=float(rope["low_freq_factor"]),
        high_frequency_factor=float(rope["high_freq_factor"]),
        original_positions=int(rope["original_max_position_embeddings"]),
    )
