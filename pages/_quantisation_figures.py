"""Charts of the *Quantisation* page and the sentences that are their alt texts."""

from __future__ import annotations

from collections.abc import Sequence

from calc import format as fmt
from calc.quantization_speed import BATCHES, SpeedStudy, Way
from calc.quantization_study import Histogram, SchemeError, SmoothingStudy
from pages._axes import COLOURS, FAINT, LABEL_SIZE, Mark, doubling, figure, labelled, linear, logarithmic
from pages._charts import Series, lines
from pages._drawing import Drawing

# One colour per number format, here and in the error study; dashes tell what the card does with it.
FORMAT_COLOURS = {
    "fp8": "fp8",
    "fp8 + fp8 KV": "fp8",
    "int8": "int8",
    "int8 weight-only": "int8",
    "int4 g128": "int4",
    "MXFP4": "fp4",
    "NVFP4": "nvfp4",
    "KV in fp8": "kv",
    "Q8_0": "int8",
    "Q6_K": "fp8",
    "Q5_K_M": "fp4",
    "Q4_K_M": "int4",
    "Q4_K_M + Q8_0 KV": "int4",
    "KV in Q8_0": "kv",
}
ERROR_COLOURS = {
    "int8": "int8",
    "int4": "int4",
    "fp8 E4M3": "fp8",
    "fp8 E5M2": "fp8",
    "MXFP4": "fp4",
    "NVFP4": "nvfp4",
}
LEAST_ERROR = 1e-4


def speed_figure(study: SpeedStudy, *, batch: int | None) -> Drawing:
    """Speed-up of a decode step over 16 bit against the batch, a line for each scheme that runs."""
    highest = max([2.0, *(max(found.decode) for found in study.run)])
    lowest = min([1.0, *(min(found.decode) for found in study.run)])
    made = lines(
        BATCHES,
        [
            Series(
                name=found.scheme.name,
                values=found.decode,
                colour=FORMAT_COLOURS[found.scheme.name],
                dash=_dash(found.scheme.name, found.support.way),
            )
            for found in study.run
        ],
        xaxis=doubling(1, BATCHES[-1], "sequences that decode together"),
        yaxis=linear(min(0.8, 0.95 * lowest), 1.05 * highest, "decode speed-up", unit="x"),
        vertical=[Mark(at=batch, text=f"this plan: batch {fmt.count(batch)}", colour="main", dash="dot")]
        if batch is not None and batch <= BATCHES[-1]
        else [],
        height=400,
    )
    made.add_shape(
        type="line",
        x0=0,
        x1=1,
        xref="x domain",
        y0=1.0,
        y1=1.0,
        yref="y",
        line={"color": COLOURS["mean"], "width": 1.5},
    )
    return made


def _dash(name: str, way: Way) -> str:
    if name.startswith("KV"):
        return "longdashdot"
    if "KV" in name:
        return "dot"
    return "solid" if way is Way.COMPUTES else "dash"


def speed_finding(study: SpeedStudy) -> str:
    """What the speed chart shows."""
    parts = [
        f"{found.scheme.name} from {fmt.factor(found.decode[0])} at batch 1 to {fmt.factor(found.decode[-1])} "
        f"at {BATCHES[-1]}"
        for found in study.run
    ]
    return f"Speed-up of a decode step over 16-bit weights and cache: {'; '.join(parts) or 'no scheme runs here'}."


def error_figure(found: Sequence[SchemeError]) -> Drawing:
    """Relative error of the typical row (filled) and of the worst (hollow), one line for each scheme."""
    names = [one.scheme.name for one in found]
    values = [max(LEAST_ERROR, v) for one in found for v in (one.typical_row, one.worst_row)]
    made = figure(
        height=90 + 34 * len(found),
        top=10,
        hovermode="closest",
        xaxis=logarithmic(min(values) / 1.6, max(1.2, 1.3 * max(values)), "error over the row's own size")
        | {"tickformat": ".0%", "exponentformat": "none"},
        yaxis={"autorange": "reversed"},
        legend={"y": -0.16},
    )
    for one in found:
        made.add_scatter(
            x=[max(LEAST_ERROR, one.typical_row), max(LEAST_ERROR, one.worst_row)],
            y=[one.scheme.name] * 2,
            mode="lines",
            line={"color": FAINT, "width": 3},
            hoverinfo="skip",
            showlegend=False,
        )
    for name, symbol, pick in (
        ("typical row", "circle", lambda e: e.typical_row),
        ("worst row", "diamond-open", lambda e: e.worst_row),
    ):
        made.add_scatter(
            x=[max(LEAST_ERROR, pick(one)) for one in found],
            y=names,
            mode="markers",
            name=name,
            marker={
                "symbol": symbol,
                "size": 11,
                "color": [COLOURS[ERROR_COLOURS[one.scheme.format]] for one in found],
                "line": {"width": 2},
            },
            customdata=[fmt.percent(pick(one)) for one in found],
            hovertemplate=f"%{{y}}: %{{customdata}}, {name}<extra></extra>",
        )
    return made


