"""The local device, through a stand-in for NVML: what is read, what is matched, and every way of not knowing."""

import sys
from types import SimpleNamespace

import pytest

from calc.errors import InputError
from calc.scenario import Scenario
from presets import local_device
from presets.local_device import local_devices

MIB = 2**20


class FakeNvml:
    """The few NVML calls that are used, over plain dictionaries; a missing key answers NotSupported."""

    class NVMLError(Exception):
        pass

    class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801, N818 - the binding's own name
        pass

    class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801, N818 - the binding's own name
        pass

    class NVMLError_LibRmVersionMismatch(NVMLError):  # noqa: N801, N818 - the binding's own name
        pass

    nvmlMemory_v2 = 2  # noqa: N815 - the binding's own name

    def __init__(self, *devices, start_error=None):
        self.devices = devices
        self.start_error = start_error
        self.shut_down = 0

    def nvmlInit(self):  # noqa: N802 - the binding's own name
        if self.start_error:
            raise self.start_error

    def nvmlShutdown(self):  # noqa: N802 - the binding's own name
        self.shut_down += 1

    def __getattr__(self, name):
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments):
            if name == "nvmlDeviceGetCount":
                return len(self.devices)
            if name == "nvmlSystemGetDriverVersion":
                return b"580.95.05"
            if name == "nvmlDeviceGetHandleByIndex":
                return self.devices[arguments[0]]
            key = name + ("_v2" if len(arguments) > 1 else "")
            if key not in arguments[0]:
                raise self.NVMLError("Not Supported")
            return arguments[0][key]

        return call


def card(name, total_mib, *, used_mib=0, reserved_mib=None, **extra):
    values = {
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetUUID": "GPU-0000",
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=total_mib * MIB, used=used_mib * MIB),
    }
    if reserved_mib is not None:
        values["nvmlDeviceGetMemoryInfo_v2"] = SimpleNamespace(
            total=total_mib * MIB, used=used_mib * MIB, reserved=reserved_mib * MIB
        )
    return values | extra


@pytest.fixture
def seen(monkeypatch):
    def run(*devices, start_error=None):
        fake = FakeNvml(*devices, start_error=start_error)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        found = local_devices()
        assert fake.shut_down == (0 if start_error else 1)
        return found

    return run


def test_a_known_card_is_matched_and_its_own_totals_are_taken(seen):
    (device,) = seen(card(b"NVIDIA H100 80GB HBM3", 81559, used_mib=4000, reserved_mib=551)).devices
    assert (device.name, device.uuid, device.driver) == ("NVIDIA H100 80GB HBM3", "GPU-0000", "580.95.05")
    assert device.used_by_others_bytes == 4000 * MIB
    assert device.accelerator.id == "h100-sxm5-80gb"
    # 81559 - 551 MiB is the 79.11 GiB that torch prints on this card
    assert device.accelerator.cuda_memory_bytes == (81008 * MIB, 81008 * MIB)
    assert device.reason == ""


@pytest.mark.parametrize(
    ("name", "total_mib", "part_id"),
    [
        ("NVIDIA A100-SXM4-80GB", 81251, "a100-sxm4-80gb"),  # an old driver's total
        ("NVIDIA A100-SXM4-40GB", 40536, "a100-sxm4-40gb"),
        ("NVIDIA A40", 49140, "a40"),  # ECC switched off
        ("NVIDIA RTX A6000", 46068, "rtx-a6000"),  # ECC switched on
        ("Tesla T4", 15109, "t4"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx-4090"),
    ],
)
def test_both_totals_that_exist_in_the_wild_match(seen, name, total_mib, part_id):
    (device,) = seen(card(name, total_mib)).devices
    assert device.accelerator.id == part_id
    assert device.accelerator.driver_memory_bytes == total_mib * MIB
    assert device.accelerator.cuda_memory.high <= total_mib * MIB


@pytest.mark.parametrize(
    ("name", "total_mib", "words"),
    [
        ("NVIDIA H100 80GB HBM3", 40000, "virtual GPU"),
        ("NVIDIA GeForce RTX 4090 D", 49140, "modified card"),  # the 48 GB boards
        ("NVIDIA L20X", 143771, "not in the catalogue"),  # reports the H200 total: the name decides
        ("GRID V100D-8Q", 8192, "not in the catalogue"),
    ],
)
def test_name_and_memory_must_both_agree(seen, name, total_mib, words):
    (device,) = seen(card(name, total_mib)).devices
    assert device.accelerator is None
    assert words in device.reason


def test_a_card_in_mig_mode_asks_for_the_slice(seen):
    (device,) = seen(card("NVIDIA H100 80GB HBM3", 81559, nvmlDeviceGetMigMode=(1, 1))).devices
    assert device.mig_enabled
    assert device.accelerator is None
    assert "h100-sxm5-80gb:3g.40gb" in device.reason


@pytest.mark.parametrize("total", [0, 2**64 - 1])
def test_a_total_that_is_no_total_is_unknown_and_the_name_decides(seen, total):
    device = card("NVIDIA GB10", 1) | {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=total, used=0)}
    (found,) = seen(device).devices
    assert (found.total_bytes, found.used_by_others_bytes, found.reserved_bytes) == (None, None, None)
    assert found.accelerator.id == "dgx-spark-gb10"


def test_a_driver_that_answers_nothing_gives_none_and_no_error(seen):
    (device,) = seen({}).devices
    assert (device.uuid, device.total_bytes, device.compute_capability) == (None, None, None)
    assert "not in the catalogue" in device.reason


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            FakeNvml.NVMLError_LibraryNotFound("NVML Shared Library Not Found"),
            "No NVIDIA driver is installed",
        ),
        (FakeNvml.NVMLError_DriverNotLoaded("Driver Not Loaded"), "not loaded"),
        (FakeNvml.NVMLError_LibRmVersionMismatch("mismatch"), "reboot"),
        (FakeNvml.NVMLError("Unknown Error"), "NVML did not start: Unknown Error"),
        (OSError("libnvidia-ml.so.1"), "No NVIDIA driver is installed"),
    ],
)
def test_every_absence_is_quiet_and_has_its_reason(seen, error, words):
    found = seen(start_error=error)
    assert found.devices == ()
    assert words in found.reason


def test_no_device_and_no_binding_have_their_reasons(seen, monkeypatch):
    assert "shows this process no device" in seen().reason
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "not installed" in local_devices().reason


def test_the_binding_is_imported_only_when_asked():
    assert "pynvml" not in vars(local_device)


def test_local_as_an_id_takes_the_first_known_device_and_says_why_there_is_none(monkeypatch):
    from presets.resolve import resolve_accelerator

    scenario = Scenario(gpu=" Local ")
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(card("Unheard of", 100), card("NVIDIA L4", 23034)))
    assert resolve_accelerator(scenario).id == "l4"
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(card("Unheard of", 1000)))
    with pytest.raises(InputError, match="Unheard of is not in the catalogue"):
        resolve_accelerator(scenario)
    no_library = FakeNvml(start_error=FakeNvml.NVMLError_LibraryNotFound("x"))
    monkeypatch.setitem(sys.modules, "pynvml", no_library)
    with pytest.raises(InputError, match="No NVIDIA driver is installed"):
        resolve_accelerator(scenario)
