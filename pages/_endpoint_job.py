"""Asking for a load test and following it: the form, what will be sent, confirm, progress, cancel."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.endpoint.plan import TestPlan, budget_of
from calc.endpoint.run import EndpointRun
from calc.errors import InputError, RidgebeamError
from pages._ui import plain_text, show_error
from presets.deployment import deployment
from probes.endpoint.dialects import Api
from probes.endpoint.job import Job, Question
from probes.endpoint.safety import ApiKey, Policy, checked_target

JOB_KEY = "_endpoint_job"
RUN_KEY = "_endpoint_run"
RECORD_KEY = "_endpoint_record"
ERROR_KEY = "_endpoint_error"
POLL_S = 0.5
APIS = {"OpenAI-compatible": Api.CHAT, "OpenAI completions": Api.COMPLETIONS, "Ollama": Api.OLLAMA}
DEPTHS = {"quick": "quick", "full": "full"}


def stored_run() -> tuple[EndpointRun, dict[str, object]] | None:
    """The run of this session, with its record; None before the first."""
    run, record = st.session_state.get(RUN_KEY), st.session_state.get(RECORD_KEY)
    return None if run is None or record is None else (run, record)


def keep_run(run: EndpointRun, record: dict[str, object]) -> None:
    """Show this run, and its record as it came, until another one takes its place."""
    st.session_state[RUN_KEY], st.session_state[RECORD_KEY] = run, record


def draw_form() -> None:
    """The running test, or the form for the next."""
    error = st.session_state.pop(ERROR_KEY, None)
    if isinstance(error, RidgebeamError):
        show_error(error)
    if JOB_KEY in st.session_state:
        _follow()
        return
    url = st.text_input(
        "Address of the server",
        key="endpoint_url",
        persist_state="session",
        placeholder="http://127.0.0.1:8000",
        max_chars=500,
    )
    with st.container(horizontal=True):
        api = st.selectbox("API", list(APIS), key="endpoint_api", persist_state="session", width=210)
        depth = st.segmented_control(
            "How thoroughly", list(DEPTHS), default="quick", key="endpoint_depth", required=True
        )
    with st.expander("Model, key, concurrency"):
        st.text_input("Model, as the server names it (empty: its first)", key="endpoint_model", max_chars=300)
        st.text_input(
            "API key",
            key="endpoint_key",
            type="password",
            autocomplete="off",
            help="Held in this session's memory, sent in one header to this server, written nowhere.",
        )
        users = st.text_input("Requests at a time", value="1, 4, 16", key="endpoint_users", max_chars=60)
    try:
        plan = plan_of(str(users), str(depth))
        _draw_offer(url, plan, APIS[str(api)])
    except InputError as error:
        show_error(error)


def plan_of(users: str, depth: str) -> TestPlan:
    """The plan of the form's choices."""
    try:
        levels = tuple(dict.fromkeys(int(word) for word in users.replace(",", " ").split()))
    except ValueError:
        raise InputError("requests at a time", users, "they are whole numbers, as in 1, 4, 16") from None
    if depth == "full":
        return TestPlan(concurrency=levels, cached_pass=True)
    return TestPlan(
        prompt_lengths=(256, 1024, 4096),
        prompt_repeats=3,
        decode_repeats=8,
        decode_tokens=64,
        concurrency=levels,
        level_input=256,
        level_output=64,
        cached_pass=True,
        stage_limit_s=30.0,
        total_limit_s=300.0,
    )


def _draw_offer(url: str, plan: TestPlan, api: Api) -> None:
    """What will be sent, and the button that confirms it."""
    words = f"Sends {budget_of(plan).words}; ends after {fmt.seconds(plan.total_limit_s)} at the latest."
    if not url.strip():
        st.caption(f"{words} Nothing is sent before you press the button, which comes with an address.")
        return
    target = checked_target(url, Policy.from_environment(deployment=deployment()))
    where = (
        "this machine" if target.loopback else "another machine: whoever pays for it pays for these tokens"
    )
    st.caption(plain_text(f"{words} Goes to {target.shown}, {where}."))
    st.button(
        "Send this and measure",
        type="primary",
        icon=":material/network_check:",
        on_click=_start,
        args=(url, plan, api),
        key="endpoint_start",
    )


def _start(url: str, plan: TestPlan, api: Api) -> None:
    state = st.session_state
    try:
        question = Question(
            url=url,
            api=api,
            model=(state.get("endpoint_model") or "").strip(),
            plan=plan,
            key=ApiKey((state.get("endpoint_key") or "").strip()),
            deployment=deployment(),
        )
        state[JOB_KEY] = Job.start(question)
    except RidgebeamError as error:
        state[ERROR_KEY] = error


@st.fragment(run_every=POLL_S)
def _follow() -> None:
    job = st.session_state.get(JOB_KEY)
    if not isinstance(job, Job):
        return
    state = job.state()
    if not state.running:
        del st.session_state[JOB_KEY]
        if state.run is not None and state.record is not None:
            keep_run(state.run, state.record)
        else:
            st.session_state[ERROR_KEY] = state.error
        st.rerun()
    share = min(0.99, state.done / state.total) if state.total else 0.0
    failed = f", {fmt.plural(state.failures, 'failure')}" if state.failures else ""
    st.progress(share, text=plain_text(f"{state.stage}: {state.done} of {state.total or '?'}{failed}"))
    st.button("Cancel", on_click=job.cancel, icon=":material/stop:", key="endpoint_cancel")
