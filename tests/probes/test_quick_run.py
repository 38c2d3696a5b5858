"""A real quick measurement of this processor: structure, orderings, sanity. No timing is asserted."""

import json

import pytest

from calc.profile import profile_from_json
from calc.profile_numbers import DEVICE_NUMBERS, SHARE
from calc.provenance import Provenance
from presets import accelerators, profiles
from probes import assemble, measured, readings, registry, store

pytestmark = pytest.mark.torch

MEASURED = {"bandwidth.16bit", "bandwidth.activations", "compute.16bit", "kernel_s"}
NOISE = 2.0
CHECKED = {"bandwidth", "skinny_gemm", "gemm", "sustained", "prefill_attention", "decode_attention"}


def test_every_probe_that_a_processor_has_gave_a_result(quick_run):
    expected = {p.name for p in registry.PROBES if "cpu" in p.devices and p.group != registry.PARENT}
    assert {case["probe"] for case in quick_run["cases"]} == expected
    assert quick_run["status"] == assemble.COMPLETE
    assert quick_run["device"]["kind"] == "cpu"
    assert quick_run["software"]["torch"]


def test_every_result_is_positive_timed_and_checked(quick_run):
    for case in quick_run["cases"]:
        timing = case["timing"]
        assert case["value"] > 0
        assert 0 < timing["best_s"] <= timing["p10_s"] <= timing["median_s"] <= timing["p90_s"]
        assert timing["samples"] >= 1
        assert timing["mode"] == "host"
    assert {case["probe"] for case in quick_run["cases"] if case["error"] is not None} == CHECKED


def test_memory_gives_between_1_and_1000_gb_per_s(quick_run):
    assert 1e9 < readings.readings(quick_run).peak_bandwidth < 1e12


def test_more_tokens_never_take_longer_per_token(quick_run):
    """From one token to the most that were measured, within what a busy machine's noise may add. In fp32: without units
    for bf16 torch multiplies many bf16 tokens by another, slower way than one."""
    products = [
        case
        for case in readings.of_probe(quick_run["cases"], "gemm")
        if case["parameters"]["format"] == "fp32"
    ]
    products.sort(key=lambda case: case["parameters"]["tokens"])
    per_token = [case["timing"]["best_s"] / case["parameters"]["tokens"] for case in products]
    assert per_token[-1] <= NOISE * per_token[0]


def test_the_layer_is_held_against_the_sum_of_its_parts(quick_run):
    rows = quick_run["state"]["layers"]
    assert {row["phase"] for row in rows} >= {"decode"}
    assert all(row["parts_s"] > 0 and row["ratio"] > 0 for row in rows)


def test_the_printed_json_is_a_profile_whose_measured_numbers_say_so(quick_run):
    record = json.loads(json.dumps(measured.profile_json(quick_run)))
    profile = profile_from_json(record)
    found = {name for name, n in profile.device.numbers.items() if n.provenance is Provenance.MEASURED}
    assert found >= MEASURED
    assert all(n.of == DEVICE_NUMBERS[name] for name, n in profile.device.numbers.items())
    shares = [n.value for n in profile.device.numbers.values() if n.of.startswith(SHARE)]
    assert all(0 < value <= 1 for value in shares)
    assert profile.engine.engine == "torch"
    assert accelerators.load(record["gpu"]).id == record["gpu"]
    assert record["run"]["id"] == quick_run["id"]


def test_a_run_changes_the_device_and_never_the_engine(quick_run, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(measured.profile_json(quick_run)))
    fitted = profiles.load("a100-sxm4-80gb", "vllm")
    found = profiles.read_over(fitted, path)
    assert found.engine == fitted.engine
    assert found.spread == fitted.spread
    assert found.device.numbers["kernel_s"].value == readings.readings(quick_run).kernel_s


def test_a_stored_run_is_found_compared_exported_and_imported(quick_run, data_folder):
    store.save(quick_run)
    assert [run["id"] for run in store.history()] == [quick_run["id"]]
    assert all(row["ratio"] == 1 for row in store.compare(quick_run, quick_run))
    assert store.import_run(store.export_text(quick_run))["id"] == quick_run["id"]
    other = {**quick_run, "started": "2026-01-01T00:00:00+00:00"}
    assert store.import_run(json.dumps(other))["id"] != quick_run["id"]
    for run in store.history():
        store.delete(run["id"])
    assert store.history() == []


def test_a_stored_run_reaches_whoever_resolves_a_scenario(quick_run, data_folder):
    store.save(quick_run)
    accelerator = measured.accelerator_of(quick_run)
    found = profiles.with_stored_run(profiles.load(accelerator, "llama.cpp"), accelerator, quick_run["id"])
    assert found.device == measured.device_profile(quick_run)
    card = accelerators.load("a100-sxm4-80gb")
    elsewhere = profiles.load(card, "vllm")
    assert profiles.with_stored_run(elsewhere, card, quick_run["id"]) is elsewhere
