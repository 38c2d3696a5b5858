"""GGUF architectures and their metadata as the fields of a config.json, one entry for each family that is mapped.

Sources: the keys of the `gguf` library (`gguf.constants.Keys`) and what llama.cpp's converter writes into them for each
family (convert_hf_to_gguf.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from calc.errors import UnsupportedArchitecture
from presets.gguf_header import GgufTensor, Value

CHOOSE = "Give the config.json of the model that it was made from."

Config = dict[str, object]


@dataclass(frozen=True, slots=True)
class Metadata:
    """The fields under the architecture's own prefix, and the file's tensors by name."""

    fields: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]
    architecture: str

    def one(self, name: str) -> Value | None:
        """A field, or None; one value where a list repeats it for every layer."""
        value = self.fields.get(f"{self.architecture}.{name}")
        if not isinstance(value, tuple):
            return value
        if len(set(value)) != 1:
            raise self.unsupported(name, "layers of different sizes are not read from GGUF files")
        return value[0]

    def whole(self, name: str) -> int:
        """A field that is needed, as a whole number."""
        value = self.one(name)
        if type(value) is not int or value < 0:
            raise self.unsupported(name, "it must be a whole number")
        return value

    def unsupported(self, name: str, why: str) -> UnsupportedArchitecture:
        """The refusal of a field."""
        field = f"{self.architecture}.{name}"
        return UnsupportedArchitecture(field, self.fields.get(field), why, next_step=CHOOSE)


def no_experts(metadata: Metadata) -> Config:
    """A dense family."""
    if metadata.one("expert_count"):
        raise metadata.unsupported("expert_count", "this family is known without experts only")
    return {}


def _llama(metadata: Metadata) -> Config:
    """Llama, Mistral and what is shaped like them; with experts Mixtral."""
    if not metadata.one("expert_count"):
        return {}
    return {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": metadata.one("expert_count"),
        "num_experts_per_tok": metadata.one("expert_used_count"),
    }


def _qwen_moe(metadata: Metadata) -> Config:
    """Qwen MoE: all layers are mixtures; with a shared expert where the file has one."""
    return {
        "num_experts": metadata.one("expert_count"),
        "num_experts_per_tok": metadata.one("expert_used_count"),
        "moe_intermediate_size": metadata.one("expert_feed_forward_length"),
        "shared_expert_intermediate_size": metadata.one("expert_shared_feed_forward_length"),
    }


def _olmoe(metadata: Metadata) -> Config:
    return {
        "num_experts": metadata.one("expert_count"),
        "num_experts_per_tok": metadata.one("expert_used_count"),
    }


def _starcoder2(metadata: Metadata) -> Config:
    return no_experts(metadata) | {"use_bias": "blk.0.attn_q.bias" in metadata.tensors}


def _gpt_oss(metadata: Metadata) -> Config:
    return {
        "intermediate_size": metadata.one("expert_feed_forward_length"),
        "num_local_experts": metadata.one("expert_count"),
        "num_experts_per_tok": metadata.one("expert_used_count"),
    }


def _deepseek(metadata: Metadata) -> Config:
    """DeepSeek V2 and V3 (and Kimi K2): V3's router has a score correction."""
    rope = metadata.whole("rope.dimension_count")
    split = metadata.one("attention.key_length_mla") is not None  # newer files keep kv_b in two halves
    suffix = "_mla" if split else ""
    config: Config = {
        "kv_lora_rank": metadata.one("attention.kv_lora_rank"),
        "q_lora_rank": metadata.one("attention.q_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": metadata.whole(f"attention.key_length{suffix}") - rope,
        "v_head_dim": metadata.one(f"attention.value_length{suffix}"),
        "n_routed_experts": metadata.one("expert_count"),
        "num_experts_per_tok": metadata.one("expert_used_count"),
        "n_shared_experts": metadata.one("expert_shared_count"),
        "moe_intermediate_size": metadata.one("expert_feed_forward_length"),
        "first_k_dense_replace": metadata.one("leading_dense_block_count"),
        "num_key_value_heads": None,  # newer files state one: the latent, not a head
    }
    if any(name.endswith(".exp_probs_b.bias") for name in metadata.tensors):
        config |= {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]}
    return config


