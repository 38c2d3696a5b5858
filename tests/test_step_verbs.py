"""The verbs step, serve-point and accuracy: their JSON contract, exit codes, and that fidelities do not mix."""

import json

import pytest
from published_run import a100

import cli
from presets import profiles
from probes import measured

MODEL = "meta-llama/Meta-Llama-3.1-8B"


def run(capsys, *words):
    code = cli.main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def range_of(record):
    assert set(record) == {"low", "best", "high"}
    assert 0 < record["low"] <= record["best"] <= record["high"]
    return record["best"]


@pytest.mark.parametrize("fidelity", ["roofline", "expected"])
def test_step_lists_its_operators_and_their_seconds_add_up(capsys, fidelity):
    code, out = run(
        capsys, "step", MODEL, "--gpu", "h100-sxm5-80gb", "--batch", "16", "--context", "2000", "--prefill", "1000",
        "--fidelity", fidelity,
    )  # fmt: skip
    assert code == 0
    best = range_of(out["decode"]["s"])
    assert out["decode"]["tokens_per_s"] == pytest.approx(16 / best)
    assert out["decode"]["bound"] in ("memory", "compute", "communication", "overhead")
    assert sum(out["decode"]["terms"].values()) == pytest.approx(best, rel=1e-6)
    kernels = sum(row["s"] for row in out["operators"])
    assert kernels == pytest.approx(best, rel=1e-6) if fidelity == "roofline" else kernels < best
    range_of(out["prefill"]["s"])


def test_a_step_in_a_format_that_the_engine_does_not_serve_says_so(capsys):
    words = ("step", MODEL, "--gpu", "a100-sxm4-80gb")
    assert run(capsys, *words)[1]["warnings"] == []
    assert "nvfp4" in run(capsys, *words, "--kv-dtype", "nvfp4")[1]["warnings"][0]


def test_two_flags_of_one_meaning_must_agree(capsys):
    words = ("step", MODEL, "--gpu", "h100-sxm5-80gb", "--tp", "2")
    assert run(capsys, *words, "--gpus", "2")[0] == 0
    code, out = run(capsys, *words, "--gpus", "4")
    assert code == 2
    assert "--tp says 2" in out["error"]["message"]


def test_fidelities_come_in_order(capsys):
    words = ("step", MODEL, "--gpu", "h100-sxm5-80gb", "--batch", "8", "--context", "1000")
    bests = {f: run(capsys, *words, "--fidelity", f)[1]["decode"]["s"] for f in ("roofline", "expected")}
    assert bests["roofline"]["best"] <= bests["expected"]["low"]


def test_serve_point_has_both_definitions_of_tpot(capsys):
    code, out = run(
        capsys, "serve-point", MODEL, "--gpu", "h100-sxm5-80gb", "--isl", "1024", "--osl", "512", "--concurrency", "32",
        "--engine", "sglang", "--tp", "2",
    )  # fmt: skip
    assert code == 0
    for name in ("ttft_s", "tpot_s", "tpot_with_first_s", "tokens_per_s", "tokens_per_s_per_gpu"):
        range_of(out[name])
    assert out["tpot_with_first_s"]["best"] > out["tpot_s"]["best"]
    assert out["tokens_per_s"]["best"] == pytest.approx(2 * out["tokens_per_s_per_gpu"]["best"])
    assert out["state"] in ("stable", "near saturation", "saturated")


def test_a_saturated_point_says_so_with_its_exit_code(capsys):
    code, out = run(
        capsys, "serve-point", MODEL, "--gpu", "l4", "--isl", "30000", "--osl", "16", "--concurrency", "64",
    )  # fmt: skip
    assert (code, out["state"]) == (3, "saturated")


def test_serve_point_takes_a_profile_from_a_file(capsys, tmp_path):
    content = profiles.load("h100-sxm5-80gb", "vllm").as_json()
    content["calibration"] = {"scalars": {"decode_factor": 2.0}, "source": "test"}
    content["evidence"] = "calibrated on this endpoint"
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(content))
    words = (
        "serve-point",
        MODEL,
        "--gpu",
        "h100-sxm5-80gb",
        "--isl",
        "100",
        "--osl",
        "500",
        "--concurrency",
        "1",
    )
    plain, own = (run(capsys, *words, *more)[1] for more in ((), ("--profile", str(path))))
    assert own["tpot_s"]["best"] == pytest.approx(2 * plain["tpot_s"]["best"], rel=0.01)
    assert own["evidence"] == "calibrated on this endpoint"
    words = ("step", MODEL, "--gpu", "h100-sxm5-80gb", "--fidelity", "expected")
    plain, own = (run(capsys, *words, *more)[1] for more in ((), ("--profile", str(path))))
    assert own["decode"]["s"]["best"] == pytest.approx(2 * plain["decode"]["s"]["best"], rel=0.01)


def test_a_run_of_another_device_is_refused_and_its_own_is_taken(capsys, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(measured.profile_json(a100())))
    words = ("step", MODEL, "--profile", str(path), "--gpu")
    assert run(capsys, *words, "a100-sxm4-80gb")[0] == 0
    code, out = run(capsys, *words, "l4")
    assert code == 2
    assert "measured on a100-sxm4-80gb" in out["error"]["message"]


