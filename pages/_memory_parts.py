"""Parts of the *Memory* page: numbers, ranks, growths, a pasted log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import zip_longest
from math import isclose

import streamlit as st

from calc import format as fmt
from calc.layout import Layout
from calc.memory.bars import RankBar, rank_bars
from calc.memory.comparison import EnginePool, engine_pools
from calc.memory.engines import EngineSettings, Ledger, LineKind, ledger
from calc.memory.log_comparison import compare, settings_from_log
from calc.memory.logs import read_log
from calc.memory.waterfall import WaterfallStep, WhatBreaks, waterfall, what_breaks_first
from calc.result import Answer
from calc.scenario import Scenario
from calc.worked.formula import Worked
from pages._inputs import BY_VALUE, TTL, inputs_for
from pages._levers import draw_apply
from pages._memory_figure import (
    compared_row,
    engine_label,
    engine_row,
    engines_figure,
    engines_finding,
    growth_figure,
    growth_finding,
    ledger_figure,
    ledger_finding,
    shown_name,
    waterfall_figure,
    waterfall_finding,
)
from pages._sidebar import current_scenario, show_scenario
from pages._ui import Metric, folded, plain_text, show_chart, show_table
from presets.resolve import subject

MOST_LOG_CHARS = 400_000
LOG_KEY = "memory-log"
SCENARIO_FIELDS = frozenset(field.name for field in fields(Scenario))


def memory_metrics(found: Ledger, worked: Sequence[Worked]) -> list[Metric]:
    """Printed, reserved, logical, and what is left, each with its line of `worked` where one gives that very number."""
    kv, rank = found.kv, found.tightest

    def of(number: float) -> Worked | None:
        return next((line for line in worked if isclose(line.result, number, rel_tol=1e-9)), None)

    return [
        Metric(
            label="Printed tokens",
            reading=fmt.count(kv.printed_tokens),
            help="The count in the engine's log.",
            worked=of(kv.printed_tokens),
            provenance=rank.kv.provenance,
        ),
        Metric(
            label="Reserved",
            reading=fmt.binary_bytes(kv.reserved_bytes),
            help="Pools of all GPUs of one replica, in whole blocks; *Show the maths*, below, has the pool of one.",
            worked=of(kv.reserved_bytes),
            provenance=rank.kv.provenance,
        ),
        Metric(
            label="Logical, per token",
            reading=fmt.binary_bytes(kv.logical_bytes_per_token),
            help="What the mathematics needs for one more token.",
            worked=of(kv.logical_bytes_per_token),
        ),
        Metric(
            label="Longest sequences",
            reading=fmt.significant(kv.max_concurrency),
            help=f"Of {fmt.count(kv.max_model_len)} tokens each.",
            worked=of(kv.max_concurrency),
        ),
        Metric(
            label="Left on the card",
            reading=fmt.binary_bytes(rank.left.best),
            help="Outside the engine's share and beside its lines: the card less every bar of the waterfall below.",
            provenance=rank.left.provenance,
        ),
    ]


def draw_bars(found: Ledger) -> tuple[WaterfallStep, ...]:
    """A stacked bar for each kind of GPU with the pool's wall, then one of them step by step; its steps."""
    bars, length = rank_bars(found), found.kv.max_model_len
    show_chart(ledger_figure(bars, length), alt=ledger_finding(bars, length), key="memory-bars")
    if len(bars) > 1:
        st.caption("Pipeline stages from the top; * marks the one that binds the pool of all.")
    chosen = _chosen(bars)
    steps = waterfall(chosen.rank)
    show_chart(
        waterfall_figure(steps),
        alt=waterfall_finding(found, chosen.label, steps),
        key="memory-waterfall",
    )
    return steps


def _chosen(bars: tuple[RankBar, ...]) -> RankBar:
    """The kind of GPU that is shown step by step: the tightest, unless another one is picked."""
    tightest = next(number for number, bar in enumerate(bars) if bar.tightest)
    if len(bars) == 1:
        return bars[0]
    labels = [f"{bar.label} ({fmt.plural(bar.gpus, 'GPU')})" for bar in bars]
    picked = st.selectbox("Step by step", labels, index=tightest, key="memory-rank")
    return bars[labels.index(picked)] if picked in labels else bars[tightest]


def draw_refusal(result: Answer, settings: EngineSettings) -> None:
    """Where the engine would not start: the nearest changes that would, with a button for what the sidebar has."""
    inputs = result.inputs
    failed = ledger(inputs.spec, inputs.offer.accelerator, result.layout, settings)
    if not failed.verdict.nearest:
        return
    st.markdown("**Nearest changes that would make it start**")
    apply, told = [], []
    for change in failed.verdict.nearest:
        known = bool(change.settings) and all(name in SCENARIO_FIELDS for name, _ in change.settings)
        (apply if known else told).append(change)
    if apply:
        draw_apply(apply, key="memory-nearest")
    for change in told:
        st.markdown(plain_text(change.text))


