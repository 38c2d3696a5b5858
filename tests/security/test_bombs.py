"""Input that is meant to hurt: deep, long, or growing without end once unpacked."""

import ast
import gzip
import json
import tomllib
from pathlib import Path

import pytest
from input_samples import LLAMA, LOAD_TESTS
from published_run import a100

from calc.errors import RidgebeamError, SourceError
from calc.scenario import Scenario
from calc.scenario_text import from_json, to_json
from presets import traces
from presets.fleet_file import MAX_BYTES
from presets.load_test_files import read_load_test
from presets.sources import read_config_text
from probes import store

ROOT = Path(__file__).parents[2]
MB = 1_000_000
BOMBS = {
    "nested lists": "[" * 200_000,
    "nested objects": '{"a":' * 100_000,
    "a number of a million digits": '{"hidden_size": ' + "9" * MB + "}",
    "a huge exponent": '{"hidden_size": 1e999999}',
    "a long text": '{"a": "' + "x" * (60 * MB) + '"}',
    "nothing but quotes": '"' * 100_000,
    "a key of a megabyte": '{"' + "k" * MB + '": 1}',
}

TOO_LONG = {
    "config": (read_config_text, LLAMA, 5 * MB),
    "scenario": (from_json, json.loads(to_json(Scenario())), 3 * MB),
    "load test": (read_load_test, LOAD_TESTS[0], 51 * MB),
    "probe run": (store.from_text, a100(), 9 * MB),
}


@pytest.mark.parametrize(("reader", "valid", "size"), TOO_LONG.values(), ids=TOO_LONG)
def test_what_is_valid_is_read_up_to_a_size(reader, valid, size):
    """White space beyond the cap, so that nothing else is wrong with it."""
    text = json.dumps(valid)
    reader(text)
    with pytest.raises(RidgebeamError, match="at most"):
        reader(text + " " * size)


@pytest.mark.parametrize(
    "reader",
    [read_config_text, from_json, read_load_test, store.from_text],
    ids=["config", "scenario", "load test", "probe run"],
)
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_json_that_is_meant_to_hurt_is_refused(reader, bomb):
    with pytest.raises(RidgebeamError) as refused:
        reader(bomb)
    assert len(str(refused.value)) < 2000  # the message does not send the bomb back


def test_a_trace_that_unpacks_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(traces, "MAX_UPLOADED_BYTES", 3 * MB)
    rows = "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "1.0,5,3\n" * 500_000
    packed = gzip.compress(rows.encode())
    assert len(packed) < 50_000
    with pytest.raises(SourceError, match="unpack to 3,000,000 bytes"):
        traces.uploaded_trace(packed, name="bomb.csv.gz")


def test_rows_without_end_are_cut_off(monkeypatch, tmp_path):
    """A short row costs more than its bytes: a list of objects, and the one core that all visitors share."""
    monkeypatch.setattr(traces, "MAX_UPLOADED_ROWS", 1000)
    text = b"arrived_at,num_prefill_tokens,num_decode_tokens\n" + b"1.0,5,3\n" * 1001
    with pytest.raises(SourceError, match="may hold 1,000 rows") as refused:
        traces.uploaded_trace(gzip.compress(text), name="bomb.csv.gz")
    assert "ridgebeam simulate --trace" in refused.value.next_step
    own = tmp_path / "own.csv"
    own.write_bytes(text)
    assert len(traces.open_trace(own).requests) == 1001  # the person at the machine may read what fits there


def test_one_row_without_end_is_cut_off(monkeypatch):
    monkeypatch.setattr(traces, "MAX_ROW_BYTES", MB)
    packed = gzip.compress(b'{"timestamp": 1, "input_length": ' + b"1" * (5 * MB))
    with pytest.raises(SourceError, match="row of a trace may hold"):
        traces.uploaded_trace(packed, name="row.jsonl.gz")
    damaged = gzip.compress(b"x" * MB)[:-20] + b"\0" * 20
    with pytest.raises(RidgebeamError):
        traces.uploaded_trace(damaged, name="damaged.gz")


def test_an_honest_upload_is_read_gzip_or_not():
    text = b"arrived_at,num_prefill_tokens,num_decode_tokens\n1.0,5,3\n2.0,6,4\n"
    for data in (text, gzip.compress(text)):
        assert len(traces.uploaded_trace(data, name="t.csv").requests) == 2


def test_a_scenario_survives_a_round_trip_beside_the_bombs():
    assert from_json(json.dumps(json.loads(to_json(Scenario())))) == Scenario()


def test_every_uploader_has_its_own_cap():
    settings = tomllib.loads((ROOT / ".streamlit/config.toml").read_text(encoding="utf-8"))
    caps = []
    for file in (ROOT / "pages").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        numbers = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "file_uploader":
                stated = {keyword.arg: keyword.value for keyword in node.keywords}
                assert "max_upload_size" in stated, file.name
                caps.append(eval(ast.unparse(stated["max_upload_size"]), {"MAX_BYTES": MAX_BYTES, **numbers}))
    assert len(caps) >= 5
    assert max(caps) <= settings["server"]["maxUploadSize"] <= 64
