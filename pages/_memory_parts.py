"""Parts of the *Memory* page: numbers, ranks, growths, a pasted log."""

from __future__ import annotations

from itertools import zip_longest

import streamlit as st

from calc import format as fmt
from calc.answer import Answer
from calc.memory.engines import EngineSettings, Ledger, ledger
from calc.memory.log_comparison import compare, settings_from_log
from calc.memory.logs import read_log
from calc.memory.waterfall import WaterfallStep, what_breaks_first
from pages._memory_figure import compared_row, growth_figure, growth_finding
from pages._ui import Metric, plain_text, show_chart, show_table

MOST_LOG_CHARS = 400_000


def memory_metrics(found: Ledger) -> list[Metric]:
    """Printed, reserved, logical, and what is left."""
    kv, rank = found.kv, found.tightest
    return [
        Metric(
            label="Printed tokens",
            reading=fmt.count(kv.printed_tokens),
            help="The count in the engine's log.",
            provenance=rank.kv.provenance,
        ),
        Metric(
            label="Reserved",
            reading=fmt.binary_bytes(kv.reserved_bytes),
            help="Pools of all GPUs of one replica.",
            provenance=rank.kv.provenance,
        ),
        Metric(
            label="Logical, per token",
            reading=fmt.binary_bytes(kv.logical_bytes_per_token),
            help="What the mathematics needs for one more token.",
        ),
        Metric(
            label="Longest sequences",
            reading=fmt.significant(kv.max_concurrency),
            help=f"Of {fmt.count(kv.max_model_len)} tokens each.",
        ),
        Metric(
            label="Left on the card",
            reading=fmt.binary_bytes(rank.left.best),
            help="Outside the engine's share and beside its lines.",
            provenance=rank.left.provenance,
        ),
    ]


def draw_ranks(found: Ledger) -> None:
    """Each kind of GPU with the range, origin and reason of every line."""
    with st.expander("Every kind of GPU of the replica, line by line", icon=":material/list:"):
        for rank in found.ranks:
            st.markdown(plain_text(f"{rank.label} ({fmt.plural(rank.gpus, 'GPU')})"))
            lines = [
                {
                    "line": str(line.kind),
                    "size": fmt.binary_bytes(line.bytes),
                    "from": str(line.bytes.provenance),
                    "why": plain_text(line.note),
                }
                for line in rank.lines
            ]
            pool = {
                "line": "kv pool",
                "size": fmt.binary_bytes(rank.kv),
                "from": str(rank.kv.provenance),
                "why": "",
            }
            show_table([*lines, pool])


def draw_growths(result: Answer, settings: EngineSettings) -> None:
    """Three small curves: more sequences, longer contexts, more tokens in a step."""
    inputs, scenario = result.inputs, result.inputs.scenario
    now = max(1, round(result.fleet.active / result.fleet.replicas)) if result.fleet else 1
    found = what_breaks_first(
        inputs.spec,
        inputs.offer.accelerator,
        result.layout,
        settings,
        sequences=now,
        context_tokens=max(1, round(scenario.input_tokens + scenario.output_tokens)),
    )
    first = f"{found.first}, at {fmt.factor(found.factor)} of today's" if found.first else "nothing soon"
    st.header(f"First to hit the wall: {first}", anchor=False)
    for column, growth in zip_longest(st.columns(len(found.growths)), found.growths):
        with column:
            show_chart(growth_figure(growth), alt=growth_finding(growth), key=f"memory-{growth.name}")


def draw_log(result: Answer, settings: EngineSettings) -> None:
    """A pasted start-up log beside the prediction."""
    text = st.text_area("Paste the engine's log", key="memory-log", height=140, max_chars=MOST_LOG_CHARS)
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