def draw_engines(result: Answer, settings: EngineSettings) -> None:
    """The same card under every engine that runs there: bars, numbers, and a button that switches to one."""
    inputs = result.inputs
    pools = engine_pools(inputs.spec, inputs.offer.accelerator, result.layout, settings)
    show_chart(engines_figure(pools), alt=engines_finding(pools), key="memory-engines")
    show_table([engine_row(pool) for pool in pools])
    st.caption("Each with its own default share of the memory. Switch the scenario to one:")
    with st.container(horizontal=True):
        for pool in pools:
            st.button(
                engine_label(pool),
                key=f"memory-engine-{pool.engine}-{pool.version}",
                on_click=_switch,
                args=(pool,),
                icon=":material/swap_horiz:",
            )


def _switch(pool: EnginePool) -> None:
    version = "" if pool.version == "newest" else pool.version
    show_scenario(
        replace(current_scenario(), engine=str(pool.engine), engine_version=version, memory_utilization=None)
    )


def draw_ranks(found: Ledger) -> None:
    """Each kind of GPU with the range, origin and reason of every line."""
    with folded(
        "Every kind of GPU of the replica, line by line", icon=":material/list:", key="memory-ranks"
    ) as is_open:
        if not is_open:
            return
        for rank in found.ranks:
            st.markdown(plain_text(f"{rank.label} ({fmt.plural(rank.gpus, 'GPU')})"))
            lines = [
                {
                    "line": shown_name(line.kind),
                    "size": fmt.binary_bytes(line.bytes),
                    "from": str(line.bytes.provenance),
                    "why": line.note,
                }
                for line in rank.lines
            ]
            pool = {
                "line": shown_name(LineKind.KV),
                "size": fmt.binary_bytes(rank.kv),
                "from": str(rank.kv.provenance),
                "why": "",
            }
            show_table([*lines, pool])


@st.cache_resource(
    max_entries=256, ttl=TTL, show_spinner=False, hash_funcs=BY_VALUE | {Layout: repr, EngineSettings: repr}
)
def _growths(
    read: Scenario, layout: Layout, settings: EngineSettings, sequences: int, context_tokens: int
) -> WhatBreaks:
    """What breaks first, for what a scenario has read; some hundred ledgers, and another rate asks for few new ones."""
    inputs = inputs_for(read)
    return what_breaks_first(
        inputs.spec,
        inputs.offer.accelerator,
        layout,
        settings,
        sequences=sequences,
        context_tokens=context_tokens,
    )


def draw_growths(result: Answer, settings: EngineSettings) -> None:
    """Three small curves: more sequences, longer contexts, more tokens in a step."""
    scenario = result.inputs.scenario
    now = max(1, round(result.fleet.active_per_replica)) if result.fleet else 1
    context = max(1, round(scenario.input_tokens + scenario.output_tokens))
    found = _growths(subject(scenario), result.layout, settings, now, context)
    st.header(
        f"More {found.first} would hit the wall first, at {fmt.factor(found.factor)} today's"
        if found.first
        else "Nothing would hit the wall soon",
        anchor=False,
    )
    for column, growth in zip_longest(st.columns(len(found.growths)), found.growths):
        with column:
            show_chart(growth_figure(growth), alt=growth_finding(growth), key=f"memory-{growth.name}")


def draw_log(result: Answer, settings: EngineSettings) -> None:
    """A pasted start-up log beside the prediction."""
    text = st.text_area("Paste the engine's log", key=LOG_KEY, height=140, max_chars=MOST_LOG_CHARS)
    if not text.strip():
        return
    log = read_log(text)
    if not log.facts:
        st.info(
            "No memory line of vLLM, SGLang, TensorRT-LLM, llama.cpp or Ollama was found in it.",
            icon=":material/search_off:",
        )
        return
    inputs = result.inputs
    predicted = ledger(inputs.spec, inputs.offer.accelerator, result.layout, settings_from_log(log, settings))
    show_table([compared_row(line) for line in compare(log, predicted)])
    st.caption(
        "Engine, version, memory share and longest length are taken from the log; model and card from the sidebar."
    )


def memory_rows(steps: tuple[WaterfallStep, ...]) -> list[dict[str, object]]:
    """The waterfall as rows to take away."""
    return [
        {
            "step": s.name,
            "low_bytes": s.bytes.low,
            "bytes": s.bytes.best,
            "high_bytes": s.bytes.high,
            "from": str(s.bytes.provenance),
            "note": s.note,
        }
        for s in steps
    ]
