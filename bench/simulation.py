"""Simulator: seconds of processor time for a million requests, and for a day of reasoning traffic at a light load."""

import os
import resource
import time
from pathlib import Path

import numpy as np

from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable
from calc.simulation.workload import requests_of
from presets.traces import open_trace, published

STEP = StepTable.affine(fixed_s=7.5e-3, prefill_s=5e-5, decode_s=2e-5, kv_s=1.5e-7)
TRACES = (
    Path(os.environ.get("RIDGEBEAM_REFERENCE", Path(__file__).parents[1] / "../shared/reference")) / "traces"
)


def timed(requests, rules, **how):
    began = time.process_time()
    result = simulate(requests, rules, STEP, **how)
    return result, time.process_time() - began


def traffic(file, name, count):
    """The public trace, or traffic made up from its statistics where it is absent."""
    path = TRACES / file
    if path.exists():
        return open_trace(path).requests
    return requests_of(published(name).workload(), count=count, seed=0)


def rows():
    conversations = traffic("vidur/azconv2000.csv.gz", "azure-conversation", 2000)
    vllm = engine_rules("vllm", num_blocks=60_000, token_budget=512, max_seqs=128, prefix_cache=False)
    began = time.perf_counter()
    simulate(conversations, vllm, STEP)
    yield "first run: compile, or load from the cache", time.perf_counter() - began, "s"
    million = conversations.tiled(-(-1_000_000 // len(conversations)))
    result, seconds = timed(million, vllm)
    yield f"{len(million):,} conversations, budget 512, ample blocks", seconds, "s"
    yield "steps of it", result.steps, "steps"
    yield "memory of the process after it", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, "MB"
    del result, million
    reasoning = traffic("servegen_deepseek_r1_24h_eighth.csv.gz", "deepseek-r1", 171_243).stretched(4.0)
    wide = engine_rules("vllm", num_blocks=40_000, token_budget=2048, max_seqs=256, prefix_cache=False)
    result, seconds = timed(reasoning, wide)
    yield f"{len(reasoning):,} reasoning requests, arrivals stretched 4x", seconds, "s"
    yield "steps of it", result.steps, "steps"
    for family, rules in {
        "sarathi": engine_rules("sarathi", num_blocks=1500),
        "sglang": engine_rules("sglang", num_blocks=24_000),
        "nano-vllm": engine_rules("nano-vllm", num_blocks=400),
        "orca": engine_rules("orca", num_blocks=4000),
        "static": engine_rules("static", num_blocks=8000, batch_size=32, batch_timeout_s=0.5),
    }.items():
        simulate(conversations, rules, STEP)
        _, seconds = timed(conversations, rules)
        yield f"{len(conversations):,} conversations, {family}, small pool", seconds, "s"
    yield from prefixes()


def prefixes():
    path = TRACES / "mooncake_conversation.jsonl.gz"
    if path.exists():
        requests = open_trace(path).requests
    else:
        count = np.full(12_000, 20)
        requests = RequestTable(
            arrival_s=np.arange(12_000) * 0.3,
            input_tokens=count * 512,
            output_tokens=np.full(12_000, 343),
            prefix_ids=np.random.default_rng(0).integers(0, 100_000, 240_000),
            prefix_count=count,
            prefix_block=512,
        )
    for block in (512, 16):
        rules = engine_rules("vllm", num_blocks=12_800_000 // block, block_size=block, token_budget=8192)
        simulate(requests.first(10), rules, STEP)
        _, seconds = timed(requests, rules)
        yield f"{len(requests):,} requests with prefixes, blocks of {block}", seconds, "s"
