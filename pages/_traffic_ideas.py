"""*Simulate traffic*: controls for what is added to the engine's scheduler, and how many replicas hold the targets."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.result import Answer
from calc.simulation.cluster import Router
from calc.simulation.features import Features
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.traffic import held_by, holding_replicas, ideas_told
from calc.units import GB, GIB
from pages._ui import plain_text

HELD = "_held"
HOST_LINK_GB_PER_S = 25.0
"""What a PCIe 4.0 x16 slot copies in practice, each way (assumed; the slot's rate is 32 GB/s)."""
IDEA_KEYS = (
    "sim_router", "sim_prefill", "sim_link", "sim_drafts", "sim_accept", "sim_cost", "sim_host", "sim_ttl",
)  # fmt: skip


def idea_controls(result: Answer) -> Features:
    """What the reader adds to the engine's own rules; nothing but the router by default."""
    with st.expander("Serving ideas: pools, drafts, tiers, routing"):
        one = st.columns(3, vertical_alignment="bottom")
        router = one[0].selectbox(
            "Router",
            [str(router) for router in Router],
            index=list(Router).index(Router.LEAST_OUTSTANDING),
            key="sim_router",
            bind="query-params",
        )
        prefill = one[1].number_input(
            "Prefill replicas (0: none apart)", 0, 1_000, 0, key="sim_prefill", bind="query-params",
            help="Prompts are computed on these, and the replicas above only decode.",
        )  # fmt: skip
        link = one[2].number_input(
            "Link between the pools, GB/s", 0.1, 10_000.0, 50.0, key="sim_link", bind="query-params"
        )
        two = st.columns(3, vertical_alignment="bottom")
        drafts = two[0].number_input(
            "Drafted tokens (0: none)", 0, 16, 0, key="sim_drafts", bind="query-params",
            help="Speculative decoding: each pass checks this many proposed tokens.",
        )  # fmt: skip
        acceptance = two[1].number_input(
            "Chance that one is kept", 0.0, 1.0, 0.7, 0.05, key="sim_accept", bind="query-params"
        )
        cost = two[2].number_input(
            "Draft step, share of the model's", 0.0, 1.0, 0.05, 0.01, key="sim_cost", bind="query-params"
        )
        three = st.columns(3, vertical_alignment="bottom")
        host = three[0].number_input(
            "KV in host memory, GiB (0: none)", 0.0, 10_000.0, 0.0, key="sim_host", bind="query-params",
            help="Text whose blocks were reused on the card comes back from there if that is faster.",
        )  # fmt: skip
        expires = three[1].number_input(
            "Unused prefixes expire after, s (0: never)", 0.0, 1e6, 0.0, key="sim_ttl", bind="query-params"
        )
    return Features(
        router=Router(router),
        kv_bytes_per_token=float(result.memory.kv_bytes_per_token),
        prefill_replicas=int(prefill),
        link_bytes_per_s=link * GB,
        drafts=int(drafts),
        acceptance=acceptance,
        draft_cost=cost,
        prefix_ttl_s=expires or None,
        tiers=((host * GIB, HOST_LINK_GB_PER_S * GB, 0.0),) if host else (),
    )


def show_ideas(ran: SimulationResult) -> None:
    """What the added ideas did in this run, in a line each."""
    for line in ideas_told(ran):
        st.caption(plain_text(line))


def draw_held(
    result: Answer,
    requests: RequestTable | None,
    features: Features,
    planned: int,
    asked: tuple[object, ...],
) -> None:
    """How many replicas hold the targets, when asked for."""
    if requests is None or result.inputs.scenario.workload.rate_per_s is None:
        return
    if st.button("How many replicas hold it?", icon=":material/stacks:", key="sim-held"):
        bar = st.progress(0.0, text="Trying replicas")

        def told(tried: int, replicas: int) -> None:
            bar.progress(min(0.95, tried / 10), text=f"Tried {fmt.plural(replicas, 'replica')}")

        st.session_state[HELD] = (
            asked,
            holding_replicas(result, requests, features, planned=planned, told=told),
        )
        bar.empty()
    held = st.session_state.get(HELD)
    if held is not None and held[0] == asked:
        st.info(plain_text(held_by(held[1], result.inputs.scenario.slo)), icon=":material/stacks:")
