"""Cases of cases/textbook.toml by id, each with the public functions that solve it."""

import numpy as np

GB = 1e9
MS = 1e-3

SOLVED = {}
"""Case id -> function of the case's inputs that returns its wanted values; filled by `solves`."""


def solves(*ids):
    def register(function):
        for case_id in ids:
            assert case_id not in SOLVED
            SOLVED[case_id] = function
        return function

    return register


def picked(inputs, *names):
    return {
        name: np.array(inputs[name]) if isinstance(inputs[name], list) else inputs[name] for name in names
    }


def card(i):
    """The accelerator's side of a case, in our names."""
    names = {"flops": "peak_flop_per_s", "bandwidth": "bandwidth_bytes_per_s"}
    return {ours: picked(i, theirs)[theirs] for theirs, ours in names.items() if theirs in i}


def step_inputs(i, **changed):
    names = ("params", "bytes_per_param", "batch", "context", "kv_bytes_per_token")
    return {**picked(i, *(n for n in names if n in i)), **card(i), **changed}


def prefill_inputs(i):
    names = [n for n in ("params", "prompt_tokens", "cached_tokens", "mfu") if n in i]
    return {**picked(i, *names), "peak_flop_per_s": picked(i, "flops")["flops"]}


def kv_shape(i):
    return {k: i[k] for k in ("layers", "n_kv_heads", "head_dim", "bytes_per_element")}
