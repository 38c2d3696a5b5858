"""When an engine would not start: its own kind of message, and the three nearest changes that would make it start.

Changes are tried from the cheapest to the dearest (flags, formats, layout, card); each is a full ledger of the changed
configuration, so that what is offered does fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from calc.accelerator import Accelerator
from calc.engine import LLAMA_CPP_ENGINES, Engine
from calc.layout import Layout
from calc.memory.engines.estimates import shares_memory
from calc.memory.engines.ledger import Ledger, LineKind
from calc.memory.engines.settings import EngineSettings
from calc.model import Attention, LatentAttention, ModelSpec
from calc.units import GIB
from calc.verdict import Change, Verdict, Wall

MemoryOf = Callable[[ModelSpec, Accelerator, Layout, EngineSettings], Ledger]

OFFERED = 3
HIGH_UTILIZATION = 0.95
SHORTEST_USEFUL = 256  # tokens: a shorter longest length is not worth offering
SHORT_LENGTH = 8192  # offered together with a format or a wider layout
SMALL_BATCHES = ((2048, 256), (1024, 64), (512, 16))


def fits(ledger: Ledger) -> bool:
    """Whether the engine starts: the pool is positive and holds one sequence of the longest length."""
    holds_one = ledger.kv.available_bytes > 0 and ledger.kv.needed_bytes <= ledger.kv.available_bytes
    return holds_one and ledger.start_shortfall_bytes <= 0


def with_verdict(
    ledger: Ledger,
    *,
    spec: ModelSpec,
    accelerator: Accelerator,
    layout: Layout,
    settings: EngineSettings,
    memory_of: MemoryOf,
    message: Callable[[Ledger], str],
    nearest: bool = True,
) -> Ledger:
    """The ledger with its verdict; a failing one with the engine's message and, if asked for, the nearest changes."""
    if shares_memory(accelerator):
        ledger = _with_host(ledger, settings)
    if fits(ledger):
        return replace(ledger, verdict=Verdict(fits=True))
    found: list[Change] = []
    if nearest:
        found = nearest_changes(
            ledger, spec=spec, accelerator=accelerator, layout=layout, settings=settings, memory_of=memory_of
        )
    rank = ledger.tightest
    # A pool that is handed over has no weights beside it.
    weights_alone = settings.available_kv_bytes is None and (
        rank.bytes_of(LineKind.WEIGHTS) > float(rank.budget.best)
    )
    return replace(
        ledger,
        verdict=Verdict(
            fits=False,
            wall=Wall.WEIGHT_MEMORY if weights_alone else Wall.KV_MEMORY,
            short_by=max(
                ledger.start_shortfall_bytes, float(ledger.kv.needed_bytes - ledger.kv.available_bytes), 0.0
            ),
            reason=message(ledger) + (f" {_host_remark(ledger)}" if ledger.undecided else ""),
            nearest=tuple(found),
        ),
    )


def _with_host(ledger: Ledger, settings: EngineSettings) -> Ledger:
    """The ledger of a board whose memory is the host's, with what its range says about the start."""
    pool, needed = ledger.tightest.kv, ledger.kv.needed_bytes
    if ledger.engine is Engine.SGLANG and settings.max_model_len is None:
        needed = 0  # it starts with any pool, and refuses longer requests
    starts = float(pool.high) > 0 and float(pool.high) >= needed and ledger.start_shortfall_bytes <= 0
    refuses = float(pool.low) <= 0 or float(pool.low) < needed
    if not (starts and refuses):
        return ledger
    ledger = replace(ledger, undecided=True)
    return (
        replace(ledger, assumptions=(*ledger.assumptions, _host_remark(ledger))) if fits(ledger) else ledger
    )


def _host_remark(ledger: Ledger) -> str:
    pool = ledger.tightest.kv
    return (
        "The engine counts what the whole system holds, before and after loading: between "
        f"{max(0.0, float(pool.low)) / GIB:.1f} and {float(pool.high) / GIB:.1f} GiB may be left, and one sequence needs "
        f"{ledger.kv.needed_bytes / GIB:.1f}."
    )


