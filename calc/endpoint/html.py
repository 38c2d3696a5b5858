"""The report of a measured endpoint as one self-contained HTML page, charts as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from calc import format as fmt
from calc.endpoint.report import EndpointReport
from calc.endpoint.tables import TPOT_FORMULA, client_words, fit_words, level_rows, prompt_rows
from calc.html import bullets, document

STYLE = """
body { max-width: 60rem; }
.wide { overflow-x: auto; } td, th { text-align: right; padding: .3rem .8rem .3rem 0; white-space: nowrap; }
svg { max-width: 100%; height: auto; } svg text { fill: currentColor; font: 12px system-ui, sans-serif; }
"""
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 70, 40
MEASURED, FITTED = (
    "#0072B2",
    "#D55E00",
)  # Okabe and Ito's blue and vermilion: told apart by colour-blind readers


def report_html(report: EndpointReport) -> str:
    """The whole document."""
    small = (
        f'<p class="small">{escape(report.run.model)} at {escape(report.run.target)}, '
        f"{fmt.count(len(report.run.samples))} requests in {fmt.seconds(report.run.wall_s)}. {escape(TPOT_FORMULA)}.</p>"
    )
    body = [f"<h1>{escape(report.headline)}</h1>", small]
    if report.gap is not None:
        body.append(f"<p>{escape(report.gap.sentence)}</p>")
    if report.prompts:
        body += ["<h2>TTFT by prompt length</h2>", _chart(report), f"<p>{escape(fit_words(report))}</p>"]
        body.append(_table(prompt_rows(report)))
    if report.levels:
        body += ["<h2>By concurrency</h2>", _table(level_rows(report))]
    body += [
        "<h2>Notes</h2>",
        bullets([*report.notes, *(f"{n} x {f}" for f, n in report.faults.items()), client_words(report)]),
    ]
    return document(report.headline, body, style=STYLE)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Columns that hold anything."""
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    head = "".join(f"<th>{escape(name.removesuffix('_s').replace('_', ' '))}</th>" for name in names)
    lines = "".join(
        f"<tr>{''.join(f'<td>{_cell(name, row[name])}</td>' for name in names)}</tr>" for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{lines}</table></div>'


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_s") and not name.endswith("per_s"):
        return escape(fmt.seconds(float(value)))
    return escape(fmt.significant(float(value), 4))


def _chart(report: EndpointReport) -> str:
    """Medians of TTFT as dots over the prompt length, and the fit as a line."""
    most_tokens = max(row.tokens for row in report.prompts)
    most_s = max(row.ttft_s.p90 for row in report.prompts)

    def x(tokens: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * tokens / most_tokens

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 10) * min(1.0, seconds / most_s)

    dots = "".join(
        f'<circle cx="{x(row.tokens):.1f}" cy="{y(row.ttft_s.p50):.1f}" r="5" fill="{MEASURED}"/>'
        for row in report.prompts
    )
    line = ""
    if report.fit is not None:
        steps = [most_tokens * i / 40 for i in range(1, 41)]
        points = " ".join(f"{x(n):.1f},{y(float(report.fit.at(n))):.1f}" for n in steps)
        line = f'<polyline points="{points}" fill="none" stroke="{FITTED}" stroke-width="2"/>'
    axes = (
        f'<path d="M{LEFT} 10V{HEIGHT - BOTTOM}H{WIDTH - 10}" fill="none" stroke="rgba(128,128,128,.8)"/>'
        f'<text x="{LEFT - 6}" y="18" text-anchor="end">{escape(fmt.seconds(most_s))}</text>'
        f'<text x="{LEFT - 6}" y="{HEIGHT - BOTTOM}" text-anchor="end">0</text>'
        f'<text x="{WIDTH - 10}" y="{HEIGHT - 18}" text-anchor="end">{fmt.count(most_tokens)} prompt tokens</text>'
    )
    alt = escape(fit_words(report) or "TTFT by prompt length")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}">{axes}{line}{dots}</svg>'
