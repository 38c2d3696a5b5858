"""Real vLLM 0.19 runs: six numbers fitted on the first half, judged on the rest; and the fit's own method."""

import csv
import gzip
import json

import numpy as np
import pytest

from calc.errors import InputError
from calc.simulation.calibration import ServedLog, calibrate, minimise, relative_errors
from calc.simulation.requests import RequestTable
from calc.simulation.rules import engine_rules

# KV blocks of 16 tokens. The 4090's is in its log; the others logged none: 96 GB at 90% less weights, never binding.
BLOCKS = {"rtx4090_llama-3.1-8b": 2588, "rtxpro6000_llama-3.1-8b": 33_000, "rtxpro6000_qwen3-32b": 24_000}
FITTED = 150


def served(reference, run):
    with gzip.open(reference / f"traces/vllm_measured/{run}_requests.csv.gz", "rt") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["queued_s"]))
    values = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    requests = RequestTable(
        arrival_s=values["queued_s"],
        input_tokens=values["input_tokens"].astype(int),
        output_tokens=values["output_tokens"].astype(int),
    )
    return ServedLog(requests=requests, first_s=values["first_token_s"], last_s=values["last_token_s"])


def rules_of(reference, run):
    settings = json.loads((reference / f"traces/vllm_measured/{run}_meta.json").read_text())["engine_kwargs"]
    return engine_rules(
        "vllm",
        num_blocks=BLOCKS[run],
        max_seqs=settings["max_num_seqs"],
        token_budget=settings["max_num_batched_tokens"],
        prefix_cache=True,
    )


@pytest.mark.reference
@pytest.mark.parametrize("run", BLOCKS)
def test_half_a_log_foretells_the_other_half(reference, run):
    log = served(reference, run)
    fit = calibrate(log, rules_of(reference, run), first=FITTED)
    errors = relative_errors(log, fit.result, slice(FITTED, None))
    assert max(abs(points["mean"]) for points in errors.values()) < 0.05, errors
    assert max(abs(points["p99"]) for points in errors.values()) < 0.10, errors
    assert len(fit.numbers) <= 6


@pytest.mark.reference
def test_the_4090_preempts_as_often_as_another_simulator_counts(reference):
    """LLMServingSim counts 194 preemptions for this run."""
    run = "rtx4090_llama-3.1-8b"
    log = served(reference, run)
    assert 160 < calibrate(log, rules_of(reference, run), first=FITTED).result.preemptions < 230


def test_the_simplex_finds_a_minimum():
    def banana(x):
        return float(100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2)

    best, least = minimise(banana, np.array([-1.2, 1.0]), trials=800)
    np.testing.assert_allclose(best, [1, 1], atol=0.02)
    assert least < 1e-3


def test_logs_that_make_no_sense_are_refused():
    ones = np.ones(30, np.int64)
    requests = RequestTable(arrival_s=np.arange(30.0), input_tokens=ones, output_tokens=ones)
    with pytest.raises(InputError, match="first and last tokens"):
        ServedLog(requests=requests, first_s=np.ones(3), last_s=np.ones(3))
    with pytest.raises(InputError, match="before its first"):
        ServedLog(requests=requests, first_s=np.zeros(30), last_s=np.ones(30))
    log = ServedLog(requests=requests, first_s=np.arange(30) + 0.5, last_s=np.arange(30) + 0.5)
    with pytest.raises(InputError, match="requests to fit"):
        calibrate(log, engine_rules("vllm", num_blocks=10), first=3)
