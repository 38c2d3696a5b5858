"""GuideLLM's measurement of the same server, beside ours: where it is installed, and where the app serves one person."""

from __future__ import annotations

import streamlit as st

from calc.endpoint.report import EndpointReport
from calc.errors import RidgebeamError
from pages._ui import plain_text, show_error
from presets.deployment import Deployment, deployment
from probes.endpoint.safety import ApiKey, Policy, checked_target
from probes.endpoint.second_opinion import INSTALL, Asked, Opinion, command, second_opinion

OPINION_KEY = "_endpoint_opinion"
LIMIT_S = 120.0


def draw_opinion(report: EndpointReport) -> None:
    """A button, then figure beside figure with what each definition counts."""
    if deployment() is Deployment.SHARED:
        return
    with st.expander("Second opinion: GuideLLM", icon=":material/balance:"):
        if command() is None:
            st.caption(plain_text(f"GuideLLM is not installed here. To have it measure too: {INSTALL}"))
            return
        asked = _asked(report)
        st.caption(
            plain_text(
                f"Sends the same server {asked.requests * len(asked.streams)} requests of about {asked.input_tokens} tokens, "
                f"{' and '.join(map(str, asked.streams))} at a time; ends after {LIMIT_S:.0f} s."
            )
        )
        if st.button("Ask GuideLLM", key="endpoint_opinion", icon=":material/play_arrow:"):
            _ask(report, asked)
        opinion = st.session_state.get(OPINION_KEY)
        if isinstance(opinion, Opinion):
            rows = opinion.rows(report)
            st.dataframe(rows, hide_index=True, key="endpoint-opinion-rows")
            st.markdown(
                "\n".join(
                    f"- {plain_text(line)}" for line in dict.fromkeys(row["definitions"] for row in rows)
                )
            )


def _asked(report: EndpointReport) -> Asked:
    """The lengths and the first three levels of our own run."""
    plan = report.run.plan
    return Asked(
        streams=plan.concurrency[:3] or (1,),
        input_tokens=plan.level_input,
        output_tokens=plan.level_output,
        limit_s=LIMIT_S,
    )


def _ask(report: EndpointReport, asked: Asked) -> None:
    key = ApiKey((st.session_state.get("endpoint_key") or "").strip())
    try:
        with st.spinner("GuideLLM loads, then measures"):
            target = checked_target(report.run.target, Policy.from_environment(deployment=deployment()))
            st.session_state[OPINION_KEY] = second_opinion(target, asked, model=report.run.model, key=key)
    except RidgebeamError as error:
        show_error(error)
