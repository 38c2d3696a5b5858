"""Roofline, parameters, KV cache: the cases and what solves them."""

from solved_cases import GB, card, kv_shape, picked, solves

from calc import roofline, textbook
from calc.roofline import Bound


@solves("ridge-a100", "ridge-h100")
def ridge(i):
    return roofline.ridge_flop_per_byte(**card(i))


@solves("ridge-example-gpu")
def ridge_and_share(i):
    point = ridge(i)
    share = roofline.attainable_share(intensity_flop_per_byte=i["intensity"], ridge_flop_per_byte=point)
    return {"ridge": point, "share_of_peak": share}


@solves("decode-share-of-peak-a100")
def share_of_peak(i):
    reached = roofline.attainable_flop_per_s(intensity_flop_per_byte=i["intensity"], **card(i))
    return reached / i["flops"]


@solves("matmul-intensity")
def matmul(i):
    return roofline.matmul_intensity(**picked(i, "tokens", "d_in", "d_out", "bytes_per_element"))


@solves("weights-only-intensity")
def weights_only(i):
    intensity = roofline.weights_only_intensity(**picked(i, "tokens", "bytes_per_param"))
    share = roofline.attainable_share(intensity_flop_per_byte=intensity, ridge_flop_per_byte=i["ridge"])
    return {"intensity": intensity, "bound": [Bound.MEMORY if one < 1 else Bound.COMPUTE for one in share]}


@solves("decode-attention-intensity", "decode-attention-intensity-groups")
def attention(i):
    return roofline.decode_attention_intensity(**picked(i, "n_heads", "n_kv_heads", "bytes_per_element"))


# ---- parameters and KV cache ----------------------------------------------------------------------------------


@solves("params-example-8b", "params-qwen3-0.6b")
def llama_style(i):
    counted = textbook.llama_parameters(**{k: v for k, v in i.items() if k != "model"})
    parts = ("attention_per_layer", "mlp_per_layer", "norms_per_layer", "layer", "all_layers")
    parts += ("embedding_and_output", "final_norm")
    return counted.total, {name: getattr(counted, name) for name in parts}


@solves("kv-qwen3-0.6b", "kv-llama2-13b", "kv-13b-fp8", "kv-llama3-8b", "kv-llama3-70b")
def kv_per_token(i):
    return textbook.kv_bytes_per_token(**kv_shape(i))


@solves("kv-13b-gqa")
def kv_grouped(i):
    now = textbook.kv_bytes_per_token(**kv_shape(i))
    before = textbook.kv_bytes_per_token(**{**kv_shape(i), "n_kv_heads": i["n_kv_heads_before"]})
    return {"bytes_per_token": now, "times_less": before / now}


@solves("kv-one-sequence-13b-4096")
def one_sequence(i):
    used = textbook.sequence_kv_bytes(**picked(i, "tokens", "kv_bytes_per_token"))
    weights = textbook.weight_bytes(**picked(i, "params", "bytes_per_param"))
    return {"sequence_gb": used / GB, "share_of_weights": used / weights}


@solves("memory-example-8b")
def memory(i):
    weights = textbook.weight_bytes(**picked(i, "params", "bytes_per_param"))
    left = textbook.cache_bytes(memory_bytes=i["memory_bytes"], weight_bytes=weights)
    return {"weights_gb": weights / GB, "left_gb": left / GB}


@solves("kv-example-8b")
def kv_example(i):
    per_token = textbook.kv_bytes_per_token(**kv_shape(i))
    request = textbook.sequence_kv_bytes(tokens=i["request_tokens"], kv_bytes_per_token=per_token)
    conversation = textbook.sequence_kv_bytes(tokens=i["conversation_tokens"], kv_bytes_per_token=per_token)
    tokens = textbook.tokens_that_fit(cache_bytes=i["cache_bytes"], kv_bytes_per_token=per_token)
    fit = {
        name: textbook.sequences_paged(tokens=tokens, sequence_tokens=i[f"{name}_tokens"], block_size=1)
        for name in ("request", "conversation")
    }
    return {
        "bytes_per_token": per_token,
        "request_bytes": request,
        "conversation_gb": conversation / GB,
        "requests_fit": fit["request"],
        "conversations_fit": fit["conversation"],
    }


@solves("kv-example-8b-mha")
def kv_without_groups(i):
    now = textbook.kv_bytes_per_token(**kv_shape(i))
    before = textbook.kv_bytes_per_token(**{**kv_shape(i), "n_kv_heads": i["n_kv_heads_before"]})
    tokens = textbook.tokens_that_fit(cache_bytes=i["cache_bytes"], kv_bytes_per_token=now)
    return {
        "times_more": now / before,
        "conversation_gb": textbook.sequence_kv_bytes(tokens=i["conversation_tokens"], kv_bytes_per_token=now)
        / GB,
        "conversations_fit": textbook.sequences_paged(
            tokens=tokens, sequence_tokens=i["conversation_tokens"]
        ),
    }


@solves("kv-int8-weights-only")
def weights_only_quantised(i):
    conversation = textbook.sequence_kv_bytes(
        tokens=i["conversation_tokens"], kv_bytes_per_token=i["kv_bytes_per_token"]
    )
    weights = textbook.weight_bytes(**picked(i, "params", "bytes_per_param"))
    return {"weights_gb": weights / GB, "conversation_gb": conversation / GB}


@solves("kv-70b-tp4")
def tensor_parallel(i):
    return_per_gpu = textbook.tensor_parallel_share(
        params=i["params"],
        bytes_per_param=i["bytes_per_param"],
        tp=i["tp"],
        memory_bytes_per_gpu=i["memory_bytes_per_gpu"],
        reserved_bytes_per_gpu=i["reserved_bytes_per_gpu"],
        n_kv_heads=i["n_kv_heads"],
    )
    tokens = textbook.tokens_that_fit(
        cache_bytes=return_per_gpu.cache_bytes, kv_bytes_per_token=textbook.kv_bytes_per_token(**kv_shape(i))
    )
    return {
        "weights_gb_per_gpu": return_per_gpu.weight_bytes_per_gpu / GB,
        "cache_gb": return_per_gpu.cache_bytes / GB,
        "tokens": tokens,
        "kv_heads_per_gpu": return_per_gpu.kv_heads_per_gpu,
    }
