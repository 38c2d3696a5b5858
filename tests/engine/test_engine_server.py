"""The engine behind HTTP, asked by the load test's own client; and the verb that starts it."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest
from event_loop import finished
from models import decoder_of, save_qwen3

from calc.endpoint.plan import TestPlan
from calc.endpoint.report import report_of
from calc.endpoint.run import run_from_json
from calc.endpoint.samples import Fault
from probes.endpoint.client import EndpointClient
from probes.endpoint.dialects import Api, Ask
from probes.endpoint.discovery import means_between, parse_metrics
from probes.endpoint.protocol import measure
from probes.endpoint.safety import Policy, checked_target
from probes.engine.generate import generate

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
LIFE_S = "90"
PLAN = TestPlan(
    prompt_lengths=(64, 256),
    prompt_repeats=2,
    decode_repeats=3,
    decode_input=48,
    decode_tokens=24,
    concurrency=(1, 4),
    level_input=96,
    level_output=12,
    level_requests=8,
    cached_pass=True,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("served")
    save_qwen3(found)
    return found


def started(*words):
    """(process, what it said when it was ready)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "probes.engine_server", *map(str, words), "--port", "0", "--threads", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, json.loads(process.stdout.readline())


@pytest.fixture(scope="module")
def server(folder):
    process, ready = started(
        folder, "--blocks", 400, "--max-seqs", 4, "--token-budget", 128, "--seconds", LIFE_S
    )
    yield ready["url"]
    process.kill()
    process.wait()
    process.stdout.close()


def post(url, path, **body):
    return httpx2.post(url + path, json=body, timeout=30, trust_env=False)


def counters(url):
    return parse_metrics(httpx2.get(f"{url}/metrics", trust_env=False).text)


def ask(url, api, prompt, tokens):
    async def once():
        async with EndpointClient.open(checked_target(url, Policy()), api) as client:
            return await client.ask(Ask(model="", prompt=prompt, max_tokens=tokens), stage="test")

    return finished(once())


def test_the_load_test_measures_it(server):
    """Every stage of a run: lengths, decode, concurrency, the cached pass; the server's own means beside the client's."""
    record = finished(measure(checked_target(server, Policy()), Api.CHAT, PLAN, client_cost=False))
    assert [s["fault"] for s in record["samples"]] == [None] * len(record["samples"])
    report = report_of(run_from_json(record))
    assert [row.level.concurrency for row in report.levels if row.level.concurrency] == [1, 4]
    assert report.cached_tokens["cached"] > 100 > report.cached_tokens["uncached"]
    assert record["server"]["context_tokens"] == 4096
    assert record["server"]["has_metrics"]
    means = record["server_means"]["concurrency 4"]
    assert set(means) == {"ttft_s", "tpot_s", "queue_s"}
    assert 0 < means["ttft_s"] <= report.levels[-1].level.ttft_s.mean
    asked = [s for s in record["samples"] if s["stage"] == "decode"]
    assert [s["output_tokens"] for s in asked] == [24] * len(asked)
    assert [s["chunks"] for s in asked] == [24] * len(asked)


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS])
def test_usage_counts_tokens_and_cached_ones(server, api):
    prompt = f"{api} " + "a text that comes twice " * 8
    first, second = ask(server, api, prompt, 6), ask(server, api, prompt, 6)
    assert (first.ok, first.output_tokens, first.cached_tokens) == (True, 6, 0)
    extra = len("user: \nassistant: ") if api is Api.CHAT else 0
    assert first.prompt_tokens == len(prompt) + extra
    assert second.cached_tokens == (second.prompt_tokens - 1) // 16 * 16


def test_greedy_answers_are_the_engines(server, folder):
    prompt = [5, 80, 3, 200, 17]
    answer = post(server, "/v1/completions", prompt=prompt, max_tokens=12, temperature=0).json()
    expected = generate(decoder_of(folder), prompt, 12).tokens
    printable = "".join(chr(token) if 32 <= token < 127 else f"⟨{token}⟩" for token in expected)
    assert answer["choices"][0]["text"] == printable
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] == len(prompt) + 12
    chat = post(
        server, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=4, seed=3
    )
    again = post(
        server, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}], max_tokens=4, seed=3
    )
    assert chat.json()["choices"] == again.json()["choices"]


