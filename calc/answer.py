"""From inputs to the answer: which GPUs, how many, what users feel, what it costs, what limits it.

`answer` is the one entry that pages and the CLI call. `calc.sized` answers for one layout, `calc.plan` ranks many
accelerators, `calc.levers` asks again with one thing changed.
"""

from __future__ import annotations

from dataclasses import replace

from calc.engine import LLAMA_CPP_ENGINES
from calc.errors import InputError, MissingSpec
from calc.layout import Layout
from calc.model import Attention, LatentAttention, ModelSpec
from calc.quantization import weight_bytes
from calc.result import Answer, Inputs
from calc.scenario import Fidelity
from calc.scenario_text import apply_settings
from calc.sized import answer_on, format_support, replica_weight_bytes
from calc.verdict import Change, Wall

LARGEST_NODE = 8
LARGEST_REPLICA = 64  # GPUs of one replica that a search looks at


def answer(inputs: Inputs) -> Answer:
    """Size the deployment on the scenario's accelerator.

    `tp` 0: the degree that keeps every promise with the fewest GPUs in all; degrees are tried from the smallest up, as
    long as the total falls.
    """
    best: Answer | None = None
    nearest: Answer | None = None
    for layout in _layouts(inputs):
        candidate = answer_on(inputs, layout)
        if candidate.verdict.fits:
            if best is not None and candidate.gpus >= best.gpus:
                break
            best = candidate
        elif best is not None:
            break
        else:
            nearest = candidate if nearest is None or _nearer(candidate, nearest) else nearest
    if best is None and nearest is not None and nearest.verdict.wall in (Wall.WEIGHT_MEMORY, Wall.KV_MEMORY):
        best = _across_hosts(inputs)
    if best is not None:
        return best
    if nearest is None:
        raise InputError("tp", inputs.scenario.tp, "no layout of this model exists on this accelerator")
    if nearest.verdict.wall == Wall.CONTEXT:  # no accelerator and no format lengthens a model's context
        return nearest
    return replace(nearest, verdict=replace(nearest.verdict, nearest=nearest_changes(inputs, nearest)))


def _across_hosts(inputs: Inputs) -> Answer | None:
    """The smallest pipeline of whole hosts that serves where one host is too small; only for parts with a network."""
    accelerator, chosen = inputs.offer.accelerator, inputs.scenario.layout
    layers = inputs.spec.decoder.n_layers if inputs.spec.decoder is not None else 1
    widest = max((layout.tp for layout in _layouts(inputs)), default=1)
    alone = accelerator.node_size == 1 or chosen.pp > 1 or inputs.scenario.engine in LLAMA_CPP_ENGINES
    if inputs.scenario.tp or alone or inputs.scenario.fidelity == Fidelity.TEXTBOOK:
        return None
    for stages in (2, 4, 8):
        if widest * stages > LARGEST_REPLICA or stages > layers:
            break
        candidate = answer_on(inputs, replace(chosen, tp=widest, pp=stages, nodes=stages))
        if candidate.verdict.fits:
            return candidate
    return None


def _layouts(inputs: Inputs) -> tuple[Layout, ...]:
    """The layouts to try, smallest first."""
    chosen = inputs.scenario.layout
    if inputs.scenario.tp:
        return (chosen,)
    most = max(1, min(LARGEST_NODE, inputs.offer.accelerator.host_devices))
    heads = _query_heads(inputs.spec)
    degrees = [tp for tp in (1, 2, 4, 8, 16, 32, 64) if tp <= most and (heads is None or heads % tp == 0)]
    return tuple(replace(chosen, tp=tp) for tp in degrees)


def _query_heads(spec: ModelSpec) -> int | None:
    heads = [s.n_heads for _, s in spec.decoder_sublayers() if isinstance(s, Attention | LatentAttention)]
    return min(heads) if heads else None


def _nearer(candidate: Answer, best: Answer) -> bool:
    """Whether the candidate fails later than the best so far: a latency miss is nearer than a memory miss."""
    order = [
        Wall.CONTEXT,
        Wall.LAYOUT,
        Wall.FORMAT,
        Wall.WEIGHT_MEMORY,
        Wall.KV_MEMORY,
        Wall.TPOT,
        Wall.E2E,
        Wall.TTFT,
    ]
    mine, theirs = order.index(candidate.verdict.wall), order.index(best.verdict.wall)
    return mine > theirs or (mine == theirs and candidate.verdict.short_by < best.verdict.short_by)


def nearest_changes(inputs: Inputs, failed: Answer) -> tuple[Change, ...]:
    """Up to three single changes after which the answer fits, each found by asking again."""
    found: list[Change] = []
    for change in (*_format_changes(inputs), *_size_changes(inputs, failed)):
        if len(found) == 3:
            break
        trial = _changed(inputs, change)
        if trial is not None and any(_serves(trial, layout) for layout in _layouts(trial)):
            found.append(change)
    for offer in sorted(inputs.catalogue, key=lambda o: o.accelerator.memory_label_bytes or 0.0):
        if len(found) >= 3:
            break
        trial = replace(
            inputs,
            offer=offer,
            scenario=replace(inputs.scenario.on(offer.accelerator.id), tp=0),
        )
        for layout in _layouts(trial):
            if _may_serve(trial, layout) and _serves(trial, layout):
                n = layout.gpus_per_replica
                text = f"{n} x {offer.accelerator.name}" + (f" (TP{n})" if n > 1 else "")
                found.append(Change(text=text, settings=(("gpu", offer.accelerator.id), ("tp", str(n)))))
                break
    return tuple(found)


def _may_serve(inputs: Inputs, layout: Layout) -> bool:
    """Whether the textbook, which is quick and sees no overhead, thinks that the layout serves.

    Its share for overhead differs a little from the engines': a card on the very edge may be passed over here.
    """
    scenario = replace(inputs.scenario, fidelity=Fidelity.TEXTBOOK, mfu=1.0)
    return _serves(replace(inputs, scenario=scenario), layout)


def _serves(inputs: Inputs, layout: Layout) -> bool:
    """Whether the layout answers the question in formats that the engine serves there, at any fidelity."""
    try:
        return bool(format_support(inputs)) and answer_on(inputs, layout).verdict.fits
    except MissingSpec:
        return False


def _format_changes(inputs: Inputs) -> tuple[Change, ...]:
    now = replica_weight_bytes(inputs)
    changes = [
        Change(text=f"weights in {name}", settings=(("quantization", name),))
        for name in ("fp8", "int8", "int4-g128")
        if inputs.scenario.quantization != name and weight_bytes(inputs.spec, name).stored < now
    ]
    if inputs.scenario.kv_format == "bf16":
        changes.append(Change(text="KV cache in fp8", settings=(("kv_dtype", "fp8"),)))
    return tuple(changes)


def _size_changes(inputs: Inputs, failed: Answer) -> tuple[Change, ...]:
    """More of the same GPU, up to a node, when the person chose a smaller degree."""
    name = inputs.offer.accelerator.name
    most = max(1, min(LARGEST_NODE, inputs.offer.accelerator.host_devices))
    heads = _query_heads(inputs.spec)
    return tuple(
        Change(text=f"{tp} x {name} per replica (TP{tp})", settings=(("tp", str(tp)),))
        for tp in (2, 4, 8)
        if failed.layout.tp < tp <= most and inputs.scenario.tp and (heads is None or heads % tp == 0)
    )


def _changed(inputs: Inputs, change: Change) -> Inputs | None:
    try:
        scenario = apply_settings(inputs.scenario, change.settings)
    except InputError:
        return None
    return replace(inputs, scenario=scenario)
