"""Every reference config: exact in parameters and state, or refused by name. Truth: param_truth.csv and kv_truth.csv."""

import csv
import json

import pytest

from calc.architectures import parse
from calc.errors import InputError
from calc.memory import kv
from calc.parameters import count_parameters

pytestmark = pytest.mark.reference


def rows(path):
    with path.open(newline="") as lines:
        return {row["file"]: row for row in csv.DictReader(lines)}


def read_all(reference):
    """file -> (spec or the refusal), for every row of the truth."""
    found = {}
    for file, row in rows(reference / "param_truth.csv").items():
        config = json.loads((reference / "configs" / file).read_text())
        try:
            found[file] = parse(config, model_id=row["model_id"])
        except InputError as refusal:
            found[file] = refusal
    return found


@pytest.fixture(scope="module")
def specs(reference):
    return read_all(reference)


def parameter_facts(spec):
    count = count_parameters(spec)
    return {
        "params_total_meta": count.total,
        "params_embedding": count.embedding,
        "params_lm_head": count.lm_head,
        "params_active_meta": count.active,
    }


def state_facts(spec):
    windows = kv.windows(spec)
    conv, recurrent = kv.state_elements(spec)
    return {
        "kv_bytes_per_token_bf16": kv.kv_bytes_per_token(spec),
        "window_layers": sum(w.layers for w in windows),
        "window_size": windows[0].window if windows else "",
        "kv_bytes_per_token_window_part": sum(w.bytes_per_token for w in windows),
        "state_conv_elems": conv,
        "state_recurrent_elems": recurrent,
        "indexer_bytes_per_token_bf16": kv.indexer_bytes_per_token(spec),
        "cross_bytes_per_encoder_token": kv.cross_bytes_per_encoder_token(spec),
    }


def differences(specs, truth, facts, counted):
    wrong = []
    for file, row in truth.items():
        spec = specs[file]
        if isinstance(spec, InputError) or not row[counted]:
            continue
        wrong += [
            f"{file}: {name} {value}, truth {row[name]}"
            for name, value in facts(spec).items()
            if str(value) != (row[name] or "")
        ]
    return wrong


def test_no_parameter_count_is_wrong(specs, reference):
    truth = rows(reference / "param_truth.csv")
    assert differences(specs, truth, parameter_facts, "params_total_meta") == []


def test_no_state_is_wrong(specs, reference):
    truth = rows(reference / "kv_truth.csv")
    assert differences(specs, truth, state_facts, "kv_bytes_per_token_bf16") == []
