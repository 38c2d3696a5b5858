"""Stored bytes of published checkpoints, their scales and what stays in 16 bit."""

import json

import gguf
import pytest

from calc.architectures import parse
from calc.errors import InputError, UnsupportedArchitecture
from calc.model import Part
from calc.parameters import buffer_elements, count_parameters, owned_weights
from calc.quantization import FORMATS, stored_bytes, weight_bytes

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


def quantized(**section):
    return parse({**LLAMA, "quantization_config": section}, model_id="x")


def formats(spec, part=Part.ATTENTION):
    return [
        {w.stored for s in r.block.sublayers for w in s.weights if w.part is part}
        for r in spec.decoder.runs
        for _ in range(r.count)
    ]


@pytest.fixture
def reference_spec(reference):
    def read(name):
        return parse(json.loads((reference / "configs" / f"{name}.json").read_text()), model_id=name)

    return read


@pytest.mark.reference
def test_deepseek_v3_scales_and_prediction_layer_make_up_the_published_count(reference_spec):
    """The hub counts 684,531,386,000 elements: parameters, MTP layer, buffers, and one scale per 128 x 128 block."""
    spec = reference_spec("deepseek-ai__DeepSeek-V3")
    count = count_parameters(spec)
    stored = [(1, w) for w in (*spec.embeddings, *spec.lm_head)]
    stored += [pair for stack in spec.stacks for pair in owned_weights(stack)]
    scales = sum(
        n * (w.elements // (w.shape[-2] * w.shape[-1])) * -(-w.shape[-2] // 128) * -(-w.shape[-1] // 128)
        for n, w in stored
        if w.stored == "fp8-block"
    )
    mtp_buffer = 256
    assert count.total + count.parts["mtp"] + buffer_elements(spec) + mtp_buffer + scales == 684_531_386_000


@pytest.mark.reference
def test_glm_53_prediction_layer_makes_up_the_published_count(reference_spec):
    spec = reference_spec("zai-org__GLM-5.3")
    count = count_parameters(spec)
    mtp_buffer = 256
    assert count.total + count.parts["mtp"] + buffer_elements(spec) + mtp_buffer == 753_329_940_480


@pytest.mark.reference
def test_gpt_oss_120b_is_as_large_as_its_published_index_says(reference_spec):
    """`total_size` of openai/gpt-oss-120b's model.safetensors.index.json: MXFP4 experts, 16-bit rest."""
    assert stored_bytes(reference_spec("openai__gpt-oss-120b")).stored == 65_248_815_744


@pytest.mark.reference
def test_every_quantised_reference_checkpoint_is_read_layer_by_layer(reference):
    """ModelOpt lists name every layer; what they exclude must stay in 16 bit, what they list must not."""
    name = "nvidia__GLM-5.1-NVFP4"
    spec = parse(json.loads((reference / "configs" / f"{name}.json").read_text()), model_id=name)
    assert set.union(*formats(spec)) == {"bf16"}  # self_attn* is excluded on every layer
    experts = formats(spec, Part.EXPERTS)
    assert experts[0] == set()  # dense layers have none
    assert experts[10] == experts[-1] == {"nvfp4"}


@pytest.mark.reference
def test_modelopt_rules_beside_the_config_are_read(reference):
    name = "nvidia__Qwen3-32B-NVFP4"
    config = json.loads((reference / "configs" / f"{name}.json").read_text())
    beside = json.loads((reference / "hf_quant_configs" / f"{name}.json").read_text())
    spec = parse(config, model_id=name, hf_quant_config=beside)
    # 32.76e9 parameters: embedding and head in 16 bit, the rest 4 bit with an fp8 scale per 16 and 8 bytes a matrix
    linear = 64 * (5120 * (64 + 2 * 8) * 128 + 64 * 128 * 5120 + 3 * 5120 * 25600)
    plain = 2 * 151936 * 5120 + 64 * (2 * 5120 + 2 * 128) + 5120
    assert stored_bytes(spec).stored == linear * 9 // 16 + 64 * 7 * 8 + 2 * plain


@pytest.mark.parametrize(
    ("name", "size"),
    [
        # qweight 4096 x 512 int32, qzeros 32 x 512 int32, scales 32 x 4096 fp16
        ("awq-g128", 8_388_608 + 65_536 + 262_144),
        # the same and g_idx, one int32 per input
        ("gptq-g128", 8_388_608 + 65_536 + 262_144 + 16_384),
        ("fp8-block", 4096 * 4096 + 32 * 32 * 4),
        ("fp8-channel", 4096 * 4096 + 4096 * 2),
        ("nvfp4", 8_388_608 + 4096 * 256 + 8),
        ("mxfp4", 8_388_608 + 4096 * 128),
        ("bnb-8bit", 4096 * 4096 + 4096 * 4),
    ],
)
def test_bytes_of_a_matrix_of_4096_by_4096(name, size):
    assert FORMATS[name].tensor_bytes((4096, 4096)) == size


def test_gguf_blocks_are_those_of_the_gguf_library():
    checked = 0
    for kind, (elements, size) in gguf.GGML_QUANT_SIZES.items():
        form = FORMATS.get(kind.name.lower())
        if form is not None and kind.name.lower().startswith(("q", "iq")):
            assert form.tensor_bytes((8, 10 * elements)) == 8 * 10 * size
            checked += 1
    assert checked == 19


def test_embeddings_heads_and_norms_stay_in_16_bit():
    spec = quantized(quant_method="awq", bits=4, group_size=128)
    assert {w.stored for w in (*spec.embeddings, *spec.lm_head, *spec.decoder.weights)} == {"bf16"}
    assert set.union(*formats(spec)) == {"awq-g128"}


def test_a_layer_that_is_listed_differs_from_its_neighbours():
    spec = quantized(
        quant_method="fp8",
        weight_block_size=[128, 128],
        modules_to_not_convert=["model.layers.3.self_attn.q_proj", "model.layers.5.self_attn", "lm_head"],
    )
    stored = formats(spec)
    assert stored[0] == {"fp8-block"}
    assert stored[3] == {"fp8-block", "bf16"}
    assert stored[5] == {"bf16"}
    assert [run.count for run in spec.decoder.runs] == [3, 1, 1, 1, 26]


@pytest.mark.parametrize(
    "ignore",
    [
        ["re:.*self_attn.*"],
        ["model.layers.*.self_attn"],
        ["*.self_attn.*"],
        ["self_attn"],
        ["re:model.layers.\\d+.self_attn.*"],
    ],
)
def test_every_way_to_write_an_exclusion(ignore):
    spec = quantized(quant_method="fp8", modules_to_not_convert=ignore)
    assert set.union(*formats(spec)) == {"bf16"}
    assert set.union(*formats(spec, Part.MLP)) == {"fp8"}


def test_compressed_tensors_groups_are_told_apart_by_their_targets():
    attention = {"num_bits": 8, "type": "float", "strategy": "channel"}
    rest = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
    spec = quantized(
        quant_method="compressed-tensors",
        config_groups={
            "group_0": {"targets": ["re:.*self_attn.*"], "weights": attention},
            "group_1": {"targets": ["Linear"], "weights": rest},
        },
        ignore=["lm_head"],
    )
    assert set.union(*formats(spec)) == {"fp8-channel"}
    assert set.union(*formats(spec, Part.MLP)) == {"int4-g128"}


def test_an_unknown_method_is_refused_by_name():
    with pytest.raises(UnsupportedArchitecture, match=r"quantization_config.quant_method: got 'aqlm'"):
        quantized(quant_method="aqlm")


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:(.*x)*y", "re:([", "x" * 500])
def test_a_dangerous_or_broken_pattern_is_refused(pattern):
    with pytest.raises(InputError):
        quantized(quant_method="fp8", modules_to_not_convert=[pattern])


def test_what_if_formats_change_the_text_matrices_only():
    spec = parse(LLAMA, model_id="x")
    plain, int4 = weight_bytes(spec), weight_bytes(spec, "int4-g128")
    assert plain.stored == 2 * count_parameters(spec).total
    kept = 2 * (2 * 128256 * 4096 + 65 * 4096)
    assert int4.by_format["bf16"] == kept
    assert plain.stored - kept > 3.8 * (int4.stored - kept)


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_can_be_asked_what_if(name):
    spec = parse(LLAMA, model_id="x")
    size = weight_bytes(spec, name).stored
    assert size > 0
    assert sum(weight_bytes(spec, name).by_format.values()) == size


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        # the table in llama.cpp's tools/quantize (sizes of Llama 3 8B, in GiB)
        ("q8_0", 7.96),
        ("q6_k", 6.14),
        ("q5_k_m", 5.33),
        ("q5_k_s", 5.21),
        ("q4_k_m", 4.58),
        ("q4_k_s", 4.37),
        ("q4_0", 4.34),
        ("q3_k_l", 4.03),
        ("q3_k_m", 3.74),
        ("q3_k_s", 3.41),
    ],
)
def test_llama_cpp_mixtures_of_llama_3_8b(name, gib):
    assert weight_bytes(parse(LLAMA, model_id="x"), name).stored / 2**30 == pytest.approx(gib, rel=0.004)


def test_a_tied_embedding_is_stored_as_the_head_it_is():
    tied = parse(LLAMA | {"tie_word_embeddings": True}, model_id="x")
    assert weight_bytes(tied, "q4_k_m").by_format["q6_k"] == 128256 * 4096 // 256 * 210


def test_a_width_that_is_no_multiple_of_256_falls_back():
    spec = parse(LLAMA | {"hidden_size": 4096 + 32, "head_dim": 128}, model_id="x")
    assert set(weight_bytes(spec, "q4_k").by_format) == {"bf16", "q5_0", "q8_0", "q4_k"}
