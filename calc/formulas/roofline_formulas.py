"""Formulas of the roofline: ridge point, intensities, what an intensity allows."""

from __future__ import annotations

from calc import roofline
from calc.formulas.record import Example, Formula, Symbol
from calc.formulas.symbols import named

TOPIC = "Roofline"


def _intensity(name: str, latex: str = "I") -> Symbol:
    return Symbol(name=name, latex=latex, meaning="arithmetic intensity", unit="FLOP/byte")


ROOFLINE_FORMULAS = (
    Formula(
        id="ridge_flop_per_byte",
        title="Ridge point",
        topic=TOPIC,
        result=_intensity("ridge_flop_per_byte", "I^*"),
        template=r"\frac{${peak_flop_per_s}}{${bandwidth_bytes_per_s}}",
        parameters=named("peak_flop_per_s", "bandwidth_bytes_per_s"),
        function=roofline.ridge_flop_per_byte,
        example=Example(
            inputs={"peak_flop_per_s": 125e12, "bandwidth_bytes_per_s": 900e9},
            value=138.9,
            rel=1e-3,
            source="NVIDIA, Matrix Multiplication Background User's Guide: V100 has 138.9 FLOP per byte",
        ),
    ),
    Formula(
        id="intensity_flop_per_byte",
        title="Intensity of an operator or a pass",
        topic=TOPIC,
        result=_intensity("intensity_flop_per_byte"),
        template=r"\frac{${flop}}{${all_bytes}}",
        parameters=named("flop", "all_bytes"),
        function=roofline.intensity_flop_per_byte,
        example=Example(
            inputs={"flop": 2 * 8192 * 128 * 8192, "all_bytes": 2 * (128 * 8192 * 2 + 8192 * 8192)},
            value=124.1,
            rel=1e-3,
            source="NVIDIA, Matrix Multiplication Background User's Guide: 8192 x 128 x 8192 has 124.1 FLOP/B",
        ),
    ),
    Formula(
        id="attainable_share",
        title="Share of the peak that an intensity allows",
        topic=TOPIC,
        result=Symbol(name="attainable_share", latex=r"\eta", meaning="share of the peak"),
        template=r"\min\left(1, \frac{${intensity_flop_per_byte}}{${ridge_flop_per_byte}}\right)",
        parameters=named("intensity_flop_per_byte", "ridge_flop_per_byte"),
        function=roofline.attainable_share,
        example=Example(
            inputs={"intensity_flop_per_byte": 1.0, "ridge_flop_per_byte": 100.0},
            value=0.01,
            rel=1e-9,
            source="worked case ridge-example-gpu",
        ),
    ),
    Formula(
        id="attainable_flop_per_s",
        title="Rate that an intensity allows",
        topic=TOPIC,
        result=Symbol(
            name="attainable_flop_per_s", latex="F_{att}", meaning="attainable rate", unit="FLOP/second"
        ),
        template=r"\min\left(${peak_flop_per_s}, ${intensity_flop_per_byte} \cdot ${bandwidth_bytes_per_s}\right)",
        parameters=named("intensity_flop_per_byte", "peak_flop_per_s", "bandwidth_bytes_per_s"),
        function=roofline.attainable_flop_per_s,
        example=Example(
            inputs={
                "intensity_flop_per_byte": 1.0,
                "peak_flop_per_s": 312e12,
                "bandwidth_bytes_per_s": 2.04e12,
            },
            value=0.00654 * 312e12,
            rel=1e-3,
            source="worked case decode-share-of-peak-a100",
        ),
    ),
    Formula(
        id="matmul_intensity",
        title="Intensity of a weight matmul",
        topic=TOPIC,
        result=_intensity("matmul_intensity"),
        template=r"\frac{2 \cdot ${tokens} \cdot ${d_in} \cdot ${d_out}}{${bytes_per_element}"
        r"\left(${d_in} \cdot ${d_out} + ${tokens} \cdot ${d_in} + ${tokens} \cdot ${d_out}\right)}",
        parameters=named("tokens", "d_in", "d_out", "bytes_per_element"),
        function=roofline.matmul_intensity,
        example=Example(
            inputs={"tokens": 8192, "d_in": 128, "d_out": 8192, "bytes_per_element": 2},
            value=124.1,
            rel=1e-3,
            source="NVIDIA, Matrix Multiplication Background User's Guide: 8192 x 128 x 8192 has 124.1 FLOP/B",
        ),
    ),
    Formula(
        id="weights_only_intensity",
        title="Intensity when only the weights are read",
        topic=TOPIC,
        result=_intensity("weights_only_intensity"),
        template=r"\frac{2 \cdot ${tokens}}{${bytes_per_param}}",
        parameters=named("tokens", "bytes_per_param"),
        function=roofline.weights_only_intensity,
        example=Example(
            inputs={"tokens": 2000, "bytes_per_param": 2},
            value=2000.0,
            rel=1e-9,
            source="worked case weights-only-intensity",
        ),
    ),
    Formula(
        id="decode_attention_intensity",
        title="Intensity of decode attention",
        topic=TOPIC,
        result=_intensity("decode_attention_intensity"),
        template=r"\frac{2 \cdot ${n_heads}}{${n_kv_heads} \cdot ${bytes_per_element}}",
        parameters=named("n_heads", "n_kv_heads", "bytes_per_element"),
        function=roofline.decode_attention_intensity,
        example=Example(
            inputs={"n_heads": 32, "n_kv_heads": 8, "bytes_per_element": 2},
            value=4.0,
            rel=1e-9,
            source="worked case decode-attention-intensity",
        ),
    ),
    Formula(
        id="memory_bound_batch",
        title="Tokens in a step at which weights stop being the limit",
        topic=TOPIC,
        result=Symbol(name="memory_bound_batch", latex="B^*", meaning="tokens in a step"),
        template=r"\frac{${bytes_per_param}}{2} \cdot \frac{${peak_flop_per_s}}{${bandwidth_bytes_per_s}}",
        parameters=named("bytes_per_param", "peak_flop_per_s", "bandwidth_bytes_per_s"),
        function=roofline.memory_bound_batch,
        example=Example(
            inputs={"bytes_per_param": 2, "peak_flop_per_s": 312e12, "bandwidth_bytes_per_s": 1.5e12},
            value=208,
            rel=1e-9,
            source="Chen 2022 (kipp.ly, Transformer Inference Arithmetic): 208 tokens on an A100 with 1.5 TB/s",
        ),
    ),
)
