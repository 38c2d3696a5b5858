"""The Memory page's charts and what they say: the waterfall of one GPU, and three growths towards the wall."""

from __future__ import annotations

from collections.abc import Sequence

from calc import format as fmt
from calc.engine import ENGINE_NAMES
from calc.memory.bars import FREE, RankBar
from calc.memory.comparison import EnginePool
from calc.memory.engines import Ledger, LineKind
from calc.memory.log_comparison import ComparedLine
from calc.memory.waterfall import Growth, WaterfallStep
from calc.units import GIB
from pages._axes import Mark, linear
from pages._charts import Drop, Segment, Series, lines, memory_bar, waterfall
from pages._drawing import Drawing

COLOUR_OF = {
    "card": "card",
    str(LineKind.WEIGHTS): "weights",
    str(LineKind.ACTIVATION): "activations",
    str(LineKind.KV): "kv",
}
# What the stacked bars show together: small lines that are neither weights, activations nor caches.
OVERHEADS = (
    str(LineKind.NON_TORCH),
    str(LineKind.GRAPHS),
    str(LineKind.ADAPTERS),
    str(LineKind.DRAFTS),
    str(LineKind.RESERVE),
)
BAR_COLOURS = {
    str(LineKind.WEIGHTS): "weights",
    str(LineKind.ACTIVATION): "activations",
    "overhead": "overhead",
    str(LineKind.STATES): "decode",
    str(LineKind.KV): "kv",
    FREE: "free",
}
SHOWN_NAMES = {
    str(LineKind.ACTIVATION): "activations",
    str(LineKind.NON_TORCH): "outside torch",
    str(LineKind.GRAPHS): "CUDA graphs",
    str(LineKind.KV): "KV cache",
    FREE: "free",
}
READINGS = {"bytes": fmt.binary_bytes, "tokens": fmt.count, "blocks": fmt.count, "share": fmt.percent}


def shown_name(name: str) -> str:
    """A line's name as every page writes it."""
    return SHOWN_NAMES.get(name, name)


def _segments(bar: RankBar) -> list[Segment]:
    """The pieces of a bar in GiB, from the left: what is paid before the pool, the pool, what is paid beside it."""
    sizes: dict[str, float] = {}
    for part in bar.parts:
        name = part.name
        if name in OVERHEADS:
            name = "overhead" if part.inside else "paid beside the pool"
        sizes[name] = sizes.get(name, 0.0) + float(part.bytes.best) / GIB
    return [
        Segment(name=shown_name(name), size=size, colour=BAR_COLOURS.get(name, "overhead"))
        for name, size in sizes.items()
    ]


def ledger_figure(bars: Sequence[RankBar], sequence_tokens: int) -> Drawing:
    """One stacked bar for each kind of GPU, with the wall of the pool and where one longest sequence would end."""
    tightest = next(bar for bar in bars if bar.tightest)
    return memory_bar(
        [(_bar_label(bar, alone=len(bars) == 1), _segments(bar)) for bar in bars],
        unit="GiB",
        marks=(
            Mark(at=tightest.wall / GIB, text="KV wall", colour="kv wall", dash="solid"),
            Mark(
                at=tightest.needed_to / GIB,
                text=f"one sequence of {fmt.count(sequence_tokens)}",
                colour="target",
                level=1,
            ),
        ),
    )


def _bar_label(bar: RankBar, *, alone: bool) -> str:
    if alone:
        return "the GPU" if bar.gpus == 1 else f"each of {bar.gpus} GPUs"
    name = bar.label.replace("stages ", "").replace("stage ", "")
    return f"{name}{' *' if bar.tightest else ''}"


def ledger_finding(bars: Sequence[RankBar], sequence_tokens: int) -> str:
    """What the stacked bars show."""
    told = []
    for bar in bars:
        sizes = ", ".join(
            f"{shown_name(part.name)} {fmt.binary_bytes(part.bytes.best)}" for part in bar.parts
        )
        bound = ", the one that binds the pool" if bar.tightest and len(bars) > 1 else ""
        told.append(f"{bar.label} ({fmt.plural(bar.gpus, 'GPU')}{bound}): {sizes}")
    tightest = next(bar for bar in bars if bar.tightest)
    room = "inside" if tightest.needed_to <= tightest.wall else "beyond"
    return (
        f"Memory of each kind of GPU. {'; '.join(told)}. The pool's wall stands at {fmt.binary_bytes(tightest.wall)}; "
        f"one sequence of {fmt.count(sequence_tokens)} tokens ends {room} it."
    )


def engines_figure(pools: Sequence[EnginePool]) -> Drawing:
    """The tightest GPU under every engine, one stacked bar each."""
    return memory_bar([(engine_label(pool), _segments(pool.bar)) for pool in pools], unit="GiB")


