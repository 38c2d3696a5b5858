"""Scheduler: the same requests under several schedulers, slot by slot, each a run of the serving simulator."""

from __future__ import annotations

import json
from collections.abc import Sequence

import streamlit as st

from calc import format as fmt
from calc.schedule import Schedule, Scheduling, pass_rows, trace_of
from calc.schedule_examples import LESSON_PROMPT_TOKENS, LESSONS, Example, long_prompt_tokens, step_of
from calc.worked.formula import Worked
from calc.worked.measured import worked_schedule
from calc.worked.run import worked_pass
from pages._inputs import current_answer
from pages._levers import show_unheld
from pages._schedule_parts import Asked, draw_controls, draw_steps, schedules_of, table_rows
from pages._ui import (
    predict_first,
    show_data,
    show_ignored,
    show_side_by_side,
    show_title,
    show_worked_maths,
)

TRACE_HELP = "Open it in Perfetto or chrome://tracing: one process per scheduler, one row per slot."


def main() -> None:
    """Ask, run, step through."""
    title = st.container()
    asked = draw_controls()
    schedules = schedules_of(asked)
    with title:
        show_title(headline(asked, schedules), _assumptions(asked))
        show_unheld(current_answer())
    _predict(schedules)
    draw_steps(asked, schedules)
    show_side_by_side(table_rows(schedules))
    st.download_button(
        "Schedule (trace viewer)",
        lambda: json.dumps(trace_of(schedules)),
        "ridgebeam-schedule.json",
        "application/json",
        key="sched-trace",
        icon=":material/timeline:",
        on_click="ignore",
        help=TRACE_HELP,
    )
    show_worked_maths(lambda: _worked(schedules), key="sched-maths")
    show_data(lambda: pass_rows(schedules), key="sched-data", name="ridgebeam-passes")
    show_ignored(
        "A full KV cache: the pool here holds whatever the slots need. *Paged KV* shows what happens when it does not.",
        "Time between passes: an engine's own work beside the GPU is part of the step model, not drawn.",
    )


def _worked(schedules: Sequence[Schedule]) -> list[Worked]:
    """Each scheduler's counters, then one pass of all slots on the clock that all of them share."""
    result = current_answer()
    scenario = result.inputs.scenario
    context = max(1, round(scenario.input_tokens + scenario.output_tokens / 2))
    lines = [line for one in schedules for line in worked_schedule(one)]
    return [*lines, worked_pass(step_of(result), schedules[0].slots, context)]


def headline(asked: Asked, schedules: Sequence[Schedule]) -> str:
    """What tells these schedulers apart on these requests."""
    by = {one.scheduling: one for one in schedules}
    whole, cut, apart = (
        by.get(one) for one in (Scheduling.CONTINUOUS, Scheduling.CHUNKED, Scheduling.DISAGGREGATED)
    )
    if asked.example is Example.LONG_PROMPT and whole and whole.stall:
        tokens = fmt.count(long_prompt_tokens(current_answer()))
        text = f"A prompt of {tokens} tokens stalls running answers for {fmt.seconds(whole.stall.seconds)}"
        if cut and cut.stall:
            text += f"; in chunks, for {fmt.seconds(cut.stall.seconds)}"
        if apart and not apart.stalls:
            text += "; on an engine of its own, not at all"
        return f"{text}."
    parts = [f"{_name(one)} wastes {fmt.percent(1 - one.slot_use)} of the slots" for one in schedules[:2]]
    parts[1:] = [part.replace(" of the slots", "") for part in parts[1:]]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _name(one: Schedule) -> str:
    return str(one.scheduling) if one.scheduling is Scheduling.CHUNKED else f"{one.scheduling} batching"


def _assumptions(asked: Asked) -> str:
    prompts = (
        f" Prompts of {LESSON_PROMPT_TOKENS} tokens, all there from the start."
        if asked.example in LESSONS
        else ""
    )
    apart = (
        " Disaggregated: two replicas, the slots of the second are counted."
        if Scheduling.DISAGGREGATED in asked.shown
        else ""
    )
    return f"Times of one replica of the scenario.{prompts}{apart} A slot-step is useful if a request gains a token or computes its prompt."


def _predict(schedules: Sequence[Schedule]) -> None:
    first = schedules[0]
    useful, all_of_them = first.useful_slot_steps, first.slot_steps
    predict_first(
        key="scheduler",
        question=f"{fmt.plural(len(first.result), 'request')} on {fmt.plural(first.slots, 'slot')}, {_name(first)}: "
        "what share of the slot-steps does useful work, in percent?",
        unit="%",
        answer=100 * first.slot_use,
        reading=fmt.percent(first.slot_use),
        arithmetic=[
            (
                f"{fmt.count(useful)} slot-steps with a token or a prompt, of {fmt.plural(first.slots, 'slot')} x "
                f"{fmt.plural(len(first.passes), 'pass', 'passes')} = {fmt.count(all_of_them)}."
            )
        ],
    )


main()
