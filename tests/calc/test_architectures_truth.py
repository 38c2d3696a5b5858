"""Every reference config: exact in parameters and state, or refused by name. Truth: param_truth.csv and kv_truth.csv."""

import csv
import json

import pytest

from calc.architectures import parse
from calc.errors import InputError
from calc.memory import kv
from calc.model import Attention, CompressedAttention, LatentAttention
from calc.parameters import buffer_elements, count_parameters

pytestmark = pytest.mark.reference

# Rows of the truth that are wrong for the config beside them, with what is right and why.
CORRECTED = {
    # The config names its Mamba heads in Zamba's own way (mamba_headdim 64: 2 x 3584 / 64 = 112 heads), which
    # transformers 5.24 does not read: it counted 8. 81 layers x 104 heads x (3584 + 3) parameters are missing; with
    # them the total is the published 7,356,749,648.
    "Zyphra__Zamba2-7B.json": {
        "params_total_meta": 7_326_532_760 + 81 * 104 * (3584 + 3),
        "params_active_meta": 7_326_532_760 + 81 * 104 * (3584 + 3),
    },
}

# Buffers that the native class used for counting keeps (decay tables), and MiniMax-M1's own code recomputes.
NO_BUFFER_TRUTH = {"MiniMaxAI__MiniMax-M1-80k.json"}

# What is refused, and the field that says so. Nothing else may be.
REFUSED = {
    "Efficient-Large-Model__VILA1.5-3b.json": "model_type",  # sizes of the parts are in other files
    "IEITYuan__Yuan2-2B-hf.json": "model_type",
    "OrionZheng__openmoe-8b.json": "model_type",
    "Qwen__Qwen2.5-Omni-7B-AWQ.json": "model_type",  # talker and vocoder beside the model
    "Qwen__Qwen3-ASR.json": "model_type",
    "allenai__Molmo-7B-D-0924.json": "model_type",
    "microsoft__Phi-3.5-vision-instruct.json": "model_type",
    "moonshotai__Kimi-K3.json": "model_type",
    "openbmb__MiniCPM-MoE-8x2B.json": "num_experts",
    "openbmb__MiniCPM-V-2_6.json": "model_type",
    # Counted by transformers from the defaults of its class (vocabulary 128,815; the file says 128,896), because the
    # carrier flattened the sections away.
    "stepfun-ai__Step-3.7-Flash.json": "model_type",
    "stepfun-ai__step3-text.json": "model_type",
}


def rows(path):
    with path.open(newline="") as lines:
        return {row["file"]: row for row in csv.DictReader(lines)}


@pytest.fixture(scope="module")
def specs(reference):
    """File -> (spec or the refusal), for every row of the truth."""
    found = {}
    for file, row in rows(reference / "param_truth.csv").items():
        config = json.loads((reference / "configs" / file).read_text())
        try:
            found[file] = parse(config, model_id=row["model_id"])
        except InputError as refusal:
            found[file] = refusal
    return found


def parameter_facts(spec):
    count = count_parameters(spec)
    return {
        "params_total_meta": count.total,
        "params_embedding": count.embedding,
        "params_lm_head": count.lm_head,
        "params_active_meta": count.active,
        "persistent_buffer_elems": buffer_elements(spec),
    }


def caching_layers(spec):
    """Layers that keep a cache of their own tokens; shared, cross and recurrent ones do not."""
    return sum(
        count
        for count, sublayer in spec.decoder_sublayers()
        if isinstance(sublayer, LatentAttention | CompressedAttention)
        or (isinstance(sublayer, Attention) and not sublayer.cross and sublayer.cached_elements_per_token)
    )


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
        "layers_with_kv": caching_layers(spec),
    }


def differences(specs, truth, facts, counted):
    wrong = []
    for file, row in truth.items():
        spec = specs[file]
        if isinstance(spec, InputError) or not row[counted]:
            continue
        for name, value in facts(spec).items():
            want = str(CORRECTED.get(file, {}).get(name, row[name]))
            if name == "persistent_buffer_elems" and (not want or file in NO_BUFFER_TRUTH):
                continue
            if str(value) != want:
                wrong.append(f"{file}: {name} {value}, truth {want}")
    return wrong


def test_no_parameter_count_is_wrong(specs, reference):
    truth = rows(reference / "param_truth.csv")
    assert differences(specs, truth, parameter_facts, "params_total_meta") == []


def test_no_state_is_wrong(specs, reference):
    truth = rows(reference / "kv_truth.csv")
    # Llama 3.2 Vision: the truth keeps the image's cross-attention cache as state, 1601 x 4 image tokens.
    vision = truth.pop("meta-llama__Llama-3.2-11B-Vision-Instruct.json")
    assert differences(specs, truth, state_facts, "kv_bytes_per_token_bf16") == []
    spec = specs[vision["file"]]
    assert kv.kv_bytes_per_token(spec) == int(vision["kv_bytes_per_token_bf16"])
    image_bytes = 4 * 1601 * kv.cross_bytes_per_encoder_token(spec)
    assert image_bytes == int(vision["state_bytes_per_sequence"])


def test_what_is_refused_is_refused_by_name(specs):
    refused = {file: refusal.field for file, refusal in specs.items() if isinstance(refusal, InputError)}
    assert refused == REFUSED


def test_at_least_97_percent_of_the_counted_configs_are_exact(specs, reference):
    truth = rows(reference / "param_truth.csv")
    counted = [file for file, row in truth.items() if row["params_total_meta"]]
    exact = [file for file in counted if not isinstance(specs[file], InputError)]
    assert len(counted) == 215
    assert len(exact) / len(counted) >= 0.97


def test_layers_are_as_long_as_the_truth_says(specs, reference):
    """`per_layer` is run-length coded: 3x100 2x200; the decoder's blocks must weigh the same, in order."""
    wrong = []
    for file, row in rows(reference / "param_truth.csv").items():
        spec = specs[file]
        if isinstance(spec, InputError) or not row["per_layer"] or file.startswith("Zyphra"):
            continue
        stack = spec.decoder or spec.stacks[0]
        if any(stack.role == "encoder" for stack in spec.stacks):
            stack = next(stack for stack in spec.stacks if stack.role == "encoder")
        ours = [
            sum(w.elements for w in r.block.weights() if not w.buffer)
            for r in stack.runs
            for _ in range(r.count)
        ]
        want = []
        for run in row["per_layer"].split():
            count, size = run.split("x")
            want += [int(size)] * int(count)
        if ours != want:
            wrong.append(f"{file}: {ours[:3]}... truth {want[:3]}...")
    assert wrong == []
