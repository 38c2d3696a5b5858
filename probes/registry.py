"""The probes, in the order in which they run; adding one means adding its file and a line here."""

from __future__ import annotations

from dataclasses import dataclass

EVERY_DEVICE = ("cuda", "rocm", "xpu", "mps", "cpu")
PARENT = "parent"  # the group of what is read beside the workers, in the process that watches them


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe: the module with its `cases(bench)`, and the process group that it runs in.

    `quick_s`, `full_s`: seconds that it is expected to take, for the remaining time that is shown before anything was
    measured. `devices`: kinds that have what it measures.
    """

    name: str
    title: str
    module: str
    group: str
    quick_s: float
    full_s: float
    devices: tuple[str, ...] = EVERY_DEVICE


PROBES = (
    Probe(
        name="device_state",
        title="Device state",
        module="probes.device_state",
        group=PARENT,
        quick_s=0,
        full_s=0,
    ),
    Probe(
        name="bandwidth",
        title="Memory bandwidth",
        module="probes.bandwidth",
        group="memory",
        quick_s=3,
        full_s=12,
    ),
    Probe(
        name="skinny_gemm",
        title="Reading weights (few tokens)",
        module="probes.skinny_gemm",
        group="memory",
        quick_s=4,
        full_s=20,
    ),
    Probe(name="launch", title="Launch cost", module="probes.launch", group="memory", quick_s=1, full_s=2),
    Probe(
        name="copies",
        title="Host to device copies",
        module="probes.copies",
        group="memory",
        quick_s=2,
        full_s=10,
        devices=("cuda", "rocm", "xpu"),
    ),
    Probe(
        name="gemm",
        title="Matrix products by token count",
        module="probes.gemm",
        group="compute",
        quick_s=8,
        full_s=60,
    ),
    Probe(
        name="sustained",
        title="Sustained against burst",
        module="probes.sustained",
        group="compute",
        quick_s=4,
        full_s=10,
    ),
    Probe(
        name="prefill_attention",
        title="Attention over prompts",
        module="probes.prefill_attention",
        group="attention",
        quick_s=3,
        full_s=20,
    ),
    Probe(
        name="decode_attention",
        title="Attention over the cache",
        module="probes.decode_attention",
        group="attention",
        quick_s=4,
        full_s=25,
    ),
    Probe(
        name="layer",
        title="A layer of the chosen model",
        module="probes.layer",
        group="layer",
        quick_s=6,
        full_s=30,
    ),
    Probe(
        name="all_reduce",
        title="All-reduce among the GPUs",
        module="probes.all_reduce",
        group="links",
        quick_s=10,
        full_s=40,
        devices=("cuda", "rocm", "xpu"),
    ),
)

QUICK, FULL = "quick", "full"
DEPTHS = (QUICK, FULL)

# Hard limits in seconds: a whole group, and the time within which a worker must say something.
GROUP_LIMIT_S = {QUICK: 60.0, FULL: 150.0}
SILENCE_LIMIT_S = 45.0
LEFT_OUT = "left out"  # the kind of a problem that is a choice, not a fault
# What a probe may spend, over what is expected, before it leaves out the cases that are not essential.
OVERRUN = 1.25


def budget_s(name: str, depth: str) -> float:
    """Seconds after which a probe begins no further case that it can do without."""
    known = {probe.name: probe for probe in PROBES}
    if name not in known:
        return GROUP_LIMIT_S[depth]
    return OVERRUN * (known[name].quick_s if depth == QUICK else known[name].full_s)


def groups(probes: tuple[Probe, ...], *, together: bool = False) -> dict[str, tuple[Probe, ...]]:
    """Probes by worker group, in order; what the parent reads is not among them.

    `together`: all in one. A processor has no context that an error spoils, and torch takes seconds to load.
    """
    found: dict[str, list[Probe]] = {}
    for probe in probes:
        if probe.group != PARENT:
            found.setdefault("all" if together else probe.group, []).append(probe)
    return {group: tuple(members) for group, members in found.items()}
