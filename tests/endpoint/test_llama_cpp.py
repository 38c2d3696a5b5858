"""The whole protocol against a real llama.cpp server on loopback: counts, orderings and the knee at its slots."""

import json

import numpy as np
import pytest
from waiting import finished

from calc.endpoint.plan import TestPlan, budget_of
from calc.endpoint.report import report_of
from calc.endpoint.samples import Tag
from calc.endpoint.tables import report_json
from calc.slo import Slo
from cli import main
from probes.endpoint.job import Job, Question

pytestmark = pytest.mark.endpoint
PLAN = TestPlan(
    prompt_lengths=(64, 256, 1024),
    prompt_repeats=3,
    prompt_output=4,
    decode_repeats=4,
    decode_input=64,
    decode_tokens=32,
    concurrency=(1, 4, 16),
    level_input=48,
    level_output=16,
    level_requests=40,
    open_rate_per_s=5.0,
    open_s=2.0,
    cached_pass=True,
)


@pytest.fixture(scope="module")
def record(llama_url):
    return finished(Job.start(Question(url=llama_url, plan=PLAN))).record


@pytest.fixture(scope="module")
def report(record):
    from calc.endpoint.run import run_from_json

    return report_of(run_from_json(record), slo=Slo(ttft_s=100.0, tpot_s=100.0))


def stage(report, name):
    return report.run.stage(name)


def test_discovery_names_engine_model_slots_and_context(report):
    server = report.run.server
    assert (server["engine"], server["models"], server["slots"], server["context_tokens"]) == (
        "llama.cpp",
        ["tiny"],
        4,
        4096,
    )
    assert server["has_metrics"]


def test_nothing_failed_and_as_much_was_sent_as_planned(report):
    assert not report.faults
    assert len(report.run.samples) == budget_of(PLAN).requests
    assert len(stage(report, "prefill")) == 9
    assert len(stage(report, "open loop")) == 10


def test_tokens_are_exactly_as_many_as_asked(report):
    for name, asked in (("prefill", 4), ("decode", 32), ("concurrency 4", 16), ("open loop", 16)):
        assert {s.output_tokens for s in stage(report, name)} == {asked}


def test_prompts_have_the_wanted_length_by_the_servers_count(report):
    for sample in stage(report, "prefill"):
        wanted = min(PLAN.prompt_lengths, key=lambda n, got=sample.prompt_tokens: abs(n - got))
        assert sample.prompt_tokens == pytest.approx(wanted, rel=0.15, abs=20)


def test_no_prompt_was_cached_until_it_was_meant(report):
    assert not [s for s in report.run.samples if Tag.CACHED in s.tags and s.stage != "cached"]
    assert report.cached_tokens["uncached"] < 16
    assert all(s.cached_tokens >= s.prompt_tokens - 1 for s in stage(report, "cached"))


def test_longer_prompts_take_longer(report):
    assert len(report.prompts) == 3
    server = [row.server_s for row in report.prompts]
    assert server == sorted(server)
    assert report.prompts[-1].ttft_s.p50 > report.prompts[0].ttft_s.p50
    assert report.fit.b_s > 0 or report.fit.c_s > 0


def test_the_client_never_sees_a_token_before_the_server_made_it(report):
    for sample in stage(report, "prefill"):
        assert sample.ttft_s > sample.server["prompt_s"]
    for sample in stage(report, "decode"):
        assert sample.e2e_s > sample.server["prompt_s"] + 31 * sample.server["per_token_s"] * 0.5


def test_requests_queue_above_the_slots(report):
    one, four, sixteen = report.levels[:3]
    assert sixteen.queued
    assert not four.queued
    # 16 in flight on 4 slots, less those just between two requests; None where the server was not seen to have any wait
    assert (sixteen.waiting or 0) >= (four.waiting or 0)
    assert sixteen.level.ttft_s.p50 > four.level.ttft_s.p50
    assert sixteen.level.ttft_s.p50 > one.level.ttft_s.p50
    assert any("4 requests at a time" in note for note in report.notes)


def test_the_steady_window_drops_the_opening_burst_and_the_tail(report):
    for row, n in zip(report.levels, (1, 4, 16), strict=False):
        assert row.level.steady
        assert row.level.full_ttft_s.n == 40
        assert row.level.ttft_s.n <= 40 - n
    assert all(row.level.ttft_s.p99 is None for row in report.levels)  # fewer than 100 samples


def test_goodput_counts_everything_under_loose_targets(report):
    for row in report.levels:
        assert row.level.attainment == 1.0
        assert row.level.goodput_per_s == pytest.approx(row.level.requests_per_s)


def test_the_clients_own_cost_is_told(report):
    client = report.run.client
    assert client["null_server"]["streams"] == 16
    assert client["null_server"]["tokens"] == 800
    assert 0 < client["null_server"]["cpu_s"] < 0.1
    assert client["loop_lag_p99_s"] >= client["loop_lag_p50_s"] >= 0


def test_the_record_survives_a_file(record, report):
    from calc.endpoint.run import run_from_text

    again = report_of(run_from_text(json.dumps({"run": record})), slo=Slo(ttft_s=100.0, tpot_s=100.0))
    assert report_json(again) == report_json(report)


def test_a_second_run_finds_nothing_of_the_first_in_the_cache(llama_url, record):
    plan = TestPlan(prompt_lengths=(256,), prompt_repeats=3, decode_repeats=0, concurrency=())
    state = finished(Job.start(Question(url=llama_url, plan=plan)))
    cached = [s.cached_tokens for s in state.run.stage("prefill")]
    assert np.max(cached) <= 16


def test_bench_prints_one_object_and_writes_a_report(llama_url, tmp_path, capsys):
    out = tmp_path / "run.html"
    words = ["bench", llama_url, "--concurrency", "1,2", "--prompts", "64", "--input", "32", "--output", "32"]
    words += ["--requests", "8", "--quick", "--ttft", "60", "--json", "--out", str(out)]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "tiny"
    assert [row["concurrency"] for row in found["levels"]] == [1, 2]
    assert found["levels"][1]["attainment"] == 1.0
    # A client that a busy machine kept waiting finds a stream's tokens all at once.
    read_at_once = found["tags"].get(Tag.BUFFERED, 0)
    assert 5 - read_at_once <= found["decode"]["tpot_s"]["n"] <= 5
    page = out.read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page


def test_bench_predicts_for_a_named_model_and_accelerator(llama_url, capsys):
    words = ["bench", llama_url, "--concurrency", "1", "--prompts", "64", "--input", "32", "--output", "8"]
    words += ["--requests", "8", "--quick", "--source", "Qwen/Qwen3-8B", "--gpu", "h100-sxm-80gb", "--json"]
    assert main([*words, "--engine", "llama.cpp"]) == 0
    decode = json.loads(capsys.readouterr().out)["decode"]
    assert decode["predicted_s"]["low"] <= decode["predicted_s"]["best"] <= decode["predicted_s"]["high"]
    between = sum(decode["causes_s"].values()) + decode["unexplained_s"]
    assert decode["tpot_s"]["p50"] == pytest.approx(decode["limit_s"] + between, rel=1e-6)
    assert decode["sentence"]


def test_bench_at_a_dead_port_is_a_probe_error(capsys):
    assert main(["bench", "http://127.0.0.1:9", "--concurrency", "1", "--json"]) == 4
    assert "No server answers" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_bench_refuses_a_key_in_the_url(capsys):
    assert main(["bench", "http://sk-secret@127.0.0.1:9", "--json"]) == 2
    assert "secret" not in capsys.readouterr().out
