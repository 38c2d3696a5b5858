"""When an engine would not start: its own kind of message, and the three nearest changes that would make it start.

Changes are tried from the cheapest to the dearest (flags, formats, layout, card); each is a full ledger of the changed
configuration, so that what is offered does fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from calc.accelerator import Accelerator
from calc.layout import Layout
from calc.memory.engines.ledger import Ledger, LineKind
from calc.memory.engines.settings import Engine, EngineSettings
from calc.model import Attention, LatentAttention, ModelSpec
from calc.units import GIB
from calc.verdict import Change, Verdict, Wall

MemoryOf = Callable[[ModelSpec, Accelerator, Layout, EngineSettings], Ledger]
Candidate = tuple[str, tuple[tuple[str, str], ...], Layout, EngineSettings]

OFFERED = 3
HIGH_UTILIZATION = 0.95
SHORTEST_USEFUL = 256  # tokens: a shorter longest length is not worth offering
SMALL_BATCHES = ((2048, 256), (1024, 64), (512, 16))


def fits(ledger: Ledger) -> bool:
    """Whether the engine starts: the pool is positive and holds one sequence of the longest length."""
    return ledger.kv.available_bytes > 0 and ledger.kv.needed_bytes <= ledger.kv.available_bytes


def with_verdict(
    ledger: Ledger,
    *,
    spec: ModelSpec,
    accelerator: Accelerator,
    layout: Layout,
    settings: EngineSettings,
    memory_of: MemoryOf,
    message: Callable[[Ledger], str],
) -> Ledger:
    """The ledger with its verdict; a failing one with the engine's message and the nearest changes."""
    if fits(ledger):
        return replace(ledger, verdict=Verdict(fits=True))
    found: list[Change] = []
    kinds: set[str] = set()
    for text, named, new_layout, new_settings in _candidates(spec, layout, settings, ledger):
        if named[0][0] in kinds:
            continue
        if fits(memory_of(spec, accelerator, new_layout, new_settings)):
            kinds.add(named[0][0])
            found.append(Change(text=text, settings=named))
        if len(found) == OFFERED:
            break
    if len(found) < OFFERED:
        found.append(_larger_card(ledger, settings))
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
            short_by=max(0.0, ledger.kv.needed_bytes - ledger.kv.available_bytes),
            reason=message(ledger),
            nearest=tuple(found),
        ),
    )


def _candidates(
    spec: ModelSpec, layout: Layout, settings: EngineSettings, ledger: Ledger
) -> Iterator[Candidate]:
    """Changed configurations, from the cheapest to the dearest."""
    longest = ledger.kv.longest_length
    if longest >= SHORTEST_USEFUL:
        yield (
            f"Serve at most {longest:,} tokens per sequence.",
            (("max_model_len", str(longest)),),
            layout,
            replace(settings, max_model_len=longest),
        )
    if settings.available_kv_bytes is None:
        yield from _flags(layout, settings, ledger)
    if (settings.kv_dtype or "auto").lower() in ("auto", "bf16", "fp16", "fp32"):
        name = "q8_0" if settings.engine in (Engine.LLAMA_CPP, Engine.OLLAMA) else "fp8"
        yield (
            f"Keep the KV cache in {name}.",
            (("kv_dtype", name),),
            layout,
            replace(settings, kv_dtype=name),
        )
    yield from _formats(layout, settings)
    yield from _wider(spec, layout, settings)


def _flags(layout: Layout, settings: EngineSettings, ledger: Ledger) -> Iterator[Candidate]:
    rank = ledger.tightest
    used = float(rank.budget.best) / float(rank.total.best)
    if settings.engine in (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM) and used < HIGH_UTILIZATION:
        yield (
            f"Let the engine use {HIGH_UTILIZATION:.0%} of the memory.",
            (("memory_utilization", str(HIGH_UTILIZATION)),),
            layout,
            replace(settings, memory_utilization=HIGH_UTILIZATION),
        )
    if settings.engine is not Engine.VLLM:
        return
    for tokens, sequences in SMALL_BATCHES:
        if tokens < (settings.max_batched_tokens or 10**9) or sequences < (settings.max_seqs or 10**9):
            yield (
                f"Limit a step to {tokens:,} tokens and {sequences:,} sequences.",
                (("max_batched_tokens", str(tokens)), ("max_seqs", str(sequences))),
                layout,
                replace(settings, max_batched_tokens=tokens, max_seqs=sequences),
            )


def _formats(layout: Layout, settings: EngineSettings) -> Iterator[Candidate]:
    if settings.available_kv_bytes is not None or settings.quantization not in (None, "bf16", "fp16", "fp8"):
        return
    llama = settings.engine in (Engine.LLAMA_CPP, Engine.OLLAMA)
    for name in ("q8_0", "q4_k") if llama else ("fp8", "int4-g128"):
        if name != settings.quantization:
            yield (
                f"Store the weights in {name}.",
                (("quantization", name),),
                layout,
                replace(settings, quantization=name),
            )


def _wider(spec: ModelSpec, layout: Layout, settings: EngineSettings) -> Iterator[Candidate]:
    """More GPUs for one replica, by tensor parallelism as far as the heads can be divided."""
    if settings.available_kv_bytes is not None:
        return
    heads = 1
    if spec.decoder is not None:
        for run in spec.decoder.runs:
            for sublayer in run.block.sublayers:
                if isinstance(sublayer, Attention | LatentAttention):
                    heads = max(heads, sublayer.n_heads)
    for factor in (2, 4, 8, 16):
        tp = layout.tp * factor
        if tp <= heads and heads % tp == 0:
            wider = replace(layout, tp=tp)
            yield (
                f"Spread each replica over {wider.gpus_per_replica} GPUs ({wider.label}).",
                (("tp", str(tp)),),
                wider,
                settings,
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
