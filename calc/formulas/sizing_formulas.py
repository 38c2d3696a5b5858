"""Formulas of how many: replicas for users who wait, GPUs of whole replicas and hosts, what one of them makes."""

from __future__ import annotations

from calc import sizing
from calc.formulas.record import Example, Formula, Symbol, in_seconds
from calc.formulas.symbols import named

TOPIC = "Sizing"


FLEET_FORMULAS = (
    Formula(
        id="users_per_slot",
        title="Replicas for users who wait",
        topic=TOPIC,
        result=Symbol(name="users_per_slot", latex="G", meaning="replicas"),
        template=r"\left\lceil \frac{\max(\lceil ${users} \rceil, \lfloor ${users} \cdot (1 + ${headroom}) \rfloor)}{${batch}} "
        r"\right\rceil",
        parameters=named("users", "headroom", "batch"),
        function=sizing.users_per_slot,
        example=Example(
            inputs={"users": 10, "headroom": 0.3, "batch": 4},
            value=4,
            rel=0.0,
            source="by hand: 13 users in slots of 4",
        ),
    ),
    Formula(
        id="gpus_of_units",
        title="GPUs of whole replicas or hosts",
        topic=TOPIC,
        result=Symbol(name="gpus_of_units", latex="G", meaning="GPUs"),
        template=r"${units} \cdot ${gpus_each}",
        parameters=named("units", "gpus_each"),
        function=sizing.gpus_of_units,
        example=Example(
            inputs={"units": 3, "gpus_each": 8}, value=24, rel=0.0, source="by hand: three hosts of eight"
        ),
    ),
    Formula(
        id="busy_replica_tokens_per_s",
        title="Output tokens per second of a busy replica",
        topic=TOPIC,
        result=Symbol(
            name="busy_replica_tokens_per_s", latex="R", meaning="output tokens per second", unit="1/second"
        ),
        template=r"\frac{${rate_per_s} \cdot ${output_tokens}}{${busy_gpus}}",
        parameters=named("rate_per_s", "output_tokens", "busy_gpus"),
        function=sizing.busy_replica_tokens_per_s,
        example=Example(
            inputs={"rate_per_s": 10, "output_tokens": 256, "busy_gpus": 1.0711},
            value=2390,
            rel=1e-3,
            source="worked case gpus-13b-a100: decoding alone",
        ),
    ),
    Formula(
        id="each_gpu_tokens_per_s",
        title="Output tokens per second of one GPU",
        topic=TOPIC,
        result=Symbol(
            name="each_gpu_tokens_per_s",
            latex=r"R_{GPU}",
            meaning="output tokens per second of one GPU",
            unit="1/second",
        ),
        template=r"\frac{${tokens_per_s}}{${gpus}}",
        parameters=named("tokens_per_s", "gpus"),
        function=sizing.each_gpu_tokens_per_s,
        example=Example(
            inputs={"tokens_per_s": 2390, "gpus": 2},
            value=1195,
            rel=1e-9,
            source="by hand: half of it each",
        ),
    ),
    Formula(
        id="pool_ttft_s",
        title="TTFT where prompts have replicas of their own",
        topic=TOPIC,
        result=in_seconds("pool_ttft_s", r"\mathrm{TTFT}", "time to first token"),
        template=r"${ttft_s} + ${mean_wait_s}",
        parameters=named("ttft_s", "mean_wait_s"),
        function=sizing.pool_ttft_s,
        example=Example(
            inputs={"ttft_s": 0.020, "mean_wait_s": 0.040},
            value=0.060,
            rel=1e-9,
            source="worked case md1-half-wait: a wait of 40 ms before 20 ms",
        ),
    ),
)
