"""The report as rows, text lines and one JSON object: what the page's tables, CSV files and the command line show."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from calc import format as fmt
from calc.endpoint.report import EndpointReport, LevelRow, PromptRow
from calc.endpoint.summary import Spread
from calc.provenance import Estimate

Row = dict[str, Any]
TPOT_FORMULA = "TPOT = (last - first token) / (n - 1), n counted by the server"


def _best(estimate: Estimate | None) -> float | None:
    return None if estimate is None else float(estimate.best)


def _ratio(measured: float | None, predicted: Estimate | None) -> float | None:
    return None if measured is None or predicted is None else measured / float(predicted.best)


def prompt_rows(report: EndpointReport) -> list[Row]:
    """TTFT by prompt length, seconds."""
    return [
        {
            "prompt_tokens": round(row.tokens, 1),
            "samples": row.ttft_s.n,
            "ttft_p50_s": row.ttft_s.p50,
            "ttft_p90_s": row.ttft_s.p90,
            "server_prefill_s": row.server_s,
            "fit_s": None if report.fit is None else float(report.fit.at(row.tokens)),
            "predicted_s": _best(row.predicted_s),
            "measured_over_predicted": row.over_predicted,
        }
        for row in report.prompts
    ]


def level_rows(report: EndpointReport) -> list[Row]:
    """The concurrency table, seconds and rates."""
    return [_level(row) for row in report.levels]


def _level(row: LevelRow) -> Row:
    level = row.level
    ttft, tpot = level.ttft_s, level.tpot_s
    return {
        "concurrency": level.concurrency or None,
        "rate_per_s": level.rate_per_s,
        "samples": 0 if ttft is None else ttft.n,
        "steady": level.steady,
        "ttft_p50_s": _of(ttft, "p50"),
        "ttft_p90_s": _of(ttft, "p90"),
        "ttft_p99_s": _of(ttft, "p99"),
        "ttft_full_p90_s": _of(level.full_ttft_s, "p90"),
        "tpot_p50_s": _of(tpot, "p50"),
        "tpot_p90_s": _of(tpot, "p90"),
        "tokens_per_s": level.tokens_per_s,
        "requests_per_s": level.requests_per_s,
        "goodput_per_s": level.goodput_per_s,
        "attainment": level.attainment,
        "failed": level.failed,
        "queued_at_the_slots": row.queued,
        "predicted_ttft_s": _best(row.predicted_ttft_s),
        "predicted_tpot_s": _best(row.predicted_tpot_s),
        "predicted_tokens_per_s": _best(row.predicted_tokens_per_s),
        "tpot_over_predicted": _ratio(_of(tpot, "p50"), row.predicted_tpot_s),
        "server_ttft_mean_s": row.server.get("ttft_s"),
        "server_tpot_mean_s": row.server.get("tpot_s"),
    }


def _of(spread: Spread | None, name: str) -> float | None:
    return None if spread is None else getattr(spread, name)


def report_json(report: EndpointReport) -> Row:
    """One JSON object; every predicted time as {"low", "best", "high"}, every measured one in seconds."""
    gap, agreement = report.gap, report.agreement
    return {
        "headline": report.headline,
        "target": report.run.target,
        "model": report.run.model,
        "api": report.run.api,
        "server": dict(report.run.server),
        "definitions": {
            "tpot": TPOT_FORMULA,
            "ttft": "from sending (open loop: from the scheduled moment) to the first text",
        },
        "decode": {
            "tpot_s": None if report.tpot_s is None else report.tpot_s.as_json(),
            "limit_s": None if gap is None else gap.limit_s,
            "of_limit": None if gap is None else gap.of_limit,
            "predicted_s": None if gap is None else gap.expected_s.as_json(),
            "measured_over_predicted": None if gap is None else gap.over_predicted,
            "causes_s": {} if gap is None else gap.causes_s,
            "unexplained_s": None if gap is None else gap.unexplained_s,
            "sentence": "" if gap is None else gap.sentence,
        },
        "ttft": prompt_rows(report),
        "ttft_fit": None if report.fit is None else report.fit.as_json(),
        "levels": level_rows(report),
        "client_against_server": {
            "samples": agreement.samples,
            "ttft_less_prefill_s": agreement.ttft_less_prefill_s,
            "tpot_ratio": agreement.tpot_ratio,
        },
        "cached_tokens": report.cached_tokens,
        "client": dict(report.run.client),
        "requests": len(report.run.samples),
        "faults": report.faults,
        "tags": report.tags,
        "notes": list(report.notes),
    }


def report_lines(report: EndpointReport) -> list[str]:
    """The report as text."""
    lines = [report.headline, ""]
    if report.tpot_s is not None:
        lines.append(
            f"TPOT alone    {fmt.seconds(report.tpot_s.p50)} median, {fmt.seconds(report.tpot_s.p90)} P90, n = {report.tpot_s.n}"
        )
    if report.gap is not None:
        lines += [
            f"limit         {fmt.seconds(report.gap.limit_s)} per token; reached {fmt.percent(report.gap.of_limit)}",
            f"predicted     {fmt.seconds(report.gap.expected_s)}; measured over predicted {fmt.factor(report.gap.over_predicted)}",
            report.gap.sentence,
        ]
    lines += [_prompt_line(row) for row in report.prompts]
    if report.fit is not None:
        lines.append(fit_words(report))
    lines += [level_line(row) for row in report.levels]
    lines += [f"note: {note}" for note in report.notes]
    lines += [f"{count} x {name}" for name, count in report.faults.items()]
    lines.append(client_words(report))
    return lines


def _prompt_line(row: PromptRow) -> str:
    predicted = "" if row.predicted_s is None else f", predicted {fmt.seconds(row.predicted_s)}"
    server = "" if row.server_s is None else f", server's prefill {fmt.seconds(row.server_s)}"
    return f"TTFT {fmt.count(row.tokens):>7} tokens  {fmt.seconds(row.ttft_s.p50)} (n = {row.ttft_s.n}){server}{predicted}"


def fit_words(report: EndpointReport) -> str:
    """The TTFT fit in words."""
    fit = report.fit
    if fit is None:
        return ""
    speed = f"{fmt.plain(1.0 / fit.b_s, 'tokens/s')} of prefill" if fit.b_s else "no linear part"
    return (
        f"TTFT = {fmt.seconds(fit.a_s)} + {fmt.seconds(fit.b_s)} per token + {fit.c_s:.2e} s per token squared "
        f"({speed}; median error {fmt.percent(fit.error)})"
    )


def level_line(row: LevelRow) -> str:
    """One level in a line."""
    level = row.level
    name = f"{level.concurrency} at a time" if level.concurrency else f"{level.rate_per_s:g} requests/s"
    ttft = level.ttft_s
    if ttft is None:
        return f"{name}: nothing answered, {level.failed} failed"
    tail = f"P99 {fmt.seconds(ttft.p99)}" if ttft.p99 is not None else f"P90 {fmt.seconds(ttft.p90)}"
    parts = [f"TTFT {fmt.seconds(ttft.p50)}, {tail} (n = {ttft.n})"]
    if level.tpot_s is not None:
        parts.append(f"TPOT {fmt.seconds(level.tpot_s.p50)}")
    if level.tokens_per_s is not None:
        parts.append(fmt.plain(level.tokens_per_s, "tokens/s"))
    if level.goodput_per_s is not None:
        parts.append(
            f"goodput {fmt.plain(level.goodput_per_s, 'requests/s')} ({fmt.percent(level.attainment or 0.0)})"
        )
    if not level.steady:
        parts.append("no steady window")
    return f"{name}: {', '.join(parts)}"


def client_words(report: EndpointReport) -> str:
    """The client's own cost in words."""
    lag, null = report.run.client.get("loop_lag_p99_s"), report.run.client.get("null_server")
    words = [] if lag is None else [f"event loop {fmt.seconds(lag)} late at the 99th percentile"]
    if null:
        words.append(
            f"{fmt.seconds(null['cpu_s'])} of CPU and {fmt.seconds(null['delay_p50_s'])} of delay per token against a null "
            f"server at {null['streams']} streams"
        )
    return f"The client itself: {'; '.join(words) or 'not measured'}."


def rows_csv(rows: Sequence[Row]) -> str:
    """Rows of equal fields as CSV."""
    target = io.StringIO()
    writer = csv.DictWriter(target, list(rows[0]) if rows else ["empty"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return target.getvalue()
