"""Ready scenarios: worked planning questions to start from, each a `Scenario` with its question in words."""

from __future__ import annotations

from dataclasses import dataclass

from calc.scenario import Fidelity, Scenario, Traffic

DAY_RATE_10_MILLION = 115.74  # requests/s: 10 million a day, spread evenly


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyScenario:
    """A question that people really ask; `page` is the page that answers it."""

    id: str
    title: str
    question: str
    scenario: Scenario
    page: str = "size"


READY: tuple[ReadyScenario, ...] = (
    ReadyScenario(
        id="chat-13b",
        title="13B chat",
        question="Llama-2-13B chat on A100-80GB: 10 requests/s at peak, 512 in, 256 out, TPOT at most 50 ms, "
        "50 GB per GPU for the cache.",
        scenario=Scenario(kv_bytes_per_gpu=50e9, fidelity=Fidelity.TEXTBOOK),
    ),
    ReadyScenario(
        id="coding-70b",
        title="70B coding assistant",
        question="2,000 requests a minute at peak, 2,000 in, 300 out, TTFT at most 1 s and TPOT at most 40 ms at p99, "
        "on H100 nodes of 8.",
        scenario=Scenario(
            model="meta-llama/Llama-3.3-70B-Instruct",
            gpu="h100-sxm5-80gb",
            rate_per_s=33.3333,
            input_tokens=2000.0,
            output_tokens=300.0,
            ttft_s=1.0,
            tpot_s=0.040,
            percentile=99.0,
        ),
    ),
    ReadyScenario(
        id="summarise-10m",
        title="10 million documents a day",
        question="Summarise 10 million documents a day at the lowest cost: 3,000 in, 200 out, no latency target.",
        scenario=Scenario(
            model="meta-llama/Meta-Llama-3.1-8B",
            gpu="h100-sxm5-80gb",
            rate_per_s=DAY_RATE_10_MILLION,
            input_tokens=3000.0,
            output_tokens=200.0,
            tpot_s=None,
        ),
    ),
    ReadyScenario(
        id="returning-chat",
        title="Users who come back",
        question="Chats whose users return after five minutes with four fifths of the prompt said before, 4,000 in, 200 out, "
        "20 requests/s: is host memory or an SSD behind the cards worth it?",
        scenario=Scenario(
            model="meta-llama/Meta-Llama-3.1-8B",
            gpu="h100-sxm5-80gb",
            rate_per_s=20.0,
            input_tokens=4000.0,
            output_tokens=200.0,
            prefix_share=0.8,
            reuse_after_s=300.0,
        ),
    ),
    ReadyScenario(
        id="example-8b",
        title="Example 8B",
        question="The made-up 8B model on the made-up 48 GB GPU: 32 users at once, 2,000 in, 500 out.",
        scenario=Scenario(
            model="example-8b",
            gpu="example-gpu",
            traffic=Traffic.USERS,
            users=32,
            input_tokens=2000.0,
            output_tokens=500.0,
            tpot_s=None,
            mfu=1.0,
            headroom=0.0,
            fidelity=Fidelity.TEXTBOOK,
        ),
    ),
    ReadyScenario(
        id="endpoint-40",
        title="A simple endpoint",
        question="40 requests/s served one at a time, 20 ms each on average: how many replicas hold p95 at 150 ms?",
        scenario=Scenario(rate_per_s=40.0),
        page="queueing",
    ),
)

BATCH_LESSONS: tuple[ReadyScenario, ...] = (
    ReadyScenario(
        id="batch-13b-mha",
        title="13B, all heads cached, A100",
        question="Llama-2-13B caches 40 KV heads: 800 KiB per token.",
        scenario=Scenario(kv_bytes_per_gpu=50e9, fidelity=Fidelity.TEXTBOOK),
        page="batch-size",
    ),
    ReadyScenario(
        id="batch-8b-gqa",
        title="8B, grouped heads, H100",
        question="Llama-3.1-8B caches 8 KV heads: 128 KiB per token, 6.25 times less, and the wall moves.",
        scenario=Scenario(model="meta-llama/Meta-Llama-3.1-8B", gpu="h100-sxm5-80gb"),
        page="batch-size",
    ),
)
