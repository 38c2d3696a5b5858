"""The field's words, each once: what it means here, where tools disagree, and which formula computes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One entry of the glossary.

    `disagreement`: how other tools use the word, where that changes a number; empty where all agree. `formulas`: ids in
    `calc.formulas` that compute it.
    """

    name: str
    meaning: str
    disagreement: str = ""
    formulas: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = (
    Term(
        name="Prefill",
        meaning="The pass over the prompt: all its tokens at once, mostly limited by arithmetic. It ends with the first "
        "output token.",
        formulas=("prefill_flop", "prefill_s"),
    ),
    Term(
        name="Decode",
        meaning="The steps after the prefill: each gives every running sequence one token and reads all weights and every "
        "sequence's cache, so it is mostly limited by memory bandwidth.",
        formulas=("decode_step_s",),
    ),
    Term(
        name="TTFT",
        meaning="Time to first token: from the arrival of a request to its first output token; queueing and prefill.",
        disagreement="Server logs may start when the request is scheduled, which hides the wait; clients add the network. "
        "Some clients count the first non-empty chunk, which may hold several tokens or, for reasoning models, none that "
        "the user sees.",
        formulas=("prefill_s",),
    ),
    Term(
        name="TPOT",
        meaning="Time per output token after the first: (end to end - TTFT) / (n - 1) of one request.",
        disagreement="vLLM's and SGLang's benchmarks leave the first token out, as here. Others divide the whole latency by "
        "n, or the decode time by n. For a short answer the difference is large: at n = 2 it is a factor of two.",
        formulas=("decode_step_s", "e2e_s"),
    ),
    Term(
        name="ITL",
        meaning="Inter-token latency: the gap between two neighbouring tokens of one request. Its mean over a request is "
        "TPOT; its percentiles show stalls that TPOT hides.",
        disagreement="NVIDIA's GenAI-Perf calls the per-request mean ITL. Clients that see several tokens in one chunk "
        "(speculative decoding, busy servers) measure gaps between chunks.",
    ),
    Term(
        name="End-to-end latency",
        meaning="From the arrival of a request to its last token: TTFT + (n - 1) · TPOT.",
        disagreement="Some textbooks count a decode step for each of the n tokens; the Example 8B numbers do.",
        formulas=("e2e_s",),
    ),
    Term(
        name="Throughput",
        meaning="Output tokens per second of all requests together.",
        disagreement="Some benchmarks add input tokens (total token throughput), which is several times more for long "
        "prompts; some divide by GPUs. Prefix-cache hits may be counted as processed input.",
        formulas=("tokens_per_s",),
    ),
    Term(
        name="Interactivity",
        meaning="Tokens per second that one user sees: 1 / TPOT.",
        disagreement="Some charts use n / end-to-end latency, which includes the wait for the first token.",
    ),
    Term(
        name="Goodput",
        meaning="Requests per second that meet every target (TTFT, TPOT, end to end), each at its own limit.",
        disagreement="DistServe counts the largest rate at which a share of requests (say 90%) meets the targets; vLLM's "
        "benchmark counts the requests that met them in the run; networking uses the word for payload.",
        formulas=("goodput_per_s",),
    ),
    Term(
        name="SLO",
        meaning="Service level objective: targets for TTFT, TPOT and end to end, as means or at a percentile.",
        disagreement="A target without a percentile is a mean here; many documents mean the median or p99 by it.",
    ),
    Term(
        name="Attainment",
        meaning="The share of requests that meet every target.",
        formulas=("goodput_per_s",),
    ),
    Term(
        name="Percentile",
        meaning="The value that so many per cent of requests do not exceed; p50 is the median.",
        disagreement="Tools interpolate between observations or take the next one; with few requests p99 differs. The p99 "
        "of per-request means is not the p99 of all gaps.",
        formulas=("mm1_time_quantile_s",),
    ),
    Term(
        name="Concurrency",
        meaning="Requests in the system at the same time: waiting, prefilling and decoding.",
        disagreement="Load generators mean the number they keep open; engines mean those that run (the batch).",
        formulas=("requests_in_system",),
    ),
    Term(
        name="Batch",
        meaning="Sequences that advance together in a step.",
        disagreement="Engines name its limit differently: max-num-seqs, max-running-requests, max-batch-size, parallel "
        "slots. In a step with prefill chunks, tokens and sequences are different counts.",
        formulas=("largest_batch",),
    ),
    Term(
        name="Continuous batching",
        meaning="Requests join and leave the batch between steps.",
        disagreement="Also called in-flight or iteration-level batching.",
        formulas=("static_slot_share",),
    ),
    Term(
        name="Static batching",
        meaning="A batch starts and ends together; short answers wait for the longest.",
        formulas=("static_slot_share",),
    ),
    Term(
        name="Chunked prefill",
        meaning="A prompt is prefilled in pieces that share steps with decoding, so that running streams do not stall.",
        disagreement="The token budget (max-num-batched-tokens) counts decode tokens too in vLLM; SGLang's chunk size is of "
        "the prefill alone.",
    ),
    Term(
        name="Disaggregation",
        meaning="Prefill and decode on different GPUs, with the cache sent between them.",
    ),
    Term(
        name="KV cache",
        meaning="Keys and values of all tokens so far, kept so that they are computed once.",
        disagreement="Logical bytes (what the mathematics needs), reserved bytes (what the engine allocates) and the token "
        "count in its log differ: by blocks, windows, copies across GPUs, and hybrid layers' page sizes.",
        formulas=("kv_bytes_per_token", "sequence_kv_bytes"),
    ),
    Term(
        name="Context",
        meaning="Cached tokens that a sequence reads in a step: prompt and what it generated so far.",
        disagreement="Context length also names the longest a model or server allows; capacity is planned with the final "
        "length, step time with the mean over the answer.",
        formulas=("decode_step_s",),
    ),
    Term(
        name="Paging",
        meaning="The cache in blocks of a few tokens, given out as a sequence grows; waste stays under one block each.",
        disagreement="Blocks are 16 tokens in vLLM, 1 in SGLang's default, 32 or 64 in TensorRT-LLM, 256 in nano-vllm.",
        formulas=("sequences_paged", "largest_paged_waste"),
    ),
    Term(
        name="Prefix cache",
        meaning="Blocks of prompts seen before are read instead of computed.",
        disagreement="Hit rates are given per token, per block or per request.",
        formulas=("prefill_s",),
    ),
    Term(
        name="Preemption",
        meaning="A running sequence gives its blocks up and is computed again later, because the cache is full.",
        disagreement="SGLang says retraction. Older engines swapped the blocks to host memory.",
    ),
    Term(
        name="GQA",
        meaning="Grouped-query attention: several query heads share one key-value head, and the cache shrinks as much. "
        "One group for all is MQA, one for each is MHA.",
        formulas=("kv_bytes_per_token", "decode_attention_intensity"),
    ),
    Term(
        name="MLA",
        meaning="Multi-head latent attention: the cache holds one compressed vector a token for all heads.",
        disagreement="It cannot be divided by heads, so plain tensor parallelism copies it on every GPU.",
    ),
    Term(
        name="MoE",
        meaning="Mixture of experts: a router sends each token to a few of many feed-forward networks. Memory follows the "
        "total parameters, arithmetic the active ones.",
        disagreement="Active parameters are counted with or without embeddings.",
    ),
    Term(
        name="Tensor parallelism",
        meaning="Every matrix is divided over GPUs that work on the same token and exchange sums twice a layer.",
    ),
    Term(
        name="Pipeline parallelism",
        meaning="Layers are divided over GPUs; a token passes them in turn.",
    ),
    Term(
        name="FLOP",
        meaning="One floating-point operation; a multiply-add is two. FLOP/s is the rate.",
        disagreement="FLOPS is used for both. Datasheets may quote rates with sparsity, twice the dense one; all rates here "
        "are dense.",
        formulas=("prefill_flop",),
    ),
    Term(
        name="Arithmetic intensity",
        meaning="FLOP per byte moved between memory and chip.",
        disagreement="Counted with the weights only, or with activations too; per operation or per step.",
        formulas=("matmul_intensity", "weights_only_intensity", "decode_attention_intensity"),
    ),
    Term(
        name="Ridge point",
        meaning="The intensity at which memory and arithmetic take equally long: peak FLOP/s over bandwidth.",
        disagreement="Differs by number format, since each has its own peak; and with reached rates in place of peaks.",
        formulas=("ridge_flop_per_byte",),
    ),
    Term(
        name="Memory-bound",
        meaning="Limited by bandwidth: more arithmetic on the same bytes costs nothing. Its opposite is compute-bound.",
        formulas=("attainable_share",),
    ),
    Term(
        name="MFU",
        meaning="Model FLOP utilisation: the FLOP that the model needs, over what the peak could do in that time.",
        disagreement="HFU also counts recomputed FLOP. Some count attention's FLOP, some only 2 per parameter and token.",
        formulas=("prefill_s",),
    ),
    Term(
        name="MBU",
        meaning="Memory bandwidth utilisation: bytes that a step must read, over what the peak could read in that time.",
        formulas=("decode_memory_s",),
    ),
    Term(
        name="Utilisation",
        meaning="Work that arrives over work that can be done. Near 1 queues explode; from 1 on they never end.",
        disagreement="nvidia-smi's utilisation only says that some kernel ran.",
        formulas=("utilisation", "mm1_mean_time_s"),
    ),
    Term(
        name="Saturated",
        meaning="More work arrives than can be done; no latency can be promised. From 90% on a system counts as near "
        "saturation here.",
        formulas=("utilisation",),
    ),
    Term(
        name="Headroom",
        meaning="GPUs beyond the busy ones: h buys ceil(busy · (1 + h)).",
        disagreement="Others plan for a target utilisation u and buy busy / u: 30% headroom is u = 77%, not 70%.",
        formulas=("gpus_to_buy",),
    ),
    Term(
        name="Little's law",
        meaning="The mean number in a system is the arrival rate times the mean time in it.",
        formulas=("requests_in_system",),
    ),
    Term(
        name="Coefficient of variation",
        meaning="Standard deviation over mean; of gaps between arrivals it is 1 for Poisson traffic and more for bursts.",
        formulas=("kingman_mean_wait_s",),
    ),
    Term(
        name="Processor sharing",
        meaning="All requests are served together and slow each other down; the queueing model of continuous batching.",
        formulas=("sharing_mean_time_s",),
    ),
    Term(
        name="Speculative decoding",
        meaning="A cheap draft proposes tokens and one pass of the model checks them; the output's distribution is the "
        "same.",
        formulas=("tokens_per_pass", "speedup", "speedup_at_batch"),
    ),
    Term(
        name="Acceptance",
        meaning="The chance that a drafted token is kept, given that all before it were.",
        disagreement="Engines log accepted over drafted tokens, which is lower because a rejection discards the rest; "
        "acceptance length counts tokens a pass, with or without the model's own.",
        formulas=("tokens_per_pass",),
    ),
    Term(
        name="Quantisation",
        meaning="Weights, activations or cache in fewer bits. W4A16 is 4-bit weights with 16-bit arithmetic: it saves "
        "bytes, not FLOP.",
        disagreement="Bits are given with or without scales and zero points: int4 in groups of 128 is 4.125 bits or more.",
        formulas=("bits_per_weight",),
    ),
    Term(
        name="GB and GiB",
        meaning="GB is 10^9 bytes, GiB is 2^30, 7% more. Bandwidths and datasheets are decimal, drivers binary.",
        disagreement="Many tools print GiB as GB.",
    ),
)
