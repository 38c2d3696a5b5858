"""Measuring this machine: what its device really reaches, with one click, against its datasheet."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.errors import InputError
from pages._own_hardware import local_device_list, use_run
from pages._probe_figures import bars_figure, bars_finding, bars_of
from pages._probe_job import draw_start
from pages._probe_results import draw_details, draw_files, name_of, run_metrics, worked_run_rates
from pages._sidebar import current_scenario
from pages._ui import (
    guarded,
    plain_text,
    show_chart,
    show_ignored,
    show_metrics,
    show_title,
    show_worked_maths,
)
from pages._whole_path import draw_whole_path
from probes import store
from probes.store import Run

RUN_KEY = "probe_run"


def main() -> None:
    """The newest run first; without one, what a click would tell."""
    runs = store.history()
    run = _chosen(runs)
    show_title(
        headline(run),
        "" if run is None else plain_text(f"{name_of(run)}. torch {run['software'].get('torch')}."),
    )
    draw_start()
    if run is None:
        _draw_nothing_yet()
    else:
        guarded(lambda: _draw_run(run))()
    guarded(lambda: draw_whole_path(runs))()
    if len(runs) > 1:
        index = {entry["id"]: entry for entry in runs}
        st.selectbox("History", list(index), format_func=lambda key: name_of(index[key]), key=RUN_KEY)
    draw_files(run, runs)
    show_ignored(
        "What a serving engine's own kernels reach: attention, experts and collectives keep the engine's profile.",
        "Other devices of the same kind: two cards of one model differ by a few percent.",
        "Heat over hours: a full run holds the device busy for minutes.",
    )


def _chosen(runs: list[Run]) -> Run | None:
    wanted = st.session_state.get(RUN_KEY)
    found = next((run for run in runs if run["id"] == wanted), None)
    return found or store.local_run(runs) or (runs[0] if runs else None)


def headline(run: Run | None) -> str:
    """What was found, in one sentence."""
    if run is None:
        devices = local_device_list()
        name = devices[0].name if devices else "processor"
        return f"Nothing is measured yet: one click says what this machine's {name} really reaches."
    found = store.readings_of(run)
    parts = []
    if found.bandwidth is not None:
        parts.append(_with_share(found.bandwidth, "B/s", _peaks(run)[0]))
    if found.compute_16bit is not None:
        parts.append(f"{_with_share(found.compute_16bit, 'FLOP/s', _peaks(run)[1])} in {found.sixteen_bit}")
    whose = "The imported" if run.get("imported") else "Your"
    using = current_scenario().profile == run["id"]
    return (
        f"{whose} {run['device'].get('name')} reaches {' and '.join(parts) or 'nothing that was measured'}."
        + (" All answers now use this." if using else "")
    )


def _peaks(run: Run) -> tuple[float | None, float | None]:
    """(bandwidth, 16-bit rate) of the datasheet; none for a device without one."""
    if not run["device"].get("catalogue"):
        return None, None
    device = store.accelerator_of(run)
    return device.bandwidth_bytes_per_s, device.flop_per_s_16bit.flop_per_s


def _with_share(value: float, unit: str, peak: float | None) -> str:
    return fmt.si(value, unit) + (f" ({fmt.percent(value / peak)})" if peak else "")


def _draw_run(run: Run) -> None:
    show_metrics(run_metrics(run))
    try:
        device = store.accelerator_of(run)
    except InputError as error:
        st.warning(plain_text(str(error)), icon=":material/warning:")
    else:
        scenario = current_scenario()
        if scenario.profile != run["id"] or scenario.gpu != device.id:
            st.button(
                "Use this for all answers",
                type="primary",
                on_click=use_run,
                args=(run["id"], device.id),
                icon=":material/check:",
                key="probe_use",
                help="Sets the accelerator, the profile and fidelity 'expected' in the sidebar.",
            )
        bars = bars_of(run)
        peak = "the datasheet" if run["device"].get("catalogue") else "this run's own best sample"
        show_chart(
            bars_figure(bars, peak_name=peak), alt=bars_finding(bars, peak_name=peak), key="probe-bars"
        )
        for finding in store.findings_of(run):
            if not finding.plausible:
                st.warning(plain_text(finding.sentence), icon=":material/warning:")
        usual = [bar for bar in bars if bar.usual]
        st.caption(
            "Shaded: what others measured on this kind of device."
            if usual
            else "There is no datasheet of this device here, so the best single sample stands for the peak."
        )
    draw_details(run)
    show_worked_maths(lambda: worked_run_rates(run), key="probe-maths")


def _draw_nothing_yet() -> None:
    st.markdown(
        "A run tells the bandwidth that memory really gives, the rate of matrix products at each token count, what "
        "reading weights, attention and starting a kernel cost, and one layer of the scenario's model against the sum of "
        "its parts. From then on answers for this device use it. It runs on NVIDIA, AMD, Intel and Apple GPUs, and on "
        "the processor, where it says how fast models can decode without a GPU."
    )
    st.markdown("On another machine that has the GPU, run this and import the file below:")
    st.code("pip install -e '.[probe]'\nridgebeam probe --out run.json", language=None)


main()
