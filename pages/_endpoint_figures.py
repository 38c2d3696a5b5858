"""Charts of a measured endpoint: TTFT against prompt length with its fit, and latency by concurrency."""

from __future__ import annotations

import numpy as np

from calc import format as fmt
from calc.endpoint.report import EndpointReport
from calc.endpoint.tables import fit_words
from pages._axes import COLOURS, GREY, LINE_WIDTH, figure, linear
from pages._drawing import Drawing

FIT_POINTS = 60


def prompt_figure(report: EndpointReport) -> Drawing:
    """Every sample as a dot, the fit as a line, the prediction as diamonds with its range."""
    samples = [s for s in report.run.stage("prefill") if s.measures_prefill and s.prompt_tokens]
    most = 1.06 * max(float(s.prompt_tokens or 0) for s in samples)
    highest = max(s.ttft_s or 0.0 for s in samples)
    predicted = [row for row in report.prompts if row.predicted_s is not None]
    highest = max([highest, *(float(row.predicted_s.high) for row in predicted if row.predicted_s)])
    made = figure(
        height=380,
        top=12,
        xaxis=linear(0, most, "prompt tokens, by the server's count"),
        yaxis=linear(0, 1.08 * highest, "TTFT", unit=" s"),
        hovermode="closest",
    )
    if report.fit is not None:
        x = np.linspace(most / FIT_POINTS, most, FIT_POINTS)
        made.add_scatter(
            x=x.tolist(),
            y=np.asarray(report.fit.at(x)).tolist(),
            mode="lines",
            name="fit a + b n + c n²",
            hoverinfo="skip",
            line={"color": COLOURS["main"], "width": LINE_WIDTH},
        )
    made.add_scatter(
        x=[s.prompt_tokens for s in samples],
        y=[s.ttft_s for s in samples],
        mode="markers",
        name="measured",
        hovertemplate="%{x:,} tokens: %{y:,.3~r} s<extra></extra>",
        marker={"color": COLOURS["prefill"], "size": 9, "line": {"color": GREY, "width": 1}},
    )
    if predicted:
        made.add_scatter(
            x=[row.tokens for row in predicted],
            y=[float(row.predicted_s.best) for row in predicted if row.predicted_s],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [float(r.predicted_s.high - r.predicted_s.best) for r in predicted if r.predicted_s],
                "arrayminus": [
                    float(r.predicted_s.best - r.predicted_s.low) for r in predicted if r.predicted_s
                ],
                "color": COLOURS["target"],
            },
            mode="markers",
            name="predicted, with its range",
            marker={"color": COLOURS["target"], "size": 10, "symbol": "diamond-open"},
        )
    return made


def prompt_finding(report: EndpointReport) -> str:
    """What the chart says."""
    first, last = report.prompts[0], report.prompts[-1]
    return (
        f"TTFT grows from {fmt.seconds(first.ttft_s.p50)} at {fmt.count(first.tokens)} prompt tokens to "
        f"{fmt.seconds(last.ttft_s.p50)} at {fmt.count(last.tokens)}. {fit_words(report)}"
    )


def level_figure(report: EndpointReport) -> Drawing:
    """TTFT and tokens per second by concurrency, side by side as bars with their own axes."""
    rows = [row for row in report.levels if row.level.concurrency and row.level.ttft_s is not None]
    names = [f"{row.level.concurrency} at a time" for row in rows]
    highest = max(row.level.ttft_s.p90 for row in rows if row.level.ttft_s is not None)
    fastest = max((row.level.tokens_per_s or 0.0 for row in rows), default=0.0)
    made = figure(
        height=300,
        top=12,
        barmode="group",
        hovermode="closest",
        yaxis=linear(0, 1.1 * highest, "TTFT", unit=" s"),
        yaxis2={
            "title": {"text": "tokens/s"},
            "range": [0, 1.1 * fastest or 1.0],
            "tickformat": ",.3~s",
            "overlaying": "y",
            "side": "right",
            "showgrid": False,
        },
    )
    for name, statistic, colour in (("TTFT, median", "p50", "p50"), ("TTFT, P90", "p90", "p95")):
        made.add_bar(
            x=names,
            y=[getattr(row.level.ttft_s, statistic) for row in rows],
            name=name,
            marker={"color": COLOURS[colour]},
            hovertemplate="%{x}: %{y:,.3~r} s<extra></extra>",
        )
    made.add_scatter(
        x=names,
        y=[row.level.tokens_per_s for row in rows],
        name="tokens/s, all together (right)",
        mode="lines+markers",
        yaxis="y2",
        hovertemplate="%{x}: %{y:.4~s} tokens/s<extra></extra>",
        line={"color": COLOURS["decode"], "width": LINE_WIDTH},
    )
    return made


def level_finding(report: EndpointReport) -> str:
    """What the second chart says."""
    rows = [row for row in report.levels if row.level.concurrency and row.level.ttft_s is not None]
    parts = [
        f"{fmt.seconds(row.level.ttft_s.p50)} at {row.level.concurrency}"
        for row in rows
        if row.level.ttft_s is not None
    ]
    knee = f"; the server works on {report.run.slots} at a time" if any(row.queued for row in rows) else ""
    return f"Median TTFT by concurrency: {', '.join(parts)}{knee}."
