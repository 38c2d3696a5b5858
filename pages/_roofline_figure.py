"""The roofline's chart and its alt text."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from calc import format as fmt
from calc.accelerator import Accelerator
from calc.profile import Profile
from calc.provenance import Provenance
from calc.roofline_points import OperatorPoint, PassPoint, Roof, Roofline
from pages._axes import COLOURS
from pages._charts import Dots, Series, roofline

MARGIN = 3.0  # room on a log axis, as a factor


def roofline_figure(
    accelerator: Accelerator,
    roofs: Sequence[Roof],
    *,
    decode: Sequence[OperatorPoint],
    prefill: Sequence[OperatorPoint],
    decode_trail: Sequence[PassPoint],
    prefill_trail: Sequence[PassPoint],
    measured: tuple[float, float] | None = None,
) -> go.Figure:
    """Operators of one decode step and one prefill under the roofs, and whole passes as they grow."""
    points = [*decode, *prefill]
    ridges = [roof.ridge_flop_per_byte for roof in roofs]
    x_range = (
        min(p.intensity for p in points) / MARGIN,
        MARGIN * max([*ridges, *(p.intensity for p in points)]),
    )
    y_range = (
        min(p.flop_per_s for p in [*points, *decode_trail, *prefill_trail]) / MARGIN,
        MARGIN * max(roof.flop_per_s for roof in roofs),
    )
    made = roofline(
        bandwidth=accelerator.bandwidth_bytes_per_s,
        roofs=_by_rate(roofs),
        dots=[
            _dots("decode operators", decode, "decode", "circle"),
            _dots("prefill operators", prefill, "prefill", "diamond"),
        ],
        trails=[
            Series(
                name="decode step, batch 1 to 512",
                values=[p.flop_per_s for p in decode_trail],
                colour="decode",
            ),
            Series(
                name="prefill, 1 to 512 tokens",
                values=[p.flop_per_s for p in prefill_trail],
                colour="prefill",
                dash="dash",
            ),
        ],
        trail_x=[[p.intensity for p in decode_trail], [p.intensity for p in prefill_trail]],
        x_range=x_range,
        y_range=y_range,
    )
    if measured is not None:
        _draw_measured(made, *measured, left=x_range[0], right=x_range[1])
    return made


def measured_roofs(accelerator: Accelerator, profile: Profile | None) -> tuple[float, float] | None:
    """(bytes/s, 16-bit FLOP/s) that a probe of this very device reached; None where the profile was not measured."""
    if profile is None:
        return None
    numbers = profile.device.numbers
    memory, compute = numbers["bandwidth.activations"], numbers["compute.16bit"]
    if {memory.provenance, compute.provenance} != {Provenance.MEASURED}:
        return None
    return (
        memory.value * accelerator.bandwidth_bytes_per_s,
        compute.value * accelerator.flop_per_s_16bit.flop_per_s,
    )


def _draw_measured(made: go.Figure, bandwidth: float, rate: float, *, left: float, right: float) -> None:
    """The measured slope and 16-bit roof, dotted, beside the datasheet's."""
    made.add_scatter(
        x=[left, rate / bandwidth, right],
        y=[left * bandwidth, rate, rate],
        mode="lines",
        name="measured on this device, 16 bit",
        hoverinfo="skip",
        line={"color": COLOURS["main"], "width": 2, "dash": "dot"},
    )


def _by_rate(roofs: Sequence[Roof]) -> list[tuple[str, float]]:
    """Formats that share a rate share a roof."""
    names: dict[float, list[str]] = {}
    for roof in roofs:
        names.setdefault(roof.flop_per_s, []).append(roof.format)
    return [(", ".join(alike), rate) for rate, alike in names.items()]


def _dots(name: str, points: Sequence[OperatorPoint], colour: str, symbol: str) -> Dots:
    return Dots(
        name=name,
        x=[p.intensity for p in points],
        y=[p.flop_per_s for p in points],
        shares=[p.share for p in points],
        hover=[describe(p) for p in points],
        colour=colour,
        symbol=symbol,
    )


def describe(point: OperatorPoint) -> str:
    """One dot in words."""
    return (
        f"{point.name}: {fmt.si(point.flop, 'FLOP')}, {fmt.decimal_bytes(point.bytes)}, "
        f"{fmt.significant(point.intensity)} FLOP per byte, {fmt.seconds(point.seconds)} "
        f"({fmt.percent(point.share)} of the pass), {point.bound}-bound"
    )


def roofline_finding(
    accelerator: Accelerator, decode: Sequence[OperatorPoint], prefill: Sequence[OperatorPoint]
) -> str:
    """What the roofline shows."""
    return (
        f"Roofline of one {accelerator.name}. The largest part of the decode step is {describe(decode[0])}. "
        f"The largest part of the prefill is {describe(prefill[0])}."
    )


def phases_of(found: Roofline) -> tuple[tuple[str, tuple[OperatorPoint, ...]], ...]:
    """The two passes and their operators."""
    return (("decode", found.decode), ("prefill", found.prefill))


def roofline_rows(found: Roofline) -> list[dict[str, object]]:
    """Every dot as a row to take away."""
    return [
        {
            "phase": phase,
            "operator": p.name,
            "group": p.group,
            "kind": p.kind,
            "flop": p.flop,
            "bytes": p.bytes,
            "flop_per_byte": p.intensity,
            "s": p.seconds,
            "share": p.share,
            "bound": p.bound,
        }
        for phase, points in phases_of(found)
        for p in points
    ]
