"""Hardware beside the catalogue's list: this machine's own device, and an accelerator typed in."""

from __future__ import annotations

import streamlit as st

from calc import format as fmt
from calc.custom_accelerator import typed_accelerator
from calc.errors import InputError
from calc.units import GB, TFLOP
from pages._control_values import GPU_JSON_KEY
from pages._ui import folded, plain_text
from presets.local_device import LocalDevice, LocalDevices, local_devices
from probes import store

GPU_KEY = "gpu"
PROFILE_KEY = "profile"
FIDELITY_KEY = "fidelity"
PROBLEM_KEY = "own_problem"
NAME_KEY = "own_name"

# Key, label, help of the typed numbers; the first three are needed.
NUMBERS = (
    ("own_memory_gb", "Memory, GB", "What the runtime can hand out. Decimal: 1 GB is 1e9 bytes."),
    ("own_bandwidth_gb_per_s", "Memory bandwidth, GB/s", "The data sheet's figure."),
    ("own_rate_16bit", "16-bit rate, TFLOP/s", "Dense, with FP32 accumulation: half of a sparse headline."),
    ("own_rate_8bit", "8-bit rate, TFLOP/s (if it has one)", "Dense. Empty: 8-bit formats save memory only."),
    (
        "own_link_gb_per_s",
        "Link to its peers, GB/s (if it has one)",
        "One way, all links of a device together.",
    ),
)


def draw_own_hardware() -> None:
    """What NVML sees on the machine that runs this app, if anything, and the form for any other accelerator."""
    for device in _devices().devices:
        _draw_local(device)
    _draw_measured()
    with folded("Another accelerator: type it", key="more-accelerator") as is_open:
        if is_open or NAME_KEY in st.session_state:  # what was typed outlives a closed row
            _draw_form()


@st.cache_resource(ttl=600, show_spinner=False)
def _devices() -> LocalDevices:
    return local_devices()


def _draw_measured() -> None:
    """The newest run that was measured on this machine, unless it is in use already."""
    run = _newest_run(store.stamp())
    if run is None or st.session_state.get(PROFILE_KEY) == run[0]:
        return
    run_id, gpu_id, name = run
    st.button(
        f"Use the measured {plain_text(name)}",
        key="use_measured",
        icon=":material/speed:",
        on_click=use_run,
        args=(run_id, gpu_id),
        help="What the page This GPU measured last on this machine, in place of fitted numbers.",
    )


@st.cache_data(max_entries=4, show_spinner=False)
def _newest_run(stamp: tuple[tuple[str, int], ...]) -> tuple[str, str, str] | None:
    run = store.local_run(store.history()) if stamp else None
    return None if run is None else (run["id"], store.accelerator_of(run).id, str(run["device"].get("name")))


def local_device_list() -> tuple[LocalDevice, ...]:
    """The NVIDIA devices of the machine that runs this app."""
    return _devices().devices


def _draw_local(device: LocalDevice) -> None:
    """One device of this machine: its memory, what others hold of it, and the button that takes it."""
    seen = [device.name]
    if device.total_bytes is not None:
        seen.append(fmt.binary_bytes(device.total_bytes))
    if device.used_by_others_bytes:
        seen.append(f"{fmt.binary_bytes(device.used_by_others_bytes)} in use")
    if device.accelerator is None:
        st.caption(plain_text(f"On this machine: {', '.join(seen)}. {device.reason}"))
        return
    st.caption(plain_text(f"On this machine: {', '.join(seen)}."))
    st.button(
        f"Use this machine's {plain_text(device.name)}",
        key=f"local_device_{device.index}",
        icon=":material/memory:",
        on_click=use_accelerator,
        args=(device.accelerator.id,),
    )


def _draw_form() -> None:
    with st.form("own_accelerator", border=False):
        st.text_input("Name", key=NAME_KEY, max_chars=80, placeholder="My accelerator")
        for key, label, help_text in NUMBERS:
            st.number_input(label, value=None, min_value=0.0, format="%g", key=key, help=help_text)
        st.number_input("Devices in a node", value=8, min_value=1, max_value=100_000, key="own_node")
        st.form_submit_button("Use it", on_click=_take_typed)
    if st.session_state.get(PROBLEM_KEY):
        st.error(plain_text(st.session_state[PROBLEM_KEY]), icon=":material/error:")


def use_run(run_id: str, gpu_id: str) -> None:
    """Answer everything with a run's device from now on; the textbook has no use for it, so fidelity is expected."""
    use_accelerator(gpu_id)
    st.session_state[PROFILE_KEY] = run_id
    st.session_state[FIDELITY_KEY] = "expected"


def use_accelerator(gpu_id: str) -> None:
    """Set the accelerator; what a saved scenario carried in its place is dropped."""
    st.session_state[GPU_KEY] = gpu_id
    st.session_state[GPU_JSON_KEY] = ""
    st.session_state[PROBLEM_KEY] = ""


def _take_typed() -> None:
    state = st.session_state
    memory, bandwidth, rate, rate_8bit, link = (state.get(key) for key, _, _ in NUMBERS)
    missing = [label for (key, label, _) in NUMBERS[:3] if not state.get(key)]
    if missing:
        state[PROBLEM_KEY] = f"Still needed: {'; '.join(missing)}."
        return
    try:
        typed = typed_accelerator(
            name=state.get(NAME_KEY) or "My accelerator",
            memory_bytes=memory * GB,
            bandwidth_bytes_per_s=bandwidth * GB,
            flop_per_s_16bit=rate * TFLOP,
            flop_per_s_8bit=rate_8bit * TFLOP if rate_8bit else None,
            link_bytes_per_s=link * GB if link else None,
            node_size=int(state.get("own_node") or 8),
        )
    except InputError as error:
        state[PROBLEM_KEY] = str(error)
        return
    use_accelerator(typed.id)


def forget_carried() -> None:
    """Another accelerator was chosen: the one that a saved scenario carried must not stay in its place."""
    st.session_state[GPU_JSON_KEY] = ""
