"""Formulas of roofline and expected fidelity: one operator, one collective, a whole pass, and the range around it."""

from __future__ import annotations

from calc.formulas.record import Example, Formula, Symbol, in_seconds
from calc.formulas.symbols import named
from calc.step import closed_forms as step

TOPIC = "A step, operator by operator"


OPERATOR_FORMULAS = (
    Formula(
        id="operator_memory_s",
        title="Memory side of an operator",
        topic=TOPIC,
        result=in_seconds("operator_memory_s", "t_{mem}", "time to read its weights and cache"),
        template=r"\frac{${moved_bytes}}{${bandwidth_share} \cdot ${bandwidth_bytes_per_s}}",
        parameters=named("moved_bytes", "bandwidth_share", "bandwidth_bytes_per_s"),
        function=step.operator_memory_s,
        example=Example(
            inputs={
                "moved_bytes": 26e9 + 16 * 640 * 819_200,
                "bandwidth_share": 1.0,
                "bandwidth_bytes_per_s": 2.04e12,
            },
            value=0.01686,
            rel=1e-3,
            source="worked case batch16-13b-a100: a whole step as one operator",
        ),
    ),
    Formula(
        id="operator_compute_s",
        title="Compute side of an operator",
        topic=TOPIC,
        result=in_seconds("operator_compute_s", "t_{comp}", "time of its arithmetic"),
        template=r"${slowdown} \cdot \frac{${flop}}{${compute_share} \cdot ${peak_flop_per_s}}",
        parameters=named("slowdown", "flop", "compute_share", "peak_flop_per_s"),
        function=step.operator_compute_s,
        example=Example(
            inputs={"slowdown": 1.0, "flop": 1.3312e13, "compute_share": 0.5, "peak_flop_per_s": 312e12},
            value=0.08533,
            rel=1e-3,
            source="worked case prefill-13b-a100: a whole prefill as one operator",
        ),
    ),
    Formula(
        id="prompt_slowdown",
        title="Prefill attention on a short prompt",
        topic=TOPIC,
        result=Symbol(name="prompt_slowdown", latex="d", meaning="times slower than on long prompts"),
        template=r"1 + \frac{${half_tokens}}{\max(${prompt_tokens}, 1)}",
        parameters=named("half_tokens", "prompt_tokens"),
        function=step.prompt_slowdown,
        example=Example(
            inputs={"half_tokens": 500, "prompt_tokens": 500},
            value=2.0,
            rel=0.0,
            source="by definition: at the half length, half of the rate",
        ),
    ),
    Formula(
        id="operator_floor_s",
        title="Floor of an operator",
        topic=TOPIC,
        result=in_seconds("operator_floor_s", "t_{floor}", "time that it takes however little it moves"),
        template=r"${kernels} \cdot ${kernel_s} + ${sequences} \cdot ${sequence_s}",
        parameters=named("kernels", "kernel_s", "sequences", "sequence_s"),
        function=step.operator_floor_s,
        example=Example(
            inputs={"kernels": 1, "kernel_s": 5e-6, "sequences": 0, "sequence_s": 0.0},
            value=5e-6,
            rel=1e-9,
            source="by hand: one kernel of 5 µs",
        ),
    ),
    Formula(
        id="operator_activation_s",
        title="Activations of an operator",
        topic=TOPIC,
        result=in_seconds("operator_activation_s", "t_{act}", "time to write and read its activations"),
        template=r"\frac{${activation_bytes}}{${activation_share} \cdot ${bandwidth_bytes_per_s}}",
        parameters=named("activation_bytes", "activation_share", "bandwidth_bytes_per_s"),
        function=step.operator_activation_s,
        example=Example(
            inputs={"activation_bytes": 2.04e9, "activation_share": 0.5, "bandwidth_bytes_per_s": 2.04e12},
            value=2e-3,
            rel=1e-9,
            source="by hand: a thousandth of a second's bytes at half the rate",
        ),
    ),
    Formula(
        id="operator_s",
        title="One operator, expected",
        topic=TOPIC,
        result=in_seconds("operator_s", "t_{op}", "time of the operator over all layers"),
        template=r"${work_factor} \cdot ${repeats} \cdot \left(${floor_s} + ${activation_s} + "
        r"\left(${memory_s}^{${exponent}} + ${compute_s}^{${exponent}}\right)^{1/${exponent}}\right)",
        parameters=named(
            "work_factor", "repeats", "floor_s", "activation_s", "memory_s", "compute_s", "exponent"
        ),
        function=step.operator_s,
        example=Example(
            inputs={
                "work_factor": 1,
                "repeats": 1,
                "floor_s": 0.0,
                "activation_s": 0.0,
                "memory_s": 3.0,
                "compute_s": 4.0,
                "exponent": 2.0,
            },
            value=5.0,
            rel=1e-12,
            source="the 2-norm of (3, 4) is 5",
        ),
    ),
    Formula(
        id="roofline_operator_s",
        title="One operator at the datasheet's peaks",
        topic=TOPIC,
        result=in_seconds(
            "roofline_operator_s", "t_{op}", "time of the operator over all layers, every peak reached"
        ),
        template=r"${repeats} \cdot \max\left(\frac{${moved_bytes}}{${bandwidth_bytes_per_s}}, "
        r"\frac{${flop}}{${peak_flop_per_s}}\right)",
        parameters=named("repeats", "moved_bytes", "flop", "bandwidth_bytes_per_s", "peak_flop_per_s"),
        function=step.roofline_operator_s,
        example=Example(
            inputs={
                "repeats": 1,
                "moved_bytes": 26e9 + 79 * 640 * 819_200,
                "flop": 2 * 13e9 * 79,
                "bandwidth_bytes_per_s": 2.04e12,
                "peak_flop_per_s": 312e12,
            },
            value=0.03305,
            rel=2e-3,
            source="worked case step-13b-a100: a whole step as one operator",
        ),
    ),
    Formula(
        id="experts_read",
        title="Distinct experts that a step reads",
        topic=TOPIC,
        result=Symbol(name="experts_read", latex="E_{read}", meaning="experts of a layer that are read"),
        template=r"${n_experts} \cdot \left(\min(${tokens}, 1) \cdot \frac{${top_k}}{${n_experts}} + ${routing} \cdot "
        r"\left(1 - \left(1 - \frac{${top_k}}{${n_experts}}\right)^{${tokens}} - "
        r"\frac{${top_k}}{${n_experts}}\right)\right)",
        parameters=named("n_experts", "top_k", "tokens", "routing"),
        function=step.experts_read,
        example=Example(
            inputs={"n_experts": 8, "top_k": 2, "tokens": 2, "routing": 1.0},
            value=3.5,
            rel=1e-9,
            source="by hand: 8 (1 - 0.75 x 0.75)",
        ),
    ),
    Formula(
        id="collective_s",
        title="One collective",
        topic=TOPIC,
        result=in_seconds("collective_s", "t_{link}", "time of the collective over all layers"),
        template=r"${repeats} \cdot ${endpoint_factor} \cdot \left(${alpha_s} + \frac{${message_bytes} + "
        r"\sqrt{${message_bytes} \cdot ${half_bytes}}}{${link_share} \cdot ${link_bytes_per_s}}\right)",
        parameters=named(
            "repeats",
            "endpoint_factor",
            "alpha_s",
            "message_bytes",
            "half_bytes",
            "link_share",
            "link_bytes_per_s",
        ),
        function=step.collective_s,
        example=Example(
            inputs={
                "repeats": 1,
                "endpoint_factor": 1.0,
                "alpha_s": 10e-6,
                "message_bytes": 7168 * 128 * 8,
                "half_bytes": 0.0,
                "link_share": 0.9,
                "link_bytes_per_s": 50e9,
            },
            value=163e-6,
            rel=0.06,
            source="DeepEP README: dispatch of 128 tokens of 7,168 in fp8 to 8 experts takes 163 µs",
        ),
    ),
    Formula(
        id="engine_s",
        title="The engine beside the kernels",
        topic=TOPIC,
        result=in_seconds("engine_s", "t_{engine}", "time of the engine in one step"),
        template=r"${work_factor} \cdot \left(${n_layers} \cdot (${layer_s} + ${eager_layer_s}) + ${special_layers_s} + "
        r"${per_step_s} + ${per_sequence_s} \cdot 512 \cdot (1 - e^{-${sequences}/512})\right) + ${calibration_s}",
        parameters=named(
            "work_factor",
            "n_layers",
            "layer_s",
            "eager_layer_s",
            "special_layers_s",
            "per_step_s",
            "per_sequence_s",
            "sequences",
            "calibration_s",
        ),
        function=step.engine_s,
        example=Example(
            inputs={
                "work_factor": 1,
                "n_layers": 40,
                "layer_s": 10e-6,
                "eager_layer_s": 0.0,
                "special_layers_s": 0.0,
                "per_step_s": 1e-3,
                "per_sequence_s": 10e-6,
                "sequences": 1,
                "calibration_s": 0.0,
            },
            value=1.41e-3,
            rel=1e-4,
            source="by hand: 40 layers of 10 µs, 1 ms per step, one sequence of 10 µs",
        ),
    ),
    Formula(
        id="pass_s",
        title="A whole pass",
        topic=TOPIC,
        result=in_seconds("pass_s", "t_{pass}", "time of one forward pass"),
        template="${kernels_s} + ${links_s} + ${engine_overhead_s}",
        parameters=named("kernels_s", "links_s", "engine_overhead_s"),
        function=step.pass_s,
        example=Example(
            inputs={"kernels_s": 0.38, "links_s": 0.0, "engine_overhead_s": 0.62},
            value=1.0,
            rel=1e-9,
            source="vLLM v0.6.0 announcement (2024): of Llama 3 8B's time on one H100, 38% ran on the GPU, 62% was the engine",
        ),
    ),
    Formula(
        id="range_low_s",
        title="Low end of the range",
        topic=TOPIC,
        result=in_seconds("range_low_s", "t_{low}", "low end of the 80% range"),
        template=r"\max\left(\frac{${best_s}}{${spread}}, ${floor_s}\right)",
        parameters=named("best_s", "spread", "floor_s"),
        function=step.range_low_s,
        example=Example(
            inputs={"best_s": 0.030, "spread": 1.2, "floor_s": 0.026},
            value=0.026,
            rel=1e-9,
            source="by hand: 25 ms would undercut what the datasheet allows",
        ),
    ),
    Formula(
        id="range_high_s",
        title="High end of the range",
        topic=TOPIC,
        result=in_seconds("range_high_s", "t_{high}", "high end of the 80% range"),
        template=r"${best_s} \cdot ${spread}",
        parameters=named("best_s", "spread"),
        function=step.range_high_s,
        example=Example(
            inputs={"best_s": 0.030, "spread": 1.2}, value=0.036, rel=1e-9, source="by hand: 20% above 30 ms"
        ),
    ),
)
