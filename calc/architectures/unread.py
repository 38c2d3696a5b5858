"""Fails closed: a field that no adapter read, but whose name speaks of structure, is refused by name.

What an adapter leaves unread is compared with the names that are known not to change shapes or state (`INERT`). Any
other unread field whose name sounds structural, and whose value is not plainly "off", stops the parse.
"""

from __future__ import annotations

import re
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.errors import UnsupportedArchitecture

STRUCTURAL: Final = re.compile(
    r"layer|head|dim|hidden|rank|expert|moe|mlp|ffn|intermediate|kv|window|chunk|mamba|conv|ssm|state|latent|lora"
    r"|_bias|bias_|^bias$|tie|norm|pattern|period|interval|every|share|depth|embed|attn|attention|router|gate|mtp"
    r"|recur|block|compress|index|size$|^n_|^num_|vocab"
)

# Sections that describe how weights are stored, or a part that is not built.
SKIPPED_SECTIONS: Final = re.compile(
    r"(^|\.)(quantization_config|compression_config|task_specific_params|id2label|label2id|auto_map|rope_scaling"
    r"|rope_parameters|generation_config|init_config)\."
)

INERT: Final = frozenset(
    [
        "architectures",
        "model_type",
        "transformers_version",
        "torch_dtype",
        "dtype",
        "_name_or_path",
        "use_cache",
        "is_decoder",
        "hidden_act",
        "hidden_activation",
        "activation_function",
        "hidden_dropout",
        "hidden_dropout_prob",
        "embd_pdrop",
        "resid_pdrop",
        "attn_pdrop",
        "attention_dropout",
        "attn_dropout_prob",
        "activation_dropout",
        "dropout",
        "classifier_dropout",
        "embedding_dropout",
        "layerdrop",
        "encoder_layerdrop",
        "decoder_layerdrop",
        "attention_probs_dropout_prob",
        "summary_first_dropout",
        "initializer_range",
        "init_std",
        "initializer_factor",
        "rms_norm_eps",
        "layer_norm_eps",
        "layer_norm_epsilon",
        "norm_eps",
        "norm_epsilon",
        "layernorm_epsilon",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "rope_ratio",
        "rope_local_base_freq",
        "partial_rotary_factor",
        "rotary_pct",
        "rotary_dim",
        "rotary_emb_base",
        "original_max_position_embeddings",
        "pretraining_tp",
        "attention_softmax_in_fp32",
        "scale_attention_softmax_in_fp32",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "query_pre_attn_scalar",
        "cache_implementation",
        "embedding_multiplier",
        "logits_scaling",
        "residual_multiplier",
        "attention_multiplier",
        "logit_scale",
        "attn_implementation",
        "_attn_implementation",
        "_attn_implementation_autoset",
        "pruned_heads",
        "chunk_size_feed_forward",
        "tokenizer_class",
        "gradient_checkpointing",
        "num_logits_to_keep",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "scale_emb",
        "scale_depth",
        "dim_model_base",
        "mup_denominator",
        "max_position_embeddings",
        "max_window_layers",
        "sliding_window",
        "apply_residual_connection_post_layernorm",
        "output_hidden_states",
        "output_attentions",
        "num_beams",
        "num_beam_groups",
        "num_return_sequences",
        "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size",
        "is_llama_config",
        "rope_interleaved",
        "use_mrope",
        "quantization_config",
    ]
)

OFF: Final[tuple[object, ...]] = (None, False, 0, "", [], {}, (), "none", "None", "null")


def unread_fields(reader: ConfigReader) -> list[tuple[str, object]]:
    """(dotted path, value) of the fields that were neither read nor known to be inert, and are not "off"."""
    found = []
    for path, value in reader.leaves():
        name = path.rsplit(".", 1)[-1]
        if path in reader.read or name in INERT or _off(value) or SKIPPED_SECTIONS.search(path):
            continue
        found.append((path, value))
    return found


def refuse_unread(reader: ConfigReader) -> None:
    """Raise UnsupportedArchitecture for the first unread field that sounds structural."""
    for path, value in unread_fields(reader):
        name = path.rsplit(".", 1)[-1]
        if STRUCTURAL.search(name) and not name.endswith(("_token_id", "_token_index", "_dropout", "_eps")):
            raise UnsupportedArchitecture(
                path,
                value,
                "this family does not use it, so what it does to the structure is not known",
                next_step="Remove the field if it changes no shape, or choose the family that it belongs to.",
            )


def _off(value: object) -> bool:
    return any(value is off or (type(value) is type(off) and value == off) for off in OFF)
