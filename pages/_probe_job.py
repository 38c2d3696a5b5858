"""Starting a measurement and following it: one button, progress by probe, cancel. What measures is another process."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.errors import ProbeError
from pages._own_hardware import local_device_list
from pages._sidebar import current_scenario
from pages._ui import plain_text, show_error
from presets.deployment import may_probe
from probes import jobs
from probes.jobs import Progress, Request

JOB_KEY = "_probe_job"
ENDED_KEY = "_probe_ended"
ERROR_KEY = "_probe_error"
POLL_S = 0.5
EXPECTED = {"quick": "under a minute", "full": "some minutes"}
MARKS = {"waiting": "○", "running": "◐", "done": "●", "failed": "✕"}


def draw_start() -> None:
    """The controls and the button, or the progress of what runs."""
    running = jobs.current()
    if running is not None:
        st.session_state[JOB_KEY] = running
        _follow(running)
        return
    mine = st.session_state.pop(JOB_KEY, None)
    if mine is not None:  # it ended, perhaps while another page was open
        st.session_state[ENDED_KEY] = jobs.progress(mine)
    _draw_ended()
    if not may_probe():
        st.info(
            "This app serves other machines, so measuring is off. Whoever runs it can allow it with "
            "`RIDGEBEAM_ALLOW_PROBES=1`, or run Ridgebeam on the machine that has the GPU: `ridgebeam probe`.",
            icon=":material/lock:",
        )
        return
    _draw_controls()


def _draw_controls() -> None:
    names = {"auto": "the best device here"}
    names |= {device.uuid: device.name for device in local_device_list() if device.uuid}
    names["cpu"] = "the processor"
    has_gpu = len(names) > 2
    with st.container(horizontal=True, vertical_alignment="bottom"):
        device = st.selectbox("Measure", list(names), format_func=lambda key: names[key], key="probe_device")
        depth = st.segmented_control(
            "How thoroughly", list(EXPECTED), default="quick", key="probe_depth", required=True
        )
        st.button(
            "Measure this GPU" if has_gpu and device != "cpu" else "Measure this machine",
            type="primary",
            icon=":material/speed:",
            on_click=_start,
            args=(str(device), str(depth or "quick")),
            key="probe_start",
        )
    st.caption(
        f"Takes {EXPECTED[str(depth or 'quick')]}, in a process of its own; other pages stay usable. "
        "Clocks and power limits are never changed. One layer of the scenario's model is measured too."
    )


def _start(device: str, depth: str, *, anyway: bool = False) -> None:
    scenario = current_scenario()
    st.session_state.pop(ENDED_KEY, None)
    try:
        st.session_state[JOB_KEY] = jobs.start(
            Request(
                device=device,
                depth=depth,
                model=scenario.model,
                revision=scenario.revision,
                config_text=scenario.config_text,
                anyway=anyway,
            )
        )
    except ProbeError as error:
        st.session_state[ERROR_KEY] = error


@st.fragment(run_every=POLL_S)
def _follow(job_id: str) -> None:
    progress = jobs.progress(job_id)
    if not progress.running:
        st.rerun()
    st.progress(progress.fraction, text=plain_text(_remaining(progress)))
    st.caption(
        "  ".join(
            f"{MARKS[probe.state]} {probe.title}"
            + (f" {probe.measured}/{probe.planned}" if probe.planned and probe.state == "running" else "")
            for probe in progress.probes
        )
    )
    st.button("Cancel", on_click=jobs.cancel, args=(job_id,), icon=":material/stop:", key="probe_cancel")


def _remaining(progress: Progress) -> str:
    left = f"about {fmt.seconds(float(round(progress.remaining_s or 1)))} left"
    return f"{progress.current}, {left}"


def _draw_ended() -> None:
    error = st.session_state.pop(ERROR_KEY, None)
    if isinstance(error, ProbeError):
        show_error(error)
    ended = st.session_state.get(ENDED_KEY)
    if not isinstance(ended, Progress) or ended.status == "complete":
        return
    (st.error if ended.run_id is None else st.warning)(
        plain_text(ended.message or "Some cases gave no number; they are listed below.")
        + (f"\n\n**Next:** {plain_text(ended.next_step)}" if ended.next_step else ""),
        icon=":material/error:",
    )
    if "is in use" in ended.message:
        st.button("Measure anyway", on_click=_start, args=("auto", "quick"), kwargs={"anyway": True})
    words = jobs.stderr_of(ended.job_id)
    if words:
        with st.expander("What the measuring process said", icon=":material/terminal:"):
            st.code(words, language=None, wrap_lines=True)
