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
    # one operator of a step
    ("repeats", "n_{op}", "layers that repeat the operator", "1"),
    ("moved_bytes", "Q", "bytes of weights and cache that the operator reads", "byte"),
    ("bandwidth_share", "e", "share of the bandwidth that its kernels reach", "1"),
    ("flop", "X", "arithmetic of the operator", "FLOP"),
    ("all_bytes", "Q", "bytes of weights, cache and activations that are moved", "byte"),
    ("compute_share", "u", "share of the peak that its kernels reach", "1"),
    ("slowdown", "d", "times slower than on long prompts", "1"),
    ("half_tokens", "T_{1/2}", "prompt tokens at which half of the rate is reached", "1"),
    ("kernels", "k", "kernels that the operator launches", "1"),
    ("kernel_s", "t_0", "time of an empty kernel", "second"),
    ("sequences", "B", "sequences that take part in the step", "1"),
    ("sequence_s", "t_{seq}", "decode attention's time per sequence and layer", "second"),
    ("activation_bytes", "A", "bytes of activations that the operator writes and reads", "byte"),
    ("activation_share", "e_a", "share of the bandwidth that activations reach, passes counted", "1"),
    ("floor_s", "t_{floor}", "time that it takes however little it moves", "second"),
    ("activation_s", "t_{act}", "time of its activations", "second"),
    ("memory_s", "t_{mem}", "time to read its weights and cache", "second"),
    ("compute_s", "t_{comp}", "time of its arithmetic", "second"),
    ("exponent", "p", "how hard the corner at the ridge is", "1"),
    ("work_factor", "c", "a measured endpoint's calibration of the work; 1 without one", "1"),
    ("n_experts", "E", "routed experts of a layer", "1"),
    ("top_k", "k", "experts that each token picks", "1"),
    ("routing", "r", "share of the distinct experts of uniform routing that traffic touches", "1"),
    # collectives, the engine, the pass
    ("kernel_factor", "f", "times that a measured endpoint takes longer", "1"),
    ("alpha_s", r"\alpha", "start-up time of a collective", "second"),
    ("message_bytes", "m", "bytes of the tensor that is sent", "byte"),
    ("half_bytes", "m_{1/2}", "bytes that the square-root term is scaled by", "byte"),
    ("link_share", r"\beta", "share of the link's rate that the collective reaches", "1"),
    ("link_bytes_per_s", "L", "rate of a GPU's link, one way", "byte/second"),
    ("n_layers", "L", "layers of the model on this GPU", "1"),
    ("layer_s", "t_{layer}", "engine time per layer", "second"),
    ("eager_layer_s", "t_{eager}", "further time per layer where no graph captures the step", "second"),
    (
        "special_layers_s",
        "t_{special}",
        "time of what some layers have beside (norms, experts, indexers)",
        "second",
    ),
    ("per_step_s", "t_{host}", "engine time per step", "second"),
    ("per_sequence_s", "t_{each}", "engine time per sequence of the step", "second"),
    ("calibration_s", "t_{cal}", "what a measured endpoint's calibration adds to a step", "second"),
    ("kernels_s", r"\textstyle\sum t_{op}", "time of all operators", "second"),
    ("links_s", r"\textstyle\sum t_{link}", "time of all collectives", "second"),
    ("engine_overhead_s", "t_{engine}", "time of the engine beside the kernels", "second"),
    # a replica at fixed concurrency, and the range
    ("users", "N", "users of the replica who each wait for their answer", "1"),
    ("prefill_seen", "s", "share of the others' prompts that a decoding request sees", "1"),
    ("decoding_share", "q", "share of its life that a request decodes", "1"),
    ("extra_s", r"\Delta t", "time that one prompt adds to the steps of those who decode", "second"),
    ("decode_s", "D", "time that a request decodes", "second"),
    ("server_s", "t_{server}", "server time before the first token", "second"),
    ("steps_waited", "w", "decode steps that a prompt waits", "1"),
    ("prefill_times", "m", "times the prefill's own time until the first token", "1"),
    ("prefill_busy", r"\rho", "share of decoding that goes to the prompts of others", "1"),
    ("e2e_s", "t_{e2e}", "time of the whole request", "second"),
    ("best_s", "t", "best estimate of the time", "second"),
    ("spread", "x", "half-width of the 80% range, as a factor", "1"),
    ("replicas", "G", "replicas that were bought", "1"),
    ("base_s", "t_{table}", "time of the pass in the table, nothing attended", "second"),
    ("attended_slope_s", "s_{kv}", "time per attended token", "second"),
    ("attended_tokens", "K", "cached tokens that the pass attends to", "1"),
    ("window_slope_s", "s_{win}", "further time per token inside the window", "second"),
    ("window_tokens", "K_{win}", "of them, tokens inside the window", "1"),
    ("pair_slope_s", "s_{pair}", "time per pair of a prompt's query and key", "second"),
    ("prompt_pairs", "A", "pairs of the pass's prompts", "1"),
    # the engine's memory
    ("total_bytes", "M", "memory of one GPU as the runtime totals it", "byte"),
    ("memory_share", "g", "share of it that the engine may use", "1"),
    ("budget_bytes", "M_g", "bytes that the engine may use", "byte"),
    ("rank_weight_bytes", "M_w", "weights on this GPU", "byte"),
    ("activation_peak", "M_a", "peak of the dummy step", "byte"),
    ("non_torch_bytes", "M_{lib}", "communication and library buffers", "byte"),
    ("counted_graph_bytes", "M_{graph}", "CUDA graphs, where they are counted before the pool", "byte"),
    ("other_bytes", "M_{other}", "states, reserves and other lines that are counted", "byte"),
    ("pool_share", "f", "share of what is left that the pool takes", "1"),
    ("pool_bytes", "M_{pool}", "bytes of the pool of one GPU", "byte"),
    ("block_bytes", "M_b", "bytes of one block on this GPU", "byte"),
    ("blocks", "n_b", "blocks of the pool", "1"),
    ("blocks_per_sequence", "b", "blocks that the longest sequence needs", "1"),
    ("sequences_in_pool", "N", "longest sequences that the pool holds", "1"),
    ("longest_tokens_limit", "T_{max}", "longest sequence that the engine was started for", "1"),
    ("sampler_bytes", "M_s", "peak of the dummy sampler", "byte"),
    ("forward_bytes", "M_f", "peak of the dummy forward pass", "byte"),
    ("vision_bytes", "M_v", "peak of the vision encoder", "byte"),
    ("workspace_bytes", "M_x", "workspace of fused experts, which stays", "byte"),
    ("kept_bytes", "M_k", "encoder output that stays", "byte"),
    ("fixed_bytes", "M_0", "bytes of graphs that do not grow with their number", "byte"),
    ("captured", "n_c", "batch sizes that are captured", "1"),
    ("bytes_per_capture", "M_c", "bytes per captured size and layer", "byte"),
    # money
    ("usd_per_gpu_hour", r"c_{GPU}", "price of one GPU for one hour", "USD/hour"),
    ("usd_per_hour", r"c_h", "price of the fleet for one hour", "USD/hour"),
    ("gpus", "G", "GPUs", "1"),
    ("usd_per_million", r"c_{10^6}", "price of a million output tokens", "USD"),
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