def test_the_metrics_count(server):
    before = counters(server)
    post(server, "/v1/completions", prompt="counted", max_tokens=7)
    after = counters(server)
    changed = {name: after[name] - before[name] for name in after}
    assert changed["ridgebeam:generation_tokens_total"] == 7
    assert changed["ridgebeam:prompt_tokens_total"] == len("counted")
    assert changed["ridgebeam:passes_total"] == 7
    assert means_between(before, after)["ttft_s"] > 0
    assert after["ridgebeam:num_requests_running"] == 0


def test_who_hangs_up_frees_the_place(server):
    """A stream that is closed after its first bytes leaves no running request and no blocks behind."""
    before = counters(server)["ridgebeam:generation_tokens_total"]
    body = {"prompt": "never read to its end", "max_tokens": 900, "stream": True, "ignore_eos": True}
    with httpx2.stream(
        "POST", f"{server}/v1/completions", json=body, timeout=30, trust_env=False
    ) as response:
        next(response.iter_raw())
    until = time.monotonic() + 30
    while counters(server)["ridgebeam:num_requests_running"] and time.monotonic() < until:
        time.sleep(0.05)
    after = counters(server)
    assert after["ridgebeam:kv_cache_usage_perc"] == 0
    assert after["ridgebeam:generation_tokens_total"] - before < 900


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"prompt": "x", "n": 3}, "n: got 3"),
        ({"prompt": "x", "stop": ["y"]}, "stop"),
        ({"prompt": ["x", "y"]}, "one text, or a list of tokens"),
        ({"prompt": [999_999]}, "each from 0 to 319"),
        ({"prompt": "x", "max_tokens": 5000}, "context length"),
        ({"prompt": "x", "temperature": -1}, "temperature"),
        ({"prompt": "x", "top_p": "high"}, "top_p"),
        ({}, "prompt"),
    ],
)
def test_what_it_does_not_know_is_refused_by_name(server, body, words):
    answer = post(server, "/v1/completions", **body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_other_faults(server):
    assert httpx2.post(f"{server}/v1/completions", content=b"[1, 2", trust_env=False).status_code == 400
    foreign = httpx2.get(f"{server}/v1/models", headers={"Host": "elsewhere.example"}, trust_env=False)
    assert foreign.status_code == 400
    assert ask(server, Api.COMPLETIONS, "long " * 1000, 4).fault == Fault.TOO_LONG


def test_static_batches_serve_too(folder):
    words = ("--scheduler", "static", "--max-seqs", 3, "--blocks", 200, "--seconds", LIFE_S)
    process, ready = started(folder, *words)

    async def together():
        async with EndpointClient.open(checked_target(ready["url"], Policy()), Api.COMPLETIONS) as client:
            asks = [Ask(model="", prompt="p" * (5 + i), max_tokens=3 + 4 * i) for i in range(5)]
            return await asyncio.gather(*(client.ask(one, stage="test") for one in asks))

    try:
        samples = finished(together())
        assert [sample.output_tokens for sample in samples] == [3, 7, 11, 15, 19]
        assert counters(ready["url"])["ridgebeam:kv_cache_usage_perc"] == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def verb(*words):
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "cli", "engine", *map(str, words), "--port", "0"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=environment
    )


def test_the_verb_starts_it_and_ends(folder):
    done = verb(folder, "--seconds", 0.2, "--blocks", 16, "--json")
    assert done.returncode == 0, done.stderr
    ready = json.loads(done.stdout)
    assert ready["url"].startswith("http://127.0.0.1:")
    assert ready["cache_tokens"] == 256
    assert "weights of" in ready["weights"]


def test_the_verb_says_why_it_cannot(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "mamba", "architectures": ["MambaForCausalLM"]})
    )
    done = verb(tmp_path, "--json")
    assert done.returncode == 2
    assert "mamba" in json.loads(done.stdout)["error"]["message"]
