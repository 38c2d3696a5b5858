"""Damaged configs: real ones with fields dropped, renamed, negated, blown up, retyped, nested or swapped between models."""

import copy
import random

RENAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": "num_kv_heads",
    "intermediate_size": "ffn_hidden_size",
    "vocab_size": "padded_vocab_size",
    "head_dim": "head_size",
    "num_experts": "num_local_experts",
    "layer_types": "layers_block_type",
}
HUGE = (10**9, 2**31, 2**63, 10**30, 1e308, float("inf"), float("nan"))
ODD = (
    None,
    "",
    "abc",
    "32",
    "1e3",
    [],
    {},
    [1, 2],
    {"a": 1},
    True,
    False,
    0,
    -1,
    -7,
    1,
    3,
    5,
    0.5,
    1.5,
    "nan",
    " 8 ",
    b"8",
    object(),
)


def sections(config):
    """The config and every section in it."""
    found = [config]
    for value in config.values():
        if isinstance(value, dict):
            found += sections(value)
    return found


def mutated(config, others, rng: random.Random):
    """A damaged copy: one to four changes, each of a random kind."""
    broken = copy.deepcopy(config)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        section = rng.choice([part for part in sections(broken) if part] or [broken])
        if section:
            change(section, rng.choice(list(section)), others, rng)
    return broken


def change(section, name, others, rng):
    kind = rng.randrange(9)
    value = section[name]
    if kind == 0:
        del section[name]
    elif kind == 1:
        section[RENAMES.get(name, f"{name}_x")] = section.pop(name)
    elif kind == 2 and isinstance(value, int | float):
        section[name] = -value
    elif kind == 3:
        section[name] = rng.choice(HUGE)
    elif kind == 4:
        section[name] = copy.deepcopy(rng.choice(ODD))  # a later change may reach into it
    elif kind == 5:
        section[name] = {name: value}
    elif kind == 6 and isinstance(value, int):
        section[name] = max(value + rng.choice((-3, -1, 1, 2, 7)), 0)
    elif kind == 7 and isinstance(value, list) and value:
        section[name] = value[: rng.randrange(len(value))] + rng.choice(
            ([], [None], ["odd"], [-1], [10**12], [[]])
        )
    else:
        other = rng.choice(others)
        taken = rng.choice(list(other))
        section[taken] = copy.deepcopy(other[taken])
