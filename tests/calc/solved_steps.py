"""Steps, prefill, requests, GPUs: the cases and what solves them."""

import numpy as np
from solved_cases import GB, MS, picked, prefill_inputs, solves, step_inputs

from calc import quantization_error, textbook
from calc.queueing import closed_forms
from calc.textbook import EndToEnd
from calc.verdict import Wall


@solves("step-13b-a100")
def step(i):
    batch = np.array(i["batch"])
    step_s = textbook.decode_step_s(**step_inputs(i))
    compute = textbook.decode_compute_s(params=i["params"], batch=batch, peak_flop_per_s=i["flops"])
    return {
        "step_ms": step_s / MS,
        "compute_ms": compute / MS,
        "tokens_per_s": textbook.tokens_per_s(batch=batch, step_s=step_s),
    }


@solves("step-parts-13b-a100")
def step_parts(i):
    weights_s = textbook.decode_memory_s(**step_inputs(i, context=0))
    sequence = textbook.sequence_kv_bytes(tokens=i["context"], kv_bytes_per_token=i["kv_bytes_per_token"])
    one = textbook.decode_memory_s(**step_inputs(i, batch=1))
    return {
        "weights_ms": weights_s / MS,
        "sequence_mb": sequence / 1e6,
        "sequence_ms": (one - weights_s) / MS,
        "largest_batch": textbook.largest_batch(**step_inputs(i), tpot_limit_s=i["tpot_limit_s"]),
    }


@solves("capacity-13b-a100")
def capacity(i):
    tokens = textbook.tokens_that_fit(**picked(i, "cache_bytes", "kv_bytes_per_token"))
    reserved = textbook.sequences_reserved(tokens=tokens, reserved_tokens=i["reserved_tokens"])
    paged = textbook.sequences_paged(
        tokens=tokens, sequence_tokens=i["real_tokens"], block_size=i["block_size"]
    )
    limits = {Wall.KV_MEMORY: paged, Wall.TPOT: i["largest_batch_by_tpot"]}
    return {
        "tokens": tokens,
        "reserved": reserved,
        "paged": paged,
        "ratio": paged / reserved,
        "binding": textbook.binding_limit(limits),
    }


@solves("prefill-13b-a100")
def prefill(i):
    prefill_s = textbook.prefill_s(**prefill_inputs(i))
    e2e_s = textbook.e2e_s(
        ttft_s=prefill_s,
        tpot_s=textbook.decode_step_s(**step_inputs(i)),
        output_tokens=i["decode_steps"] + 1,
    )
    return {
        "prefill_flop": textbook.prefill_flop(**picked(i, "params", "prompt_tokens")),
        "prefill_ms": prefill_s / MS,
        "e2e_s": e2e_s,
        "active": closed_forms.requests_in_system(arrivals_per_s=i["rate"], time_in_system_s=e2e_s),
    }


@solves("gpus-13b-a100")
def gpus(i):
    prefills = textbook.prefill_gpus(rate_per_s=i["rate"], prefill_s=i["prefill_s"])
    decodes, unpaged = (
        textbook.decode_gpus(rate_per_s=i["rate"], output_tokens=i["output"], tokens_per_s=i[name])
        for name in ("tokens_per_s", "unpaged_tokens_per_s")
    )
    busy, unpaged_busy = prefills + decodes, prefills + unpaged
    return {
        "prefill_gpus": prefills,
        "decode_gpus": decodes,
        "busy": busy,
        "buy": textbook.gpus_to_buy(busy_gpus=busy, headroom=i["headroom"]),
        "unpaged_decode_gpus": unpaged,
        "unpaged_busy": unpaged_busy,
        "unpaged_buy": textbook.gpus_to_buy(busy_gpus=unpaged_busy, headroom=i["headroom"]),
        "paging_gain": unpaged / decodes,
    }


@solves("levers-13b-a100")
def levers(i):
    weights = textbook.weight_bytes(**picked(i, "params", "bytes_per_param"))
    left = textbook.cache_bytes(memory_bytes=i["memory_for_weights_and_cache"], weight_bytes=weights)
    per_token = np.array(i["kv_bytes_per_token"])
    tokens = textbook.tokens_that_fit(cache_bytes=left, kv_bytes_per_token=per_token)
    sequences = textbook.sequences_paged(tokens=tokens, sequence_tokens=i["kept_tokens"])
    step_s = textbook.decode_step_s(**step_inputs(i, batch=sequences))
    compute = textbook.decode_compute_s(params=i["params"], batch=sequences, peak_flop_per_s=i["flops"])
    return {
        "kv_gb": left / GB,
        "sequences": sequences,
        "step_ms": step_s / MS,
        "compute_ms": compute / MS,
        "tokens_per_s": textbook.tokens_per_s(batch=sequences, step_s=step_s),
    }


