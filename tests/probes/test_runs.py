"""Runs of other devices, from published figures: shares, verdicts, link curves, files that are none."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_run import a100, case, timing

from calc.collectives import LinkCurve
from calc.errors import InputError, ProbeError
from calc.provenance import Provenance
from presets import accelerators, profiles
from presets.profiles.calibrated import save_calibration, with_calibration
from probes import assemble, device_state, events, jobs, measured, sanity, store
from probes.readings import readings


def test_shares_refer_to_the_datasheet():
    """86 to 87% of 2,039 GB/s and 87% of 312 TFLOP/s is what the sources themselves state."""
    profile = measured.device_profile(a100())
    assert profile.numbers["bandwidth.activations"].value == pytest.approx(0.87, abs=0.005)
    assert profile.numbers["compute.16bit"].value == pytest.approx(0.87, abs=0.005)
    assert profile.numbers["kernel_s"].value == 1.2e-6
    assert profile.accelerators == ("a100-sxm4-80gb",)
    assert profile.numbers["bandwidth.8bit"].provenance is Provenance.ASSUMED


def test_what_was_not_measured_keeps_the_familys_value():
    base = profiles.load("a100-sxm4-80gb").device
    found = measured.device_profile(a100(), base)
    assert found.numbers["bandwidth.4bit"] == base.numbers["bandwidth.4bit"]
    assert found.numbers["bandwidth.16bit"].provenance is Provenance.MEASURED
    assert found.all_reduce == base.all_reduce


def test_a_copy_engine_is_not_the_memory():
    assert readings(a100()).bandwidth == 1774e9


def test_the_verdict_names_the_usual_range():
    assert "86% of" in sanity.findings(a100(bandwidth=0.86 * 2039e9))[0].sentence
    slow = sanity.findings(a100(bandwidth=0.62 * 2039e9))[0]
    assert not slow.plausible
    assert "62% of its memory bandwidth" in slow.sentence
    assert "78% to 94% is usual" in slow.sentence
    assert "power limit" in slow.sentence
    assert "a cache was measured" in sanity.findings(a100(bandwidth=1.9 * 2039e9))[0].sentence


@settings(max_examples=30, deadline=None)
@given(st.floats(2e-6, 1e-4), st.floats(0.2, 1.0), st.floats(0, 4e6))
def test_link_curves_are_found_again(alpha, beta, half):
    """Times made from a curve give that curve's times back within 1% at every size."""
    link = accelerators.load("a100-sxm4-80gb").link_among(8)
    truth = LinkCurve(ranks=8, alpha_s=alpha, beta_of_link=beta, half_bytes=half)
    sizes = [8 << 10, 64 << 10, 512 << 10, 4 << 20, 32 << 20, 256 << 20]
    rows = [{"bytes": size, "queued": timing(float(truth.seconds(size, link)))} for size in sizes]
    run = a100()
    run["cases"].append(
        case("all_reduce", "8 ranks", 1.0, "B/s", parameters={"ranks": 8}, extra={"rows": rows})
    )
    (found,) = measured.link_curves(run, accelerators.load("a100-sxm4-80gb"))
    for row in rows:
        expected = row["queued"]["median_s"]
        assert float(found.seconds(row["bytes"], link)) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "{",
        '{"kind": "ridgebeam probe run"}',
        json.dumps({**a100(), "schema": 99}),
        json.dumps({**a100(), "id": "../../etc/passwd"}),
        json.dumps({**a100(), "cases": [{"probe": "x", "case": "y", "unit": "s", "value": -1}]}),
        json.dumps({**a100(), "device": []}),
        json.dumps(a100()).replace("1774000000000.0", "NaN"),
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_run_is_refused_in_words(text):
    with pytest.raises(InputError):
        store.from_text(text)


OUTSIDE = ("../secret", "../../secret", "../runs/../secret", "a/b", "", "x" * 200, "..")


