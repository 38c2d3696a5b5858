"""What each page's chart shows: pure functions from results to a figure, and to the sentence that is its `alt` text."""

from __future__ import annotations

from collections.abc import Sequence

from calc import format as fmt
from calc.block_map import LayerGroup
from calc.curves import BatchCurve, ContextCurve, MemoryBar
from calc.result import LIMITS, Answer
from calc.scenario import Fidelity
from calc.sizing import Limit
from calc.units import GIB, MS
from pages._axes import Mark, doubling, linear, logarithmic
from pages._charts import Piece, Segment, Series, block_map, lines, memory_bar, range_series, two_panels
from pages._drawing import Drawing

PART_NAMES = {
    "weights": "weights",
    "overhead": "overhead",
    "activations": "activations",
    "kv": "KV cache",
    "free": "free",
}
DASHES = {Fidelity.TEXTBOOK: "solid", Fidelity.ROOFLINE: "dot", Fidelity.EXPECTED: "dash"}


def memory_figure(result: Answer, bar: MemoryBar) -> Drawing:
    """One bar for the GPUs of a replica, which are all alike."""
    segments = [
        Segment(name=PART_NAMES[part], size=size / GIB, colour=part) for part, size in bar.parts if size
    ]
    fit = result.sequences.fit if result.sequences else 0
    wall = Mark(
        at=bar.wall_bytes / GIB,
        text=f"KV wall: {fmt.plural(fit, 'sequence')} fit",
        colour="kv wall",
        dash="solid",
    )
    marks = [wall]
    if bar.limit_bytes is not None and result.sequences is not None:
        text = _most_text(result.sequences.binding, result.sequences.batch)
        marks.append(Mark(at=bar.limit_bytes / GIB, text=text, colour="target", level=1))
    if bar.peak_bytes is not None and bar.active_per_replica is not None:
        text = f"at peak: {fmt.significant(bar.active_per_replica)} active per replica"
        marks.append(Mark(at=bar.peak_bytes / GIB, text=text, colour="main", dash="dot", level=len(marks)))
    label = "each GPU" if result.memory.gpus > 1 else "the GPU"
    return memory_bar([(label, segments)], unit="GiB", marks=marks)


def _most_text(binding: Limit, batch: int) -> str:
    """The label of a mark at the most sequences that run, where something other than memory ends them."""
    return f"{LIMITS[binding].removeprefix('The ')}: {fmt.count(batch)} at most"


def memory_finding(result: Answer, bar: MemoryBar) -> str:
    """What the memory bar shows."""
    sizes = ", ".join(f"{fmt.binary_bytes(size)} {PART_NAMES[part]}" for part, size in bar.parts if size)
    if result.sequences is None:
        return f"Memory of one GPU: {sizes}. {result.verdict.reason}."
    return (
        f"Memory of one GPU: {sizes}. {fmt.plural(result.sequences.fit, 'sequence')} fit, "
        f"{fmt.optional(bar.active_per_replica, fmt.significant)} are active at peak per replica."
    )


def context_figure(curve: ContextCurve, *, wall_bytes: float | None, wall_name: str) -> Drawing:
    """Bytes of one sequence against its length, with the edges of windows and the accelerator's memory where it has its own."""
    wall = (
        []
        if wall_bytes is None
        else [Mark(at=wall_bytes, text=f"all of one {wall_name}", colour="kv wall", dash="solid")]
    )
    marks = [
        Mark(at=window, text=f"{fmt.plural(layers, 'layer')} full", colour="compute", level=n % 2)
        for n, (window, layers) in enumerate(curve.kinks)
    ]
    return lines(
        curve.tokens,
        [Series(name="one sequence", values=curve.bytes, colour="kv")],
        xaxis=doubling(1, max(curve.tokens), "tokens in the sequence"),
        yaxis=logarithmic(
            max(1, min(curve.bytes) / 2),
            3 * max(*curve.bytes, wall_bytes or 0.0),
            "cache and state",
            unit="B",
        ),
        vertical=marks,
        horizontal=wall,
        height=340,
    )


def context_finding(curve: ContextCurve, model_id: str) -> str:
    """What the context curve shows."""
    last = f"{fmt.decimal_bytes(curve.bytes[-1])} at {fmt.count(curve.tokens[-1])} tokens"
    kinks = "; ".join(
        f"{fmt.plural(layers, 'layer')} stop growing at {fmt.count(w)}" for w, layers in curve.kinks
    )
    state = f" Fixed state {fmt.binary_bytes(curve.state_bytes)}." if curve.state_bytes else ""
    return f"Cache and state of one sequence of {model_id}: {last}. {kinks or 'It grows with every token'}.{state}"


def layers_figure(groups: Sequence[LayerGroup]) -> Drawing:
    """The block map: layers in order, coloured by how they mix tokens, or by what else they do."""
    return block_map(
        [
            Piece(
                row=group.stack,
                start=group.first,
                size=group.count,
                kind=group.parts[0],
                hover=f"layers {group.first} to {group.last}: {'; '.join(group.parts)}; "
                f"{fmt.parameters(group.parameters)} parameters each",
            )
            for group in groups
        ]
    )


def layers_finding(groups: Sequence[LayerGroup]) -> str:
    """What the block map shows."""
    runs = "; ".join(f"{g.stack}: {g.count} x {' with '.join(g.parts)}" for g in groups[:6])
    return f"Layers in order. {runs}{' and so on' if len(groups) > 6 else ''}."


def batch_figure(curves: Sequence[BatchCurve], *, tpot_target_s: float | None) -> Drawing:
    """Throughput above, step time below, over one batch axis with the walls."""
    first = curves[0]
    highest = max(float(c.tokens_per_s.high.max()) for c in curves)
    slowest = max(float(c.step_s.high.max()) for c in curves) / MS
    dash = {c.fidelity: DASHES[Fidelity(c.fidelity)] for c in curves}
    walls = [
        Mark(at=first.wall, text=f"KV wall {fmt.count(first.wall)}", colour="kv wall", dash="solid"),
        Mark(
            at=first.compute_from,
            text=f"weights compute-bound from {fmt.significant(first.compute_from)}",
            colour="compute",
            level=1,
        ),
    ]
    if first.ended_by is not Limit.KV_MEMORY:
        walls.append(Mark(at=first.at, text=_most_text(first.ended_by, first.at), colour="target", level=2))
    return two_panels(
        first.batch,
        [range_series(c.fidelity, c.tokens_per_s, dash=dash[c.fidelity]) for c in curves],
        [range_series(c.fidelity, c.step_s.scaled(1 / MS), dash=dash[c.fidelity]) for c in curves],
        xaxis=doubling(1, first.batch[-1], "sequences that decode together"),
        yaxes=(linear(0, 1.08 * highest, "tokens/s"), linear(0, 1.08 * slowest, "step, ms")),
        vertical=[wall for wall in walls if 1 <= wall.at <= first.batch[-1]],
        lower_target=None
        if tpot_target_s is None or tpot_target_s / MS > 1.08 * slowest
        else Mark(at=tpot_target_s / MS, text=f"target {fmt.seconds(tpot_target_s)}", colour="target"),
    )


def batch_finding(curve: BatchCurve) -> str:
    """What the batch curve shows."""
    return (
        f"Throughput rises with batch to {fmt.plain(curve.at_tokens_per_s.best, 'tokens/s')} at {fmt.count(curve.at)} "
        f"sequences, where a step takes {fmt.seconds(curve.at_step_s.best)}; the KV cache holds {fmt.count(curve.wall)}."
    )