def nearest_changes(
    ledger: Ledger,
    *,
    spec: ModelSpec,
    accelerator: Accelerator,
    layout: Layout,
    settings: EngineSettings,
    memory_of: MemoryOf,
) -> list[Change]:
    """Up to three changes of different kinds that make it start, and the card to look for where there are fewer."""
    found: list[Change] = []
    kinds: set[frozenset[str]] = set()
    for step in _candidates(spec, layout, settings, ledger):
        kind = frozenset(name for name, _ in step.named)
        if kind in kinds or any(known < kind for known in kinds):
            continue
        if fits(memory_of(spec, accelerator, step.layout, step.settings)):
            kinds.add(kind)
            found.append(Change(text=step.text, settings=step.named))
        if len(found) == OFFERED:
            return found
    return [*found, _larger_card(ledger, settings)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A changed configuration: in words, as named settings, and as what a ledger takes."""

    text: str
    named: tuple[tuple[str, str], ...]
    layout: Layout
    settings: EngineSettings

    def then(self, other: Step) -> Step:
        """Both changes; `other` was made from this one's layout and settings."""
        return replace(other, text=f"{self.text} {other.text}".strip(), named=(*self.named, *other.named))


def _candidates(spec: ModelSpec, layout: Layout, settings: EngineSettings, ledger: Ledger) -> Iterator[Step]:
    """Changed configurations, from the cheapest to the dearest: single ones first, then pairs with a wider layout."""
    start = Step(text="", named=(), layout=layout, settings=settings)
    yield from _lengths(start, ledger.kv.longest_length)
    alone = settings.available_kv_bytes is None
    if alone:
        yield from _flags(start, ledger)
    yield from _cache_formats(start)
    if not alone:
        return
    formats = list(_weight_formats(start))
    wider = list(_wider(spec, start))
    yield from formats
    yield from wider
    for first in formats:
        yield from (first.then(second) for second in _lengths(first, SHORT_LENGTH))
    for first in wider:
        yield from (first.then(second) for second in _lengths(first, SHORT_LENGTH))
        for second in _weight_formats(first):
            yield first.then(second)
            yield from (first.then(second).then(third) for third in _lengths(second, SHORT_LENGTH))


def _lengths(start: Step, longest: int) -> Iterator[Step]:
    current = start.settings.max_model_len
    if longest >= SHORTEST_USEFUL and (current is None or longest < current):
        yield replace(
            start,
            text=f"Serve at most {longest:,} tokens per sequence.",
            named=(("max_model_len", str(longest)),),
            settings=replace(start.settings, max_model_len=longest),
        )


def _cache_formats(start: Step) -> Iterator[Step]:
    settings = start.settings
    if (settings.kv_dtype or "auto").lower() in ("auto", "bf16", "fp16", "fp32"):
        name = "q8_0" if settings.engine in LLAMA_CPP_ENGINES else "fp8"
        yield replace(
            start,
            text=f"Keep the KV cache in {name}.",
            named=(("kv_dtype", name),),
            settings=replace(settings, kv_dtype=name),
        )


def _flags(start: Step, ledger: Ledger) -> Iterator[Step]:
    settings, rank = start.settings, ledger.tightest
    used = float(rank.budget.best) / float(rank.total.best)
    filling = settings.engine in (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM)
    if filling and (used < HIGH_UTILIZATION or ledger.start_shortfall_bytes > 0):
        yield replace(
            start,
            text=f"Let the engine use {HIGH_UTILIZATION:.0%} of the memory.",
            named=(("memory_utilization", str(HIGH_UTILIZATION)),),
            settings=replace(settings, memory_utilization=HIGH_UTILIZATION),
        )
    if settings.engine in LLAMA_CPP_ENGINES and settings.gpu_layers is None:
        yield from _offloads(start, ledger)
    if settings.engine is not Engine.VLLM:
        return
    for tokens, sequences in SMALL_BATCHES:
        if tokens < (settings.max_batched_tokens or 10**9) or sequences < (settings.max_seqs or 10**9):
            ranks = start.layout.attention_ranks
            yield replace(
                start,
                text=f"Limit a step{' of each rank' if ranks > 1 else ''} to {tokens:,} tokens and {sequences:,} sequences.",
                named=(("max_batched_tokens", str(tokens)), ("max_seqs", str(ranks * sequences))),
                settings=replace(settings, max_batched_tokens=tokens, max_seqs=sequences),
            )


def _offloads(start: Step, ledger: Ledger) -> Iterator[Step]:
    """Fewer layers on the GPU, by quarters of what would fit by weight alone."""
    rank = ledger.tightest
    weights = max(rank.bytes_of(LineKind.WEIGHTS), 1.0)
    for share in (0.9, 0.75, 0.5, 0.25):
        layers = int(share * float(rank.total.best) / weights * ledger.n_layers)
        if 0 < layers < ledger.n_layers:
            yield replace(
                start,
                text=f"Keep {layers} layers on the GPU and the rest on the CPU.",
                named=(("gpu_layers", str(layers)),),
                settings=replace(start.settings, gpu_layers=layers),
            )


def _weight_formats(start: Step) -> Iterator[Step]:
    settings = start.settings
    if settings.quantization not in (None, "bf16", "fp16", "fp8"):
        return
    llama = settings.engine in LLAMA_CPP_ENGINES
    for name in ("q8_0", "q4_k") if llama else ("fp8", "int4-g128"):
        if name != settings.quantization:
            yield replace(
                start,
                text=f"Store the weights in {name}.",
                named=(("quantization", name),),
                settings=replace(settings, quantization=name),
            )


def _wider(spec: ModelSpec, start: Step) -> Iterator[Step]:
    """More GPUs for one replica, by tensor parallelism as far as the heads can be divided."""
    heads = max(
        (s.n_heads for _, s in spec.decoder_sublayers() if isinstance(s, Attention | LatentAttention)),
        default=1,
    )
    for factor in (2, 4, 8, 16, 32):
        tp = start.layout.tp * factor
        if tp <= heads and heads % tp == 0:
            wider = replace(start.layout, tp=tp)
            yield replace(
                start,
                text=f"Spread each replica over {wider.gpus_per_replica} GPUs ({wider.label}).",
                named=(("tp", str(tp)),),
                layout=wider,
            )


def _larger_card(ledger: Ledger, settings: EngineSettings) -> Change:
    """The memory that this configuration would need, as a card to look for."""
    rank = ledger.tightest
    if settings.available_kv_bytes is not None:
        needed = ledger.kv.needed_bytes
        return Change(
            text=f"Give the cache {needed / GIB:.2f} GiB per GPU.",
            settings=(("available_kv_gib", f"{needed / GIB:.2f}"),),
        )
    counted = sum(
        float(line.bytes.best) for line in rank.lines if line.counted and line.kind is not LineKind.KV
    )
    share = float(rank.budget.best) / float(rank.total.best)
    total = (counted + ledger.kv.needed_bytes) / share
    return Change(
        text=f"Use a GPU on which the runtime totals at least {total / GIB:.1f} GiB.",
        settings=(("device_memory_gib", f"{total / GIB:.1f}"),),
    )
