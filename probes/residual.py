"""A measured layer against the sum of its parts: the step model on the run's own rates, with torch as the engine. No torch.

A ratio far from 1 says that the parts do not explain the layer. It is shown; nothing is rescaled by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calc.layout import Layout
from calc.model import ModelSpec
from calc.operators import ForwardPass
from calc.step import StepModel
from probes.layer_shapes import one_layer
from probes.measured import accelerator_of, torch_profile
from probes.readings import of_probe


def layer_rows(run: Mapping[str, Any], spec: ModelSpec) -> list[dict[str, Any]]:
    """One row per measured layer: seconds measured, seconds of the parts together, their ratio."""
    cases = of_probe(run["cases"], "layer")
    if not cases:
        return []
    accelerator, profile = accelerator_of(run), torch_profile(run)
    rows = []
    for case in cases:
        what = case["parameters"]
        model = StepModel.of(
            one_layer(spec, int(what["layer"])), accelerator, Layout(), profile, quantization="bf16"
        )
        decode = what["phase"] == "decode"
        step = (
            ForwardPass.decode(what["batch"], what["context"])
            if decode
            else ForwardPass.prefill(what["tokens"])
        )
        parts_s = float(model.expected(step, eager=False).total[0])
        rows.append(
            {
                "case": case["case"],
                "phase": what["phase"],
                "measured_s": case["value"],
                "parts_s": parts_s,
                "ratio": case["value"] / parts_s if parts_s > 0 else None,
            }
        )
    return rows
