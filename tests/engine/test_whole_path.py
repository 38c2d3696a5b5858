"""The whole path as a probe: real cases on a tiny decoder, the tables with their predictions, the page."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from published_run import a100

from calc.speculative import tokens_per_pass
from probes import jobs, store, whole_path
from probes.harness import Bench
from probes.registry import QUICK
from probes.torch_device import TorchDevice

pytestmark = pytest.mark.torch


def in_a_thread(work):
    """A browser test of the same session leaves its event loop in the main thread; the load test brings one of its own."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(work).result()


@pytest.fixture(scope="module")
def cases():
    """Short versions of all cases but those of static batching, measured here."""
    patch = pytest.MonkeyPatch()
    for name, value in {
        "ANSWER": 24,
        "SHORT_ANSWER": 6,
        "DRAFTED_TOKENS": 40,
        "CONCURRENCY": (1, 2),
        "LEVEL_REQUESTS": 4,
        "LEVEL_OUTPUT": 4,
        "MIXED_REQUESTS": 6,
        "MIXED_USERS": 3,
        "SCHEMES": ("none", "int8", "int4-g128"),
    }.items():
        patch.setattr(whole_path, name, value)
    bench = Bench(device=TorchDevice("cpu"), depth=QUICK)
    found = []
    for case in whole_path.cases(bench):
        if not case.name.startswith("static"):
            content = in_a_thread(case.run).as_json()
            found.append({"probe": "whole_path", "case": case.name, "parameters": case.parameters, **content})
    patch.undo()
    return found


@pytest.fixture
def run(cases):
    """A published run that also measured the whole path: rates of one device, tables of another, only arithmetic between."""
    published = a100()
    return {**published, "cases": [*published["cases"], *cases]}


def test_every_case_measures_something(cases):
    assert [case["case"] for case in cases] == [
        "without a cache",
        "with a cache",
        "weights none",
        "weights int8",
        "weights int4-g128",
        "1 drafts",
        "2 drafts",
        "4 drafts",
        "vllm levels",
        "vllm mixed lengths",
    ]
    assert all(case["value"] > 0 for case in cases)
    by_name = {case["case"]: case for case in cases}
    levels = by_name["vllm levels"]["extra"]["levels"]
    assert [level["concurrency"] for level in levels] == [1, 2]
    assert all(level["ttft_p50_s"] > 0 and level["failed"] == 0 for level in levels)
    assert by_name["weights none"]["extra"]["logit_error"] == 0
    assert (
        0
        < by_name["weights int8"]["extra"]["logit_error"]
        < by_name["weights int4-g128"]["extra"]["logit_error"]
    )


def test_the_tables_stand_beside_predictions(run):
    lines = {(line.table, line.what): line for line in store.whole_path(run)}
    for scheme in ("unquantised", "int8", "int4-g128"):
        weights = lines["weights", f"{scheme}: weights"]
        assert weights.measured == pytest.approx(weights.predicted, rel=0.01), scheme
    without, cached = lines["cache", "without a cache"], lines["cache", "with a cache"]
    assert without.predicted > 0 < cached.predicted
    single = next(case for case in run["cases"] if case["case"] == "1 drafts")
    for drafts in (2, 4):
        line = lines["drafts", f"{drafts} drafts"]
        assert line.predicted == tokens_per_pass(acceptance=single["extra"]["acceptance"], drafts=drafts)
        assert 1 <= line.measured <= drafts + 1
    assert lines["drafts", "1 draft"].predicted is None
    one, two = (lines["levels", f"continuous, {users} at once: throughput"] for users in (1, 2))
    assert 1.2 < two.predicted / one.predicted <= 2
    assert lines["mixed", "continuous"].predicted > 0


def test_a_run_without_rates_predicts_nothing(cases):
    alone = {**a100(), "cases": cases, "device": {"kind": "cpu", "name": "some processor"}}
    found = store.whole_path(alone)
    assert found
    timed = [line for line in found if line.unit in {"s", "tokens/s"}]
    assert all(line.predicted is None for line in timed)
    assert store.whole_path(a100()) == []


def test_the_scenarios_model_is_run_where_the_engine_knows_its_kind():
    assert whole_path._shape("meta-llama/Llama-2-13b-hf")[1].kind == "llama"
    assert whole_path._shape("mistralai/Mixtral-8x7B-v0.1")[0] == whole_path.SHAPE
    assert whole_path._shape(None)[0] == whole_path.SHAPE


def test_a_job_asks_for_rates_and_the_whole_path():
    request = jobs.whole_path_request(device="cpu", model="Qwen/Qwen3-0.6B")
    assert request.extra == {"whole_path": "probes.whole_path"}
    assert {"bandwidth", "gemm", "launch", "decode_attention"} <= set(request.probes)
    assert jobs.hard_limit_s(request.as_json()) > request.group_limit_s


def test_threads_are_given_back(cases):
    """Nothing of the servers is left running."""
    assert cases
    assert torch.get_num_threads() == 1