def engine_label(pool: EnginePool) -> str:
    """An engine's name and release, short."""
    name = ENGINE_NAMES.get(pool.engine, str(pool.engine))
    return name if pool.version == "newest" else f"{name} {pool.version}"


def engines_finding(pools: Sequence[EnginePool]) -> str:
    """What the bars of the engines show."""
    told = [
        f"{engine_label(pool)} {fmt.binary_bytes(max(0.0, float(pool.kv.best)))}"
        + ("" if pool.fits else " (would not start)")
        for pool in pools
    ]
    return f"KV pool of the same GPU under each engine: {', '.join(told)}."


def engine_row(pool: EnginePool) -> dict[str, str]:
    """One engine's numbers for the table."""
    return {
        "engine": engine_label(pool),
        "starts": "yes" if pool.fits else "no",
        "KV pool": fmt.binary_bytes(pool.kv),
        "printed tokens": fmt.count(pool.printed_tokens),
        "usable tokens": fmt.count(pool.tokens),
        "longest sequences": fmt.significant(pool.max_concurrency),
    }


def waterfall_figure(steps: Sequence[WaterfallStep]) -> Drawing:
    """From the card's total down to the KV pool, in GiB, with the range of each step."""
    return waterfall(
        [
            Drop(
                name=shown_name(step.name),
                start=step.start / GIB,
                end=step.end / GIB,
                low=_edge(step, step.bytes.low, step.bytes.high)[0] / GIB,
                high=_edge(step, step.bytes.low, step.bytes.high)[1] / GIB,
                colour=COLOUR_OF.get(step.name, "overhead"),
                hover=f"{shown_name(step.name)}: {fmt.binary_bytes(step.bytes)}<br>{step.note}",
            )
            for step in steps
        ],
        unit="GiB",
    )


def _edge(step: WaterfallStep, low: float, high: float) -> tuple[float, float]:
    """Where the edge that the range moves may lie: the right one of what is measured from zero, else the left one."""
    measured_from_zero = step.name in {"card", str(LineKind.KV)}
    return (low, high) if measured_from_zero else (max(0.0, step.start - high), max(0.0, step.start - low))


def waterfall_finding(ledger: Ledger, label: str, steps: Sequence[WaterfallStep]) -> str:
    """What the waterfall shows."""
    parts = ", ".join(f"{shown_name(step.name)} {fmt.binary_bytes(step.bytes.best)}" for step in steps)
    engine = ENGINE_NAMES.get(ledger.engine, str(ledger.engine))
    return f"Memory of {label} under {engine}: {parts}."


def growth_figure(growth: Growth) -> Drawing:
    """Bytes needed against bytes available as one quantity grows, with today's value and the wall."""
    top = 1.15 * max([*growth.available_bytes, *growth.needed_bytes]) / GIB
    walled = growth.wall is not None and growth.wall <= growth.values[-1]
    marks = [
        Mark(at=growth.now, text="now", colour="main", dash="dot", level=0 if walled else 1)
    ]  # equal tops
    if growth.wall is not None and walled:
        marks.append(
            Mark(
                at=growth.wall, text=f"wall {fmt.count(growth.wall)}", colour="kv wall", dash="solid", level=1
            )
        )
    return lines(
        growth.values,
        [
            Series(name="needed", values=[b / GIB for b in growth.needed_bytes], colour="kv"),
            Series(
                name="available",
                values=[max(0.0, b / GIB) for b in growth.available_bytes],
                colour="mean",
                dash="dash",
            ),
        ],
        xaxis=linear(
            0,
            growth.values[-1],
            growth.name if growth.unit in growth.name else f"{growth.name}, {growth.unit}",
        ),
        yaxis=linear(0, max(top, 0.001), "GiB"),
        vertical=marks,
        height=280,
        legend={"y": -0.42},
    )


def growth_finding(growth: Growth) -> str:
    """What one growth shows."""
    wall = (
        "never meets its wall here" if growth.wall is None else f"meets the wall at {fmt.count(growth.wall)}"
    )
    return f"KV cache with more {growth.name}, from today's {fmt.count(growth.now)} {growth.unit}: it {wall}."


def compared_row(line: ComparedLine) -> dict[str, str]:
    """One quantity of a pasted log beside the prediction."""
    reading = READINGS.get(line.unit, fmt.significant)
    return {
        "quantity": str(line.quantity),
        "predicted": fmt.optional(line.predicted, reading, "not predicted"),
        "logged": fmt.optional(line.logged, reading),
        "predicted over logged": fmt.optional(line.error, signed_percent, ""),
        "line": fmt.count(line.line),
    }


def signed_percent(error: float) -> str:
    """An error with its sign: "+1.2%"."""
    return f"{'+' if error > 0 else ''}{fmt.percent(error)}"
