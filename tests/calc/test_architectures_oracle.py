"""transformers on the meta device as an independent count: every family, at its class defaults and at odd sizes."""

import pytest

from calc.architectures import parse
from calc.parameters import buffer_elements, count_parameters

pytestmark = pytest.mark.torch

ODD = {"num_hidden_layers": 5, "vocab_size": 1003, "pad_token_id": 0}

# model_type -> (class, overrides of the class defaults). Some defaults cannot be built by their own class.
FAMILIES = {
    "afmoe": ("AfmoeForCausalLM", {}),
    "apertus": ("ApertusForCausalLM", {}),
    "arcee": ("ArceeForCausalLM", {"attention_bias": True}),
    "bamba": ("BambaForCausalLM", {"attn_layer_indices": [1, 3]}),
    "bert": ("BertForMaskedLM", {}),
    "bloom": ("BloomForCausalLM", {}),
    "cohere": ("CohereForCausalLM", {"use_qk_norm": True}),
    "cohere2": ("Cohere2ForCausalLM", {}),
    "cwm": ("CwmForCausalLM", {}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", {"num_experts_per_tok": 6, "q_lora_rank": None}),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {}),
    "deepseek_v32": ("DeepseekV32ForCausalLM", {}),
    "deepseek_v4": ("DeepseekV4ForCausalLM", {}),
    "ernie4_5": ("Ernie4_5ForCausalLM", {"use_bias": True}),
    "ernie4_5_moe": ("Ernie4_5_MoeForCausalLM", {}),
    "exaone_moe": ("ExaoneMoeForCausalLM", {}),
    "exaone4": ("Exaone4ForCausalLM", {}),
    "falcon": ("FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 1, "bias": True}),
    "falcon_h1": ("FalconH1ForCausalLM", {}),
    "falcon_mamba": ("FalconMambaForCausalLM", {}),
    "flex_olmo": ("FlexOlmoForCausalLM", {}),
    "gemma": ("GemmaForCausalLM", {}),
    "gemma2": ("Gemma2ForCausalLM", {}),
    "gemma3_text": ("Gemma3ForCausalLM", {}),
    "gemma4_text": ("Gemma4ForCausalLM", {}),
    "glm": ("GlmForCausalLM", {}),
    "glm4": ("Glm4ForCausalLM", {}),
    "glm4_moe": ("Glm4MoeForCausalLM", {"head_dim": 128, "use_qk_norm": True}),
    "glm4_moe_lite": ("Glm4MoeLiteForCausalLM", {}),
    "glm_moe_dsa": ("GlmMoeDsaForCausalLM", {}),
    "gpt2": ("GPT2LMHeadModel", {}),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "gpt_oss": ("GptOssForCausalLM", {}),
    "gptj": ("GPTJForCausalLM", {}),
    "granite": ("GraniteForCausalLM", {"mlp_bias": True}),
    "granitemoe": ("GraniteMoeForCausalLM", {}),
    "granitemoehybrid": ("GraniteMoeHybridForCausalLM", {}),
    "helium": ("HeliumForCausalLM", {}),
    "hy_v3": ("HYV3ForCausalLM", {}),
    "hunyuan_v1_dense": ("HunYuanDenseV1ForCausalLM", {"head_dim": 128}),
    "hunyuan_v1_moe": ("HunYuanMoEV1ForCausalLM", {"head_dim": 128, "num_experts": 4, "moe_topk": 2}),
    "jais2": ("Jais2ForCausalLM", {}),
    "jamba": ("JambaForCausalLM", {}),
    "kimi_linear": ("KimiLinearForCausalLM", {}),
    "laguna": ("LagunaForCausalLM", {}),
    "lfm2": ("Lfm2ForCausalLM", {"full_attn_idxs": [0, 3]}),
    "lfm2_moe": (
        "Lfm2MoeForCausalLM",
        {"layer_types": ["conv", "full_attention"] * 2 + ["conv"], "num_hidden_layers": 5},
    ),
    "llama": ("LlamaForCausalLM", {"num_key_value_heads": 4, "attention_bias": True}),
    "mamba": ("MambaForCausalLM", {}),
    "mamba2": ("Mamba2ForCausalLM", {}),
    "minicpm3": ("MiniCPM3ForCausalLM", {}),
    "minimax": ("MiniMaxForCausalLM", {}),
    "minimax_m2": ("MiniMaxM2ForCausalLM", {}),
    "mistral": ("MistralForCausalLM", {"head_dim": 64}),
    "mistral4": ("Mistral4ForCausalLM", {}),
    "mixtral": ("MixtralForCausalLM", {}),
    "mpt": ("MptForCausalLM", {}),
    "nemotron": ("NemotronForCausalLM", {"num_key_value_heads": 8}),
    "olmo": ("OlmoForCausalLM", {}),
    "olmo_hybrid": ("OlmoHybridForCausalLM", {}),
    "olmo2": ("Olmo2ForCausalLM", {"num_key_value_heads": 8}),
    "olmo3": ("Olmo3ForCausalLM", {}),
    "olmoe": ("OlmoeForCausalLM", {}),
    "opt": ("OPTForCausalLM", {"word_embed_proj_dim": 512}),
    "phi": ("PhiForCausalLM", {}),
    "phi3": ("Phi3ForCausalLM", {"num_key_value_heads": 8}),
    "phimoe": ("PhimoeForCausalLM", {"attention_bias": True, "lm_head_bias": True}),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", {"mlp_only_layers": [0], "decoder_sparse_step": 2}),
    "qwen3": ("Qwen3ForCausalLM", {}),
    "qwen3_5_moe_text": ("Qwen3_5MoeForCausalLM", {}),
    "qwen3_5_text": ("Qwen3_5ForCausalLM", {}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", {}),
    "qwen3_next": ("Qwen3NextForCausalLM", {}),
    "roberta": ("RobertaForSequenceClassification", {}),
    "rwkv": ("RwkvForCausalLM", {}),
    "seed_oss": ("SeedOssForCausalLM", {}),
    "smollm3": ("SmolLM3ForCausalLM", {}),
    "solar_open": ("SolarOpenForCausalLM", {}),
    "sarvam_mla": ("DeepseekV3ForCausalLM", {}),
    "sarvam_moe": ("Glm4MoeForCausalLM", {}),
    "stablelm": ("StableLmForCausalLM", {"use_qkv_bias": True}),
    "vaultgemma": ("VaultGemmaForCausalLM", {}),
    "starcoder2": ("Starcoder2ForCausalLM", {}),
}

# Encoder-decoders and models with towers: their sections have no common field for the depth.
WHOLE = {
    "bart": ("BartForConditionalGeneration", {"encoder_layers": 2, "decoder_layers": 3}),
    "gemma3n_text": ("Gemma3nForCausalLM", {}),
    "gemma4": ("Gemma4ForConditionalGeneration", {}),
    "glm4v_moe": ("Glm4vMoeForConditionalGeneration", {"text_config": {"head_dim": 128}}),
    "internvl": ("InternVLForConditionalGeneration", {}),
    "glm46v": ("Glm46VForConditionalGeneration", {}),
    "glm4v": ("Glm4vForConditionalGeneration", {}),
    "llama4": ("Llama4ForConditionalGeneration", {}),
    "llama4_text": ("Llama4ForCausalLM", {}),
    "llava_next": ("LlavaNextForConditionalGeneration", {}),
    "llava": ("LlavaForConditionalGeneration", {}),
    "minicpmv4_6": ("MiniCPMV4_6ForConditionalGeneration", {}),
    "mllama": ("MllamaForConditionalGeneration", {}),
    "nemotron_h": ("NemotronHForCausalLM", {}),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", {}),
    "qwen2_audio": ("Qwen2AudioForConditionalGeneration", {}),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", {}),
    "qwen3_5": ("Qwen3_5ForConditionalGeneration", {}),
    "qwen3_5_moe": ("Qwen3_5MoeForConditionalGeneration", {}),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", {}),
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", {}),
    "t5": ("T5ForConditionalGeneration", {"num_decoder_layers": 4, "feed_forward_proj": "gated-gelu"}),
    "whisper": ("WhisperForConditionalGeneration", {"decoder_layers": 3}),
    "zamba2": ("Zamba2ForCausalLM", {"num_mem_blocks": 2}),
}

# Buffers that only transformers keeps: MiniMax's decay tables, T5's and Whisper's none.
OWN_BUFFERS = {"minimax"}


def built(model_type, name, overrides):
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(model_type, **overrides)
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    fields = {**config.to_dict(), "architectures": [name]}
    kept = set(model.state_dict())
    buffers = sum(buffer.numel() for key, buffer in model.named_buffers() if key in kept)
    return fields, sum(p.numel() for p in model.parameters()), buffers


def check(model_type, name, overrides):
    fields, parameters, buffers = built(model_type, name, overrides)
    spec = parse(fields, model_id=model_type)
    count = count_parameters(spec)
    assert count.total == parameters
    apart = sum(size for part, size in count.parts.items() if part in ("mtp", "draft"))
    assert sum(count.parts.values()) - apart == count.total
    if model_type not in OWN_BUFFERS:
        assert buffer_elements(spec) == buffers


@pytest.mark.parametrize("model_type", [*FAMILIES, *WHOLE])
def test_parameters_of_the_class_as_it_comes(model_type):
    name, overrides = (FAMILIES | WHOLE)[model_type]
    check(model_type, name, overrides)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_parameters_with_other_depth_and_vocabulary(model_type):
    name, overrides = FAMILIES[model_type]
    check(model_type, name, ODD | overrides)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "model_type", ["llama", "qwen3", "gemma2", "cohere", "granite", "mamba2", "qwen3_moe", "phi3"]
)
def test_parameters_with_the_head_tied_or_not(model_type, tied):
    name, overrides = FAMILIES[model_type]
    check(model_type, name, ODD | overrides | {"tie_word_embeddings": tied})
