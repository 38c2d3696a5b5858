"""The mixtures that llama.cpp calls Q3_K_S to Q5_K_M: which ggml type each kind of tensor gets.

Where a mixture gives some layers more bits than others, the tensor's format here is the mean over the layers; it is exact
when the layers divide as the rule means (half of them for Q4_K_M and Q5_K_M: any multiple of 8 layers and most others).

Source: llama.cpp, llama_tensor_get_type (llama-quant.cpp).
Ignores: exceptions for models of 8 experts, for 70B's values, and the first two to four layers' values of the S and M
kinds: by llama.cpp's own table for Llama 3 8B, the files come out at most 0.4% small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FUSED: Final = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "W_pack")
# What a type falls back to where the input is no multiple of its 256-element block.
FALLBACK: Final = {"q3_k": "iq4_nl", "q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
BLOCK: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """ggml types by kind of tensor; a name of `MEANS` gives some layers the larger of two types."""

    main: str
    values: str
    down: str
    attention_out: str
    fused: str
    head: str = "q6_k"


def mean_name(less: str, more: str, share: str) -> str:
    """The name of the mean of two types, `share` of the layers in the larger one."""
    return f"{less}+{share} {more}"


HALF_4: Final = mean_name("q4_k", "q6_k", "1/2")
HALF_5: Final = mean_name("q5_k", "q6_k", "1/2")
EIGHTH: Final = mean_name("q4_k", "q5_k", "1/8")
SIXTEENTH: Final = mean_name("q4_k", "q5_k", "1/16")
# name -> (smaller type, larger type, share of layers in the larger)
MEANS: Final = {
    HALF_4: ("q4_k", "q6_k", 1 / 2),
    HALF_5: ("q5_k", "q6_k", 1 / 2),
    EIGHTH: ("q4_k", "q5_k", 1 / 8),
    SIXTEENTH: ("q4_k", "q5_k", 1 / 16),
}

MIXTURES: Final = {
    "q3_k_s": Mixture(main="q3_k", values="q3_k", down="q3_k", attention_out="q3_k", fused="q3_k"),
    "q3_k_m": Mixture(main="q3_k", values="q4_k", down=SIXTEENTH, attention_out="q4_k", fused="q4_k"),
    "q3_k_l": Mixture(main="q3_k", values="q5_k", down="q5_k", attention_out="q5_k", fused="q4_k"),
    "q4_k_s": Mixture(main="q4_k", values="q4_k", down=EIGHTH, attention_out="q4_k", fused="q4_k"),
    "q4_k_m": Mixture(main="q4_k", values=HALF_4, down=HALF_4, attention_out="q4_k", fused="q5_k"),
    "q5_k_s": Mixture(main="q5_k", values="q5_k", down="q5_k", attention_out="q5_k", fused="q5_k"),
    "q5_k_m": Mixture(main="q5_k", values=HALF_5, down=HALF_5, attention_out="q5_k", fused="q6_k"),
}


def uniform(kind: str) -> Mixture:
    """A file of one type; its head is Q6_K all the same, unless the type is at least as precise."""
    head = kind if kind in ("q8_0", "q6_k") else "q6_k"
    return Mixture(main=kind, values=kind, down=kind, attention_out=kind, fused=kind, head=head)


def tensor_type(mixture: Mixture, name: str, n_in: int, *, is_head: bool) -> str:
    """The ggml type of the matrix called `name` with `n_in` inputs."""
    leaf = name.rsplit(".", 1)[-1]
    if is_head:
        kind = mixture.head
    elif leaf in FUSED:
        kind = mixture.fused
    elif leaf in ("v_proj", "value"):
        kind = mixture.values
    elif leaf in ("down_proj", "w2", "wo", "fc2", "dense_4h_to_h"):
        kind = mixture.down
    elif leaf in ("o_proj", "out_proj", "dense"):
        kind = mixture.attention_out
    else:
        kind = mixture.main
    if n_in % BLOCK:
        smaller = MEANS[kind][0] if kind in MEANS else kind
        return FALLBACK.get(smaller, smaller)
    return kind
