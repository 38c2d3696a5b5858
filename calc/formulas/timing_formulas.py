"""Formulas of time: decode step, prefill, the whole request, and how many GPUs that takes."""

from __future__ import annotations

from calc import batching, goodput, textbook
from calc.formulas.record import Example, Formula, Symbol, in_seconds
from calc.formulas.symbols import named

DECODE = "Decode"
REQUEST = "Prefill and the whole request"
SIZING = "How many GPUs"


DECODE_FORMULAS = (
    Formula(
        id="decode_step_s",
        title="Decode step",
        topic=DECODE,
        result=in_seconds("decode_step_s", "t_{step}", "time of one decode step, which is the TPOT"),
        template=r"\max\left(\frac{${params} \cdot ${bytes_per_param} + ${batch} \cdot ${context} \cdot "
        r"${kv_bytes_per_token}}{${bandwidth_bytes_per_s}}, \frac{2 \cdot ${params} \cdot ${batch}}"
        r"{${peak_flop_per_s}}\right)",
        parameters=named(
            "params",
            "bytes_per_param",
            "batch",
            "context",
            "kv_bytes_per_token",
            "bandwidth_bytes_per_s",
            "peak_flop_per_s",
        ),
        function=textbook.decode_step_s,
        example=Example(
            inputs={
                "params": 13e9,
                "bytes_per_param": 2,
                "batch": 79,
                "context": 640,
                "kv_bytes_per_token": 819_200,
                "bandwidth_bytes_per_s": 2.04e12,
                "peak_flop_per_s": 312e12,
            },
            value=0.03305,
            rel=2e-3,
            source="worked case step-13b-a100",
        ),
    ),
    Formula(
        id="verify_step_s",
        title="Step that checks drafted tokens",
        topic=DECODE,
        result=in_seconds("verify_step_s", "t_{verify}", "time of a step that checks all drafts"),
        template=r"\max\left(\frac{${params} \cdot ${bytes_per_param} + ${batch} \cdot ${context} \cdot "
        r"${kv_bytes_per_token}}{${bandwidth_bytes_per_s}}, \frac{2 \cdot ${params} \cdot ${batch} \cdot "
        r"(${drafts} + 1)}{${peak_flop_per_s}}\right)",
        parameters=named(
            "params",
            "bytes_per_param",
            "batch",
            "context",
            "kv_bytes_per_token",
            "bandwidth_bytes_per_s",
            "drafts",
            "peak_flop_per_s",
        ),
        function=textbook.verify_step_s,
        example=Example(
            inputs={
                "params": 8e9,
                "bytes_per_param": 2,
                "batch": 1,
                "context": 0,
                "kv_bytes_per_token": 0,
                "bandwidth_bytes_per_s": 1000e9,
                "drafts": 1999,
                "peak_flop_per_s": 100e12,
            },
            value=0.32,
            rel=1e-6,
            source="worked case request-example-8b: 2,000 tokens in one pass take 0.32 s",
        ),
    ),
    Formula(
        id="decode_memory_s",
        title="Memory side of a decode step",
        topic=DECODE,
        result=in_seconds("decode_memory_s", "t_{mem}", "time to read weights and cache"),
        template=r"\frac{${params} \cdot ${bytes_per_param} + ${batch} \cdot ${context} \cdot "
        r"${kv_bytes_per_token}}{${bandwidth_bytes_per_s}}",
        parameters=named(
            "params",
            "bytes_per_param",
            "batch",
            "context",
            "kv_bytes_per_token",
            "bandwidth_bytes_per_s",
        ),
        function=textbook.decode_memory_s,
        example=Example(
            inputs={
                "params": 13e9,
                "bytes_per_param": 2,
                "batch": 16,
                "context": 640,
                "kv_bytes_per_token": 819_200,
                "bandwidth_bytes_per_s": 2.04e12,
            },
            value=0.01686,
            rel=1e-3,
            source="worked case batch16-13b-a100",
        ),
    ),
    Formula(
        id="decode_compute_s",
        title="Compute side of a decode step",
        topic=DECODE,
        result=in_seconds("decode_compute_s", "t_{comp}", "time of the arithmetic"),
        template=r"\frac{2 \cdot ${params} \cdot ${batch}}{${peak_flop_per_s}}",
        parameters=named("params", "batch", "peak_flop_per_s"),
        function=textbook.decode_compute_s,
        example=Example(
            inputs={"params": 13e9, "batch": 144, "peak_flop_per_s": 312e12},
            value=0.012,
            rel=2e-3,
            source="worked case step-13b-a100",
        ),
    ),
    Formula(
        id="tokens_per_s",
        title="Output tokens per second",
        topic=DECODE,
        result=Symbol(name="tokens_per_s", latex="R", meaning="output tokens per second", unit="1/second"),
        template=r"\frac{${batch}}{${step_s}}",
        parameters=named("batch", "step_s"),
        function=textbook.tokens_per_s,
        example=Example(
            inputs={"batch": 32, "step_s": 0.02649},
            value=1208,
            rel=1e-3,
            source="worked case batch32-example-8b",
        ),
    ),
    Formula(
        id="largest_batch",
        title="Largest batch under a TPOT target",
        topic=DECODE,
        result=Symbol(name="largest_batch", latex="B_{max}", meaning="sequences"),
        template=r"\left\lfloor \min\left(\frac{${tpot_limit_s} \cdot ${bandwidth_bytes_per_s} - ${params} \cdot "
        r"${bytes_per_param}}{${context} \cdot ${kv_bytes_per_token}}, \frac{${tpot_limit_s} \cdot "
        r"${peak_flop_per_s}}{2 \cdot ${params}}\right) \right\rfloor",
        parameters=named(
            "tpot_limit_s",
            "params",
            "bytes_per_param",
            "context",
            "kv_bytes_per_token",
            "bandwidth_bytes_per_s",
            "peak_flop_per_s",
        ),
        function=textbook.largest_batch,
        example=Example(
            inputs={
                "tpot_limit_s": 0.050,
                "params": 13e9,
                "bytes_per_param": 2,
                "context": 640,
                "kv_bytes_per_token": 819_200,
                "bandwidth_bytes_per_s": 2.04e12,
                "peak_flop_per_s": 312e12,
            },
            value=144,
            rel=0.0,
            source="worked case step-parts-13b-a100",
        ),
    ),
    Formula(
        id="static_slot_share",
        title="Useful share of a static batch",
        topic=DECODE,
        result=Symbol(
            name="static_slot_share", latex="u", meaning="share of slot-steps that make a wanted token"
        ),
        template=r"\frac{${useful_tokens}}{${slots} \cdot ${longest_tokens}}",
        parameters=named("useful_tokens", "slots", "longest_tokens"),
        function=batching.static_slot_share,
        example=Example(
            inputs={"useful_tokens": 280, "slots": 4, "longest_tokens": 200},
            value=0.35,
            rel=1e-9,
            source="worked case static-slots-1",
        ),
    ),
)

