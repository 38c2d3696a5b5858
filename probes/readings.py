"""What a run says, as a handful of rates: the roofs that were measured and what attention, weights and kernels reach.

No torch. Values are what was sustained (medians); the best sample is kept apart as a roof.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

SIXTEEN_BIT: Final = ("bf16", "fp16")
FEW_TOKENS: Final = 8
SOFT_EXPONENT: Final = 3.0  # the step model's own, so that what it puts together is what was taken apart
MOSTLY_COMPUTE: Final = 0.8
FASTER: Final = 1.1

Case = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Rates of one run; None for what it has not. bytes/s, FLOP/s and seconds.

    `bandwidth`: the best of scale, triad and read beyond the last cache.
    `compute` by format: sustained where that was measured, else the best product; where products of few tokens run at a
    higher rate than that (a processor without units for the format), theirs, and the large ones' is in `large_products`. `weights` by format: bytes of weights
    read per second by products of few tokens. `attention`: cached bytes per second; `prefill_attention`: FLOP/s.
    """

    bandwidth: float | None
    peak_bandwidth: float | None
    compute: Mapping[str, float]
    peak_compute: Mapping[str, float]
    large_products: Mapping[str, float]
    weights: Mapping[str, float]
    kernel_s: float | None
    attention: float | None
    attention_way: str
    prefill_attention: float | None
    sixteen_bit: str

    @property
    def compute_16bit(self) -> float | None:
        return self.compute.get(self.sixteen_bit)


def readings(run: Mapping[str, Any]) -> Readings:
    """Sum up a run."""
    cases = run["cases"]
    plateau = [case for case in of_probe(cases, "bandwidth") if not case["parameters"].get("sweep")]
    plateau = [case for case in plateau if case["parameters"].get("kernel") != "copy"]
    compute, peaks = _compute(cases)
    large = _few_token_rates(cases, compute)
    sixteen = next((form for form in SIXTEEN_BIT if form in compute), "bf16")
    launch = {case["parameters"]["way"]: case["value"] for case in of_probe(cases, "launch")}
    attention = _best(of_probe(cases, "decode_attention"))
    prompts = _best(of_probe(cases, "prefill_attention"))
    return Readings(
        bandwidth=_top(plateau, "value"),
        peak_bandwidth=_top([*plateau, *of_probe(cases, "skinny_gemm")], "best"),
        compute=compute,
        peak_compute=peaks | _attention_peak(prompts, peaks, sixteen),
        large_products=large,
        weights=_weights(cases, compute),
        kernel_s=launch.get("graph", launch.get("eager")),
        attention=attention["value"] if attention else None,
        attention_way=str(attention["parameters"]["way"]) if attention else "",
        prefill_attention=prompts["value"] if prompts else None,
        sixteen_bit=sixteen,
    )


def of_probe(cases: Iterable[Case], probe: str) -> list[Case]:
    """The cases of one probe."""
    return [case for case in cases if case["probe"] == probe]


def _best(cases: list[Case]) -> Case | None:
    return max(cases, key=lambda case: float(case["value"]), default=None)


def _top(cases: list[Case], which: str) -> float | None:
    values = [
        float(case["value"] if which == "value" else case.get("extra", {}).get("best", case["value"]))
        for case in cases
    ]
    return max(values, default=None)


def _compute(cases: list[Case]) -> tuple[dict[str, float], dict[str, float]]:
    """(sustained, best sample) FLOP/s by format. A quick product's best stands in where nothing was sustained."""
    compute: dict[str, float] = {}
    peaks: dict[str, float] = {}
    for case in of_probe(cases, "gemm"):
        form = case["parameters"]["format"]
        compute[form] = max(compute.get(form, 0.0), float(case["value"]))
        peaks[form] = max(peaks.get(form, 0.0), float(case["extra"].get("best", case["value"])))
    for case in of_probe(cases, "sustained"):
        form = case["parameters"]["format"]
        compute[form] = float(case["value"])
        peaks[form] = max(peaks.get(form, 0.0), float(case["extra"].get("best", case["value"])))
    return compute, peaks


def _attention_peak(prompts: Case | None, peaks: Mapping[str, float], form: str) -> dict[str, float]:
    """The 16-bit peak where attention over prompts was the fastest thing that ran."""
    if prompts is None or form not in peaks:
        return {}
    return {form: max(peaks[form], float(prompts["extra"].get("best", prompts["value"])))}


def _few_token_rates(cases: list[Case], compute: dict[str, float]) -> dict[str, float]:
    """Raise a format's rate to that of products of few tokens where it is higher; the rates that were replaced."""
    large: dict[str, float] = {}
    for case in (*of_probe(cases, "skinny_gemm"), *of_probe(cases, "gemm")):
        shape = case["parameters"]
        if shape["tokens"] > FEW_TOKENS:
            continue
        rate = 2.0 * shape["tokens"] * shape["n"] * shape["k"] / float(case["timing"]["median_s"])
        if rate > FASTER * compute.get(shape["format"], rate):
            large.setdefault(shape["format"], compute[shape["format"]])
            compute[shape["format"]] = rate
    return large


def _weights(cases: list[Case], compute: Mapping[str, float]) -> dict[str, float]:
    """Bytes of weights per second by format, from products of at most 8 tokens, without the part that computing took.

    The step model joins reading and computing as (a^3 + b^3)^(1/3); the inverse of that takes them apart. Products that
    mostly compute say nothing about reading and are left out, unless there are no others.
    """
    found: dict[str, list[float]] = {}
    spare: dict[str, list[float]] = {}
    for case in of_probe(cases, "skinny_gemm"):
        shape = case["parameters"]
        if shape["tokens"] > FEW_TOKENS:
            continue
        form = shape["format"]
        spare.setdefault(form, []).append(float(case["value"]))
        total_s = float(case["timing"]["median_s"])
        flop = 2.0 * shape["tokens"] * shape["n"] * shape["k"]
        compute_s = flop / compute[form] if compute.get(form) else 0.0
        if compute_s < MOSTLY_COMPUTE * total_s:
            reading_s = (total_s**SOFT_EXPONENT - compute_s**SOFT_EXPONENT) ** (1 / SOFT_EXPONENT)
            found.setdefault(form, []).append(float(case["bytes_per_call"]) / reading_s)
    return {form: median(found.get(form) or values) for form, values in spare.items()}
