"""Where each number of each page comes from: a formula of the registry, or what it is if nothing computes it.

Keys are the names of cards and columns as the page shows them. *Methods* lists them by page; a test opens every page and
holds the lists to what is shown, and each formula to the page's own "Show the maths".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Origin(StrEnum):
    """What a number is that no formula gives."""

    INPUT = "asked, or as the catalogue has it"
    WORDS = "words"
    COUNTED = "added up or picked from what stands beside it"
    SIMULATED = "counted in a run of the simulator"
    MEASURED = "measured"
    PREDICTED = "predicted for that model and accelerator, as Size a deployment does"
    ASKED_AGAIN = "the whole question asked again with one thing changed"


Source = Origin | tuple[str, ...]

TTFT, TPOT = ("ttft_under_load_s",), ("tpot_under_load_s",)
COST = ("usd_per_million_tokens",)
BUSY = ("fleet_utilisation",)
BY_LEDGER = ("kv_pool_bytes",)
SPEED_UP = ("ratio_to_reference",)
PASS = ("pass_s",)

ORIGINS: Mapping[str, Mapping[str, Source]] = MappingProxyType(
    {
        "size.py": {
            "GPUs": ("gpus_to_buy", "gpus_of_units"),
            "TTFT": TTFT,
            "TPOT": TPOT,
            "$ per million out": COST,
            "Utilisation at peak": BUSY,
            "Replicas": Origin.SIMULATED,
            "TTFT p50": Origin.SIMULATED,
            "TTFT p99": Origin.SIMULATED,
            "TPOT p99": Origin.SIMULATED,
            "Breaks above": Origin.SIMULATED,
            "change": Origin.WORDS,
            "binds": Origin.WORDS,
            "busy": BUSY,
            "sequences": ("pool_sequences", "tpot_under_load_s"),
            "tokens/s per GPU": ("busy_replica_tokens_per_s", "each_gpu_tokens_per_s"),
            "output": Origin.WORDS,
            "accelerator": Origin.INPUT,
            "replicas": ("gpus_to_buy",),
            "layout": Origin.WORDS,
            "per hour": ("usd_per_hour",),
            "per million out": COST,
            "assumption": Origin.WORDS,
            "now": Origin.INPUT,
            "from": Origin.ASKED_AGAIN,
            "to": Origin.ASKED_AGAIN,
            "why this range": Origin.WORDS,
            "tenure": Origin.WORDS,
            "per GPU hour": Origin.INPUT,
            "per month": ("usd_per_month",),
            "per request": ("usd_per_request",),
            "million input": ("input_usd_per_million",),
            "million cached": ("cached_usd_per_million",),
            "million output": ("output_usd_per_million",),
            "price": Origin.WORDS,
        },
        "compare.py": {
            "accelerator": Origin.INPUT,
            "GPUs": Origin.WORDS,
            "runs as": Origin.WORDS,
            "tokens/s per GPU": ("replica_tokens_per_s",),
            "TTFT": ("e2e_s",),
            "$ per million out": COST,
            "tokens per $": ("tokens_per_usd",),
            "against baseline": SPEED_UP,
            "watts per user": ("mean_watts", "watts_per_user"),
        },
        "fleet.py": {
            **dict.fromkeys(("name", "region", "gpu", "model", "rate_per_s"), Origin.INPUT),
            **dict.fromkeys(("input_tokens", "output_tokens", "ttft_s", "tpot_s", "adapters"), Origin.INPUT),
            "deployment": Origin.WORDS,
            "runs on": ("gpus_to_buy", "gpus_of_units"),
            "busy": BUSY,
            "TTFT": TTFT,
            "TPOT": TPOT,
            "per hour": ("usd_per_hour",),
        },
        "simulate.py": {
            "TTFT p50": Origin.SIMULATED,
            "TTFT p99": Origin.SIMULATED,
            "TPOT p99": Origin.SIMULATED,
            "Goodput": ("goodput_per_s",),
            "State": Origin.SIMULATED,
        },
        "model.py": {
            "Parameters": Origin.COUNTED,
            "Active per token": Origin.COUNTED,
            "Weights as stored": ("weight_bytes",),
            "KV per token": ("kv_bytes_per_token",),
            "tensor": Origin.WORDS,
            "shape": Origin.INPUT,
            "stored": Origin.INPUT,
            "kind": Origin.WORDS,
            "layers": Origin.INPUT,
            "bytes": ("kv_bytes_per_token",),
            "counts at most": Origin.INPUT,
            "fixed per sequence": Origin.COUNTED,
            "part": Origin.WORDS,
            "parameters": Origin.COUNTED,
            "share": Origin.COUNTED,
            "format": Origin.WORDS,
            "weights": ("weight_bytes",),
            "against now": Origin.COUNTED,
        },
        "memory.py": {
            "Printed tokens": ("pool_tokens",),
            "Reserved": ("reserved_pool_bytes",),
            "Logical, per token": ("kv_bytes_per_token",),
            "Longest sequences": ("pool_sequences",),
            "Left on the card": Origin.COUNTED,
            "line": Origin.WORDS,
            "size": (*BY_LEDGER, "activation_peak_bytes", "graph_bytes"),
            "from": Origin.WORDS,
            "why": Origin.WORDS,
            "engine": Origin.WORDS,
            "starts": Origin.WORDS,
            "KV pool": BY_LEDGER,
            "printed tokens": ("pool_tokens",),
            "usable tokens": ("pool_tokens",),
            "longest sequences": ("pool_sequences",),
        },
        "roofline.py": {
            "Ridge point": ("ridge_flop_per_byte",),
            "Decode, FLOP/B": ("intensity_flop_per_byte",),
            "Weights cross at": ("intensity_flop_per_byte",),
            "Whole step crosses at": ("intensity_flop_per_byte",),
            "Prefill crosses at": ("intensity_flop_per_byte",),
        },
        "batch_size.py": {
            "Batch": Origin.COUNTED,
            "Tokens per second": ("tokens_per_s",),
            "Step": PASS,
            "KV wall": ("pool_sequences",),
            "Batch at the target": ("tpot_under_load_s",),
        },
        "scheduler.py": {
            "scheduler": Origin.WORDS,
            "slot use": ("slot_use",),
            "passes": Origin.SIMULATED,
            "mean wait": ("mean_of",),
            "mean TTFT": ("mean_of",),
            "second token after": ("clock_pass_s",),
            "longest stall of an answer": Origin.SIMULATED,
            "done after": Origin.SIMULATED,
        },
        "paged_kv.py": {
            "cache": Origin.WORDS,
            "requests": Origin.SIMULATED,
            "waiting": Origin.SIMULATED,
            "preempted": Origin.SIMULATED,
            "tokens stored": Origin.SIMULATED,
            "reserved, empty": Origin.SIMULATED,
            "internal, empty": Origin.SIMULATED,
            "external, stranded": Origin.SIMULATED,
            "saved by sharing": Origin.SIMULATED,
        },
        "speculative.py": {
            "Tokens a pass": ("tokens_per_pass",),
            "Speed-up, free check": ("speedup",),
            "Speed-up at batch N": ("speedup_at_batch",),
            "Best draft length": ("speedup_at_batch",),
            "Pays up to batch": Origin.COUNTED,
        },
        "queueing.py": {
            "Utilisation": ("utilisation",),
            "Mean time": ("mm1_mean_time_s",),
            "p95": ("mm1_time_quantile_s",),
            "In the system": ("requests_in_system",),
            "Replicas for the limit": ("mm1_replicas_for",),
        },
        "quantisation.py": {
            "Decode, batch N": (*PASS, *SPEED_UP),
            "Prefill": SPEED_UP,
            "Weights freed, most": ("weight_bytes",),
            "Sequences": Origin.COUNTED,
            "scheme": Origin.WORDS,
            "batch N": SPEED_UP,
            "prefill": SPEED_UP,
            "weights freed": ("weight_bytes",),
            "sequences that fit": Origin.COUNTED,
            "bits per weight": ("bits_per_weight",),
            "on this card": Origin.WORDS,
            "mean error beside the outlier": ("mean_of",),
            "typical row": ("ratio_to_reference",),
            "worst row": ("ratio_to_reference",),
            "largest error, steps": ("ratio_to_reference",),
            "clipped": ("ratio_to_reference",),
        },
        "this_gpu.py": {
            "Memory bandwidth": ("timed_rate_per_s",),
            "Products, bf16": ("timed_rate_per_s",),
            "Reading weights": ("timed_rate_per_s",),
            "Reading the cache": ("timed_rate_per_s",),
            "Starting a kernel": Origin.MEASURED,
            "phase": Origin.WORDS,
            "by": Origin.WORDS,
            "size": Origin.INPUT,
            "rate": ("timed_rate_per_s",),
            "share": ("ratio_to_reference",),
            "probe": Origin.WORDS,
            "case": Origin.WORDS,
            "message": Origin.WORDS,
            "note": Origin.WORDS,
            "measured": Origin.MEASURED,
            "predicted": Origin.PREDICTED,
            "measured / predicted": ("ratio_to_reference",),
        },
        "endpoint.py": {
            "TPOT alone": ("measured_tpot_s",),
            "Decode limit": ("roofline_operator_s", "pass_s"),
            "Measured over predicted": ("ratio_to_reference",),
            "Prefill": ("timed_rate_per_s",),
            "Most throughput": ("timed_rate_per_s",),
            "concurrency": Origin.INPUT,
            "samples": Origin.COUNTED,
            "steady": Origin.WORDS,
            **dict.fromkeys(
                ("ttft p50", "ttft p90", "ttft full p90", "tpot p50", "tpot p90"), Origin.MEASURED
            ),
            "tokens/s": ("timed_rate_per_s",),
            "requests/s": Origin.MEASURED,
            "goodput/s": Origin.MEASURED,
            "attainment": ("ratio_to_reference",),
            "failed": Origin.COUNTED,
            "queued at the slots": Origin.WORDS,
            **dict.fromkeys(("predicted ttft", "predicted tpot", "predicted tokens/s"), Origin.PREDICTED),
            "tpot over predicted": ("ratio_to_reference",),
            "prompt tokens": Origin.INPUT,
            "fit": Origin.MEASURED,
            "predicted": Origin.PREDICTED,
            "measured over predicted": ("ratio_to_reference",),
            "quantity": Origin.WORDS,
            "input_tokens": Origin.INPUT,
            "output_tokens": Origin.INPUT,
            "measured": Origin.MEASURED,
            "before": Origin.PREDICTED,
            "after": Origin.PREDICTED,
            "fitted": Origin.WORDS,
        },
        "accuracy.py": {
            "left out of the fit": Origin.WORDS,
            "dense": ("mean_of",),
            "experts": ("mean_of",),
            "latent attention": ("mean_of",),
            "90% within": Origin.COUNTED,
            "mean error, %": ("mean_of",),
            "bias, %": Origin.COUNTED,
            "in range, %": ("ratio_to_reference",),
            "points": Origin.COUNTED,
            "group": Origin.WORDS,
            "error, %": ("relative_error",),
            "measured, ms": Origin.MEASURED,
            "predicted, ms": Origin.PREDICTED,
            "in range": Origin.WORDS,
            "configuration": Origin.WORDS,
            "stands on": Origin.WORDS,
            "check": Origin.WORDS,
            "logs": Origin.COUNTED,
            "median error": Origin.COUNTED,
            "worst": Origin.COUNTED,
        },
        "methods.py": {},
    }
)
"""By page file; a name that ends in N stands for one with a number in it."""
