"""The roofline's chart and its alt text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc import format as fmt
from calc.accelerator import Accelerator
from calc.profile import Profile
from calc.provenance import Provenance
from calc.roofline_points import OperatorPoint, PassPoint, Roof, Roofline
from pages._axes import COLOURS, faded_line
from pages._charts import Dots, Series, roofline
from pages._drawing import Drawing

MARGIN = 3.0  # room on a log axis, as a factor
NAMES_MARGIN = 12.0  # the same on the right, where the roofs' names stand


def roofline_figure(
    accelerator: Accelerator,
    roofs: Sequence[Roof],
    *,
    decode: Sequence[OperatorPoint],
    prefill: Sequence[OperatorPoint],
    decode_trail: Sequence[PassPoint],
    prefill_trail: Sequence[PassPoint],
    reached: Reached | None = None,
) -> Drawing:
    """Operators of one decode step and one prefill under the roofs, and whole passes as they grow."""
    points = [*decode, *prefill]
    ridges = [roof.ridge_flop_per_byte for roof in roofs]
    x_range = (
        min(p.intensity for p in points) / MARGIN,
        NAMES_MARGIN * max([*ridges, *(p.intensity for p in points)]),
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
    if reached is not None:
        _draw_reached(made, reached, left=x_range[0], right=x_range[1])
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What kernels reach of the datasheet: the slope for 16-bit weights, a roof per compute class, and the evidence."""

    bytes_per_s: float
    flop_per_s: dict[str, float]
    evidence: str


REACHED_CLASSES = {
    "bf16": "compute.16bit",
    "fp8": "compute.fp8",
    "int8": "compute.int8",
    "fp4": "compute.fp4",
}


def reached_roofs(accelerator: Accelerator, profile: Profile | None) -> Reached | None:
    """The roofs under a profile; None where there is none. A probe of this very device is called measured."""
    if profile is None:
        return None
    numbers = profile.device.numbers
    own = {numbers["bandwidth.activations"].provenance, numbers["compute.16bit"].provenance}
    measured = own == {Provenance.MEASURED}
    peaks = {name: rate.flop_per_s for name, rate in accelerator.rates.items()}
    peaks["bf16"] = accelerator.flop_per_s_16bit.flop_per_s
    return Reached(
        bytes_per_s=profile.number("bandwidth.activations" if measured else "bandwidth.16bit")
        * accelerator.bandwidth_bytes_per_s,
        flop_per_s={
            name: profile.number(number) * peaks[name]
            for name, number in REACHED_CLASSES.items()
            if name in peaks
        },
        evidence="measured on this device" if measured else str(profile.provenance),
    )


def _draw_reached(made: Drawing, reached: Reached, *, left: float, right: float) -> None:
    """What is reached, thick, under the datasheet's thin roofs."""
    slope = reached.bytes_per_s
    highest = max(reached.flop_per_s.values())
    xs: list[float | None] = [left, highest / slope]
    ys: list[float | None] = [left * slope, highest]
    for rate in reached.flop_per_s.values():
        xs += [None, rate / slope, right]
        ys += [None, rate, rate]
    made.add_scatter(
        x=xs,
        y=ys,
        mode="lines",
        name=f"reached ({reached.evidence})",
        hoverinfo="skip",
        line={"color": faded_line(COLOURS["main"]), "width": 6},
    )
    made.traces.insert(0, made.traces.pop())  # under the dots


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
