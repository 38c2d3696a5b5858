"""Matrix products against token count, by compute format, with a model's shapes and both sides of tile edges."""

from __future__ import annotations

from probes import matmul
from probes.harness import Bench, Case, Measurement
from probes.matmul import INT8_FEWEST_ROWS, Shape

QUICK_TOKENS = (16, 64, 256, 1024, 4096, 8192)
FULL_TOKENS = (1, 2, 4, 8, 16, 17, 32, 33, 64, 65, 128, 129, 256, 512, 1024, 2048, 4096, 8192)
CPU_QUICK_TOKENS = (1, 16, 64, 256, 1024)
PILOT_TOKENS = 64


def cases(bench: Bench) -> list[Case]:
    """Light cases first; on a slow device the ones whose one call would take too long are left out."""
    chosen = matmul.shapes(bench)
    if bench.quick:
        chosen = chosen[:1] if bench.on_cpu else chosen[:2]
    found = []
    for form in _formats(bench):
        rate = pilot_flop_per_s(bench, chosen[0], form) if bench.on_cpu else None
        for shape in chosen:
            found += [
                Case(
                    name=f"{form} {shape.name} x{tokens}",
                    run=lambda shape=shape, form=form, tokens=tokens: measure(bench, shape, form, tokens),
                    parameters={
                        "format": form,
                        "shape": shape.name,
                        "n": shape.out_features,
                        "k": shape.in_features,
                        "tokens": tokens,
                    },
                    essential=shape is chosen[0] and form == bench.device.sixteen_bit,
                )
                for tokens in _tokens(bench)
                if (form != "int8" or tokens >= INT8_FEWEST_ROWS)
                and (rate is None or shape.flop(tokens) <= rate * bench.longest_call_s)
            ]
    return sorted(found, key=lambda case: case.parameters["tokens"])


def _formats(bench: Bench) -> tuple[str, ...]:
    known = bench.device.formats
    if not bench.quick:
        return known
    return tuple(form for form in known if form in {bench.device.sixteen_bit, "fp8"}) + (
        ("fp32",) if bench.on_cpu else ()
    )


def _tokens(bench: Bench) -> tuple[int, ...]:
    if not bench.quick:
        return FULL_TOKENS
    return CPU_QUICK_TOKENS if bench.on_cpu else QUICK_TOKENS


def pilot_flop_per_s(bench: Bench, shape: Shape, form: str) -> float | None:
    """A first idea of the rate, from one small product; None where the format does not run (its cases then say why)."""
    x = matmul.operand(bench, PILOT_TOKENS, shape.in_features, form)
    weight = matmul.operand(bench, shape.out_features, shape.in_features, form)
    multiply = matmul.product(form)
    try:
        return shape.flop(PILOT_TOKENS) / bench.once_s(lambda: multiply(x, weight))
    except (RuntimeError, NotImplementedError):
        return None


def measure(bench: Bench, shape: Shape, form: str, tokens: int) -> Measurement:
    """FLOP/s of one product with rotated weights, its answer checked against fp32."""
    matmul.allow_tf32(allowed=form == "tf32")
    x = matmul.operand(bench, tokens, shape.in_features, form)
    weights = bench.copies(matmul.operand(bench, shape.out_features, shape.in_features, form))
    multiply = matmul.product(form)
    error = matmul.answer_error(x, weights[0], multiply(x, weights[0]), form)
    timing = bench.time([lambda weight=weight: multiply(x, weight) for weight in weights])
    flop = shape.flop(tokens)
    return Measurement(
        value=flop / timing.median_s,
        unit="FLOP/s",
        timing=timing,
        flop_per_call=flop,
        bytes_per_call=float(shape.weight_bytes(form)),
        error=error,
        extra={"best": flop / timing.best_s, "copies": len(weights)},
    )