@solves("batch16-13b-a100")
def batch_16(i):
    read = step_inputs(i)
    del read["peak_flop_per_s"]
    weights_s = textbook.decode_memory_s(**{**read, "context": 0})
    step_s = textbook.decode_step_s(**step_inputs(i))
    cache = i["batch"] * textbook.sequence_kv_bytes(
        tokens=i["context"], kv_bytes_per_token=i["kv_bytes_per_token"]
    )
    return {
        "weights_ms": weights_s / MS,
        "cache_gb": cache / GB,
        "cache_ms": (textbook.decode_memory_s(**read) - weights_s) / MS,
        "step_ms": step_s / MS,
        "tokens_per_s": textbook.tokens_per_s(batch=i["batch"], step_s=step_s),
    }


@solves("request-example-8b")
def request_alone(i):
    prefill_s = textbook.prefill_s(**prefill_inputs(i))
    tpot_s = textbook.decode_step_s(**step_inputs(i))
    decode_s = whole_request(0.0, tpot_s, i["decode_steps"])
    per_input = textbook.prefill_s(**{**prefill_inputs(i), "prompt_tokens": 1})
    return {
        "prefill_flop": textbook.prefill_flop(**picked(i, "params", "prompt_tokens")),
        "prefill_s": prefill_s,
        "ms_per_input_token": per_input / MS,
        "tpot_ms": tpot_s / MS,
        "decode_s": decode_s,
        "ratio": tpot_s / per_input,
        "steps": prefill_s / tpot_s,
        "tokens_per_s": textbook.tokens_per_s(batch=1, step_s=tpot_s),
    }


def whole_request(ttft_s, tpot_s, decode_steps):
    """The Example 8B cases count a decode step for every output."""
    return textbook.e2e_s(
        ttft_s=ttft_s, tpot_s=tpot_s, output_tokens=decode_steps, convention=EndToEnd.EVERY_OUTPUT
    )


@solves("batch32-example-8b")
def batch_32(i):
    tpot_s = textbook.decode_step_s(**step_inputs(i))
    rate = textbook.tokens_per_s(batch=i["batch"], step_s=tpot_s)
    alone = textbook.tokens_per_s(
        batch=1, step_s=textbook.decode_step_s(**step_inputs(i, batch=1, context=0))
    )
    read = textbook.step_bytes(
        **picked(i, "params", "bytes_per_param", "batch", "context", "kv_bytes_per_token")
    )
    return {
        "gb_per_step": read / GB,
        "tpot_ms": tpot_s / MS,
        "tokens_per_s": rate,
        "gain": rate / alone,
        "e2e_s": whole_request(i["prefill_s"], tpot_s, i["decode_steps"]),
    }


@solves("two-gpus-example-8b")
def two_gpus(i):
    return {
        "tpot_ms": textbook.decode_step_s(**step_inputs(i)) / MS,
        "ttft_s": textbook.prefill_s(**prefill_inputs(i)),
    }


@solves("two-requests-example-8b")
def two_requests(i):
    prefill_s = textbook.prefill_s(**prefill_inputs(i))
    tpot_s = textbook.decode_step_s(**step_inputs(i))
    steps = np.array(i["decode_steps"])
    return {
        "prefill_s": prefill_s,
        "decode_s": whole_request(0.0, tpot_s, steps),
        "total_s": whole_request(prefill_s, tpot_s, steps),
    }


@solves("four-bit-example-8b")
def four_bit(i):
    tpot_s = textbook.decode_step_s(**step_inputs(i))
    before = textbook.decode_step_s(**step_inputs(i, bytes_per_param=i["bytes_per_param_before"]))
    return {
        "weights_gb": textbook.weight_bytes(**picked(i, "params", "bytes_per_param")) / GB,
        "tpot_ms": tpot_s / MS,
        "gain": before / tpot_s,
    }


@solves("prefix-cache-example-8b")
def prefix_cache(i):
    return textbook.prefill_s(**prefill_inputs(i))


@solves("thinking-example-8b")
def thinking(i):
    return whole_request(0.0, textbook.decode_step_s(**step_inputs(i)), i["decode_steps"])


@solves("int4-group-scales")
def int4_groups(i):
    return quantization_error.bits_per_weight(**i)
