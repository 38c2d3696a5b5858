"""Names of config fields that change no tensor shape and no cache, each group with the reason."""

from __future__ import annotations

import re
from typing import Final

_GROUPS: Final = (
    # what the file is
    "architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "_name_or_path", "auto_map",
    "_commit_hash", "_from_model_config", "tokenizer_class", "is_llama_config", "model_version", "ps_version",
    "base_model_name_or_path", "tokenizer_name", "resume_path", "vit_path", "for_llm_compressor",
    # read by the rules for stored formats, not by adapters
    "quantization_config", "compression_config", "expert_dtype", "scale_dtype", "scale_fmt",
    # element-wise functions
    "hidden_act", "hidden_activation", "activation_function", "activation_func", "swiglu_limit", "swiglu_alpha",
    "activation_situ_beta", "activation_situ_linear_beta", "moe_gate_act", "mlp_hidden_act", "mamba_hidden_act",
    "block_use_swiglu", "activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "output_gate_type", "swiglu_limits", "swiglu_limits_shared",
    # regularisation and training
    "layerdrop", "encoder_layerdrop", "decoder_layerdrop", "attention_dropout", "gradient_checkpointing",
    "use_loss_mask", "aux_loss_alpha", "seq_aux", "router_aux_loss_coef", "output_router_logits",
    "router_z_loss_coef", "moe_loss_weight", "moe_jitter_eps", "router_jitter_noise", "input_jitter_noise",
    "moe_jitter_noise", "noisy_policy", "drop_tks", "capacity_factor_train", "capacity_factor_eval", "min_capacity",
    "moe_drop_tokens", "moe_random_routing_dropped_token", "gradient_clipping", "selective_checkpoint_enabled",
    "drop_path_rate", "reset_attention_mask", "reset_position_ids", "pretraining_tp", "ep_size",
    "expert_parallel", "sequence_parallel_enabled", "tensor_parallel_size", "ft_lora", "lora_rank", "use_llm_lora",
    "tune_language_model", "tune_mm_projector", "tune_vision_tower", "mm_projector_lr", "use_mm_proj",
    "bias_dropout_fusion", "pruned_heads", "chunk_size_feed_forward", "num_logits_to_keep",
    "block_auto_adjust_ff_dim", "block_ffn_dim_multiplier", "block_multiple_of",  # LFM2 read by its adapter
    # initialisation
    "initializer_range", "init_std", "initializer_factor", "init_method", "emb_init_std", "init_device",
    "conv_use_xavier_init", "block_use_xavier_init", "block_mlp_init_scale", "block_out_init_scale",
    "rescale_every", "rescale_prenorm_residual", "time_step_floor", "time_step_init_scheme", "time_step_limit", "time_step_max",
    "time_step_min", "linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor",
    "linear_allow_neg_eigval", "time_step_scale", "embd_layer", "mask_init_id",
    # norms: how, not how wide
    "rms_norm_eps", "norm_eps", "norm_epsilon", "layernorm_epsilon", "layer_norm_epsilon", "rms_norm", "rmsnorm",
    "normalization_function", "norm_type", "layer_norm_type", "use_gemma_norm", "vit_norm_type",
    # positions
    "rope_theta", "rope_scaling", "rope_parameters", "rope_ratio", "rope_local_base_freq", "rope_interleave",
    "rope_interleaved", "partial_rotary_factor", "partial_rotary_factors", "rotary_pct", "rotary_dim", "rotary_emb_base",
    "rotary", "use_rotary_pos_emb", "original_max_position_embeddings", "original_rope", "max_position_embeddings", "max_window_layers",
    "initial_context_length", "mrope_section", "mrope_interleaved", "use_mrope", "use_mem_rope", "no_rope_layers",
    "no_rope_layer_interval", "use_dynamic_ntk", "use_logn_attn", "indexer_rope_interleave", "compress_rope_theta",
    "compress_rope_parameters", "flash_rotary", "position_embedding_xdrope", "xdrope_section", "pos_emb_type",
    "position_id_per_seconds", "position_embedding_type", "context_length", "max_seq_len", "seq_length",
    "model_max_length", "max_sequence_length", "tokenizer_model_max_length", "max_length", "yarn_only_types",
    "nope_layer_interval", "attn_scale", "floor_scale", "attn_temperature_tuning", "use_pos_enc",
    "mla_use_nope", "rope_scaling_layers",
    # factors
    "attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "embedding_multiplier",
    "logits_scaling", "residual_multiplier", "attention_multiplier", "logit_scale", "scale_emb", "scale_depth",
    "dim_model_base", "mup_denominator", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
    "reorder_and_upcast_attn", "attention_logit_cap", "softmax_scale", "clip_qkv", "residual_weight",
    "layernorm_full_attention_alpha", "layernorm_full_attention_beta", "layernorm_linear_attention_alpha",
    "layernorm_linear_attention_beta", "layernorm_mlp_alpha", "layernorm_mlp_beta", "postnorm", "full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor", "mup_enabled",
    "linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor",
    "scale_embedding", "embedding_fraction", "attention_invalid_logits_value",
    # routing: how the experts are chosen, not how many
    "norm_topk_prob", "norm_expert_weight", "routed_scaling_factor", "moe_routed_scaling_factor",
    "moe_router_scaling_factor", "scoring_func", "topk_method", "topk_group", "n_group", "num_expert_group",
    "use_grouped_topk", "group_limited_greedy", "moe_router_activation", "moe_router_activation_func",
    "moe_router_dtype", "moe_renormalize", "moe_apply_router_weight_on_input",
    "shared_moe_mode", "moe_router_logit_softcapping", "moe_shared_expert_overlap", "experts_per_token",
    "moe_norm_min", "moe_capacity", "block_size", "moe_use_aux_free", "router_logit_softcapping", "router_scaling_factor", "enable_moe_fp32_combine", "route_scale", "route_norm",
    # how attention runs
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "attn_impl", "attn_type",
    "use_cache", "cache_implementation", "is_decoder", "use_flash_attn", "use_flash_attention", "flash_attn",
    "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "apply_query_key_layer_scaling",
    "fp32_residual_connection", "residual_in_fp32", "inference_runner", "runner_max_sequence_length",
    "validate_runner_input", "pre_allocate_kv_cache", "pad_key_length", "fused_dense", "use_mamba_kernels",
    "mamba_chunk_size", "chunk_size", "mamba_ssm_dtype", "conv_chunksize", "onnx_safe", "q4f16", "bf16", "fp16",
    "fp32", "precision", "use_bfloat16", "dequantize", "max_batch_size", "att_impl_type", "alibi_bias_max",
    "attn_uses_sequence_id", "causal_mask", "alibi", "prefix_lm", "mamba_ssm_cache_dtype", "chunk_size_linear_attn",
    "video_attn_type", "use_unified_vision_chunk", "index_topk", "index_topk_freq", "index_skip_topk_offset",
    "index_share_for_mtp_iteration", "num_block", "model_dtype",
    # generation and task settings
    "num_beams", "num_beam_groups", "num_return_sequences", "no_repeat_ngram_size", "predict_special_tokens",
    "encoder_no_repeat_ngram_size", "output_hidden_states", "output_attentions", "finetuning_task", "problem_type",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "pooler_fc_size",
    "directionality", "classif_dropout", "tie_encoder_decoder", "use_position_ids", "begin_suppress_tokens",
    "suppress_tokens", "forced_decoder_ids", "bad_words_ids", "return_dict", "class_num", "classifier_proj_size", "pool_type",
     "ignore_index", "support_languages", "cross_attention_hidden_size", "prefix",
    "hidden_dropout_prob", "use_image_special_tokens", "force_bos_token_to_be_generated",
    # how images, video and sound are cut, not how the towers are built
    "image_aspect_ratio", "image_grid_pinpoints", "vision_feature_layer", "vision_feature_select_strategy",
    "mm_tokens_per_image", "vision_soft_tokens_per_image", "image_seq_length", "max_num_tiles", "dynamic_image_size",
    "force_image_size", "use_thumbnail", "min_dynamic_patch", "max_dynamic_patch", "max_slice_nums", "slice_mode",
    "slice_config", "batch_vision_input", "s2", "s2_scales", "s2_max_split_size", "img_processor", "num_img_tokens",
    "anyres_pooling_size", "anyres_vit_max_image_size", "anyres_vit_two_views", "do_image_splitting", "max_image_tokens",
    "min_image_tokens", "tile_size", "min_tiles", "max_tiles", "max_pixels_tolerance", "encoder_patch_size",
    "tokens_per_second", "seconds_per_chunk", "num_video_frames", "mm_use_im_patch_token", "mm_use_im_start_end",
    "mm_vision_select_feature", "mm_vision_select_layer", "select_layer", "template", "image_dim_out",
    "num_media_embeds", "vision_resolution",
    "vit_input_resolution", "drop_vision_last_layer", "image_placeholder", "merge_type",
)  # fmt: skip

INERT: Final = frozenset(_GROUPS)

# Token numbers, dropout rates, epsilons, generation switches.
INERT_NAME: Final = re.compile(
    r"(_token_ids?|_token_index|_tokens?_id|_dropout|_dropout_prob|_dropout_rate|_pdrop|_eps|_epsilon|_token|_act|_id|_multipliers?)$"
    r"|^(eos|bos|pad|unk|sep|cls|dropout|output_|use_mamba_kernel|init_)"
)


def is_inert(name: str) -> bool:
    """Whether a field of that name is known not to change shapes or state."""
    return name in INERT or INERT_NAME.search(name) is not None
