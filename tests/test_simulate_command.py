"""`ridgebeam simulate` as the contract states it: one JSON object, its keys, exit codes, files."""

import csv
import json

import pytest

from cli import main

STEP = ("--step-ms", "7.5,0.05,0.02,0.00015")
TRAFFIC = ("--rate", "4", "--input", "200", "--output", "40", "--requests", "300", "--length-cv", "1")
KEYS = {
    "requests", "ttft_s", "tpot_s", "e2e_s", "preemptions", "steps", "goodput_per_s", "attainment", "state", "wall_s",
}  # fmt: skip


def told(capsys, *words):
    code = main(["simulate", *words, "--json"])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return code, json.loads(out)


def test_the_stated_keys_are_there(capsys):
    code, record = told(capsys, *TRAFFIC, *STEP, "--ttft", "0.5", "--tpot", "0.05")
    assert code == 0
    assert set(record) >= KEYS
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert set(record[name]) >= {"mean", "p50", "p90", "p99"}
    assert record["requests"] == 300
    assert record["state"] == "stable"


@pytest.mark.reference
def test_a_trace_gives_what_vidur_gave(capsys, reference):
    want = json.loads((reference / "traces/vidur/summary.json").read_text())["aff_sarathi_b1500"]
    code, record = told(
        capsys, "--trace", str(reference / "traces/vidur/azconv2000.csv.gz"), *STEP,
        "--engine-rules", "sarathi", "--blocks", "1500",
    )  # fmt: skip
    assert code == 3
    assert record["state"] == "saturated"
    assert record["preemptions"] == want["restarts"]
    assert record["ttft_s"]["p99"] == pytest.approx(want["ttft_s"]["p99"], rel=1e-3)


def test_a_seed_repeats_and_another_differs(capsys):
    records = [told(capsys, *TRAFFIC, *STEP, "--seed", seed)[1] for seed in ("1", "1", "2")]
    assert records[0]["e2e_s"] == records[1]["e2e_s"]
    assert records[0]["e2e_s"] != records[2]["e2e_s"]


@pytest.mark.parametrize("family", ["vllm", "vllm-v0", "sglang", "nano-vllm", "sarathi", "orca", "static"])
def test_every_engine_serves(capsys, family):
    code, record = told(capsys, *TRAFFIC, *STEP, "--engine-rules", family)
    assert code in (0, 3)
    assert record["requests"] == 300


def test_files_are_written(capsys, tmp_path):
    told(
        capsys, *TRAFFIC, *STEP, "--csv", str(tmp_path / "r.csv"), "--chrome-trace", str(tmp_path / "t.json")
    )
    with (tmp_path / "r.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 300
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@pytest.mark.parametrize("flag", ["--csv", "--chrome-trace"])
def test_a_file_that_cannot_be_written_is_named(capsys, tmp_path, flag):
    code, record = told(capsys, *TRAFFIC, *STEP, flag, str(tmp_path / "no folder/here"))
    assert code == 2
    assert f"{flag}: got" in record["error"]["message"]


def test_the_search_says_what_it_found(capsys):
    code, record = told(capsys, *TRAFFIC, *STEP, "--ttft", "0.2", "--percentile", "95", "--find", "rate")
    assert code == 0
    assert record["rate_per_s"] > 4
    _, record = told(capsys, *TRAFFIC, *STEP, "--ttft", "0.2", "--percentile", "95", "--find", "replicas")
    assert record["replicas"] == 1


def test_traffic_like_a_public_trace(capsys):
    code, record = told(capsys, "--traffic", "azure-conversation", "--requests", "2000", "--rate", "2", *STEP)
    assert (code, record["requests"]) == (0, 2000)
    code, record = told(capsys, "--traffic", "nobody", *STEP)
    assert code == 2
    assert "azure-code" in record["error"]["message"], record


def test_users_who_wait(capsys):
    code, record = told(
        capsys,
        "--users",
        "8",
        "--input",
        "100",
        "--output",
        "20",
        "--requests",
        "200",
        "--think",
        "0.2",
        *STEP,
    )
    assert (code, record["requests"]) == (0, 200)


def test_a_model_gives_step_time_and_blocks(capsys):
    code, record = told(capsys, "example-8b", "--gpu", "h100-sxm5-80gb", *TRAFFIC)
    assert code == 0
    # weights once a step at the textbook's bandwidth: no token can come faster
    assert record["tpot_s"]["p50"] > 16e9 / 3.36e12


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (TRAFFIC, "give --step-ms"),
        ((*TRAFFIC, "--step-ms", "1,2"), "four numbers"),
        (STEP, "give --trace"),
        ((*TRAFFIC, *STEP, "--router", "best"), "router"),
        ((*TRAFFIC, *STEP, "--engine-rules", "orca", "--token-budget", "512"), "do not have it"),
        ((*TRAFFIC, *STEP, "--blocks", "3"), "alone needs"),
        ((*TRAFFIC, *STEP, "--block-size", "1e9"), "block_size"),
        (("model", *TRAFFIC, *STEP), "give one of the two"),
    ],
)
def test_bad_input_is_code_two(capsys, words, why):
    code, record = told(capsys, *words)
    assert code == 2
    assert why in record["error"]["message"]


def test_an_absent_trace_is_code_four(capsys, tmp_path):
    code, _ = told(capsys, "--trace", str(tmp_path / "none.csv"), *STEP)
    assert code == 4


