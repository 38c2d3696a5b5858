"""The load test's client: agreement with llama.cpp's own timings on a quiet machine, and its overhead at 64 streams.

Bars: TTFT less the server's prefill within 15 ms or 15% of TTFT, TPOT within 10%, client CPU under 1 ms per token at 64 streams of
2,000 tokens. Starts a llama.cpp server with random weights on 127.0.0.1.
"""

import asyncio
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from calc.endpoint.plan import TestPlan
from calc.endpoint.report import report_of
from calc.endpoint.run import run_from_json
from probes.endpoint.dialects import Api
from probes.endpoint.pace import measure_client
from probes.endpoint.protocol import measure
from probes.endpoint.safety import Policy, checked_target

SERVER = Path(__file__).resolve().parents[1] / "tests/llama_server.py"
SLOTS = 4
LIFE_S = 300
STREAMS, TOKENS, GAP_S = 64, 2000, 0.025
PLAN = TestPlan(
    prompt_lengths=(128, 512, 2048),
    decode_input=64,
    decode_tokens=128,
    concurrency=(1, 4, 16),
    level_input=64,
    level_output=32,
)


def _model(folder):
    sys.path.insert(0, str(SERVER.parent))
    from llama_server import write_model

    return write_model(Path(folder) / "random.gguf", layers=4)


def _server(model):
    server = subprocess.Popen(
        [sys.executable, str(SERVER), str(model), str(SLOTS), str(LIFE_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    guard = threading.Timer(60, server.kill)
    guard.start()
    for line in server.stdout:
        if line.startswith("listening"):
            guard.cancel()
            return server, line.split()[1]
    raise RuntimeError("llama.cpp did not start")


def rows():
    with tempfile.TemporaryDirectory() as folder:
        server, url = _server(_model(folder))
        try:
            record = asyncio.run(measure(checked_target(url, Policy()), Api.CHAT, PLAN, client_cost=False))
        finally:
            server.kill()
            server.wait()
    report = report_of(run_from_json(record))
    agreement = report.agreement
    yield "TTFT less the server's prefill, median", agreement.ttft_less_prefill_s * 1e3, "ms"
    yield "TPOT over the server's own, median", agreement.tpot_ratio, ""
    for row in report.prompts:
        yield f"TTFT at {row.tokens:.0f} tokens", row.ttft_s.p50 * 1e3, "ms"
    for row in report.levels:
        yield f"TTFT at {row.level.concurrency} in flight, {SLOTS} slots", row.level.ttft_s.p50 * 1e3, "ms"
        yield f"tokens/s at {row.level.concurrency} in flight", row.level.tokens_per_s, "tokens/s"
    cost = asyncio.run(measure_client(streams=STREAMS, tokens=TOKENS, gap_s=GAP_S, limit_s=240.0))
    yield f"client CPU per token, {STREAMS} streams of {TOKENS}", cost.cpu_s * 1e3, "ms"
    yield "client delay per token, median", cost.delay_p50_s * 1e3, "ms"
    yield "client delay per token, P99", cost.delay_p99_s * 1e3, "ms"
