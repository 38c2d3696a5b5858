"""Matrix products of a few tokens: what a decode step does, as bytes of weights read per second."""

from __future__ import annotations

from dataclasses import replace

from probes import gemm, matmul
from probes.harness import Bench, Case, Measurement
from probes.matmul import INT8_FEWEST_ROWS, Shape

QUICK_TOKENS = (1, 8, 32)
FULL_TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64)
LARGEST_TOKENS_QUICK_CPU = 8


def cases(bench: Bench) -> list[Case]:
    """The shapes and 16-bit format of `gemm`, and fp8 where the device has it."""
    tokens = QUICK_TOKENS if bench.quick else FULL_TOKENS
    if bench.on_cpu and bench.quick:
        tokens = tuple(count for count in tokens if count <= LARGEST_TOKENS_QUICK_CPU)
    chosen = matmul.shapes(bench)[: 2 if bench.quick else 4]
    forms = tuple(form for form in bench.device.formats if form in {bench.device.sixteen_bit, "fp8"})
    if bench.on_cpu:
        forms = (bench.device.sixteen_bit,) if bench.quick else (bench.device.sixteen_bit, "fp32")
    return [
        Case(
            name=f"{form} {shape.name} x{count}",
            run=lambda shape=shape, form=form, count=count: _measure(bench, shape, form, count),
            parameters={
                "format": form,
                "shape": shape.name,
                "n": shape.out_features,
                "k": shape.in_features,
                "tokens": count,
            },
            essential=count == 1 and form == bench.device.sixteen_bit,
        )
        for count in tokens
        for form in forms
        for shape in chosen
        if form != "int8" or count >= INT8_FEWEST_ROWS
    ]


def _measure(bench: Bench, shape: Shape, form: str, tokens: int) -> Measurement:
    found = gemm.measure(bench, shape, form, tokens)
    weight_bytes = float(shape.weight_bytes(form))
    if found.timing is None:
        raise RuntimeError("a product was not timed")
    return replace(
        found,
        value=weight_bytes / found.timing.median_s,
        unit="B/s",
        extra={**found.extra, "best": weight_bytes / found.timing.best_s},
    )
