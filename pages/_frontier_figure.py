"""The frontier chart of *Compare GPUs* and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calc import format as fmt
from calc.frontier import Operating, frontier
from pages._axes import GREY, KINDS, LINE_WIDTH, Mark, figure, fine_logarithmic, shade, vline
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

    A ring marks the point that serves the chosen speed, and the legend says what runs there ("TP4 b32"): beside the point its
    name would lie on the other lines, which are close to each other. The baseline's line is drawn thick and outlined.
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
        ring = at.get(name)
        known = f"{name} (baseline)" if name == baseline else name
        look = {"color": colour, "symbol": symbol}
        _add_frontier(made, known, points, look=look, outlined=name == baseline, named=ring is None)
        if ring is not None:
            _add_ring(made, known, ring, look=look)
    if target_tokens_per_s is not None and low_x < target_tokens_per_s < high_x:
        shade(made, target_tokens_per_s, high_x, colour="fits", text="keeps the TPOT target")
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
    made: Drawing,
    name: str,
    points: Sequence[Operating],
    *,
    look: Mapping[str, str],
    outlined: bool,
    named: bool,
) -> None:
    """The points that none beats as a line; those that the cache cannot hold, hollow. `named`: in the legend."""
    best = frontier(points)
    made.add_scatter(
        x=[p.user_tokens_per_s for p in best],
        y=[p.tokens_per_s_per_gpu for p in best],
        name=name,
        legendgroup=name,
        showlegend=named,
        mode="lines+markers",
        customdata=[describe(p) for p in best],
        hovertemplate="%{customdata}<extra></extra>",
        line={"color": look["color"], "width": 2 * LINE_WIDTH if outlined else LINE_WIDTH},
        marker={"symbol": look["symbol"], "size": 9, "line": {"width": 2 if outlined else 0, "color": GREY}},
    )
    hollow = [p for p in points if not p.fits]
    made.add_scatter(
        x=[p.user_tokens_per_s for p in hollow],
        y=[p.tokens_per_s_per_gpu for p in hollow],
        name=f"{name}, does not fit",
        legendgroup=name,
        mode="markers",
        showlegend=False,
        customdata=[describe(p) for p in hollow],
        hovertemplate="%{customdata}<extra></extra>",
        marker={"symbol": f"{look['symbol']}-open", "size": 7, "color": look["color"], "opacity": 0.6},
    )


def _add_ring(made: Drawing, name: str, point: Operating, *, look: Mapping[str, str]) -> None:
    """A ring on the point that serves the chosen speed; in the legend it stands for the line and says what runs there."""
    made.add_scatter(
        x=[point.user_tokens_per_s],
        y=[point.tokens_per_s_per_gpu],
        mode="markers",
        name=f"{name}: {point.layout} b{point.batch}",
        legendgroup=name,
        marker={
            "symbol": f"{look['symbol']}-open",
            "size": 15,
            "color": look["color"],
            "line": {"width": 2},
        },
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
