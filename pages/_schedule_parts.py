"""Parts of *Scheduler*: what is asked, the runs, and the chart that can be stepped through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from calc import format as fmt
from calc.layout import Layout
from calc.replica import without_traffic
from calc.scenario import Scenario
from calc.schedule import MOST_SLOTS, SAME_MOMENT_S, Schedule, Scheduling, schedule
from calc.schedule_examples import Example, example_requests, link_of, step_of
from calc.sized import answer_on
from pages._inputs import BY_VALUE, TTL, answer_for, inputs_for
from pages._schedule_figure import gantt_figure, gantt_finding
from pages._sidebar import current_scenario
from pages._ui import show_chart

BUDGETS = (64, 128, 256, 512, 1024, 2048)
MOST_ROUNDS = 12
DEFAULTS = {
    Example.FIRST_LESSON: (Scheduling.STATIC, Scheduling.CONTINUOUS),
    Example.SECOND_LESSON: (Scheduling.STATIC, Scheduling.CONTINUOUS),
    Example.LONG_PROMPT: (Scheduling.CONTINUOUS, Scheduling.CHUNKED, Scheduling.DISAGGREGATED),
    Example.SCENARIO: (Scheduling.STATIC, Scheduling.CONTINUOUS, Scheduling.CHUNKED),
}
FRAME, PLAYING = "_sched_frame", "_sched_playing"
TICK_S = 0.6
FRAMES_OF_A_SHOW = 60  # a show takes about half a minute, however many passes there are
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the page's controls say."""

    example: Example
    shown: tuple[Scheduling, ...]
    slots: int
    rounds: int
    token_budget: int


def draw_controls() -> Asked:
    """Requests, slots, and which schedulers to compare."""
    row = st.columns([2.2, 1, 1, 1.2], vertical_alignment="bottom")
    example = Example(
        row[0].selectbox("Requests", [str(one) for one in Example], key="sched_of", bind="query-params")
    )
    slots = row[1].slider("Slots", 2, MOST_SLOTS, 4, key="sched_slots", bind="query-params")
    rounds = row[2].slider(
        "Rounds",
        1,
        MOST_ROUNDS,
        8,
        key="sched_rounds",
        bind="query-params",
        disabled=example is Example.LONG_PROMPT,
        help="How often the lesson's four answers come, or how often the slots are filled.",
    )
    budget = row[3].select_slider(
        "Tokens a pass, in chunks", BUDGETS, 512, key="sched_budget", bind="query-params"
    )
    shown = st.pills(
        "Schedulers",
        [str(one) for one in Scheduling],
        selection_mode="multi",
        default=[str(one) for one in DEFAULTS[example]],
        key=f"sched-shown-{example.name}",
        label_visibility="collapsed",
    )
    chosen = tuple(one for one in Scheduling if str(one) in shown) or DEFAULTS[example]
    return Asked(
        example=example, shown=chosen, slots=int(slots), rounds=int(rounds), token_budget=int(budget)
    )


def schedules_of(asked: Asked) -> tuple[Schedule, ...]:
    """The runs of the chosen schedulers, each kept by what it depends on."""
    rounds = 1 if asked.example is Example.LONG_PROMPT else asked.rounds
    scenario = current_scenario()
    layout = answer_for(scenario).layout
    same = replace(without_traffic(scenario), arrival_cv=scenario.arrival_cv)
    runs = []
    for one in asked.shown:
        budget = asked.token_budget if one is Scheduling.CHUNKED else BUDGETS[-1]
        runs.append(_run(same, layout, replace(asked, shown=(one,), rounds=rounds, token_budget=budget)))
    return tuple(runs)


@st.cache_resource(
    max_entries=64,
    ttl=TTL,
    show_spinner="Simulating",
    hash_funcs=BY_VALUE | {Layout: repr, Asked: repr},
)
def _run(scenario: Scenario, layout: Layout, asked: Asked) -> Schedule:
    """One scheduler on one replica: how many requests come to how many replicas makes no difference here."""
    result = answer_on(inputs_for(scenario), layout)
    step = step_of(result)
    requests = example_requests(
        asked.example, result, step, slots=asked.slots, rounds=asked.rounds, seed=SEED
    )
    return schedule(
        asked.shown[0],
        requests,
        step,
        slots=asked.slots,
        token_budget=asked.token_budget,
        link=link_of(result),
    )


def draw_steps(asked: Asked, schedules: Sequence[Schedule]) -> None:
    """The chart, whole or up to a pass; buttons, keys and a slider move along the passes."""
    playing = bool(st.session_state.get(PLAYING))
    st.fragment(_draw_frame, run_every=TICK_S if playing else None)(asked, schedules)


