"""Formulas of measuring and comparing: rates, ratios, errors, means, and the use of a scheduler's slots."""

from __future__ import annotations

from calc import batching, measured_ratios
from calc.formulas.record import Example, Formula, Symbol, in_seconds
from calc.formulas.symbols import named

MEASURED = "Measured against predicted"

MEASUREMENT_FORMULAS = (
    Formula(
        id="timed_rate_per_s",
        title="A rate from a timed call",
        topic=MEASURED,
        result=Symbol(
            name="timed_rate_per_s", latex="r", meaning="bytes, FLOP or tokens per second", unit="1/second"
        ),
        template=r"\frac{${amount}}{${seconds}}",
        parameters=named("amount", "seconds"),
        function=measured_ratios.timed_rate_per_s,
        example=Example(
            inputs={"amount": 32, "seconds": 0.02649},
            value=1208,
            rel=1e-3,
            source="worked case batch32-example-8b",
        ),
    ),
    Formula(
        id="measured_tpot_s",
        title="TPOT of one measured stream",
        topic=MEASURED,
        result=in_seconds("measured_tpot_s", r"\mathrm{TPOT}", "time per output token after the first"),
        template=r"\frac{${last_token_s} - ${ttft_s}}{${later_tokens}}",
        parameters=named("last_token_s", "ttft_s", "later_tokens"),
        function=measured_ratios.measured_tpot_s,
        example=Example(
            inputs={"last_token_s": 8.51, "ttft_s": 0.08533, "later_tokens": 255},
            value=0.03305,
            rel=1e-3,
            source="worked case prefill-13b-a100",
        ),
    ),
    Formula(
        id="ratio_to_reference",
        title="A number over what it is held against",
        topic=MEASURED,
        result=Symbol(name="ratio_to_reference", latex="s", meaning="measured over the reference"),
        template=r"\frac{${measured}}{${reference}}",
        parameters=named("measured", "reference"),
        function=measured_ratios.ratio_to_reference,
        example=Example(
            inputs={"measured": 271.2, "reference": 312},
            value=0.869,
            rel=1e-3,
            source="Bekman, Machine Learning Engineering, accelerator chapter: A100 SXM matmul, 271.2 of 312 TFLOP/s",
        ),
    ),
    Formula(
        id="relative_error",
        title="Error of a prediction",
        topic=MEASURED,
        result=Symbol(
            name="relative_error", latex="e", meaning="signed share by which the prediction is off"
        ),
        template=r"\frac{${predicted}}{${measured}} - 1",
        parameters=named("predicted", "measured"),
        function=measured_ratios.relative_error,
        example=Example(
            inputs={"predicted": 49.9, "measured": 50},
            value=-0.002,
            rel=1e-9,
            source="Wikipedia, Approximation error: 49.9 for an exact 50",
        ),
    ),
    Formula(
        id="mean_of",
        title="Mean",
        topic=MEASURED,
        result=Symbol(name="mean_of", latex=r"\overline{x}", meaning="arithmetic mean"),
        template=r"\frac{${total}}{${points}}",
        parameters=named("total", "points"),
        function=measured_ratios.mean_of,
        example=Example(
            inputs={"total": 25_300, "points": 10},
            value=2530,
            rel=1e-9,
            source="Wikipedia, Arithmetic mean: ten salaries",
        ),
    ),
    Formula(
        id="slot_use",
        title="Use of a scheduler's slots",
        topic=MEASURED,
        result=Symbol(name="slot_use", latex="u", meaning="share of slot-steps that did useful work"),
        template=r"\frac{${useful_slot_steps}}{${slots} \cdot ${passes}}",
        parameters=named("useful_slot_steps", "slots", "passes"),
        function=batching.slot_use,
        example=Example(
            inputs={"useful_slot_steps": 850, "slots": 4, "passes": 500},
            value=0.425,
            rel=1e-9,
            source="worked case static-slots-2",
        ),
    ),
)