def _qwen_next(metadata: Metadata) -> Config:
    """Qwen3-Next and Qwen3.5: delta nets but for every n-th layer; dense, or mixtures with a shared expert."""
    value_heads = metadata.whole("ssm.time_step_rank")
    inner = metadata.whole("ssm.inner_size")
    if not value_heads or inner % value_heads:
        raise metadata.unsupported(
            "ssm.inner_size", f"it must be a multiple of the {value_heads} value heads"
        )
    return _qwen_moe(metadata) | {
        "linear_conv_kernel_dim": metadata.one("ssm.conv_kernel"),
        "linear_key_head_dim": metadata.one("ssm.state_size"),
        "linear_num_key_heads": metadata.one("ssm.group_count"),
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": inner // value_heads,
        "full_attention_interval": metadata.one("full_attention_interval"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a GGUF architecture reads as a config.

    `own`: fields beyond the common ones (a None removes one). `windowed`: the metadata's sliding window is the family's.
    `states_bias`: its config says whether projections have biases. `grouped`: heads have one width for keys and values.
    `head_dim_from_width`: without key_length a head is width / heads; other families have a default of their own.
    """

    model_type: str
    class_name: str
    own: Callable[[Metadata], Config] = no_experts
    windowed: bool = False
    states_bias: bool = True
    grouped: bool = True
    head_dim_from_width: bool = True


FAMILIES: dict[str, Family] = {
    "llama": Family(model_type="llama", class_name="LlamaForCausalLM", own=_llama),
    "mistral3": Family(model_type="mistral", class_name="MistralForCausalLM"),
    "qwen2": Family(model_type="qwen2", class_name="Qwen2ForCausalLM", states_bias=False),
    "qwen3": Family(model_type="qwen3", class_name="Qwen3ForCausalLM"),
    "qwen2moe": Family(
        model_type="qwen2_moe", class_name="Qwen2MoeForCausalLM", own=_qwen_moe, states_bias=False
    ),
    "qwen3moe": Family(model_type="qwen3_moe", class_name="Qwen3MoeForCausalLM", own=_qwen_moe),
    "qwen3next": Family(
        model_type="qwen3_next", class_name="Qwen3NextForCausalLM", own=_qwen_next, head_dim_from_width=False
    ),
    "qwen35": Family(
        model_type="qwen3_5_text", class_name="Qwen3_5ForCausalLM", own=_qwen_next, head_dim_from_width=False
    ),
    "qwen35moe": Family(
        model_type="qwen3_5_moe_text",
        class_name="Qwen3_5MoeForCausalLM",
        own=_qwen_next,
        head_dim_from_width=False,
    ),
    "gemma": Family(model_type="gemma", class_name="GemmaForCausalLM", head_dim_from_width=False),
    "gemma2": Family(
        model_type="gemma2", class_name="Gemma2ForCausalLM", windowed=True, head_dim_from_width=False
    ),
    "gemma3": Family(
        model_type="gemma3_text", class_name="Gemma3ForCausalLM", windowed=True, head_dim_from_width=False
    ),
    "phi3": Family(model_type="phi3", class_name="Phi3ForCausalLM", windowed=True),
    "gpt-oss": Family(
        model_type="gpt_oss",
        class_name="GptOssForCausalLM",
        own=_gpt_oss,
        windowed=True,
        head_dim_from_width=False,
    ),
    "deepseek2": Family(
        model_type="deepseek_v2", class_name="DeepseekV2ForCausalLM", own=_deepseek, grouped=False
    ),
    "olmo2": Family(model_type="olmo2", class_name="Olmo2ForCausalLM"),
    "olmoe": Family(model_type="olmoe", class_name="OlmoeForCausalLM", own=_olmoe),
    "cohere2": Family(model_type="cohere2", class_name="Cohere2ForCausalLM", windowed=True),
    "granite": Family(model_type="granite", class_name="GraniteForCausalLM"),
    "smollm3": Family(model_type="smollm3", class_name="SmolLM3ForCausalLM"),
    "seed_oss": Family(model_type="seed_oss", class_name="SeedOssForCausalLM"),
    "command-r": Family(model_type="cohere", class_name="CohereForCausalLM"),
    "glm4": Family(model_type="glm4", class_name="Glm4ForCausalLM"),
    "exaone4": Family(model_type="exaone4", class_name="Exaone4ForCausalLM", windowed=True),
    "hunyuan-dense": Family(model_type="hunyuan_v1_dense", class_name="HunYuanDenseV1ForCausalLM"),
    "ernie4_5": Family(model_type="ernie4_5", class_name="Ernie4_5ForCausalLM"),
    "starcoder2": Family(
        model_type="starcoder2", class_name="Starcoder2ForCausalLM", own=_starcoder2, states_bias=False
    ),
    "stablelm": Family(model_type="stablelm", class_name="StableLmForCausalLM"),
    "nemotron": Family(model_type="nemotron", class_name="NemotronForCausalLM"),
    "minimax-m2": Family(model_type="minimax_m2", class_name="MiniMaxM2ForCausalLM", own=_olmoe),
    "arcee": Family(model_type="arcee", class_name="ArceeForCausalLM"),
}


def config_of(fields: Mapping[str, Value], tensors: Mapping[str, GgufTensor]) -> Config:
    """The metadata as the fields of a config.json; UnsupportedArchitecture for a family that is not mapped."""
    architecture = fields.get("general.architecture")
    family = FAMILIES.get(architecture) if isinstance(architecture, str) else None
    if family is None:
        raise UnsupportedArchitecture(
            "general.architecture",
            architecture,
            f"GGUF files are read for {', '.join(FAMILIES)}",
            next_step=CHOOSE,
        )
    metadata = Metadata(fields, tensors, str(architecture))
    if metadata.one("nextn_predict_layers"):
        raise metadata.unsupported("nextn_predict_layers", "files with draft layers are not read")
    config = _common(metadata) | {"model_type": family.model_type, "architectures": [family.class_name]}
    if family.grouped:
        config["head_dim"] = _head_dim(metadata, family)
    if family.states_bias:
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
        config["mlp_bias"] = "blk.0.ffn_up.bias" in tensors
    if family.windowed:
        config["sliding_window"] = metadata.one("attention.sliding_window")
    config |= family.own(metadata)
    return {field: value for field, value in config.items() if value is not None}


def _common(metadata: Metadata) -> Config:
    """What every family states under the same keys."""
    n_heads = metadata.one("attention.head_count")
    embeddings = metadata.tensors.get("token_embd.weight")
    return {
        "hidden_size": metadata.one("embedding_length"),
        "num_hidden_layers": metadata.one("block_count"),
        "num_attention_heads": n_heads,
        "num_key_value_heads": metadata.one("attention.head_count_kv") or n_heads,
        "intermediate_size": metadata.one("feed_forward_length"),
        "vocab_size": embeddings.shape[0] if embeddings else metadata.one("vocab_size"),
        "max_position_embeddings": metadata.one("context_length"),
        "tie_word_embeddings": "output.weight" not in metadata.tensors,
        "torch_dtype": "float16",
    }


def _head_dim(metadata: Metadata, family: Family) -> Value | None:
    head_dim = metadata.one("attention.key_length")
    if metadata.one("attention.value_length") not in (None, head_dim):
        raise metadata.unsupported("attention.value_length", "it must equal attention.key_length")
    if head_dim is None and not family.head_dim_from_width:
        raise metadata.unsupported("attention.key_length", "this family must state it")
    return head_dim