REQUEST_FORMULAS = (
    Formula(
        id="prefill_flop",
        title="Arithmetic of a prefill",
        topic=REQUEST,
        result=Symbol(
            name="prefill_flop", latex="W_{prefill}", meaning="arithmetic of one prefill", unit="FLOP"
        ),
        template=r"2 \cdot ${params} \cdot (${prompt_tokens} - ${cached_tokens})",
        parameters=named("params", "prompt_tokens", "cached_tokens"),
        function=textbook.prefill_flop,
        example=Example(
            inputs={"params": 13e9, "prompt_tokens": 512, "cached_tokens": 0},
            value=1.3312e13,
            rel=1e-9,
            source="worked case prefill-13b-a100",
        ),
    ),
    Formula(
        id="prefill_s",
        title="Prefill, and TTFT without queueing",
        topic=REQUEST,
        result=in_seconds("prefill_s", "t_{prefill}", "time of one prefill"),
        template=r"\frac{2 \cdot ${params} \cdot (${prompt_tokens} - ${cached_tokens})}{${mfu} \cdot "
        r"${peak_flop_per_s}}",
        parameters=named("params", "prompt_tokens", "cached_tokens", "mfu", "peak_flop_per_s"),
        function=textbook.prefill_s,
        example=Example(
            inputs={
                "params": 8e9,
                "prompt_tokens": 2000,
                "cached_tokens": 1500,
                "mfu": 1.0,
                "peak_flop_per_s": 100e12,
            },
            value=0.08,
            rel=1e-9,
            source="worked case prefix-cache-example-8b",
        ),
    ),
    Formula(
        id="e2e_s",
        title="The whole request",
        topic=REQUEST,
        result=in_seconds("e2e_s", "t_{e2e}", "time from arrival to the last token"),
        template=r"${ttft_s} + (${output_tokens} - 1) \cdot ${tpot_s}",
        parameters=named("ttft_s", "tpot_s", "output_tokens"),
        function=textbook.e2e_s,
        example=Example(
            inputs={"ttft_s": 0.08533, "tpot_s": 0.03305, "output_tokens": 256},
            value=8.51,
            rel=1e-3,
            source="worked case prefill-13b-a100",
        ),
    ),
    Formula(
        id="goodput_per_s",
        title="Goodput",
        topic=REQUEST,
        result=Symbol(
            name="goodput_per_s", latex="R_{good}", meaning="requests that meet every target", unit="1/second"
        ),
        template="${finished_per_s} - ${missed_per_s}",
        parameters=named("finished_per_s", "missed_per_s"),
        function=goodput.goodput_per_s,
        example=Example(
            inputs={"finished_per_s": 10, "missed_per_s": 3},
            value=7,
            rel=1e-9,
            source="worked case goodput",
        ),
    ),
)

