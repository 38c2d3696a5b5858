"""Which accelerator a log ran on: by the name that it states, else by its memory, else a stand-in of the same size."""

from __future__ import annotations

from calc.accelerator import Accelerator
from calc.units import GIB
from presets import accelerators
from presets.engine_logs import EngineLog

# Text in the log -> catalogue id, the first that is found; the more special name first.
CARD_NAMES = (
    ("H100 NVL", "h100-nvl-94gb"),
    ("H100", "h100-sxm5-80gb"),
    ("H200", "h200-sxm-141gb"),
    ("B200", "b200-sxm-180gb"),
    ("B300", "b300-sxm-288gb"),
    ("GB300", "gb300-gpu"),
    ("Blackwell Ultra", "gb300-gpu"),
    ("A100 40GB", "a100-sxm4-40gb"),
    ("A100", "a100-sxm4-80gb"),
    ("L40S", "l40s"),
    ("L40", "l40"),
    ("L4 ", "l4"),
    ("A6000", "rtx-a6000"),
    ("A5000", "rtx-a5000"),
    ("RTX PRO 6000", "rtx-pro-6000-blackwell-ws"),
    ("97,887 MiB", "rtx-pro-6000-blackwell-ws"),
    ("RTX 5090", "rtx-5090"),
    ("RTX 3090", "rtx-3090"),
    ("RTX 3060", "rtx-3060-12gb"),
    ("RTX 3070", "rtx-3070"),
    ("V100 32GB", "v100-sxm2-32gb"),
    ("T4", "t4"),
    ("GB10", "dgx-spark-gb10"),
    ("DGX Spark", "dgx-spark-gb10"),
    ("Thor", "jetson-thor-t5000"),
    ("AMD 192GB", "mi300x"),
    ("AMD Instinct", "mi300x"),
)
# Cards that a log describes only by size (GiB of its total, or GB of its label): what stands in for their kind.
CARD_SIZES = (
    (9.0, "rtx-4060"),
    (13.0, "rtx-3060-12gb"),
    (15.0, "t4"),
    (15.8, "v100-sxm2-16gb"),
    (17.0, "rtx-4080"),
    (24.5, "rtx-3090"),
    (33.0, "rtx-5090"),
    (50.0, "l40s"),
    (82.0, "h100-sxm5-80gb"),
    (100.0, "rtx-pro-6000-blackwell-ws"),
    (150.0, "h200-sxm-141gb"),
    (200.0, "b200-sxm-180gb"),
    (1e9, "gb300-gpu"),
)
# A 16-bit model that is served in float16 although bf16 is the default: a card from before Ampere.
FLOAT16_SIZES = ((15.0, "t4"), (17.0, "v100-sxm2-16gb"), (33.0, "v100-sxm2-32gb"))
OTHER_VENDORS = (("AMD", "rx-7900-xtx"), ("ROCm", "mi300x"))


def named_card(log: EngineLog) -> str | None:
    """The catalogue id of the card that a log names, or None."""
    for text, card in CARD_NAMES:
        if text in log.gpu + " ":
            return card
    return None


def card_of(log: EngineLog) -> Accelerator:
    """The accelerator of a log; an unnamed card is stood in for by one of its size (80 GB where nothing is said)."""
    found = named_card(log)
    if found is None:
        found = next((card for text, card in OTHER_VENDORS if text in log.gpu), None)
    if found is None:
        size = log.total_bytes / GIB if log.total_bytes else float(log.label_gb or 80)
        older = FLOAT16_SIZES if log.weight_format == "float16" else ()
        found = next(card for limit, card in (*older, *CARD_SIZES) if size <= limit)
    return accelerators.load(found)


def card_is_described(log: EngineLog) -> bool:
    """Whether a log says enough about its card for a ledger: a name, a total, a label or free memory."""
    return bool(named_card(log) or log.total_bytes or log.label_gb or log.free_bytes)