def _draw_frame(asked: Asked, schedules: Sequence[Schedule]) -> None:
    moments = _moments(schedules)
    last = len(moments)
    about = (asked, last)
    if st.session_state.get(f"{FRAME}-of") != about:
        st.session_state.update({f"{FRAME}-of": about, FRAME: last, PLAYING: False})
    if st.session_state.get(PLAYING):
        _move(max(1, last // FRAMES_OF_A_SHOW), last)
        if st.session_state[FRAME] == last:
            st.session_state[PLAYING] = False
            st.rerun()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        _draw_buttons(last)
        frame = st.slider("Pass", 1, last, key=FRAME, format="localized", width="stretch")
    until_s = None if frame == last else moments[frame - 1]
    show_chart(gantt_figure(schedules, until_s), alt=gantt_finding(schedules), key="sched-gantt")
    st.caption(" ".join(f"**{one.scheduling}**: {_pass_words(one, until_s)}" for one in schedules))


def _moments(schedules: Sequence[Schedule]) -> list[float]:
    """When some scheduler's pass ends: of the one that takes longest, so that a step is a pass."""
    longest = max(schedules, key=lambda one: one.end_s)
    return sorted({one.end_s for one in longest.passes})


def _draw_buttons(last: int) -> None:
    st.button(
        "Start", key="sched-first", on_click=_to, args=(1,), icon=":material/first_page:", shortcut="Home"
    )
    st.button(
        "Back",
        key="sched-back",
        on_click=_move,
        args=(-1, last),
        icon=":material/chevron_left:",
        shortcut="B",
    )
    st.button(
        "Next",
        key="sched-next",
        on_click=_move,
        args=(1, last),
        icon=":material/chevron_right:",
        shortcut="N",
    )
    st.button(
        "End", key="sched-last", on_click=_to, args=(last,), icon=":material/last_page:", shortcut="End"
    )
    playing = bool(st.session_state.get(PLAYING))
    if st.button(
        "Stop" if playing else "Play",
        key="sched-play",
        icon=":material/stop:" if playing else ":material/play_arrow:",
        shortcut="P",
        on_click=_toggle,
        args=(last,),
    ):
        st.rerun()


def _toggle(last: int) -> None:
    st.session_state[PLAYING] = not st.session_state.get(PLAYING)
    if st.session_state[PLAYING] and st.session_state[FRAME] == last:
        st.session_state[FRAME] = 1


def _to(frame: int) -> None:
    st.session_state[FRAME] = frame


def _move(by: int, last: int) -> None:
    st.session_state[FRAME] = min(last, max(1, st.session_state[FRAME] + by))


def _pass_words(one: Schedule, until_s: float | None) -> str:
    """What a scheduler does at a moment: the passes that run then."""
    if until_s is None or until_s >= one.end_s:
        return f"done after {fmt.plural(len(one.passes), 'pass', 'passes')}."
    running = [
        (number, step)
        for number, step in enumerate(one.passes, start=1)
        if step.start_s < until_s <= step.end_s + SAME_MOMENT_S
    ]
    parts = []
    for number, step in running:
        parts.append(f"pass {number} ({fmt.seconds(step.end_s - step.start_s)})")
        if step.prefilling:
            who = ", ".join(str(request + 1) for request, _ in step.prefilling)
            parts.append(f"{fmt.count(step.prefill_tokens)} prompt tokens of {who}")
        parts.append(f"{fmt.plural(len(step.decoding), 'answer')} a token further")
        if step.padded:
            parts.append(f"{len(step.padded)} done but held")
    if running:
        parts.append(f"{one.waiting()[running[-1][0] - 1]} waiting")
    return (", ".join(parts) or "nothing to do") + "."


def table_rows(schedules: Sequence[Schedule]) -> list[dict[str, str]]:
    """The counters that tell schedulers apart."""
    return [
        {
            "scheduler": str(one.scheduling),
            "slot use": fmt.percent(one.slot_use),
            "passes": fmt.count(len(one.passes)),
            "mean wait": fmt.seconds(one.mean_wait_s),
            "mean TTFT": fmt.seconds(float(one.result.ttft_s.mean())),
            "second token after": fmt.optional(one.mean_second_token_s, fmt.seconds),
            "longest stall of an answer": fmt.optional(one.stall and one.stall.seconds, fmt.seconds),
            "done after": fmt.seconds(one.end_s),
        }
        for one in schedules
    ]