SIZING_FORMULAS = (
    Formula(
        id="prefill_gpus",
        title="Prefill work",
        topic=SIZING,
        result=Symbol(name="prefill_gpus", latex="G_{prefill}", meaning="GPUs busy with prefill"),
        template=r"${rate_per_s} \cdot ${prefill_s}",
        parameters=named("rate_per_s", "prefill_s"),
        function=textbook.prefill_gpus,
        example=Example(
            inputs={"rate_per_s": 10, "prefill_s": 0.08533},
            value=0.853,
            rel=1e-3,
            source="worked case gpus-13b-a100",
        ),
    ),
    Formula(
        id="decode_gpus",
        title="Decode work",
        topic=SIZING,
        result=Symbol(name="decode_gpus", latex="G_{decode}", meaning="GPUs busy with decoding"),
        template=r"\frac{${rate_per_s} \cdot ${output_tokens}}{${tokens_per_s}}",
        parameters=named("rate_per_s", "output_tokens", "tokens_per_s"),
        function=textbook.decode_gpus,
        example=Example(
            inputs={"rate_per_s": 10, "output_tokens": 256, "tokens_per_s": 2390},
            value=1.071,
            rel=1e-3,
            source="worked case gpus-13b-a100",
        ),
    ),
    Formula(
        id="gpus_to_buy",
        title="GPUs with headroom",
        topic=SIZING,
        result=Symbol(name="gpus_to_buy", latex="G", meaning="GPUs to buy"),
        template=r"\left\lceil ${busy_gpus} \cdot (1 + ${headroom}) \right\rceil",
        parameters=named("busy_gpus", "headroom"),
        function=textbook.gpus_to_buy,
        example=Example(
            inputs={"busy_gpus": 1.924, "headroom": 0.3},
            value=3,
            rel=0.0,
            source="worked case gpus-13b-a100",
        ),
    ),
)
