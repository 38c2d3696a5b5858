"""GGUF files written by the `gguf` library's own writer: header-only ones of any size, and small whole ones."""

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

Q = GGMLQuantizationType
EXPERT_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")


def writer_of(path, architecture, config, n_tokens):
    """A writer with the metadata that a converter states for `config` (fields of a config.json)."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("test model")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config.get("max_position_embeddings", 4096))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    if architecture == "deepseek2":
        add_latent_attention(writer, config)
    else:
        writer.add_head_count_kv(config.get("num_key_value_heads") or config["num_attention_heads"])
        if config.get("head_dim"):
            writer.add_key_length(config["head_dim"])
            writer.add_value_length(config["head_dim"])
    if config.get("linear_key_head_dim"):
        add_delta_net(writer, config)
    add_experts(writer, architecture, config)
    if config.get("sliding_window") and "qwen" not in architecture:
        writer.add_sliding_window(config["sliding_window"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token {number}" for number in range(n_tokens)])
    writer.add_token_scores([0.5] * n_tokens)
    writer.add_token_types([1] * n_tokens)
    writer.add_chat_template("{% for message in messages %}{{ message }}{% endfor %}")
    return writer


def add_latent_attention(writer, config):
    """As the converter does for DeepSeek; `halves`: newer files, which state one KV head and the latent's widths."""
    rope, nope, value = config["qk_rope_head_dim"], config["qk_nope_head_dim"], config["v_head_dim"]
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_rope_dimension_count(rope)
    if config["halves"]:
        writer.add_head_count_kv(1)
        writer.add_key_length(config["kv_lora_rank"] + rope)
        writer.add_value_length(config["kv_lora_rank"])
        writer.add_key_length_mla(nope + rope)
        writer.add_value_length_mla(value)
    else:
        writer.add_head_count_kv(config["num_attention_heads"])
        writer.add_key_length(nope + rope)
        writer.add_value_length(value)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_shared_count(config["n_shared_experts"])


def add_delta_net(writer, config):
    """As the converter does for Qwen3-Next."""
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    writer.add_full_attention_interval(config["full_attention_interval"])


def add_experts(writer, architecture, config):
    n_experts = next((config[key] for key in EXPERT_COUNTS if config.get(key)), None)
    if n_experts is None:
        return
    writer.add_expert_count(n_experts)
    writer.add_expert_used_count(config["num_experts_per_tok"])
    if config.get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config.get("shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if architecture == "gpt-oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])


def bytes_of(shape, kind):
    block, size = GGML_QUANT_SIZES[kind]
    return int(np.prod(shape)) // block * size


def write_header(path, architecture, config, tensors, n_tokens=1000):
    """A file that ends after its header; `tensors`: name -> (shape as in torch, ggml type)."""
    writer = writer_of(path, architecture, config, n_tokens)
    for name, (shape, kind) in tensors.items():
        writer.add_tensor_info(name, shape, np.dtype(np.float16), bytes_of(shape, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


def write_whole(path, architecture, config, tensors, n_tokens=50, **settings):
    """A file with its tensor data; `settings` split it (split_max_tensors)."""
    writer = writer_of(path, architecture, config, n_tokens)
    for name, value in settings.items():
        setattr(writer, name, value)
    for name, (shape, kind) in tensors.items():
        block, size = GGML_QUANT_SIZES[kind]
        data = np.zeros((*shape[:-1], shape[-1] // block * size), dtype=np.uint8)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama_tensors(config, kind=Q.Q4_K, norm=Q.F32, tied=False):
    """Tensors of a Llama-shaped model by llama.cpp's names, all matrices in one type."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or width // config["num_attention_heads"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    tensors = {"token_embd.weight": ((config["vocab_size"], width), kind)}
    for layer in range(config["num_hidden_layers"]):
        shapes = {
            "attn_q": (q, width),
            "attn_k": (kv, width),
            "attn_v": (kv, width),
            "attn_output": (width, q),
            "ffn_gate": (inner, width),
            "ffn_up": (inner, width),
            "ffn_down": (width, inner),
        }
        tensors |= {f"blk.{layer}.{name}.weight": (shape, kind) for name, shape in shapes.items()}
        tensors |= {f"blk.{layer}.{name}.weight": ((width,), norm) for name in ("attn_norm", "ffn_norm")}
    tensors["output_norm.weight"] = ((width,), norm)
    if not tied:
        tensors["output.weight"] = ((config["vocab_size"], width), kind)
    return tensors


def q4_k_m(config):
    """llama.cpp's Q4_K_M for a Llama with its own head: Q6_K for the head, and for half of attn_v and ffn_down.

    Source: llama.cpp src/llama-quant.cpp, `use_more_bits`: the first and last eighth of the layers, and every third.
    """
    tensors, layers = llama_tensors(config), config["num_hidden_layers"]
    more = {i for i in range(layers) if i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2}
    for layer in more:
        for name in ("attn_v", "ffn_down"):
            shape, _ = tensors[f"blk.{layer}.{name}.weight"]
            tensors[f"blk.{layer}.{name}.weight"] = (shape, Q.Q6_K)
    tensors["output.weight"] = (tensors["output.weight"][0], Q.Q6_K)
    return tensors
