"""The current answer as one self-contained HTML page: finding, numbers, memory, steps, maths, assumptions, sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from calc import format as fmt
from calc.curves import memory_bar
from calc.formulas import FORMULAS
from calc.handover import handover_of
from calc.html import bullets, document
from calc.result import Answer, headline
from calc.scenario import Fidelity
from calc.scenario_text import to_query
from calc.sensitivity import headline_of, sensitivity
from calc.worked.answer import worked_step
from calc.worked.substitution import formulas_of, symbols_of
from pages._axes import COLOURS
from pages._figures import PART_NAMES
from pages._plain_maths import plain_maths
from pages._steps import steps_of
from pages._ui import Metric

STYLE = """
body { max-width: 54rem; }
table { width: 100%; } td, th { text-align: left; padding: .3rem .6rem .3rem 0; vertical-align: top; overflow-wrap: anywhere; }
.bar { display: flex; height: 2.2rem; border: 1px solid rgba(128,128,128,.6); } .bar div { min-width: 1px; }
.key { display: inline-block; width: .8em; height: .8em; margin-right: .35em; border: 1px solid rgba(128,128,128,.6); }
code { overflow-wrap: anywhere; }
@page { size: A4; margin: 14mm; }
@media print { :root { color-scheme: light; } body { font-size: 9.5pt; line-height: 1.35; max-width: none; margin: 0; padding: 0; }
h1 { font-size: 15pt; } h2 { font-size: 11.5pt; margin-top: .8rem; break-after: avoid; } h3 { font-size: 10pt; margin: .5rem 0 .2rem; break-after: avoid; }
ul { margin: .2rem 0; } tr, .bar { break-inside: avoid; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""


NOT_MODELLED = (
    "Bursts, queues and the spread of lengths: the steps are means. The simulator's proof on the page adds them.",
    "Failures and maintenance beyond the stated headroom.",
    "Quality: what a smaller format or a cache in fewer bits does to the answers.",
    "Network between users and the service, tokenisation, and what stands before the engine.",
    "Storage, people, and discounts that are not on a price list.",
)


def report(result: Answer, metrics: Sequence[Metric], *, link: str, made_on: str) -> str:
    """The whole document. `made_on`: a date in words, `link`: the address that opens the scenario."""
    title = headline(result)
    body = [
        f"<h1>{escape(title)}</h1>",
        _paragraph(f"Ridgebeam, {made_on}. Fidelity: {result.inputs.scenario.fidelity}."),
        _table([(m.label, m.reading, str(m.provenance or "")) for m in metrics if result.verdict.fits]),
        "<h2>Memory of one GPU</h2>",
        _bar(result),
        "<h2>How the answer comes about</h2>",
        *_steps(result),
        *_sure(result),
        *_run(result),
        "<h2>Assumed</h2>",
        bullets(result.assumptions),
        "<h2>Not modelled</h2>",
        bullets(NOT_MODELLED),
        "<h2>Asked</h2>",
        _table([("model", result.inputs.scenario.model), *to_query(result.inputs.scenario).items()]),
        "<h2>Sources</h2>",
        bullets(_sources(result)),
        f'<p class="small">Open in Ridgebeam: <code>{escape(link)}</code></p>',
    ]
    return document(title, body, style=STYLE)


def _sure(result: Answer) -> Iterable[str]:
    """How far the answer moves when its assumptions do, widest first; nothing for a plan that does not work."""
    if not result.verdict.fits:
        return
    found = sensitivity(result)
    yield f"<h2>How sure</h2>{_paragraph(headline_of(found))}"
    yield _table(
        (
            s.assumption.name,
            f"{s.assumption.low_text} to {s.assumption.high_text}",
            f"{s.low.gpus} to {s.high.gpus} GPUs",
        )
        for s in found.swings
        if not s.assumption.part_of and s.low.fits and s.high.fits
    )


def _run(result: Answer) -> Iterable[str]:
    """The launch commands of the plan's engine, and what they do not say."""
    if not result.verdict.fits:
        return
    handed = handover_of(result)
    yield "<h2>How to run it</h2>"
    for own in handed.own:
        pool = f"{own.replicas} for {own.role}: " if own.role else ""
        yield f"<p>{escape(pool)}<code>{escape(own.text)}</code></p>"
        for name, text in own.files:
            yield f"<p class='small'>{escape(name)}: <code>{escape(text)}</code></p>"
    yield bullets(handed.notes)


def _paragraph(text: str) -> str:
    return f'<p class="small">{escape(text)}</p>'


def _table(rows: Iterable[Sequence[str]]) -> str:
    cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _bar(result: Answer) -> str:
    """The stacked bar in plain boxes, and its key with sizes."""
    parts = [(PART_NAMES[name], size, COLOURS[name]) for name, size in memory_bar(result).parts if size]
    boxes = "".join(f'<div style="flex:{size:.0f};background:{colour}"></div>' for _, size, colour in parts)
    key = "".join(
        f'<span class="key" style="background:{colour}"></span>{escape(name)} {fmt.binary_bytes(size)} &nbsp; '
        for name, size, colour in parts
    )
    return f'<div class="bar">{boxes}</div><p class="small">{key}</p>'


def _steps(result: Answer) -> Iterable[str]:
    for number, (step, conclusion, lines) in enumerate(steps_of(result), start=1):
        yield f"<h3>{number}. {escape(conclusion)}</h3>{bullets(lines)}"
        if result.inputs.scenario.fidelity == Fidelity.TEXTBOOK:
            symbols = symbols_of(result, step)
            for formula_id in formulas_of(result, step):
                yield from _formula(formula_id, symbols, about="")
        else:
            for line in worked_step(result, step):
                yield from _formula(line.formula, line.inputs, about=line.about)


def _formula(formula_id: str, inputs: Mapping[str, float], *, about: str) -> Iterable[str]:
    """One formula with its numbers in plain text, its source and what it ignores."""
    formula = FORMULAS[formula_id]
    named = f"{formula.title}: {about}" if about else formula.title
    yield f"<p><code>{escape(plain_maths(formula.substituted(inputs)))}</code><br><span class='small'>{escape(named)}. "
    yield f"Source: {escape(formula.source)}. Ignores: {escape(formula.ignores or 'nothing')}.</span></p>"


def _sources(result: Answer) -> list[str]:
    accelerator = result.inputs.offer.accelerator
    lines = [
        f"Model: {result.inputs.spec.id}. {result.inputs.model_note}",
        f"Accelerator: {accelerator.name}. {accelerator.source_url} {accelerator.source_date}. {accelerator.confirmed}",
    ]
    if result.inputs.offer.price_note:
        lines.append(f"Price: {result.inputs.offer.price_note}")
    if result.evidence:
        lines.append(f"Times: {result.evidence}")
    return lines