def test_a_profile_that_is_none_is_bad_input(capsys, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text("{}")
    words = (
        "serve-point",
        MODEL,
        "--gpu",
        "l4",
        "--isl",
        "10",
        "--osl",
        "10",
        "--concurrency",
        "1",
        "--profile",
        str(path),
    )
    code, out = run(capsys, *words)
    assert code == 2
    assert "profile" in out["error"]["message"]


def test_a_point_that_memory_rules_out_says_so_beside_its_times(capsys):
    # 70.6e9 parameters in bf16 are 141 GB: no card of 24 GB starts them, whatever a step would take.
    code, out = run(
        capsys, "serve-point", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "rtx-4090",
        "--isl", "100", "--osl", "100", "--concurrency", "4",
    )  # fmt: skip
    assert (code, out["memory"]["fits"], out["memory"]["sequences"]) == (3, False, 0)
    range_of(out["tpot_s"])
    code, out = run(
        capsys, "serve-point", MODEL, "--gpu", "h100-sxm5-80gb", "--isl", "100", "--osl", "100", "--concurrency", "4",
    )  # fmt: skip
    assert (code, out["memory"]["fits"]) == (0, True)
    assert out["memory"]["sequences"] >= 4


def test_users_whom_the_cache_does_not_hold_wait_for_their_first_token(capsys):
    """Little's law over everybody: users = requests/s x time of each; those who run stream as they do alone."""
    words = ("serve-point", MODEL, "--gpu", "rtx-4090", "--isl", "2000", "--osl", "200", "--concurrency")
    held = run(capsys, *words, "4")[1]["memory"]["sequences"]
    full = run(capsys, *words, str(held))[1]
    more = run(capsys, *words, str(4 * held))[1]
    assert (full["running"], more["running"]) == (held, held)
    assert more["tokens_per_s"] == full["tokens_per_s"]
    assert more["tpot_s"] == full["tpot_s"]
    requests_per_s = more["tokens_per_s"]["best"] / 200
    assert more["e2e_s"]["best"] * requests_per_s == pytest.approx(4 * held)
    assert more["ttft_s"]["best"] == pytest.approx(more["e2e_s"]["best"] - 199 * full["tpot_s"]["best"])
    range_of(more["ttft_s"])
    assert more["state"] != "stable"


def test_an_answer_of_one_token_has_no_time_per_token(capsys):
    """A classifier's requests are bought no GPUs for a stream that they do not have."""
    words = ("plan", MODEL, "--gpu", "l4", "--rate", "20", "--input", "1000", "--output", "1")
    plain = run(capsys, *words)[1]["plans"][0]
    asked = run(capsys, *words, "--tpot", "0.05")[1]["plans"][0]
    assert asked["gpus"] == plain["gpus"]
    assert asked["tpot_s"] is None
    assert any("no time per output token" in line for line in asked["assumptions"])
    assert asked["decode_busy"] == 0
    (price, *_) = run(capsys, "cost", *words[1:])[1]["bill"]["tenures"]
    each = price["usd_per_hour"] / 3600 / (20 * 1000)  # all that is paid buys the reading of prompts
    assert price["usd_per_mtok"]["input"] == pytest.approx(1e6 * each)
    point = run(
        capsys, "serve-point", MODEL, "--gpu", "l4", "--isl", "1000", "--osl", "1", "--concurrency", "4"
    )[1]
    assert point["tpot_s"] is None
    assert point["e2e_s"] == point["ttft_s"]


def test_an_encoder_has_a_prefill_and_no_decode_step(capsys):
    words = ("step", "BAAI/bge-reranker-v2-m3", "--gpu", "l4")
    code, out = run(capsys, *words)
    assert code == 2
    assert "--prefill" in out["error"]["message"] + str(out)
    code, out = run(capsys, *words, "--prefill", "512")
    assert (code, out["decode"]) == (0, None)
    range_of(out["prefill"]["s"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("step", "--context", "200000"), "context"),
        (("step", "--prefill", "200000"), "prefill"),
        (("serve-point", "--input", "131000", "--output", "500", "--concurrency", "1"), "131,072 positions"),
    ],
)
def test_sequences_beyond_the_models_positions_are_refused(capsys, words, named):
    verb, *rest = words
    assert cli.main([verb, MODEL, "--gpu", "h100-sxm5-80gb", *rest]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [("step",), ("serve-point", "--input", "9", "--output", "9", "--concurrency", "1")]
)
def test_an_engine_that_does_not_run_there_is_refused_with_those_that_do(capsys, words):
    verb, *rest = words
    assert cli.main([verb, MODEL, "--gpu", "apple-m1", "--engine", "vllm", *rest]) == 2
    assert "Engines that run there: llama.cpp, ollama" in capsys.readouterr().err
    assert cli.main([verb, MODEL, "--gpu", "apple-m1", "--engine", "llama.cpp", *rest]) in (0, 3)