def error_finding(found: Sequence[SchemeError]) -> str:
    """What the error chart shows."""
    ordered = sorted(found, key=lambda one: one.typical_row)
    best, worst = ordered[0], ordered[-1]
    return (
        f"Error of a typical row over its size: least with {best.scheme.name} ({fmt.percent(best.typical_row)}), "
        f"most with {worst.scheme.name} ({fmt.percent(worst.typical_row)})."
    )


def histogram_figure(spread: Histogram, *, colour: str) -> Drawing:
    """Errors in steps between the bounds of half a step."""
    top = 115 * max([*spread.shares, 0.01])
    made = figure(
        height=260,
        showlegend=False,
        top=30,
        bargap=0.02,
        hovermode="closest",
        xaxis=linear(-0.65, 0.65, "error, in steps"),
        yaxis=linear(0, top, "share of values", unit="%"),
    )
    made.add_bar(
        x=list(spread.centres),
        y=[100 * share for share in spread.shares],
        marker={"color": COLOURS[colour]},
        hovertemplate="%{x:.2f} steps: %{y:.2f}%<extra></extra>",
    )
    for bound, side in ((-0.5, "left"), (0.5, "right")):
        made.add_shape(
            type="line",
            x0=bound,
            x1=bound,
            y0=0,
            y1=1,
            yref="paper",
            line={"color": COLOURS["target"], "width": 2},
        )
        made.add_annotation(
            x=bound,
            y=1,
            yref="paper",
            yanchor="bottom",
            xanchor=side,
            text=labelled("-s/2" if bound < 0 else "s/2", COLOURS["target"]),
            showarrow=False,
            font={"size": LABEL_SIZE},
        )
    return made


def histogram_finding(name: str, spread: Histogram) -> str:
    """What the histogram shows."""
    clipped = (
        f"; {fmt.percent(spread.saturated_share)} of the values are clipped" if spread.saturated_share else ""
    )
    return f"Errors of {name}, in steps: every one lies within half a step on either side{clipped}."


def smoothing_figure(study: SmoothingStudy, *, alpha: float) -> Drawing:
    """Error of the int8 product against SmoothQuant's exponent, beside no rescaling and beside rounded weights alone."""
    values = [*study.errors, study.plain, study.weights_only]
    return lines(
        study.alphas,
        [Series(name="weights and activations in int8", values=study.errors, colour="main")],
        xaxis=linear(0, 1, "exponent α"),
        yaxis=logarithmic(min(values) / 1.5, 2 * max(values), "error of the product")
        | {"tickformat": "~%", "exponentformat": "none"},
        vertical=[Mark(at=alpha, text=f"α = {alpha:g}", colour="main", dash="dot")],
        horizontal=[
            Mark(at=study.plain, text=f"no rescaling: {fmt.percent(study.plain)}", colour="target"),
            Mark(
                at=study.weights_only,
                text=f"activations in 16 bit: {fmt.percent(study.weights_only)}",
                colour="fits",
            ),
        ],
        height=320,
    )


def smoothing_finding(study: SmoothingStudy) -> str:
    """What the smoothing chart shows."""
    return (
        f"Error of the int8 product: {fmt.percent(study.plain)} without rescaling, least "
        f"({fmt.percent(min(study.errors))}) at an exponent of {study.best_alpha:g}; "
        f"{fmt.percent(study.weights_only)} with activations left in 16 bit."
    )
