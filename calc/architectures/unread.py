"""Fails closed: a field that no adapter read, but whose name speaks of structure, is refused by name.

What an adapter leaves unread is compared with the names that are known not to change shapes or state (`inert_fields`). Any
other unread field whose name sounds structural, and whose value is not plainly "off", stops the parse.
"""

from __future__ import annotations

import re
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.inert_fields import is_inert
from calc.errors import UnsupportedArchitecture

STRUCTURAL: Final = re.compile(
    r"layer|head|dim|hidden|rank|expert|moe|mlp|ffn|intermediate|kv|window|chunk|mamba|conv|ssm|state|latent|lora"
    r"|_bias|bias_|^bias$|tie|norm|pattern|period|interval|every|share|depth|embed|attn|attention|router|gate|mtp"
    r"|recur|block|compress|index|size$|^n_|^num_|vocab"
)

# Sections that describe how weights are stored, or a part that is not built.
SKIPPED_SECTIONS: Final = re.compile(
    r"(^|\.)(quantization_config|compression_config|task_specific_params|id2label|label2id|auto_map|rope_scaling"
    r"|rope_parameters|generation_config|init_config)\."
)

# A tower has no token embedding to tie, whatever its section says.
INERT_PATH: Final = re.compile(r"(vision|audio)_config\.tie_word_embeddings$")

OFF: Final[tuple[object, ...]] = (None, False, 0, "", [], {}, (), "none", "None", "null")


def unread_fields(reader: ConfigReader) -> list[tuple[str, object]]:
    """(dotted path, value) of the fields that were neither read nor known to be inert, and are not "off"."""
    found = []
    for path, value in reader.leaves():
        name = path.rsplit(".", 1)[-1]
        if (
            path in reader.read
            or is_inert(name)
            or _off(value)
            or SKIPPED_SECTIONS.search(path)
            or INERT_PATH.search(path)
        ):
            continue
        found.append((path, value))
    return found


def refuse_unread(reader: ConfigReader) -> None:
    """Raise UnsupportedArchitecture for the first unread field that sounds structural."""
    for path, value in unread_fields(reader):
        name = path.rsplit(".", 1)[-1]
        if STRUCTURAL.search(name):
            raise UnsupportedArchitecture(
                path,
                value,
                "this family does not use it, so what it does to the structure is not known",
                next_step="Remove the field if it changes no shape, or choose the family that it belongs to.",
            )


def _off(value: object) -> bool:
    return any(value is off or (type(value) is type(off) and value == off) for off in OFF)
