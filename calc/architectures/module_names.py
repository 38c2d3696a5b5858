"""Matches module names of a checkpoint against the lists that quantisers write: exact, by part, wildcard or regex.

A name is compared from its "layers." on, so that wrappers in front ("model.language_model.") do not matter, with "#" in
the place of the layer's number, and under the spellings that families use beside each other ("self_attn" and "attn",
"mlp", "ffn" and "block_sparse_moe"). Lists that name every layer one by one so become a few templates, each with the
layers that it is listed for, and layers with the same templates are looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Final

from calc.errors import InputError

MAX_PATTERN: Final = 400
MAX_ENTRIES: Final = 100_000
# A repeated group can take exponential time, many repeats a high power of a name's length. Published patterns have no
# repeated group and at most two repeats.
_REPEATED_GROUP: Final = re.compile(r"\)[+*{]")
_REPEAT: Final = re.compile(r"[+*{]")
MOST_REPEATS: Final = 3
MOST_CHOICES: Final = 6  # of "?"
_LAYER: Final = re.compile(r"(?:^|\.)(layers|h|blocks)\.(\d+)(?=[.*]|$)")
_ANCHOR: Final = re.compile(r"(?:^|\.)((?:layers|h|blocks)\.)")
_EXPERT: Final = re.compile(r"\.experts\.\d+\.")
_SYNONYMS: Final = (
    ("self_attn.", "attn."),
    ("mlp.", "ffn."),
    ("mlp.", "block_sparse_moe."),
    ("block_sparse_moe.", "mlp."),
)
# DeepSeek-V4's own names, which its checkpoints and their quantisers use.
_LEAVES: Final = {
    "q_a_proj": "fused_wqa_wkv",
    "kv_proj": "fused_wqa_wkv",
    "q_b_proj": "wq_b",
    "o_a_proj": "wo_a",
    "o_b_proj": "wo_b",
}

Signature = tuple[int, ...]


class Matcher:
    """A list of module names and patterns. `signature` tells which entries concern a layer; `matches` asks for a name."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._exact: set[str] = set()  # entries that name no layer
        self._shapes: list[re.Pattern[str]] = []  # wildcards without a layer's number
        self._general: list[re.Pattern[str]] = []
        self._numbered: list[re.Pattern[str]] = []  # expressions that speak of layers: asked for each layer
        self._templates: dict[str, int] = {}
        self._wild: dict[int, re.Pattern[str]] = {}
        self._of_layer: dict[int, set[int]] = {}
        for count, entry in enumerate(entries):
            if count >= MAX_ENTRIES or len(entry) > MAX_PATTERN:
                raise InputError(
                    "quantization_config",
                    entry,
                    f"at most {MAX_ENTRIES:,} patterns of {MAX_PATTERN} characters",
                )
            self._add(entry)

    def _add(self, entry: str) -> None:
        if entry.startswith("re:"):
            pattern = compiled(entry[3:])
            (self._numbered if "layers" in entry or "blocks" in entry else self._general).append(pattern)
            return
        found = _LAYER.search(entry)
        if found is None:
            if "*" in entry:
                self._shapes.append(re.compile(translate(anchored(entry))))
            else:
                self._exact.add(anchored(entry))
            return
        template = _EXPERT.sub(".experts.0.", f"{found[1]}.#{entry[found.end() :]}")
        number = self._templates.setdefault(template, len(self._templates))
        if "*" in template and number not in self._wild:
            self._wild[number] = re.compile(translate(template))
        self._of_layer.setdefault(int(found[2]), set()).add(number)

    def signature(self, layer: int) -> Signature:
        """Which numbered entries concern `layer`; equal for layers that are treated alike."""
        own = tuple(sorted(self._of_layer.get(layer, ())))
        return (*own, -1 - layer) if self._numbered else own

    def matches(self, names: tuple[str, ...], layer: int) -> bool:
        """Whether one of a module's names ("layers.#...."), or a module that contains it, is listed for `layer`."""
        own = self._of_layer.get(layer, set())
        return any(self._match(name, layer, own) for name in names)

    def _match(self, name: str, layer: int, own: set[int]) -> bool:
        parts = name.split(".")
        prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        if any(self._templates.get(prefix) in own for prefix in prefixes):
            return True
        if self._exact and (
            any(prefix in self._exact for prefix in prefixes)
            or any(part in self._exact for part in parts)
            or ".".join(parts[2:]) in self._exact
        ):
            return True
        wild = [self._wild[number] for number in own if number in self._wild]
        if any(pattern.match(prefix) for pattern in (*wild, *self._shapes) for prefix in prefixes):
            return True
        written = name.replace("#", str(layer))
        return any(pattern.match(written) for pattern in (*self._general, *self._numbered))


def compiled(pattern: str) -> re.Pattern[str]:
    """A regular expression out of a config; one that could take long over a module's name is refused."""
    if (
        _REPEATED_GROUP.search(pattern)
        or len(_REPEAT.findall(pattern)) > MOST_REPEATS
        or pattern.count("?") > MOST_CHOICES
    ):
        allowed = f"a pattern may repeat at most {MOST_REPEATS} times, and no group"
        raise InputError("quantization_config", pattern, allowed)
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(
            "quantization_config", pattern, f"it must be a regular expression ({error})"
        ) from error


def anchored(name: str) -> str:
    """The name from its "layers." on; unchanged where it has none."""
    found = _ANCHOR.search(name)
    return name[found.start(1) :] if found else name


@lru_cache(maxsize=4096)
def spellings(path: str, name: str) -> tuple[str, ...]:
    """The names that module `name` of a block under `path` may go by, "#" in the place of the layer's number."""
    stem = f"{path.rsplit('.', 1)[-1]}.#."
    module = name.removesuffix(".bias")
    variants = [module]
    if ".experts." in module:
        head, tail = module.split(".experts.", 1)
        variants.append(f"{head}.experts.0.{tail}")
    stem_of, _, leaf = module.rpartition(".")
    if leaf in _LEAVES:
        variants.append(f"{stem_of}.{_LEAVES[leaf]}")
    for old, new in _SYNONYMS:
        variants += [new + v.removeprefix(old) for v in list(variants) if v.startswith(old)]
    names = [stem + v for v in dict.fromkeys(variants)]
    return (*names, *(f"model.{name}" for name in names))
