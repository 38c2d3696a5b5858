"""Damage to every input: an error in words or a sound answer, never anything else.

RIDGEBEAM_FUZZ_ROUNDS sets how many damaged inputs each reader gets (default: a small sample, always the same one).
"""

import os
import random
import traceback
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path

import numpy as np
import pytest
from damage import damaged
from input_readers import readers

ROUNDS = int(os.environ.get("RIDGEBEAM_FUZZ_ROUNDS", "24"))
FIRST = int(os.environ.get("RIDGEBEAM_FUZZ_FIRST", "0"))
READERS = readers()
REMEMBERED = {"probe run": (11, 17, 21)}
"""Rounds that find it at once where a reader lets everything pass, for readers that get few rounds."""


def sound(value, path="result", depth=0):
    """Every number within is finite."""
    assert depth < 40, path
    if isinstance(value, float | np.floating):
        assert isfinite(value), path
    elif isinstance(value, np.ndarray):
        assert value.dtype.kind != "f" or np.all(np.isfinite(value)), path
    elif is_dataclass(value):
        for field in fields(value):
            sound(getattr(value, field.name), f"{path}.{field.name}", depth + 1)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            sound(one, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for at, one in enumerate(value):
            sound(one, f"{path}[{at}]", depth + 1)


@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_valid_samples_are_read(reader):
    for sample in reader.samples:
        sound(reader.use(sample))


@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_damage_gives_an_error_in_words_or_a_sound_answer(reader):
    faults = {}
    rounds = range(FIRST, FIRST + max(4, ROUNDS // reader.cost))
    for number in (*rounds, *REMEMBERED.get(reader.name, ())):
        rng = random.Random(f"{reader.name} {number}")
        data = damaged(rng.choice(reader.samples), rng)
        try:
            sound(reader.use(data))
        except reader.errors as error:
            if len(str(error)) > 3000:
                faults.setdefault("a message of more than 3,000 characters", (number, data))
        except Exception as error:  # noqa: BLE001 - whatever escapes is what this test looks for
            where = traceback.extract_tb(error.__traceback__)
            ours = [
                f for f in where if "/site-packages/" not in f.filename and "/lib/python" not in f.filename
            ]
            last = ours[-1]
            key = f"{type(error).__name__}: {str(error)[:120]} at {last.filename.rpartition('fuzz/')[2]}:{last.lineno} ({last.line})"
            faults.setdefault(key, (number, data))
    assert not faults, "\n".join(f"{key}\n    round {n}: {data[:200]!r}" for key, (n, data) in faults.items())


# What reads JSON of others, and the rows of the table that use it; a new one gets a row.
JSON_READERS = {
    "calc/endpoint/run.py": "endpoint run",
    "calc/json_text.py": "all of them",
    "calc/scenario_text.py": "scenario file",
    "calc/simulation/trace_formats.py": "trace",
    "presets/checkpoint.py": "safetensors header, shard index",
    "presets/config_text.py": "config",
    "presets/hub.py": "hub cache, tests/presets/test_hub.py",
    "presets/hub_cache.py": "hub cache",
    "presets/hub_client.py": "hub answer",
    "presets/load_test_files.py": "load test file",
    "presets/profiles/__init__.py": "profile file",
    "presets/profiles/calibrated.py": "stored calibration",
    "presets/resolve.py": "typed accelerator, JSON",
    "probes/endpoint/client.py": "words of a refusal: tests/endpoint/test_misbehaving.py",
    "probes/endpoint/dialects.py": "event stream, Ollama stream",
    "probes/endpoint/discovery.py": "server metrics; the rest in tests/endpoint/test_misbehaving.py",
    "probes/endpoint/second_opinion.py": "load test file; the rest in tests/endpoint/test_second_opinion.py",
    "probes/endpoint/job.py": "endpoint run",
    "probes/engine_server/routes.py": "tests/engine",
    "probes/events.py": "probe events",
    "probes/jobs.py": "probe events",
    "probes/locks.py": "tests/probes/test_faults.py",
    "probes/store.py": "probe run",
}


def test_no_reader_of_json_is_missing_from_the_table():
    root = Path(__file__).parents[2]
    folders = ("calc", "presets", "probes", "pages", "commands")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    found = {file.relative_to(root).as_posix() for file in files if "parse_json(" in file.read_text("utf-8")}
    assert found == set(JSON_READERS)
    names = {reader.name for reader in READERS}
    assert {rows for rows in JSON_READERS.values() if rows in names} >= {"config", "trace", "probe run"}
