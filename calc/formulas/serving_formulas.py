"""Formulas of a replica at fixed concurrency: prompts between decode steps, what users see, how many replicas that takes."""

from __future__ import annotations

from calc.formulas.record import Example, Formula, Symbol, in_seconds
from calc.formulas.symbols import named
from calc.step import closed_forms as step

TOPIC = "A replica under load"


SERVING_FORMULAS = (
    Formula(
        id="request_decode_s",
        title="How long a request decodes",
        topic=TOPIC,
        result=in_seconds("request_decode_s", "D", "time that a request decodes"),
        template=r"${output_tokens} \cdot ${step_s} + ${prefill_seen} \cdot (${users} - 1) \cdot ${decoding_share} \cdot "
        "${extra_s}",
        parameters=named("output_tokens", "step_s", "prefill_seen", "users", "decoding_share", "extra_s"),
        function=step.request_decode_s,
        example=Example(
            inputs={
                "output_tokens": 255,
                "step_s": 0.03305,
                "prefill_seen": 0,
                "users": 1,
                "decoding_share": 1.0,
                "extra_s": 0.08533,
            },
            value=8.51 - 0.08533,
            rel=1e-3,
            source="worked case prefill-13b-a100: 8.51 s less the first token, without other prompts",
        ),
    ),
    Formula(
        id="decoding_sequences",
        title="Sequences that decode at a time",
        topic=TOPIC,
        result=Symbol(name="decoding_sequences", latex="B", meaning="sequences that decode at a time"),
        template=r"\max\left(${users} \cdot \frac{${decode_s}}{${decode_s} + ${ttft_s}}, 1\right)",
        parameters=named("users", "decode_s", "ttft_s"),
        function=step.decoding_sequences,
        example=Example(
            inputs={"users": 100, "decode_s": 9.0, "ttft_s": 1.0},
            value=90,
            rel=1e-9,
            source="Little's law by hand: nine tenths of the time in the system is decoding",
        ),
    ),
    Formula(
        id="tpot_under_load_s",
        title="TPOT under load",
        topic=TOPIC,
        result=in_seconds("tpot_under_load_s", r"\mathrm{TPOT}", "time per output token after the first"),
        template=r"\frac{${decode_s}}{${output_tokens}}",
        parameters=named("decode_s", "output_tokens"),
        function=step.tpot_under_load_s,
        example=Example(
            inputs={"decode_s": 8.51 - 0.08533, "output_tokens": 255},
            value=0.03305,
            rel=1e-3,
            source="worked case prefill-13b-a100: read backwards",
        ),
    ),
    Formula(
        id="prefill_busy_share",
        title="Share of decoding that goes to others' prompts",
        topic=TOPIC,
        result=Symbol(
            name="prefill_busy_share", latex=r"\rho", meaning="share of decoding that goes to prompts"
        ),
        template=r"1 - \frac{${output_tokens} \cdot ${step_s}}{${decode_s}}",
        parameters=named("output_tokens", "step_s", "decode_s"),
        function=step.prefill_busy_share,
        example=Example(
            inputs={"output_tokens": 100, "step_s": 0.03, "decode_s": 4.0},
            value=0.25,
            rel=1e-9,
            source="by hand: 3 of 4 seconds are its own steps",
        ),
    ),
    Formula(
        id="ttft_under_load_s",
        title="TTFT under load",
        topic=TOPIC,
        result=in_seconds("ttft_under_load_s", r"\mathrm{TTFT}", "time to first token"),
        template=r"${server_s} + ${steps_waited} \cdot ${tpot_s} + ${prefill_times} \cdot ${prefill_s} \cdot "
        r"\left(1 + \frac{${prefill_busy}}{2 \cdot (1 - ${prefill_busy})}\right) + ${turn_s} + ${text_arrives_s}",
        parameters=named(
            "server_s",
            "steps_waited",
            "tpot_s",
            "prefill_times",
            "prefill_s",
            "prefill_busy",
            "turn_s",
            "text_arrives_s",
        ),
        function=step.ttft_under_load_s,
        example=Example(
            inputs={
                "server_s": 0.0,
                "steps_waited": 0,
                "tpot_s": 0.0,
                "prefill_times": 1,
                "prefill_s": 0.010,
                "prefill_busy": 0.8,
                "turn_s": 0.0,
                "text_arrives_s": 0.0,
            },
            value=0.030,
            rel=1e-9,
            source="M/D/1 at 80% load: the mean time in the system is three services (Pollaczek and Khinchine)",
        ),
    ),
    Formula(
        id="replica_tokens_per_s",
        title="Output tokens per second of a replica",
        topic=TOPIC,
        result=Symbol(
            name="replica_tokens_per_s", latex="R", meaning="output tokens per second", unit="1/second"
        ),
        template=r"\frac{${users} \cdot ${output_tokens}}{${e2e_s}}",
        parameters=named("users", "output_tokens", "e2e_s"),
        function=step.replica_tokens_per_s,
        example=Example(
            inputs={"users": 79, "output_tokens": 256, "e2e_s": 8.51},
            value=79 * 256 / 8.51,
            rel=1e-9,
            source="Little's law on worked case prefill-13b-a100: 79 requests of 8.51 s",
        ),
    ),
    Formula(
        id="busy_replicas",
        title="Replicas kept busy",
        topic=TOPIC,
        result=Symbol(name="busy_replicas", latex="G_{busy}", meaning="replicas' worth of work that arrives"),
        template=r"\frac{${rate_per_s} \cdot ${output_tokens}}{${tokens_per_s}}",
        parameters=named("rate_per_s", "output_tokens", "tokens_per_s"),
        function=step.busy_replicas,
        example=Example(
            inputs={"rate_per_s": 10, "output_tokens": 256, "tokens_per_s": 2390},
            value=1.071,
            rel=1e-3,
            source="worked case gpus-13b-a100",
        ),
    ),
    Formula(
        id="fleet_utilisation",
        title="Utilisation of the replicas that were bought",
        topic=TOPIC,
        result=Symbol(name="fleet_utilisation", latex=r"\rho", meaning="share of time that they are busy"),
        template=r"\frac{${busy_gpus}}{${replicas}}",
        parameters=named("busy_gpus", "replicas"),
        function=step.fleet_utilisation,
        example=Example(
            inputs={"busy_gpus": 1.924, "replicas": 3},
            value=0.641,
            rel=1e-3,
            source="worked case gpus-13b-a100: 1.924 of 3 GPUs",
        ),
    ),
    Formula(
        id="user_tokens_per_s",
        title="Tokens per second of one user",
        topic=TOPIC,
        result=Symbol(
            name="user_tokens_per_s", latex="r", meaning="tokens per second of one user", unit="1/second"
        ),
        template=r"\frac{1}{${step_s}}",
        parameters=named("step_s"),
        function=step.user_tokens_per_s,
        example=Example(
            inputs={"step_s": 0.03305},
            value=30.26,
            rel=1e-3,
            source="worked case step-13b-a100: 33.05 ms a step",
        ),
    ),
    Formula(
        id="gpu_tokens_per_s",
        title="Tokens per second of one GPU, prefill counted",
        topic=TOPIC,
        result=Symbol(
            name="gpu_tokens_per_s", latex="R_{GPU}", meaning="output tokens per second", unit="1/second"
        ),
        template=r"\frac{1}{${gpus} \cdot \left(\frac{${prefill_s}}{${output_tokens}} + \frac{${step_s}}{${batch}}\right)}",
        parameters=named("gpus", "prefill_s", "output_tokens", "step_s", "batch"),
        function=step.gpu_tokens_per_s,
        example=Example(
            inputs={"gpus": 1, "prefill_s": 0.08533, "output_tokens": 256, "step_s": 0.03305, "batch": 79},
            value=2560 / 1.924,
            rel=1e-3,
            source="worked case gpus-13b-a100: 2,560 tokens/s keep 1.924 GPUs busy",
        ),
    ),
    Formula(
        id="clock_pass_s",
        title="A pass by the simulator's clock",
        topic=TOPIC,
        result=in_seconds("clock_pass_s", "t_{pass}", "time of one pass"),
        template=r"${base_s} + ${attended_slope_s} \cdot ${attended_tokens} + ${window_slope_s} \cdot ${window_tokens} + "
        r"${pair_slope_s} \cdot ${prompt_pairs}",
        parameters=named(
            "base_s",
            "attended_slope_s",
            "attended_tokens",
            "window_slope_s",
            "window_tokens",
            "pair_slope_s",
            "prompt_pairs",
        ),
        function=step.clock_pass_s,
        example=Example(
            inputs={
                "base_s": 26e9 / 2.04e12,
                "attended_slope_s": 819_200 / 2.04e12,
                "attended_tokens": 79 * 640,
                "window_slope_s": 0.0,
                "window_tokens": 0,
                "pair_slope_s": 0.0,
                "prompt_pairs": 0,
            },
            value=0.03305,
            rel=2e-3,
            source="worked case step-13b-a100: weights once, and every cached token",
        ),
    ),
)
