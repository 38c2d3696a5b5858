"""Memory: the engine's own ledger, from the card to the token count that its log will print."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from calc import format as fmt
from calc.engine import ENGINE_NAMES
from calc.expected import engine_settings, length_limit
from calc.memory.engines import Ledger
from calc.memory.launch_flags import launch_flags
from calc.replica import replica_memory
from calc.result import Answer
from calc.worked.memory import worked_ledger
from calc.worked.model import worked_token
from pages._inputs import current_answer
from pages._memory_parts import (
    LOG_KEY,
    draw_bars,
    draw_engines,
    draw_growths,
    draw_log,
    draw_ranks,
    draw_refusal,
    memory_metrics,
    memory_rows,
)
from pages._ui import (
    folded,
    guarded,
    plain_text,
    predict_first,
    show_data,
    show_ignored,
    show_metrics,
    show_title,
    show_worked_maths,
)


def main() -> None:
    """The ledger of the scenario's engine, what would break it, and a real log beside it."""
    result = current_answer()
    inputs = result.inputs
    _, found, _ = replica_memory(inputs, result.layout)
    show_title(_headline(found), plain_text(" ".join((f"{result.layout.label}.", *found.assumptions))))
    _predict(result, found)
    worked = (*worked_token(inputs.spec, inputs.scenario.kv_format), *worked_ledger(found))
    show_metrics(memory_metrics(found, worked))
    settings = engine_settings(
        inputs.scenario, result.layout, max_model_len=length_limit(inputs.scenario, inputs.spec)
    )
    if not found.verdict.fits:
        draw_refusal(result, settings)
    steps = draw_bars(found)
    draw_ranks(found)
    if found.verdict.fits:
        draw_growths(result, settings)
    with folded(
        "The same card under other engines", icon=":material/swap_horiz:", key="memory-engines-row"
    ) as is_open:
        if is_open:
            guarded(lambda: draw_engines(result, settings))()
    with folded("The command that starts it so", icon=":material/terminal:", key="memory-command") as is_open:
        if is_open:
            command = " ".join(launch_flags(inputs.spec.id, result.layout, settings))
            st.code(command, language=None, wrap_lines=True)
    with folded(
        "Compare with a real start-up log", icon=":material/compare_arrows:", key="memory-log-row"
    ) as is_open:
        if is_open or LOG_KEY in st.session_state:  # a pasted log outlives a closed row
            guarded(lambda: draw_log(result, settings))()
    show_worked_maths(lambda: worked, key="memory-maths")
    show_data(lambda: memory_rows(steps), key="memory-data", name="ridgebeam-memory")
    show_ignored(
        "Memory that other processes hold on the same card.",
        "Fragmentation after start: engines allocate the pool once.",
    )


def _engine(found: Ledger) -> str:
    name = ENGINE_NAMES.get(found.engine, str(found.engine))
    return f"The newest {name}" if found.version == "newest" else f"{name} {found.version}"


def _headline(found: Ledger) -> str:
    kv = found.kv
    if not found.verdict.fits:
        would = "may not" if found.undecided else "would not"
        return f"{_engine(found)} {would} start: {found.verdict.reason.rstrip('.')}."
    return (
        f"{_engine(found)} will log {fmt.count(kv.printed_tokens)} tokens: "
        f"{fmt.significant(kv.max_concurrency)} {'sequence' if kv.max_concurrency == 1 else 'sequences'} "
        f"of {fmt.count(kv.max_model_len)}."
    )


def _predict(result: Answer, found: Ledger) -> None:
    inputs = result.inputs
    other = "bf16" if inputs.scenario.kv_dtype == "fp8" else "fp8"
    otherwise = replace(inputs, scenario=replace(inputs.scenario, kv_dtype=other))
    _, changed, _ = replica_memory(otherwise, result.layout)
    if not found.verdict.fits or not changed.verdict.fits:
        return
    predict_first(
        key="memory",
        question=f"If the cache were stored in {other}, how many tokens would the log say?",
        unit="tokens",
        answer=changed.kv.printed_tokens,
        reading=fmt.plural(changed.kv.printed_tokens, "token"),
        arithmetic=[
            (
                f"{fmt.binary_bytes(changed.kv.available_bytes)} for the pool, in blocks of "
                f"{fmt.plural(changed.kv.block_size, 'token')}; the mathematics stores "
                f"{fmt.binary_bytes(changed.kv.logical_bytes_per_token)} for one more token."
            )
        ],
    )


main()
