"""Every way in which a machine cannot measure has its message and its next step."""

import pytest

from presets.local_device import LocalDevice, LocalDevices
from probes.absence import absences

CARD = LocalDevice(
    index=0,
    name="NVIDIA L4",
    uuid="GPU-1",
    total_bytes=24 << 30,
    used_by_others_bytes=0,
    reserved_bytes=0,
    driver="570.1",
)
SEEN = LocalDevices(devices=(CARD,))
NONE = LocalDevices(reason="No NVIDIA driver is installed on this machine.")
UPDATED = LocalDevices(reason="The NVIDIA driver was updated while running: reboot.")
CPU = {"kind": "cpu", "device": "cpu", "name": "a processor"}
TORCH = {"torch": "2.9.0", "cuda": "12.8", "arch_list": ["sm_80", "sm_90"], "warnings": []}
OLD_DRIVER = {**TORCH, "warnings": ["The NVIDIA driver on your system is too old"]}


def card(capability, error="no kernel image is available"):
    return {"kind": "cuda", "device": "cuda:0", "name": "A card", "capability": capability, "error": error}


@pytest.mark.parametrize(
    ("kind", "software", "devices", "nvml", "words"),
    [
        ("no torch", {"torch": None, "error": "No module named 'torch'"}, [], NONE, "pip install"),
        ("torch does not load", {"torch": None, "error": "libcudart.so"}, [], NONE, "Reinstall"),
        ("no gpu", TORCH, [CPU], NONE, "import the file"),
        ("driver mismatch", TORCH, [CPU], UPDATED, "Reboot"),
        ("cpu-only torch", {**TORCH, "cuda": None}, [CPU], SEEN, "CUDA build"),
        ("driver too old", OLD_DRIVER, [CPU], SEEN, "Update the driver"),
        ("cuda not available", TORCH, [CPU], SEEN, "--gpus all"),
        ("no kernel image", TORCH, [card("12.0"), CPU], SEEN, "sm_120"),
        ("device fails", TORCH, [card("8.0", "unknown error"), CPU], SEEN, "unknown error"),
    ],
)
def test_each_absence_has_its_message_and_next_step(kind, software, devices, nvml, words):
    (found,) = absences(software, devices, nvml)
    assert found.kind == kind
    assert words in f"{found.message} {found.next_step}"
    assert found.next_step


@pytest.mark.parametrize(
    ("built", "capability", "kind"),
    [
        ("sm_80", "8.9", "device fails"),
        ("sm_90a", "9.0", "device fails"),
        ("compute_90", "12.0", "device fails"),
        ("sm_90", "8.0", "no kernel image"),
        ("sm_80", "9.0", "no kernel image"),
    ],
)
def test_a_built_architecture_serves_newer_minors_and_ptx_any_newer_device(built, capability, kind):
    """CUDA's rule: binary code runs on its major version and the same or a newer minor; PTX on anything newer."""
    found = absences({**TORCH, "arch_list": [built]}, [card(capability)], SEEN)
    assert found[0].kind == kind


def test_nothing_is_missing_where_a_device_runs():
    assert absences(TORCH, [card("8.0", ""), CPU], SEEN) == []


def test_wsl_and_mig_are_said_beside_what_works():
    sliced = LocalDevices(
        devices=(
            LocalDevice(
                index=0,
                name="NVIDIA A100",
                uuid="GPU-1",
                total_bytes=None,
                used_by_others_bytes=None,
                reserved_bytes=None,
                driver="570.1",
                mig_enabled=True,
            ),
        )
    )
    found = absences(TORCH, [card("8.0", "")], sliced, system="5.15.153.1-microsoft-standard-WSL2")
    assert [entry.kind for entry in found] == ["mig", "wsl"]
