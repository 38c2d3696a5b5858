"""Trace files: every schema, gzip or not, and errors that name the row. Small files written here in the published form."""

import gzip
import json

import numpy as np
import pytest

from calc.errors import InputError, SourceError
from calc.simulation.trace_formats import TraceFormat, read_trace, stamp_grid
from presets.traces import PUBLISHED, open_trace, published

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
"""
BURSTGPT = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,1,2.5,ChatGPT,472,18,490,Conversation log
45,2,0.0,ChatGPT,1087,0,1087,Conversation log
118,3,1.0,GPT-4,417,276,693,API log
"""
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
MOONCAKE = [
    {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
    {"timestamp": 3000, "input_length": 1500, "output_length": 6, "hash_ids": [0, 1, 2]},
]
BAILIAN = [
    {"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 40, "output_length": 9, "type": "text", "turn": 1, "hash_ids": [5, 6, 7]},
    {"chat_id": 8, "parent_chat_id": 7, "timestamp": 2.0, "input_length": 50, "output_length": 9, "type": "text", "turn": 2, "hash_ids": [5, 6, 8, 9]},
]  # fmt: skip
VLLM = {
    "backend": "vllm",
    "input_lens": [10, 20],
    "output_lens": [3, 4],
    "start_times": [100.5, 101.0],
    "ttfts": [0.1, 0.2],
}
OWN = "arrival_s,input_tokens,output_tokens,priority,output_limit\n0,10,3,1,64\n0.25,20,4,0,64\n"


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


SCHEMAS = {
    "azure 2023": (AZURE_2023, TraceFormat.AZURE, [0, 0.052], [4808, 3180], [10, 8]),
    "azure 2024": (AZURE_2024, TraceFormat.AZURE, [0, 0.99007], [2162, 2399], [5, 6]),
    "burstgpt": (BURSTGPT, TraceFormat.BURSTGPT, [0, 113], [472, 417], [18, 276]),
    "vidur": (VIDUR, TraceFormat.VIDUR, [0, 4.314579], [374, 396], [44, 109]),
    "mooncake": (lines(MOONCAKE), TraceFormat.MOONCAKE, [0, 3], [1000, 1500], [5, 6]),
    "bailian": (lines(BAILIAN), TraceFormat.BAILIAN, [0, 0.5], [40, 50], [9, 9]),
    "vllm": (json.dumps(VLLM, indent=1), TraceFormat.VLLM, [0, 0.5], [10, 20], [3, 4]),
    "vllm on one line": (json.dumps(VLLM), TraceFormat.VLLM, [0, 0.5], [10, 20], [3, 4]),
    "own": (OWN, TraceFormat.OWN, [0, 0.25], [10, 20], [3, 4]),
    "own lines": (
        lines([{"arrival_s": 1, "input_tokens": 9, "output_tokens": 2}]),
        TraceFormat.OWN,
        [0],
        [9],
        [2],
    ),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_schema_is_read(tmp_path, schema, packed):
    text, kind, arrivals, prompts, answers = SCHEMAS[schema]
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    trace = open_trace(path)
    assert trace.format is kind
    np.testing.assert_allclose(trace.requests.arrival_s, arrivals, atol=1e-6)
    assert trace.requests.input_tokens.tolist() == prompts
    assert trace.requests.output_tokens.tolist() == answers
    assert trace.left_out == (1 if schema == "burstgpt" else 0)


def test_prefix_ids_and_priorities_come_along():
    mooncake = read_trace(lines(MOONCAKE).splitlines()).requests
    assert mooncake.prefix_ids.tolist() == [0, 1, 0, 1, 2]
    assert mooncake.prefix_count.tolist() == [2, 3]
    assert mooncake.prefix_block == 512
    assert read_trace(lines(BAILIAN).splitlines()).requests.prefix_block == 16
    own = read_trace(OWN.splitlines()).requests
    assert own.priority.tolist() == [1, 0]
    assert own.output_limit.tolist() == [64, 64]


@pytest.mark.parametrize(
    ("text", "row", "why"),
    [
        (VIDUR + "5.0,many,3\n", "row 4, num_prefill_tokens", "a whole number is needed"),
        (VIDUR + "5.0,1.5,3\n", "row 4, num_prefill_tokens", "a whole number from 0 up"),
        (VIDUR + "5.0,-2,3\n", "row 4, num_prefill_tokens", "from 0 up"),
        (VIDUR + "nan,5,3\n", "row 4, arrived_at", "from 0 up"),
        (VIDUR + "5.0,5\n", "row 4", "the header has 3 columns"),
        (AZURE_2023 + "2023-13-16 18:17:04,3180,8\n", "row 4, TIMESTAMP", "a date and time"),
        (lines(MOONCAKE) + "{broken\n", "row 3", "it is not JSON"),
        (lines(MOONCAKE) + '{"timestamp": 1, "input_length": 5}\n', "row 3, output_length", "is needed"),
        (lines([*MOONCAKE, {**MOONCAKE[0], "hash_ids": ["a"]}]), "row 3, hash_ids", "whole numbers"),
        (lines([*MOONCAKE, {**MOONCAKE[0], "hash_ids": [1, 2, 3]}]), "row 3, hash_ids", "at most 2 blocks"),
        (lines(MOONCAKE) + "[1]\n", "row 3", "one JSON object"),
        ("a,b\n1,2\n", "header", "it must have the columns"),
        ("", "trace", "at least one request"),
        ('{"requests": 3}\n', "row 1", "it must have timestamp"),
        ('{"input_lens": [1], "output_lens": [1]}', "trace", "save-detailed"),
        (VIDUR.splitlines()[0] + "\n1,0,5\n", "1 rows left out", "at least one request"),
    ],
)
def test_what_is_wrong_is_said_with_its_row(text, row, why):
    with pytest.raises(InputError) as error:
        read_trace(text.splitlines(keepends=True))
    assert row in str(error.value)
    assert why in str(error.value)


def test_files_that_are_no_traces(tmp_path):
    with pytest.raises(SourceError, match="No trace at"):
        open_trace(tmp_path / "absent.csv")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(InputError, match="UTF-8"):
        open_trace(binary)
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(VIDUR.encode() * 1000)[:60])
    with pytest.raises((SourceError, InputError)):
        open_trace(cut)


def test_stamps_on_a_grid_are_spread_inside_it():
    draw = np.random.default_rng(4)
    stamps = np.repeat(np.arange(200) * 3000, 10) + 0
    records = [{"timestamp": int(s), "input_length": 10, "output_length": 2, "hash_ids": []} for s in stamps]
    trace = read_trace(lines(records).splitlines(), seed=1)
    assert trace.grid_s == 3.0
    gaps = np.diff(trace.requests.arrival_s)
    assert (gaps > 0).mean() > 0.99
    assert 0.8 < gaps.std() / gaps.mean() < 1.1  # ten in each cell: a little more even than Poisson
    assert np.abs(trace.requests.arrival_s - stamps / 1e3).max() <= 3.0
    again = read_trace(lines(records).splitlines(), seed=1)
    np.testing.assert_array_equal(trace.requests.arrival_s, again.requests.arrival_s)
    assert stamp_grid(np.cumsum(draw.exponential(1, 100))) is None


@pytest.mark.reference
def test_public_traces_are_read_whole(reference):
    """Rows, means and the grid as the collection's own notes state them."""
    folder = reference / "traces"
    stated = {
        "azure_llm_2023_code.csv.gz": (8819, 2048, 27.9, None),
        "azure_llm_2023_conv.csv.gz": (19366, 1155, 211, None),
        "mooncake_conversation.jsonl.gz": (12031, 12035, 343, 3.0),
        "mooncake_synthetic.jsonl.gz": (3993, 15326, 149, None),
    }
    for file, (rows, prompt, answer, grid_s) in stated.items():
        trace = open_trace(folder / file)
        assert len(trace.requests) + trace.left_out == rows
        assert trace.requests.input_tokens.mean() == pytest.approx(prompt, rel=1e-3)
        assert trace.requests.output_tokens.mean() == pytest.approx(answer, rel=2e-3)
        assert trace.grid_s == (pytest.approx(grid_s, rel=1e-3) if grid_s else None)


def test_published_traffic_describes_workloads():
    for traffic in PUBLISHED:
        workload = traffic.workload()
        assert workload.rate_per_s == traffic.rate_per_s
        assert workload.input.mean_tokens == traffic.input_mean
    with pytest.raises(InputError, match="choose one of azure-code"):
        published("nobody")
