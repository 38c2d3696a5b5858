"""The five worked steps of *Size a deployment*, each a row that opens on its arithmetic (the sixth, levers, is apart)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import streamlit as st

from calc import format as fmt
from calc.engine import LLAMA_CPP_ENGINES
from calc.result import Answer
from calc.scenario import Fidelity
from calc.sizing import DecodeStep, FleetStep, PrefillStep, SequencesStep
from calc.verdict import Wall
from calc.worked.answer import worked_step
from calc.worked.substitution import formulas_of, symbols_of
from pages._levers import BINDING
from pages._ui import show_formulas, show_worked

STEPS = ("memory", "sequences", "decode", "prefill", "fleet")
STEP_OF = (
    dict.fromkeys(("block_size", "sequence_tokens", "reserved_tokens"), "sequences")
    | dict.fromkeys(("bandwidth_bytes_per_s", "batch", "context", "step_s", "tokens_per_s"), "decode")
    | dict.fromkeys(("peak_flop_per_s", "mfu", "prompt_tokens", "cached_tokens", "prefill_s"), "prefill")
    | dict.fromkeys(
        (
            "headroom", "output_tokens", "rate_per_s", "arrivals_per_s", "time_in_system_s", "busy_gpus",
            "replicas", "gpus", "ttft_s", "tpot_s",
        ),
        "fleet",
    )
)  # fmt: skip
"""The step in which a quantity first counts; all others are of the memory."""


def draw_steps(result: Answer) -> None:
    """One closed row per step that the answer reached; the row's label is its conclusion."""
    st.header("How the answer comes about", anchor=False)
    for number, (step, conclusion, lines) in enumerate(steps_of(result), start=1):
        with st.expander(f"**{number}** {conclusion}", key=f"step-{step}", on_change="rerun") as row:
            st.markdown("\n".join(f"- {line}" for line in lines))
            if not row.open:
                continue
            if result.inputs.scenario.fidelity == Fidelity.TEXTBOOK:
                show_formulas(formulas_of(result, step), symbols_of(result, step))
            else:
                show_worked(worked_step(result, step))


def step_rows(result: Answer) -> list[dict[str, Any]]:
    """The steps as a table to take away: base units, full precision; TTFT and TPOT as the page's cards have them."""
    found = symbols_of(result, "memory")
    halfway = symbols_of(result, "decode")["kv_bytes_per_token"]
    for name, time in (("ttft_s", result.ttft_s), ("tpot_s", result.tpot_s)):
        found.pop(name, None)  # as a symbol of the textbook: one prompt or one step, without load
        if time is not None:
            found[name] = float(time.best)
    if result.fleet is not None:
        found |= {"replicas": result.fleet.replicas, "gpus": result.gpus}
    rows = [
        {"step": STEP_OF.get(name, "memory"), "quantity": name, "value": value}
        for name, value in found.items()
    ]
    if halfway != found["kv_bytes_per_token"]:
        rows.append({"step": "decode", "quantity": "kv_bytes_per_token", "value": halfway})
    return sorted(rows, key=lambda row: STEPS.index(str(row["step"])))


def steps_of(result: Answer) -> Iterator[tuple[str, str, list[str]]]:
    """(step, its conclusion, its lines) for every step that the answer reached."""
    yield "memory", *_memory(result)
    if result.sequences is not None:
        yield "sequences", *_sequences(result, result.sequences)
    if result.decode is not None:
        yield "decode", *_decode(result.decode)
    if result.prefill is not None:
        yield "prefill", *_prefill(result.prefill)
    if result.fleet is not None:
        yield "fleet", *_fleet(result, result.fleet)


def _memory(result: Answer) -> tuple[str, list[str]]:
    memory = result.memory
    room = memory.kv_bytes_per_gpu
    left = (
        f"leaves {fmt.binary_bytes(room)} for the KV cache" if room > 0 else "leaves nothing for the KV cache"
    )
    lines = [
        (
            f"Weights: {fmt.binary_bytes(memory.weight_bytes_per_gpu)} ({fmt.decimal_bytes(memory.weight_bytes_per_gpu)}) "
            f"on each of {fmt.plural(memory.gpus, 'GPU')}"
        ),
    ]
    if result.verdict.wall is Wall.WEIGHT_MEMORY and memory.kv_bytes_per_token == 0:
        lines.append("Nothing beside the weights was worked out: they alone do not fit")
    else:
        lines += [
            f"Everything else: {fmt.binary_bytes(memory.overhead_bytes_per_gpu)}",
            f"KV cache: {fmt.binary_bytes(memory.kv_bytes_per_token)} per token, so {fmt.count(memory.tokens)} tokens fit",
        ]
    if result.ledger is not None:
        lines += [line.rstrip(".") for line in result.ledger.assumptions]
    if memory.kv_copies > 1:
        lines.append(
            f"Each KV head is held by {memory.kv_copies} GPUs, so the cache counts once for all of them"
        )
    return f"Memory: {fmt.binary_bytes(memory.total_bytes_per_gpu)} per GPU {left}", lines


