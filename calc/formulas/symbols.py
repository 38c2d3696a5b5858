"""The letters of all formulas: one meaning for each parameter name, wherever it stands."""

from __future__ import annotations

from calc.errors import InputError
from calc.formulas.record import Symbol


def _symbols(*rows: tuple[str, str, str, str]) -> dict[str, Symbol]:
    return {
        name: Symbol(name=name, latex=latex, meaning=meaning, unit=unit)
        for name, latex, meaning, unit in rows
    }


SYMBOLS = _symbols(
    # model
    ("params", "P", "parameters of the model", "1"),
    ("bytes_per_param", "b", "bytes that store one parameter", "byte"),
    ("layers", "L", "layers that keep a cache", "1"),
    ("n_heads", "n_h", "query heads", "1"),
    ("n_kv_heads", "n_{kv}", "key-value heads", "1"),
    ("head_dim", "d_h", "width of one head", "1"),
    ("bytes_per_element", "b_e", "bytes of one element", "byte"),
    ("kv_bytes_per_token", "k", "cache bytes that one token adds, over all layers", "byte"),
    ("d_in", "d_{in}", "input width of a matrix", "1"),
    ("d_out", "d_{out}", "output width of a matrix", "1"),
    # accelerator
    ("bandwidth_bytes_per_s", "W", "memory bandwidth", "byte/second"),
    ("peak_flop_per_s", "F", "peak arithmetic rate, dense, in the format used", "FLOP/second"),
    ("mfu", r"\mathrm{MFU}", "share of the peak that prefill reaches", "1"),
    ("memory_bytes", "M", "memory of the accelerator", "byte"),
    ("weight_bytes", "M_w", "bytes of the weights", "byte"),
    ("reserved_bytes", "M_r", "bytes kept for anything else", "byte"),
    ("cache_bytes", "M_{kv}", "bytes left for the KV cache", "byte"),
    ("intensity_flop_per_byte", "I", "arithmetic intensity", "FLOP/byte"),
    ("ridge_flop_per_byte", "I^*", "ridge point of the accelerator", "FLOP/byte"),
    # batch and tokens
    ("batch", "B", "sequences that decode together", "1"),
    ("context", "C", "cached tokens that each sequence reads in a step", "1"),
    ("tokens", "T", "tokens", "1"),
    ("prompt_tokens", "T_{in}", "prompt tokens", "1"),
    ("cached_tokens", "T_{hit}", "prompt tokens that the prefix cache holds", "1"),
    ("output_tokens", "n", "output tokens of a request", "1"),
    ("reserved_tokens", "T_{max}", "tokens reserved for each sequence", "1"),
    ("sequence_tokens", "T_{seq}", "tokens that a sequence really holds", "1"),
    ("block_size", "s", "tokens in a block", "1"),
    ("useful_tokens", r"\textstyle\sum_i n_i", "output tokens that somebody asked for", "1"),
    ("slots", "N", "sequences in the static batch", "1"),
    ("longest_tokens", r"\max_i n_i", "longest output of the static batch", "1"),
    # time
    ("step_s", "t_{step}", "time of one decode step", "second"),
    ("tpot_limit_s", r"t_{limit}", "target for the time per output token", "second"),
    ("ttft_s", r"\mathrm{TTFT}", "time to first token", "second"),
    ("tpot_s", r"\mathrm{TPOT}", "time per output token after the first", "second"),
    ("prefill_s", "t_{prefill}", "time of one prefill", "second"),
    ("verify_s", "t_{verify}", "time of a target pass that checks all drafts", "second"),
    ("draft_step_s", "t_{draft}", "time of one draft pass", "second"),
    # load
    ("rate_per_s", r"\lambda", "requests that arrive per second", "1/second"),
    ("arrivals_per_s", r"\lambda", "requests that arrive per second", "1/second"),
    ("tokens_per_s", "R", "output tokens per second of one GPU", "1/second"),
    ("busy_gpus", r"G_{busy}", "GPUs' worth of work that arrives", "1"),
    ("headroom", "h", "headroom on top of the work", "1"),
    ("time_in_system_s", "t_{system}", "mean time from arrival to departure", "second"),
    ("service_s", "S", "mean service time", "second"),
    ("servers", "c", "servers", "1"),
    ("utilisation", r"\rho", "share of time that the servers are busy", "1"),
    ("percentile", "p", "percentile, in per cent", "1"),
    ("limit_s", "t_{limit}", "target for the percentile", "second"),
    ("service_scv", "c_s^2", "squared coefficient of variation of service times", "1"),
    ("arrival_scv", "c_a^2", "squared coefficient of variation of the gaps between arrivals", "1"),
    ("offered_load", "a", "offered load, arrival rate times service time", "1"),
    ("waiting_share", "C", "chance to wait (Erlang C)", "1"),
    ("size_s", "x", "service that a request would need alone", "second"),
    ("fixed_s", "t_0", "time of a step that does not grow with the work", "second"),
    ("busy_share", "x", "share of each second that grows with the work", "1"),
    ("finished_per_s", r"R_{done}", "requests that finish per second", "1/second"),
    ("missed_per_s", r"R_{miss}", "of those, requests that miss any target, per second", "1/second"),
    # speculative decoding, quantisation
    ("acceptance", r"\alpha", "chance that a drafted token is kept, given all before it were", "1"),
    ("drafts", "k", "tokens drafted for each pass", "1"),
    ("draft_cost", "c", "time of a draft pass over that of a target pass", "1"),
    ("bits", "b", "bits of one weight", "1"),
    ("scale_bits", "b_{scale}", "bits of one scale", "1"),
    ("group", "g", "weights that share a scale", "1"),
    ("at", "x", "a value", "1"),
    ("significand_bits", "p", "significand bits, the hidden one included", "1"),
    # money
    ("usd_per_gpu_hour", r"c_{GPU}", "price of one GPU for one hour", "USD/hour"),
    ("usd_per_hour", r"c_h", "price of the fleet for one hour", "USD/hour"),
    ("gpus", "G", "GPUs", "1"),
    ("api_usd_per_request", r"c_{API}", "what an API charges for one request", "USD"),
)


def named(*names: str) -> tuple[Symbol, ...]:
    """The symbols of these parameters, in order."""
    unknown = [name for name in names if name not in SYMBOLS]
    if unknown:
        raise InputError(
            "symbol", unknown[0], "add it to calc/formulas/symbols.py with its letter, meaning and unit"
        )
    return tuple(SYMBOLS[name] for name in names)
