"""The command line is a contract: one JSON object, named exit codes, no network, never a traceback."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import cli

ROOT = Path(__file__).resolve().parents[1]
TEXTBOOK = ["textbook-13b", "--gpu", "a100-textbook"]


@pytest.mark.reference
def test_model_counts_qwen3_exactly(run, worked):
    code, record = run("model", "Qwen/Qwen3-0.6B")
    assert code == 0
    assert record["kv"]["bytes_per_token"] == worked["kv-qwen3-0.6b"]["want"]
    assert record["params"]["total"] == worked["params-qwen3-0.6b"]["want"]
    assert record["params"]["tied"] is True
    assert record["sequence_bytes"]["1024"] == 1024 * worked["kv-qwen3-0.6b"]["want"]


@pytest.mark.reference
@pytest.mark.parametrize(
    ("model", "dtype", "name"),
    [
        ("textbook-13b", "bf16", "kv-llama2-13b"),
        ("textbook-13b", "fp8", "kv-13b-fp8"),
        ("meta-llama/Llama-3.3-70B-Instruct", "bf16", "kv-llama3-70b"),
        ("meta-llama/Meta-Llama-3.1-8B", "bf16", "kv-llama3-8b"),
    ],
)
def test_kv_bytes_per_token(run, worked, model, dtype, name):
    assert run("model", model, "--kv-dtype", dtype)[1]["kv"]["bytes_per_token"] == worked[name]["want"]


@pytest.mark.reference
@pytest.mark.parametrize("index", range(4))
def test_decode_steps_of_the_textbook(run, worked, index):
    entry = worked["step-13b-a100"]
    batch = entry["in"]["batch"][index]
    _, record = run("step", *TEXTBOOK, "--batch", batch, "--context", 640)
    assert 1e3 * record["decode"]["s"]["best"] == pytest.approx(entry["want"]["step_ms"][index], rel=2e-3)
    assert 1e3 * record["decode"]["terms"]["compute"] == pytest.approx(
        entry["want"]["compute_ms"][index], rel=2e-3
    )
    assert record["decode"]["tokens_per_s"] == pytest.approx(entry["want"]["tokens_per_s"][index], rel=2e-3)


@pytest.mark.reference
def test_prefill_of_the_textbook(run, worked):
    _, record = run("step", *TEXTBOOK, "--prefill", 512, "--mfu", 0.5)
    assert 1e3 * record["prefill"]["s"]["best"] == pytest.approx(
        worked["prefill-13b-a100"]["want"]["prefill_ms"], rel=1e-3
    )


@pytest.mark.reference
def test_the_textbook_plan_buys_three(run, worked):
    words = ["--rate", 10, "--input", 512, "--output", 256, "--tpot", 0.05, "--kv-bytes-per-gpu", 50e9]
    code, record = run("plan", *TEXTBOOK, *words)
    plan, want = record["plans"][0], worked["gpus-13b-a100"]["want"]
    assert code == 0
    assert plan["gpus"] == want["buy"]
    assert plan["launch"][0].startswith("vllm serve textbook-13b")
    assert plan["busy"] == pytest.approx(want["busy"], rel=2e-3)
    assert plan["binding_limit"] == "kv memory"
    assert plan["batch"] == worked["capacity-13b-a100"]["want"]["paged"]
    assert record["levers"]


@pytest.mark.reference
def test_the_example_8b_request_alone(run, worked):
    entry = worked["request-example-8b"]["want"]
    example = ["example-8b", "--gpu", "example-gpu"]
    _, record = run("step", *example, "--batch", 1, "--context", 1, "--prefill", 2000, "--mfu", 1)
    assert record["prefill"]["s"]["best"] == pytest.approx(entry["prefill_s"], rel=1e-6)
    assert 1e3 * record["decode"]["s"]["best"] == pytest.approx(entry["tpot_ms"], rel=1e-4)


def test_a_405b_model_on_a_small_card_is_infeasible_with_a_way_out(run):
    code, record = run("fit", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "rtx-4060")
    assert code == 3
    assert record["fits"] is False
    assert record["verdict"]["wall"] == "weight memory"
    assert record["verdict"]["short_by"] > 100e9
    assert record["verdict"]["nearest"]


@pytest.mark.parametrize(
    "words",
    [
        ["model", "Shall I compare thee to a summer's day? Thou art more lovely"],
        ["model", "no/such/thing/at/all"],
        ["model", "/nowhere/config.json"],
        ["fit", "Qwen/Qwen3-0.6B", "--gpu", "h1000"],
        ["fit", "Qwen/Qwen3-0.6B"],
        ["step", "Qwen/Qwen3-0.6B", "--gpu", "rtx-4090", "--batch", "-1"],
        ["step", "Qwen/Qwen3-0.6B", "--gpu", "rtx-4090", "--batch", "1e400"],
        ["step", "Qwen/Qwen3-0.6B", "--gpu", "rtx-4090", "--kv-dtype", "int3"],
        ["plan", "Qwen/Qwen3-0.6B", "--rate", "nan", "--input", "1", "--output", "1"],
        ["plan", "Qwen/Qwen3-0.6B", "--rate", "1", "--input", "1", "--output", "1", "--percentile", "100"],
        ["sing"],
        [],
    ],
)
def test_bad_input_is_exit_2_or_4_and_one_json_object(run, words):
    code, record = run(*words)
    assert code in {2, 4}
    assert record["error"]["message"]


@pytest.mark.parametrize("rate", ["0", "1e6"])
def test_no_traffic_and_absurd_traffic_have_answers(run, rate):
    code, record = run("plan", *TEXTBOOK, "--rate", rate, "--input", 512, "--output", 256)
    assert code == 0
    assert record["plans"][0]["replicas"] >= 1


@pytest.mark.parametrize("verb", [["--help"], ["model", "Qwen/Qwen3-0.6B"]])
def test_heavy_modules_stay_out_of_help_and_model(verb):
    code = (
        "import sys, cli\n"
        "try:\n    cli.main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numba', 'pandas', 'streamlit', 'plotly', 'huggingface_hub', 'torch', 'pynvml'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *verb], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.reference
@pytest.mark.parametrize("index", [0, 1])
def test_endpoint_replicas(run, worked, index):
    entry = worked["replicas-p95-150"]
    service_s = entry["in"]["service_s"][index]
    words = ["--rate", 40, "--service-s", service_s, "--e2e", 0.150, "--percentile", 95]
    code, record = run("plan", *words)
    assert code == 0
    assert record["plans"][0]["replicas"] == entry["want"][index]
    assert record["plans"][0]["e2e_s"]["best"] <= 0.150


def test_an_endpoint_slower_than_its_target_is_infeasible(run):
    code, record = run("plan", "--rate", 1, "--service-s", 1.0, "--e2e", 0.5)
    assert (code, record["plans"]) == (3, [])
    assert "idle replica" in record["rejected"][0]["why"]


def test_an_output_that_was_closed_before_is_said_and_no_traceback():
    command = f'"{sys.executable}" "{ROOT / "cli.py"}" model Qwen/Qwen3-0.6B >&-'
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 4
    assert ended.stderr.startswith("ridgebeam: the answer could not be written")


def test_a_plan_is_verified_by_simulation(run):
    words = [
        "--rate",
        10,
        "--input",
        512,
        "--output",
        256,
        "--tpot",
        0.05,
        "--kv-bytes-per-gpu",
        50e9,
        "--verify",
    ]
    code, record = run("plan", *TEXTBOOK, *words)
    verified = record["plans"][0]["verified"]
    assert code == 0
    assert verified["holds"] is True
    assert verified["tpot_s"]["p99"] >= verified["tpot_s"]["p50"]
    assert verified["breaks_at_per_s"] > verified["rate_per_s"]


def test_verbs_agree_about_one_replica_and_its_users(run):
    """What a plan says in JSON for 32 users is what the serving point says, not the times of a request alone."""
    where = [
        "meta-llama/Meta-Llama-3.1-8B",
        "--gpu",
        "h100-sxm5-80gb",
        "--tp",
        "1",
        "--input",
        4000,
        "--output",
        200,
    ]
    plan = run("plan", *where, "--concurrency", 32, "--headroom", 0)[1]["plans"][0]
    cost = run("cost", *where, "--concurrency", 32, "--headroom", 0)[1]["plan"]
    point = run("serve-point", *where, "--concurrency", 32)[1]
    step = run("step", *where[:5], "--batch", 32, "--context", 4100, "--prefill", 4000)[1]
    assert plan["replicas"] == 1
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert plan[name]["best"] == pytest.approx(point[name]["best"], rel=2e-3)
        assert cost[name] == plan[name]
    assert plan["step_s"]["best"] == pytest.approx(step["decode"]["s"]["best"], rel=1e-6)
    assert plan["prefill_s"]["best"] == pytest.approx(step["prefill"]["s"]["best"], rel=1e-6)
    made = plan["rate_per_s"] * 200
    assert made == pytest.approx(point["tokens_per_s"]["best"], rel=2e-3)
    assert plan["output_tokens_per_s"] == pytest.approx(point["tokens_per_s"]["best"], rel=2e-3)
    assert plan["decode_tokens_per_s"] == pytest.approx(step["decode"]["tokens_per_s"], rel=1e-6)
    assert plan["tokens_per_s"] == plan["decode_tokens_per_s"]
    assert plan["tokens_per_s"] > plan["output_tokens_per_s"]  # prompts come between the steps
    assert plan["usd_per_mtok_out"] == pytest.approx(plan["usd_per_hour"] / 3600 / made * 1e6, rel=2e-3)


def test_accuracy_is_one_json_object_with_memory_in_it(run):
    code, record = run("accuracy")
    assert code == 0
    assert record["measurements"]
    groups = {(g["check"], g["group"]): g for g in record["engine_memory"]["groups"]}
    assert groups["weights", "16 bit and fp8"]["median"] < 0.005


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["fit", "Qwen/Qwen3-0.6B", "--gpu", "rtx-4090", "--tp", "3"], "16 query heads"),
        (["fit", "Qwen/Qwen3-0.6B", "--gpu", "l40s", "--block-size", "7"], "1, 8, 16, 32, 64, 128, 256 tokens"),
        (["fit", "Qwen/Qwen3-0.6B", "--gpu", "l40s", "--images", "0"], "a model that sees images"),
        (["fit", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "h200-sxm-141gb", "--tp", "4",
          "--decode-context-parallel", "3"], "must divide TP4"),
        (["fit", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "h200-sxm-141gb", "--tp", "8",
          "--decode-context-parallel", "2"], "Take TP16"),
        (["fit", "Qwen/Qwen3-0.6B", "--gpu", "l40s", "--mtp"], "draft layers of its own"),
        (["fit", "Qwen/Qwen3-0.6B", "--gpu", "l40s", "--state-dtype", "fp32"], "a model with recurrent states"),
        (["fit", "Qwen/Qwen3-0.6B", "--gpu", "l40s", "--gpu-layers", "3"], "--engine llama.cpp or ollama"),
        (["step", "Qwen/Qwen3-0.6B", "--gpu", "rtx-4090", "--batch", "1e300"], "at most 1,000,000,000"),
        (["model", "Qwen/Qwen3-0.6B", "--context", "1e300"], "at most 1,000,000,000"),
        (["simulate", "--rate", "1", "--input", "9", "--output", "9", "--step-ms", "5,0,0,0", "--seed", "-1"], "--seed"),
    ],
)  # fmt: skip
def test_numbers_beyond_meaning_are_refused_by_name(run, words, named):
    code, record = run(*words)
    assert code == 2
    assert named in record["error"]["message"]


def test_a_port_that_is_taken_or_none_is_refused_with_a_way_out(capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        for port in (other.getsockname()[1], 99_999, -1):
            assert cli.main(["app", "--port", str(port)]) == 2
            said = capsys.readouterr().err
            assert f"--port: got {port}" in said
            assert "Take another" in said


def test_a_request_longer_than_the_models_context_is_infeasible(run):
    # Qwen3-0.6B's config ends at 40,960 positions; vLLM refuses longer prompts unless a longer limit is set.
    words = [
        "plan",
        "Qwen/Qwen3-0.6B",
        "--gpu",
        "rtx-4090",
        "--rate",
        "0.01",
        "--input",
        "60000",
        "--output",
        "100",
    ]
    code, record = run(*words)
    assert code == 3
    assert "context" in {reason["why"] for reason in record["rejected"]}
    verdict = record["nearest"][0]["verdict"]
    assert (verdict["wall"], verdict["short_by"]) == ("context", 60_100 - 40_960)
    assert run(*words, "--max-model-len", "65536")[0] == 0


def test_a_plan_reads_as_layout_times_and_price(capsys):
    assert (
        cli.main(
            [
                "plan",
                "Qwen/Qwen3-0.6B",
                "--gpu",
                "rtx-4090",
                "--rate",
                "1",
                "--input",
                "100",
                "--output",
                "100",
            ]
        )
        == 0
    )
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert "would bind first" in first
    assert "fewer than one is active at peak" in first
    assert second.strip().startswith("1 replica of TP1, ")
    assert "TPOT" in second
    assert "an hour" in second


def test_several_accelerators_are_compared_in_either_spelling(run):
    traffic = ["--rate", "1", "--input", "100", "--output", "100"]
    model, gpus = "Qwen/Qwen3-0.6B", ["rtx-4090", "l4"]
    for words in (
        [model, "--gpu", *gpus],
        [model, "--gpu", gpus[0], "--gpu", gpus[1]],
        ["--gpu", *gpus, model],
    ):
        code, record = run("plan", *words, *traffic)
        assert code == 0
        assert {plan["gpu"] for plan in record["plans"]} == set(gpus)


@pytest.mark.parametrize(("option", "value"), [("--rate", "1e-300"), ("--step-ms", "1e300,0,0,0")])
def test_a_simulated_clock_beyond_doubles_is_refused(run, option, value):
    words = {"--rate": "1", "--step-ms": "5,0,0,0"} | {option: value}
    given = [word for pair in words.items() for word in pair]
    code, record = run("simulate", *given, "--input", "9", "--output", "9")
    assert code == 2
    assert option.strip("-") in record["error"]["message"]


def test_one_user_at_home_needs_one_card(run):
    # 30% more than one user is still one. Thirteen slots of 16,000 tokens at 256 KiB are 54.5 GB beside 20 GB of weights:
    # more than three cards of 24 GiB hold, and within four.
    words = [
        "plan",
        "Qwen/Qwen3-32B",
        "--gpu",
        "rtx-4090",
        "--engine",
        "llama.cpp",
        "--quantization",
        "q4_k_m",
    ]
    code, record = run(*words, "--concurrency", "1", "--input", "7000", "--output", "1000")
    assert (code, record["plans"][0]["gpus"]) == (0, 1)
    code, record = run(*words, "--concurrency", "10", "--input", "7000", "--output", "1000")
    assert (code, record["plans"][0]["gpus"]) == (0, 4)


def test_a_named_part_without_a_needed_number_says_which(run):
    code, record = run(
        "plan", "Qwen/Qwen3-8B", "--gpu", "epyc-7763", "--rate", "1", "--input", "9", "--output", "9"
    )
    assert code == 2
    assert "memory" in record["error"]["message"]


def test_prompts_beyond_the_models_context_are_not_simulated(run):
    code, record = run(
        "simulate", "Qwen/Qwen3-0.6B", "--gpu", "l4", "--rate", "1", "--input", "50000", "--output", "9"
    )
    assert code == 2
    assert "40,960" in record["error"]["message"]


def test_pools_are_launched_as_two_deployments_and_refused_where_nothing_models_them(run, capsys):
    words = [
        "launch", "meta-llama/Llama-2-13b-hf", "--gpu", "h100-sxm5-80gb",
        "--rate", "10", "--input", "2048", "--output", "256", "--pools",
    ]  # fmt: skip
    assert cli.main([*words, "--print", "manifest"]) == 0
    told = capsys.readouterr().out
    assert 'app.kubernetes.io/component: "prefill"' in told
    assert 'app.kubernetes.io/component: "decode"' in told
    code, record = run(*words, "--fidelity", "textbook")
    assert code == 2
    assert "changes nothing without --fidelity" in record["error"]["message"]