def _sequences(result: Answer, found: SequencesStep) -> tuple[str, list[str]]:
    if result.ledger is None:
        stored = "paged in blocks of 16"
    elif result.inputs.scenario.engine in LLAMA_CPP_ENGINES:
        stored = "each in a slot of the whole length"
    else:
        stored = "in the engine's blocks"
    lines = [
        (
            f"A sequence ends with {fmt.count(found.kept_tokens)} tokens; {stored}, "
            f"{fmt.plural(found.paged, 'sequence')} fit"
        ),
    ]
    if found.reserved_tokens != found.kept_tokens:
        reserving = f"Reserving {fmt.count(found.reserved_tokens)} tokens for each"
        lines.append(f"{reserving}, {fmt.count(found.reserved)} would fit")
    if found.by_tpot is not None:
        lines.append(f"The TPOT target allows {fmt.count(found.by_tpot)}")
    if found.by_limit is not None:
        lines.append(f"The engine's cap allows {fmt.count(found.by_limit)}")
    return f"Sequences: {fmt.count(found.batch)} run at once, {BINDING[found.binding]} binds", lines


def _decode(decode: DecodeStep) -> tuple[str, list[str]]:
    lines = [f"{name}: {fmt.seconds(seconds)}" for name, seconds in decode.time.terms_s.items()]
    return (
        (
            f"Decode step: {fmt.seconds(decode.time.step_s)} at batch {fmt.count(decode.batch)}, bound by "
            f"{decode.time.bound}: {fmt.plain(decode.tokens_per_s, 'tokens/s')} per replica"
        ),
        [
            *lines,
            f"Context: {fmt.count(decode.context_tokens)} cached tokens per sequence, halfway through the output",
        ],
    )


def _prefill(prefill: PrefillStep) -> tuple[str, list[str]]:
    lines = [f"Prompt: {fmt.count(prefill.prompt_tokens)} tokens"]
    if prefill.cached_tokens:
        lines.append(f"Already in the prefix cache: {fmt.count(prefill.cached_tokens)} tokens")
    if prefill.loaded_tokens:
        lines.append(
            f"Of these {fmt.count(prefill.loaded_tokens)} come back from memory behind the card, "
            f"{fmt.seconds(prefill.load_s)} in the mean"
        )
    return (
        f"Prefill: {fmt.seconds(prefill.prefill_s)} for one prompt{_arrives(prefill)}, which is the TTFT without a queue",
        lines,
    )


def _arrives(prefill: PrefillStep) -> str:
    """What a prompt waits for beside its computation."""
    return f" and {fmt.seconds(prefill.load_s)} for cached text to come up" if prefill.loaded_tokens else ""


def _fleet(result: Answer, fleet: FleetStep) -> tuple[str, list[str]]:
    lines = [
        (
            f"One request takes {fmt.seconds(fleet.e2e_s)}; at {fmt.plain(fleet.rate_per_s, 'requests/s')} "
            f"{fmt.significant(fleet.active)} are active (Little's law)"
        ),
        (
            f"Prefill keeps {fmt.significant(fleet.prefill_busy)} replicas busy, decode "
            f"{fmt.significant(fleet.decode_busy)}: {fmt.significant(fleet.busy)} together"
        ),
        (
            f"With {fmt.percent(result.inputs.scenario.headroom)} headroom, rounded up: "
            f"{fmt.plural(fleet.replicas, 'replica')} of {fmt.plural(result.layout.gpus_per_replica, 'GPU')}"
        ),
    ]
    return (
        f"GPUs: {fmt.significant(fleet.busy)} replicas busy, so {fmt.plural(result.gpus, 'GPU')} to buy",
        lines,
    )
