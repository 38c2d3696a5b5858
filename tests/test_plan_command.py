"""Verb `plan` as a planner: limits, formats, jobs with a deadline, proofs, and sweeps that travel to workers."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest

from cli import main
from commands.plan_sweep import Task


def plan(capsys, *words: str) -> tuple[int, dict]:
    code = main(["plan", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


SMALL = ("meta-llama/Meta-Llama-3.1-8B", "--input", "1000", "--output", "200")


def test_a_job_with_a_deadline_is_planned_for_its_rate_and_proven(capsys):
    code, record = plan(
        capsys, SMALL[0], "--input", "3000", "--output", "200", "--rate", "10e6", "--deadline-h", "24",
        "--gpu", "h100-sxm5-80gb", "l40s", "--verify", "--arrival-cv", "3", "--top", "2",
    )  # fmt: skip
    first = record["plans"][0]
    assert code == 0
    assert first["rate_per_s"] == pytest.approx(10e6 / 86_400)
    assert first["verified"]["replicas"] <= first["replicas"]
    assert first["verified"]["breaks_at_per_s"] >= first["rate_per_s"]
    assert first["verified"]["state"] != "saturated"
    assert record["searched"]["proven"]


def test_a_plans_throughput_is_that_of_all_its_replicas_at_the_traffic_that_is_asked(capsys):
    code, record = plan(capsys, *SMALL, "--rate", "40", "--tpot", "0.05", "--gpu", "h100-sxm5-80gb")
    first = record["plans"][0]
    assert code == 0
    assert first["replicas"] > 1
    assert first["output_tokens_per_s"] == pytest.approx(40 * 200)
    assert first["output_tokens_per_s"] > first["decode_tokens_per_s"]  # which is one replica's
    full = first["output_tokens_per_s"] / first["utilization"]
    assert first["capacity_tokens_per_s_per_gpu"] * first["gpus"] == pytest.approx(full, rel=1e-9)
    told = first["usd_per_hour"] / 3600 / first["output_tokens_per_s"] * 1e6
    assert first["usd_per_mtok_out"] == pytest.approx(told, rel=1e-9)


def test_the_document_names_every_field_of_a_plan_and_no_other(capsys):
    """docs/plan-record.md: the first column of its tables, against a plan as it is printed."""
    _, record = plan(capsys, *SMALL, "--rate", "1", "--gpu", "h100-sxm5-80gb")
    text = (Path(__file__).parents[1] / "docs/plan-record.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(record["plans"][0])


def test_a_mixture_that_a_person_chose_is_planned_under_the_engine_that_they_chose(capsys):
    code, record = plan(capsys, *SMALL, "--rate", "1", "--gpu", "a100-sxm4-80gb", "--quantization", "q4_k_m")
    assert code == 0
    assert {(row["quantization"], row["engine"]) for row in record["plans"]} == {("q4_k_m", "vllm")}


def test_formats_are_searched_only_when_their_quality_is_accepted(capsys):
    given = (*SMALL, "--rate", "10", "--tpot", "0.02", "--gpu", "h100-sxm5-80gb", "mi210")
    _, stored = plan(capsys, *given)
    _, every = plan(capsys, *given, "--formats", "all", "--kv-formats", "fp8")
    assert {row["quantization"] for row in stored["plans"]} == {"auto"}
    best = {row["gpu"]: row for row in every["plans"]}
    assert best["h100-sxm5-80gb"]["usd_per_hour"] <= stored["plans"][0]["usd_per_hour"]
    if "mi210" in best:
        assert best["mi210"]["quantization"] == "auto"


def test_what_is_not_to_be_had_is_infeasible_and_said(capsys):
    given = (*SMALL, "--rate", "40", "--tpot", "0.03", "--gpu", "l40s")
    code, record = plan(capsys, *given, "--available", "l40s=1")
    assert code == 3
    assert record["plans"] == []
    assert record["nearest"][0]["verdict"]["wall"] == "availability"
    code, record = plan(capsys, *given, "--budget", "0.2")
    assert (code, record["nearest"][0]["verdict"]["wall"]) == (3, "budget")


@pytest.mark.parametrize(
    ("limit", "wall"),
    [
        (["--available", "l40s=0"], "availability"),
        (["--budget", "5"], "budget"),
        (["--power-kw", "1"], "power"),
    ],
)
def test_a_limit_of_nothing_and_an_unknown_use_are_told_without_infinity(capsys, limit, wall):
    gpu = (
        "l40s" if wall == "availability" else "apple-m1"
    )  # neither a price nor a power is published for the latter
    engine = "vllm" if wall == "availability" else "llama.cpp"
    given = ("--rate", "0.1", "--input", "100", "--output", "20", "--gpu", gpu, "--engine", engine)
    code = main(["plan", "Qwen/Qwen3-0.6B", *given, *limit, "--json"])
    text = capsys.readouterr().out
    assert code == 3
    assert json.loads(text)["nearest"][0]["verdict"]["wall"] == wall
    assert "Infinity" not in text


def test_an_own_price_decides(capsys):
    given = (*SMALL, "--rate", "5", "--tpot", "0.03", "--gpu", "l40s", "h100-sxm5-80gb")
    _, record = plan(capsys, *given, "--price", "h100-sxm5-80gb=0.05")
    assert record["plans"][0]["gpu"] == "h100-sxm5-80gb"
    assert record["plans"][0]["price_note"] == "your own price"


def test_a_spare_replica_and_a_busy_share(capsys):
    given = (*SMALL, "--rate", "20", "--tpot", "0.03", "--gpu", "l40s")
    _, lean = plan(capsys, *given, "--target-utilization", "1")
    _, spare = plan(capsys, *given, "--target-utilization", "1", "--spare", "replica")
    first = lean["plans"][0]
    assert first["replicas"] >= first["busy"]
    kept = spare["plans"][0]
    assert kept["replicas"] - 1 >= kept["busy"]


def test_a_sweep_travels_and_one_bad_rate_stops_no_other(capsys):
    words = (*SMALL, "--rate", "1", "--tpot", "0.03", "--gpu", "l40s", "--sweep-rate", "2", "--json")
    assert main(["plan", *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)["sweep"]
    assert row["plan"]["rate_per_s"] == 2
    task = Task(arguments={"source": "nobody/nothing"}, rate_per_s=1.0)
    assert pickle.loads(pickle.dumps(task)) == task


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("--scheduler", "tcp://127.0.0.1:1"), "--sweep-rate"),
        (("--reuse-after", "60"), "--prefix-share above 0"),
        (("--prefix-share", "0.5", "--kv-offload", "host"), "--reuse-after"),
        (
            ("--prefix-share", "0.5", "--reuse-after", "60", "--kv-offload-gb", "9"),
            "--kv-offload host or ssd",
        ),
        (("--prefix-share", "0.5", "--reuse-after", "60", "--pools"), "no --reuse-after"),
    ],
)
def test_a_flag_that_would_change_nothing_is_refused_with_what_it_needs(capsys, words, missing):
    assert main(["plan", *SMALL, "--rate", "1", "--gpu", "l40s", *words]) == 2
    told = capsys.readouterr().err
    assert "changes nothing without" in told
    assert missing in told
    assert "leave the flag out" in told


def test_what_limits_in_whole_nodes_is_measured_against_the_fewest_devices_that_would_do(capsys):
    words = (
        "meta-llama/Llama-2-13b-hf", "--rate", "10", "--input", "512", "--output", "256", "--gpu", "l40s", "--whole-nodes",
    )  # fmt: skip
    _, enough = plan(capsys, *words)
    code, short = plan(capsys, *words, "--most-gpus", "3")
    assert code == 3
    assert short["nearest"][0]["gpus"] == enough["plans"][0]["gpus"]


def test_an_engine_that_the_one_accelerator_does_not_run_is_named_with_a_way_out(capsys):
    code, record = plan(capsys, *SMALL, "--rate", "1", "--gpu", "apple-m2")
    assert code == 3
    assert "does not run on M2" in record["nearest"][0]["verdict"]["reason"]
    assert record["nearest"][0]["verdict"]["nearest"]


@pytest.mark.parametrize(
    ("rate", "said"), [("1000000", "a proof plays at most 4,096"), ("1e-9", "Raise the rate")]
)
def test_a_proof_beyond_the_simulator_says_what_to_do(capsys, rate, said):
    assert main(["plan", *SMALL, "--rate", rate, "--gpu", "l40s", "--verify"]) == 2
    assert said in capsys.readouterr().err


def test_the_line_of_a_plan_says_what_the_search_chose(capsys):
    words = ["plan", *SMALL, "--rate", "40", "--gpu", "h100-sxm5-80gb", "--tpot", "0.02"]
    assert main([*words, "--formats", "fp8", "--kv-formats", "fp8", "--engines", "sglang"]) == 0
    told = capsys.readouterr().out
    assert "weights in fp8, cache in fp8, on sglang" in told
    assert main(words) == 0
    assert "weights in" not in capsys.readouterr().out
