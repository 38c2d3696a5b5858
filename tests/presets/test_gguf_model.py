"""Models in GGUF files: against transformers' own modules, a published log, the bundled presets; what is refused."""

import csv
import json

import gguf
import pytest
from gguf_files import Q, llama_tensors, q4_k_m, write_header
from test_gguf_header import TINY

from calc.errors import InputError, SourceError, SourceFault, UnsupportedArchitecture
from calc.memory.kv import kv_bytes_per_token, windows
from calc.model import Role
from calc.parameters import count_parameters
from calc.quantization import stored_bytes
from calc.units import GIB, MIB
from presets import models
from presets.sources import SourceKind, read

# Published shapes by family; layers are few where only their shapes matter.
FAMILIES = {
    "llama": models.config_of("meta-llama/Llama-3.2-1B-Instruct"),
    "qwen2": models.config_of("Qwen/Qwen2.5-1.5B"),
    "qwen3": models.config_of("Qwen/Qwen3-0.6B"),
    "phi3": models.config_of("microsoft/Phi-3-mini-4k-instruct"),
    "mistral": models.config_of("mistralai/Mistral-Nemo-Instruct-2407"),
    "gemma": {"model_type": "gemma", "head_dim": 256, "num_key_value_heads": 1},
    "gemma2": {"model_type": "gemma2", "head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096},
    "gemma3": {"model_type": "gemma3_text", "head_dim": 256, "num_key_value_heads": 1, "sliding_window": 512},
    "granite": {"model_type": "granite", "num_key_value_heads": 2},
    "olmo2": {"model_type": "olmo2", "num_key_value_heads": 8},
    "smollm3": {"model_type": "smollm3", "num_key_value_heads": 2},
    "seed_oss": {"model_type": "seed_oss", "num_key_value_heads": 2, "head_dim": 128},
    "arcee": {"model_type": "arcee", "num_key_value_heads": 2},
}
GENERIC = {
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 8,
    "num_hidden_layers": 12,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
    "pad_token_id": 0,
}
EXPERTS = {"num_experts_per_tok": 4, "moe_intermediate_size": 512}
LATENT = {
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
}
FAMILIES |= {
    "mixtral": {
        "model_type": "mixtral",
        "num_key_value_heads": 2,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen2moe": EXPERTS
    | {
        "model_type": "qwen2_moe",
        "num_key_value_heads": 4,
        "num_experts": 16,
        "shared_expert_intermediate_size": 1024,
    },
    "qwen3moe": EXPERTS
    | {"model_type": "qwen3_moe", "num_key_value_heads": 4, "num_experts": 16, "head_dim": 128},
    "olmoe": {"model_type": "olmoe", "num_key_value_heads": 4, "num_experts": 16, "num_experts_per_tok": 8},
    "gpt-oss": {
        "model_type": "gpt_oss",
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_local_experts": 16,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
    },
    "cohere2": {"model_type": "cohere2", "num_key_value_heads": 2, "sliding_window": 4096},
    "deepseek-v2": EXPERTS | LATENT | {"model_type": "deepseek_v2", "halves": False},
    "deepseek-v3": EXPERTS | LATENT | {"model_type": "deepseek_v3", "halves": True, "q_lora_rank": 768},
}
DELTA_NET = {
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_value_head_dim": 128,
    "full_attention_interval": 4,
}
SHARED = {"num_experts": 16, "shared_expert_intermediate_size": 512}
FAMILIES |= {
    "qwen3next": EXPERTS | SHARED | DELTA_NET | {"model_type": "qwen3_next", "halves": True},
    "qwen35": DELTA_NET | {"model_type": "qwen3_5_text"},
    "qwen35moe": EXPERTS | SHARED | DELTA_NET | {"model_type": "qwen3_5_moe_text"},
    "command-r": {"model_type": "cohere", "num_key_value_heads": 2},
    "glm4": {"model_type": "glm4", "num_key_value_heads": 2, "head_dim": 128},
    "exaone4": {"model_type": "exaone4", "num_key_value_heads": 2, "sliding_window": 4096},
    "hunyuan-dense": {"model_type": "hunyuan_v1_dense", "num_key_value_heads": 2, "head_dim": 128},
    "ernie4_5": {"model_type": "ernie4_5", "num_key_value_heads": 2, "head_dim": 128},
    "starcoder2": {"model_type": "starcoder2", "num_key_value_heads": 2},
    "stablelm": {"model_type": "stablelm", "num_key_value_heads": 2},
    "nemotron": {"model_type": "nemotron", "num_key_value_heads": 2},
    "minimax-m2": {
        "model_type": "minimax_m2",
        "num_key_value_heads": 2,
        "head_dim": 128,
        "num_local_experts": 8,
        "num_experts_per_tok": 4,
    },
}
ARCHITECTURE = {
    "mistral": "llama",
    "mixtral": "llama",
    "deepseek-v2": "deepseek2",
    "deepseek-v3": "deepseek2",
}


def in_files(name, shape, config):
    """(name, shape) of what llama.cpp's converter writes for one of transformers' tensors."""
    stem, _, last = name.rpartition(".")
    name = name.replace("linear_attn.dt_bias", "linear_attn.dt_proj.bias")
    name = name.replace("e_score_correction_bias", "e_score_correction.bias")
    if last in ("gate_up_proj", "gate_up_proj_bias") and stem.endswith("experts"):
        ending = "bias" if last.endswith("bias") else "weight"
        inner = config.get("moe_intermediate_size") or config["intermediate_size"]
        shape = (shape[0], inner) if ending == "bias" else (shape[0], inner, config["hidden_size"])
        return [(f"{stem}.{half}.{ending}", shape) for half in ("gate_proj", "up_proj")]
    if name.endswith("in_proj_qkvz.weight") and config["halves"]:
        layer, width = name.removesuffix("in_proj_qkvz.weight"), shape[1]
        gate = config["linear_num_value_heads"] * config["linear_value_head_dim"]
        return [
            (f"{layer}in_proj_qkv.weight", (shape[0] - gate, width)),
            (f"{layer}in_proj_z.weight", (gate, width)),
        ]
    if name.endswith("kv_b_proj.weight") and config["halves"]:
        layer, n_heads, rank = name.removesuffix("kv_b_proj.weight"), config["num_attention_heads"], shape[1]
        keys, values = (n_heads, rank, config["qk_nope_head_dim"]), (n_heads, config["v_head_dim"], rank)
        return [(f"{layer}k_b_proj.weight", keys), (f"{layer}v_b_proj.weight", values)]
    return [({"down_proj_bias": f"{stem}.down_proj.bias"}.get(last, name), shape)]


def as_transformers_builds(config, architecture):
    """Tensors by llama.cpp's names, from the modules that transformers makes of `config`."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {
        key: value for key, value in config.items() if key not in ("torch_dtype", "architectures", "halves")
    }
    built = AutoConfig.for_model(**fields)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(built)
    number = next(number for number, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, built.num_hidden_layers)
    tensors = {}
    stored = [
        *model.named_parameters(),
        *((n, b) for n, b in model.named_buffers() if n.endswith("correction_bias")),
    ]
    for name, parameter in stored:
        for part, shape in in_files(name, tuple(parameter.shape), config):
            target = names.get_name(part, try_suffixes=(".weight", ".bias"))
            assert target is not None, part
            bare = target.endswith((".weight", ".bias", ".ssm_a"))
            target = target if bare else f"{target}.weight"
            plain = parameter.ndim == 1 or part.endswith(".bias") or shape[-1] % 32
            tensors[target] = (shape, Q.F32 if plain else Q.Q8_0)
    return tensors, built, model


@pytest.mark.torch
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_the_parameters_that_transformers_builds(tmp_path, family):
    architecture = ARCHITECTURE.get(family, family)
    stated = GENERIC | FAMILIES[family]
    tensors, built, model = as_transformers_builds(stated, architecture)
    fields = stated | {
        name: getattr(built, name, None) for name in (*GENERIC, "num_key_value_heads", "head_dim")
    }
    source = read(str(write_header(tmp_path / "m.gguf", architecture, fields, tensors)))
    assert count_parameters(source.spec).total == sum(parameter.numel() for parameter in model.parameters())
    assert stored_bytes(source.spec).stored == source.checkpoint.stored_bytes
    assert source.kind is SourceKind.GGUF_FILE
    check_cache(source.spec, built, family)


def check_cache(spec, built, family):
    """KV bytes in 16 bit by the model class's own layer types and head sizes."""
    head_dim = getattr(built, "head_dim", None) or built.hidden_size // built.num_attention_heads
    every = "sliding_attention" if family == "phi3" else "full_attention"  # Phi-3 states no layer types
    layers = getattr(built, "layer_types", None) or [every] * built.num_hidden_layers
    per_layer = 2 * built.num_key_value_heads * head_dim * 2
    if family.startswith("deepseek"):
        per_layer = (built.kv_lora_rank + built.qk_rope_head_dim) * 2
    assert kv_bytes_per_token(spec) == layers.count("full_attention") * per_layer
    windowed = layers.count("sliding_attention")
    in_windows = [(windowed, built.sliding_window, windowed * per_layer)] if windowed else []
    assert [(w.layers, w.window, w.bytes_per_token) for w in windows(spec)] == in_windows


@pytest.mark.torch
@pytest.mark.reference
def test_gpt_oss_has_the_tensors_and_bytes_that_llama_cpp_logs(tmp_path, cases, reference):
    (log,) = [row for row in csv.DictReader((cases / "engine_logs.csv").open()) if row["case_id"] == "L028"]
    assert "file size 59.02 GiB (4.34 BPW); 433 f32 + 146 q8_0 + 108 mxfp4 tensors" in log["notes"]
    config = json.loads((reference / "configs" / "openai__gpt-oss-120b.json").read_text())
    config.pop("quantization_config", None)
    tensors, built, _ = as_transformers_builds(config, "gpt-oss")
    for name, (shape, kind) in tensors.items():
        if "_exps.weight" in name:
            tensors[name] = (shape, Q.MXFP4)
        elif "ffn_gate_inp" in name or kind is Q.F32:
            tensors[name] = (shape, Q.F32)
    fields = config | {"head_dim": built.head_dim}
    source = read(str(write_header(tmp_path / "m.gguf", "gpt-oss", fields, tensors)))
    kinds = [kind for _, kind in tensors.values()]
    assert [kinds.count(kind) for kind in (Q.F32, Q.Q8_0, Q.MXFP4)] == [433, 146, 108]
    assert round(source.checkpoint.stored_bytes / GIB, 2) == 59.02
    assert round(8 * source.checkpoint.stored_bytes / count_parameters(source.spec).total, 2) == 4.34
    assert stored_bytes(source.spec).stored == source.checkpoint.stored_bytes


@pytest.mark.parametrize("preset", ["meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-2-7b-hf"])
def test_a_file_is_the_model_that_its_config_is(tmp_path, preset):
    config, spec = models.config_of(preset), models.load(preset)
    file = read(str(write_header(tmp_path / "m.gguf", "llama", config, llama_tensors(config)))).spec
    assert count_parameters(file) == count_parameters(spec)
    assert kv_bytes_per_token(file) == kv_bytes_per_token(spec)
    assert file.max_positions == spec.max_positions


@pytest.mark.reference
def test_q4_k_m_of_llama_3_has_the_bytes_that_llama_cpp_logs(tmp_path, cases):
    (log,) = [row for row in csv.DictReader((cases / "engine_logs.csv").open()) if row["case_id"] == "L116"]
    assert "CUDA0 weights 4403.49 MiB + CPU 281.81 MiB (token embeddings stay on CPU)" in log["notes"]
    config = models.config_of("meta-llama/Meta-Llama-3.1-8B")  # Llama 3 and 3.1 have the same shapes
    source = read(str(write_header(tmp_path / "m.gguf", "llama", config, q4_k_m(config))))
    (embedding,) = source.spec.embeddings
    assert embedding.stored == "q4_k"
    on_cpu = 128_256 * 4096 * 144 / 256
    assert round(on_cpu / MIB, 2) == 281.81
    assert round((source.checkpoint.stored_bytes - on_cpu) / MIB, 2) == 4403.49
    assert round(source.checkpoint.stored_bytes / MIB / 1024, 2) == float(log["reported_weights_gib_per_gpu"])
    assert stored_bytes(source.spec).stored == source.checkpoint.stored_bytes
    assert kv_bytes_per_token(source.spec) * 8192 == 1024 * MIB


def test_layers_of_different_formats_stay_apart(tmp_path):
    config = models.config_of("meta-llama/Meta-Llama-3.1-8B")
    spec = read(str(write_header(tmp_path / "m.gguf", "llama", config, q4_k_m(config)))).spec
    (decoder,) = spec.stacks_of(Role.DECODER)
    assert decoder.n_layers == 32
    stored = [
        weight.stored
        for run in decoder.runs
        for _ in range(run.count)
        for weight in run.block.weights()
        if weight.name == "self_attn.v_proj"
    ]
    assert stored[:6] == ["q6_k"] * 4 + ["q4_k"] * 2
    assert stored.count("q6_k") == 16


def test_frequencies_beside_the_layers_count_as_bytes_and_not_as_parameters(tmp_path):
    tensors = llama_tensors(TINY)
    plain = read(str(write_header(tmp_path / "a.gguf", "llama", TINY, tensors)))
    tensors["rope_freqs.weight"] = ((64,), Q.F32)
    more = read(str(write_header(tmp_path / "b.gguf", "llama", TINY, tensors)))
    assert more.checkpoint.stored_bytes == plain.checkpoint.stored_bytes + 256
    assert count_parameters(more.spec) == count_parameters(plain.spec)


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ["clip", "bert", "mamba", "t5", "gpt2"])
def test_a_family_that_is_not_mapped_is_refused_by_name(tmp_path, architecture):
    path = write_header(tmp_path / "m.gguf", architecture, TINY, llama_tensors(TINY))
    with pytest.raises(UnsupportedArchitecture, match=architecture) as caught:
        read(str(path))
    assert "llama" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blk.0.attn_q.weight": None}, "lacks the tensor blk.0.attn_q.weight"),
        ({"blk.1.ffn_up.weight": ((256, 256), Q.Q4_K)}, "blk.1.ffn_up.weight has 65,536 elements where"),
        ({"blk.0.ssm_a.weight": ((256, 256), Q.Q4_K)}, "holds the tensor 'blk.0.ssm_a.weight'"),
        ({"blk.2.attn_norm.weight": ((256,), Q.F32)}, "holds the tensor 'blk.2.attn_norm.weight'"),
        ({"blk.0.attn_q.bias": ((256,), Q.F32)}, "lacks the tensor blk.0.attn_k.bias"),
        ({"blk.0.attn_q.weight": ((256, 256), Q.I16)}, "is stored as I16"),
    ],
)
def test_tensors_that_do_not_fit_their_metadata_are_refused(tmp_path, change, message):
    tensors = {name: value for name, value in (llama_tensors(TINY) | change).items() if value is not None}
    with pytest.raises(SourceError, match=message) as caught:
        read(str(write_header(tmp_path / "m.gguf", "llama", TINY, tensors)))
    assert caught.value.fault is SourceFault.UNREADABLE
    assert "config.json" in caught.value.next_step


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 2_000_000_000}, "num_hidden_layers"),
        ({"num_attention_heads": 3}, "num_key_value_heads|multiple"),
        ({"hidden_size": 0}, "hidden_size"),
    ],
)
def test_metadata_that_cannot_be_is_refused_by_its_field(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        read(str(write_header(tmp_path / "m.gguf", "llama", TINY | change, llama_tensors(TINY))))