def test_prompts_on_replicas_of_their_own(capsys):
    words = ("--prefill-replicas", "2", "--link", "10,0.001", "--kv-bytes-per-token", "800000")
    _, together = told(capsys, *TRAFFIC, *STEP)
    _, apart = told(capsys, *TRAFFIC, *STEP, *words)
    # 200 tokens of 0.8 MB on 10 GB/s are 16 ms, and one of latency
    assert apart["transfer_s"]["p50"] > 0.005
    assert apart["ttft_s"]["mean"] < together["ttft_s"]["mean"]
    assert together["transfer_s"]["mean"] is None


def test_drafts_shorten_answers_at_a_light_load(capsys):
    _, plain = told(capsys, *TRAFFIC, *STEP)
    _, drafted = told(capsys, *TRAFFIC, *STEP, "--drafts", "4", "--acceptance", "0.8")
    assert drafted["tokens_per_pass"] == pytest.approx(3.3616, rel=0.05)
    assert drafted["tpot_s"]["mean"] < 0.5 * plain["tpot_s"]["mean"]


def test_a_text_comes_back_from_host_memory(capsys, tmp_path):
    """A card of one text and a little: the third request asks for the first one's, 2,048 tokens of four blocks of the trace."""
    lines = [
        {
            "timestamp": 20_000 * i,
            "input_length": 2048,
            "output_length": 5,
            "hash_ids": [4 * text + k for k in range(4)],
        }
        for i, text in enumerate((1, 2, 1))
    ]
    trace = tmp_path / "texts.jsonl"
    trace.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    pool = ("--trace", str(trace), *STEP, "--blocks", "140", "--kv-bytes-per-token", "800000")
    _, record = told(capsys, *pool, "--tier", "10,25")
    assert record["loaded_tokens"] > 1_500
    _, record = told(capsys, *pool, "--tier", "10,1")
    assert record["loaded_tokens"] == 0
    _, record = told(capsys, *pool, "--tier", "10,25", "--prefix-ttl", "5")
    assert record["loaded_tokens"] == 0


def test_groups_of_samples_are_swapped(capsys):
    words = (
        "--rate",
        "40",
        "--input",
        "200",
        "--output",
        "40",
        "--requests",
        "60",
        "--engine-rules",
        "vllm-v0",
    )
    pool = ("--blocks", "100", "--kv-bytes-per-token", "800000", "--samples", "4", "--swap", "50,25")
    _, record = told(capsys, *words, *STEP, *pool)
    assert record["swap_outs"] > 0
    assert record["swap_outs"] == record["preemptions"]


def test_beams_fork_and_are_dropped(capsys):
    words = ("--rate", "40", "--input", "200", "--output", "40", "--requests", "40", "--engine-rules", "vllm-v0")  # fmt: skip
    pool = ("--blocks", "150", "--kv-bytes-per-token", "800000", "--swap", "50,25")
    _, beams = told(capsys, *words, *STEP, *pool, "--beams", "4")
    _, apart = told(capsys, *words, *STEP, *pool, "--samples", "4")
    _, never = told(capsys, *words, *STEP, *pool, "--beams", "4", "--beam-dropped", "0")
    assert beams["beams_dropped"] > beams["beam_copies"] > 0
    ample = ("--blocks", "4000", *pool[2:])
    _, shared = told(capsys, *words, *STEP, *ample, "--beams", "4")
    _, whole = told(capsys, *words, *STEP, *ample, "--samples", "4")
    assert shared["peak_kv_share"] < whole["peak_kv_share"]
    assert never["e2e_s"] == pytest.approx(apart["e2e_s"], rel=1e-9)
    for name in ("swap_outs", "steps", "beam_copies"):
        assert never[name] == apart[name]
    assert main(["simulate", *words, *STEP, *pool, "--beams", "4"]) in {0, 3}
    assert "dropped for forks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "say"),
    [
        (("--engine-rules", "orca", "--drafts", "3"), "speculation"),
        (("--beams", "2"), "beam_search"),
        (("--beam-dropped", "0.5"), "needs --beams"),
        (("--beams", "2", "--samples", "2", "--engine-rules", "vllm-v0"), "exclude"),
        (("--beams", "2", "--beam-dropped", "2", "--engine-rules", "vllm-v0"), "chance"),
        (("--engine-rules", "sglang", "--swap", "1,1", "--kv-bytes-per-token", "1"), "swap"),
        (("--tier", "1,1"), "kv bytes per token"),
        (("--tier", "1", "--kv-bytes-per-token", "1"), "GIB,GB_PER_S"),
        (("--prefill-replicas", "1"), "go together"),
        (("--samples", "2"), "samples"),
        (("--scheduler", "tcp://127.0.0.1:1"), "changes nothing without --repeat 2"),
        (("--repeat", "2", "--find", "rate", "--ttft", "1"), "changes nothing without a load"),
        (("--think", "5"), "changes nothing without --users"),
        (("--gpu", "l4"), "changes nothing without SOURCE"),
        (("--repeat", "2", "--csv", "requests.csv"), "changes nothing without a single run"),
        (
            ("--find", "rate", "--ttft", "1", "--chrome-trace", "t.json"),
            "changes nothing without a single run",
        ),
        (("--router", "prefix-aware", "--engine-rules", "sarathi"), "prefix_aware"),
    ],
)
def test_ideas_that_an_engine_lacks_are_refused(capsys, words, say):
    assert main(["simulate", *TRAFFIC, *STEP, *words]) == 2
    assert say in capsys.readouterr().err