@pytest.mark.parametrize("run_id", OUTSIDE)
def test_an_id_never_leaves_the_folder(run_id, tmp_path, monkeypatch):
    """Valid files lie where such an id would lead: it is the id that is refused, and they stay."""
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    store.save(a100())
    fitted = profiles.load("a100-sxm4-80gb")
    kept = save_calibration(fitted, accelerator_id="a100-sxm4-80gb", model_id="m")
    runs, folder = tmp_path / "probes/runs", tmp_path / "endpoints/profiles"
    outside = []
    for home, valid in ((runs, store.path_of(a100()["id"])), (folder, folder / f"{kept}.json")):
        for place in (home.parent / "secret.json", home.parent.parent / "secret.json", home / "a/b.json"):
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(valid.read_bytes())
            outside.append(place)
    for use in (store.load, store.delete):
        with pytest.raises(InputError, match="id of a stored run"):
            use(run_id)
    with pytest.raises(InputError):
        profiles.stored_run(run_id)
    for calibration in (run_id, f"endpoint-{run_id}", f"endpoint-x/../{run_id}"):
        with pytest.raises(InputError, match="id of a calibrated endpoint"):
            with_calibration(fitted, calibration, accelerator_id="a100-sxm4-80gb", model_id="m")
    with pytest.raises(ProbeError, match="not the id of a job"):
        jobs.progress(run_id)
    assert all(place.is_file() for place in outside)


def test_a_run_that_is_not_there_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("RIDGEBEAM_DATA_DIR", str(tmp_path))
    with pytest.raises(InputError, match="no such run"):
        store.load("no-such-run")
    with pytest.raises(InputError):
        profiles.stored_run("no-such-run")


def test_events_that_are_none_are_passed_over():
    for line in ("", "hello", "{}", "[1]", '{"event": "result"}', '{"event": "hack"}', '{"event": "start"'):
        assert events.parse_line(line) is None
    assert events.parse_line('{"event": "start", "probe": "gemm", "case": "x"}')["probe"] == "gemm"


def test_a_job_that_ends_without_a_word_is_interrupted():
    run = a100()
    said = [
        {"event": "begin", "started": run["started"], "depth": "quick"},
        {"event": "chosen", "run_id": run["id"], "device": run["device"], "software": run["software"]},
        {"event": "start", "probe": "gemm", "case": "one"},
        {"event": "result", **run["cases"][0], "value": 1.0},
        {"event": "again", **run["cases"][0]},
        {"event": "start", "probe": "gemm", "case": "two"},
    ]
    found = assemble.run_of(said)
    assert found["cases"] == [run["cases"][0]]
    assert found["status"] == "interrupted"
    assert found["problems"][0]["case"] == "two"
    assert store.checked(found)
    assert assemble.run_of(said[:1]) is None


def test_the_state_of_a_device_is_put_into_words():
    before = {
        "power_limit_w": 250.0,
        "power_default_w": 400.0,
        "memory_used_bytes": 3 << 30,
        "processes": 2,
        "utilisation": 40,
        "pcie_max_generation": 4,
        "pcie_max_width": 16,
    }
    samples = [
        {"sm_mhz": 1410, "reasons": 0x4, "pcie_generation": 3, "pcie_width": 8},
        {"sm_mhz": 900, "reasons": 0x44, "pcie_generation": 3, "pcie_width": 8},
    ]
    words = " ".join(device_state.remarks({"before": before, "load": device_state.summary(samples)}))
    for part in (
        "thermal slowdown (hardware)",
        "250 W where 400 W",
        "gen 3 x8",
        "2 other processes",
        "40% busy",
    ):
        assert part in words
    assert device_state.remarks({}) == []
    assert not device_state.throttled([{"reasons": 0x4}])


def test_without_nvml_the_reader_says_why_and_answers_none():
    reader = device_state.NvmlReader("GPU-00000000-0000-0000-0000-000000000000")
    assert reader.reason
    assert reader.load() is None
    assert reader.identity() is None
    reader.close()


WALL = """
import sys
import cli, commands.probe, probes.jobs, probes.store, probes.sanity, probes.measured, probes.residual
assert "torch" not in sys.modules
"""


def test_what_pages_and_the_command_line_import_is_free_of_torch():
    subprocess.run([sys.executable, "-c", WALL], check=True)
