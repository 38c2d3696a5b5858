"""The frontier chart of *Compare GPUs* and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calc import format as fmt
from calc.frontier import Operating, frontier
from pages._axes import GREY, KINDS, LABEL_SIZE, LINE_WIDTH, Mark, figure, fine_logarithmic, shade, vline
from pages._drawing import Drawing

SYMBOLS = ("circle", "diamond", "square")


def frontier_figure(
    found: Mapping[str, tuple[Operating, ...]],
    *,
    user_tokens_per_s: float,
    target_tokens_per_s: float | None,
    at: Mapping[str, Operating | None],
    baseline: str = "",
) -> Drawing:
    """Each accelerator's frontier as a line, what its cache cannot hold as hollow points, the promised region shaded.

    The points that serve the chosen speed are named ("TP4 b32"), the baseline's line is drawn thick and outlined.
    """
    every = [point for points in found.values() for point in points]
    low_x, high_x = (
        min(p.user_tokens_per_s for p in every) / 1.3,
        1.3 * max(p.user_tokens_per_s for p in every),
    )
    low_y, high_y = (
        min(p.tokens_per_s_per_gpu for p in every) / 1.3,
        1.3 * max(p.tokens_per_s_per_gpu for p in every),
    )
    made = figure(
        height=480,
        hovermode="closest",
        xaxis=fine_logarithmic(low_x, high_x, "tokens/s per user"),
        yaxis=fine_logarithmic(low_y, high_y, "tokens/s per GPU"),
    )
    for number, (name, points) in enumerate(found.items()):
        colour, symbol = KINDS[number % len(KINDS)], SYMBOLS[number % len(SYMBOLS)]
        _add_frontier(made, name, points, colour=colour, symbol=symbol, outlined=name == baseline)
        _name_point(made, at.get(name), colour=colour, symbol=symbol, above=number % 2 == 0)
    if target_tokens_per_s is not None and low_x < target_tokens_per_s < high_x:
        shade(made, target_tokens_per_s, high_x, colour="fits", text="keeps the TPOT target", at_left=True)
    if low_x < user_tokens_per_s < high_x:
        vline(
            made,
            Mark(
                at=user_tokens_per_s,
                text=f"{fmt.significant(user_tokens_per_s)} tokens/s per user",
                colour="main",
                dash="dot",
            ),
        )
    return made


def _add_frontier(
    made: Drawing, name: str, points: Sequence[Operating], *, colour: str, symbol: str, outlined: bool
) -> None:
    """The points that none beats as a line; those that the cache cannot hold, hollow."""
    best = frontier(points)
    made.add_scatter(
        x=[p.user_tokens_per_s for p in best],
        y=[p.tokens_per_s_per_gpu for p in best],
        name=f"{name} (baseline)" if outlined else name,
        mode="lines+markers",
        customdata=[describe(p) for p in best],
        hovertemplate="%{customdata}<extra></extra>",
        line={"color": colour, "width": 2 * LINE_WIDTH if outlined else LINE_WIDTH},
        marker={"symbol": symbol, "size": 9, "line": {"width": 2 if outlined else 0, "color": GREY}},
    )
    hollow = [p for p in points if not p.fits]
    made.add_scatter(
        x=[p.user_tokens_per_s for p in hollow],
        y=[p.tokens_per_s_per_gpu for p in hollow],
        name=f"{name}, does not fit",
        mode="markers",
        showlegend=False,
        customdata=[describe(p) for p in hollow],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"symbol": f"{symbol}-open", "size": 7, "color": colour, "opacity": 0.6},
    )


def _name_point(made: Drawing, point: Operating | None, *, colour: str, symbol: str, above: bool) -> None:
    """A ring and a label on the point that serves the chosen speed."""
    if point is None:
        return
    made.add_scatter(
        x=[point.user_tokens_per_s],
        y=[point.tokens_per_s_per_gpu],
        mode="markers+text",
        text=[f"{point.layout} b{point.batch}"],
        textposition="top right" if above else "bottom left",
        textfont={"size": LABEL_SIZE},
        marker={"symbol": f"{symbol}-open", "size": 15, "color": colour, "line": {"width": 2}},
        showlegend=False,
        hoverinfo="skip",
    )


def describe(point: Operating) -> str:
    """One point in words: "H100, TP4 b32: ..."."""
    fits = "" if point.fits else "; the cache does not hold that batch"
    return (
        f"{point.gpu}, {point.layout} b{point.batch}: {fmt.significant(point.user_tokens_per_s)} tokens/s per user, "
        f"{fmt.significant(point.tokens_per_s_per_gpu)} tokens/s per GPU, "
        f"{fmt.optional(point.usd_per_million, fmt.usd, 'no price')} per million out{fits}"
    )


def frontier_finding(found: Mapping[str, Operating | None], user_tokens_per_s: float) -> str:
    """What the frontier shows at the chosen speed."""
    parts = [
        f"{name}: {fmt.significant(point.tokens_per_s_per_gpu)} tokens/s per GPU with {point.layout} at batch {point.batch}"
        if point
        else f"{name}: not that fast"
        for name, point in found.items()
    ]
    return f"At {fmt.significant(user_tokens_per_s)} tokens/s per user. {'; '.join(parts)}."
