"""What every page is made of: title, metrics, chart, maths, data, what is ignored, a guess first, errors in words."""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import streamlit as st

from calc.errors import RidgebeamError
from calc.formulas import FORMULAS
from calc.json_text import json_of
from calc.provenance import Provenance
from calc.worked.formula import Worked
from pages._chart_data import chart_rows
from pages._drawing import Drawing, Prepared
from pages._waiting import release

CHART_CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
LONGEST_READING = 20  # characters of a cell that are never broken: "160 ms (110 to 220)"
FORMULA_CHARACTERS = 38  # of a filled formula on one line of a phone; a longer one has its result below it
SMALLER_FORMULAS = (
    (84, r"\footnotesize "),
    (66, r"\small "),
)  # more characters than these are set in smaller type
STRUT = r"\rule[-1.1em]{0pt}{2.9em}"  # without it the box of a formula cuts the digits of its fractions
LATEX_SIGNS = re.compile(r"\\[A-Za-z]+|[{}^_\\]")
MARKDOWN_SIGNS = re.compile(r"([\\`*_{}\[\]()<>#+!|~$:&-])")
BADGES = {
    Provenance.EXACT: ("green", "exact", "Arithmetic over published integers."),
    Provenance.MEASURED: ("green", "measured", "Measured on your own device or endpoint."),
    Provenance.FITTED: ("blue", "fitted", "Fitted to public measurements of others."),
    Provenance.DATASHEET: ("grey", "datasheet", "The vendor's own number."),
    Provenance.ASSUMED: ("orange", "assumed", "Our assumption, with its reason."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number on screen: its name, its reading, what it means, where it comes from, and its formula with the numbers."""

    label: str
    reading: str
    help: str = ""
    provenance: Provenance | None = None
    worked: Worked | None = None

    @property
    def explained(self) -> str | None:
        """The text behind the question mark: what it means, then its arithmetic."""
        if self.worked is None:
            return self.help or None
        return f"{self.help}\n\n${FORMULAS[self.worked.formula].substituted(self.worked.inputs)}$"


@contextmanager
def folded(label: str, *, key: str, icon: str | None = None) -> Iterator[bool]:
    """A row that folds, and whether it is open: what stands in a closed one costs as much to draw, and nobody sees it."""
    with st.expander(label, key=key, icon=icon, on_change="rerun") as row:
        yield bool(row.open)


def plain_text(text: str) -> str:
    """Text from a user, a file or the hub as Markdown that shows it literally."""
    return MARKDOWN_SIGNS.sub(r"\\\1", text)


def guarded(draw: Callable[[], None]) -> Callable[[], None]:
    """A page part whose errors in words are shown in its place; everything else on the page stays."""

    @functools.wraps(draw)
    def drawn() -> None:
        try:
            draw()
        except RidgebeamError as error:
            show_error(error)

    return drawn


def show_error(error: RidgebeamError) -> None:
    """What was wrong, what was found, what to do next."""
    st.error(
        plain_text(error.message)
        + (f"\n\n**Next:** {plain_text(error.next_step)}" if error.next_step else ""),
        icon=":material/error:",
    )


def show_title(finding: str, assumptions: str = "", *, question: str = "", about: str = "") -> None:
    """The conclusion as the page's title, and under it, small, what was assumed.

    Above it, where they are stated, what the product is `about`, small, and the question.
    """
    release()
    if about:
        st.caption(plain_text(about))
    if question:
        st.markdown(plain_text(question))
    st.title(plain_text(finding), anchor=False)
    if assumptions:
        st.caption(assumptions)


def show_metrics(metrics: Sequence[Metric]) -> None:
    """At most five numbers in a row that wraps on a phone, each with its range and the badge of its origin."""
    with st.grid(min_column_width=150):
        for metric in metrics:
            with st.container(gap="xsmall"):
                best, _, ends = metric.reading.partition(" (")
                st.metric(
                    metric.label,
                    best,
                    delta=ends.removesuffix(")") or None,
                    delta_color="off",
                    delta_arrow="off",
                    help=metric.explained,
                )
                if metric.provenance is not None:
                    colour, word, meaning = BADGES[metric.provenance]
                    st.badge(word, color=colour, help=meaning)


def show_table(rows: Sequence[Mapping[str, str]]) -> None:
    """Rows of words and readings, shown as they are, for Streamlit reads cells as Markdown.

    A short one keeps its line, so that a phone scrolls in place of breaking each number.
    """
    st.table(
        [{name: plain_text(in_lines(text)) for name, text in row.items()} for row in rows],
        border="horizontal",
        hide_index=True,
    )


def show_side_by_side(rows: Sequence[Mapping[str, str]]) -> None:
    """A few things beside each other, one a column under the first of its entries: so a phone shows them whole."""
    heads = [next(iter(row.values())) for row in rows]
    corner = next(iter(rows[0]))
    names = list(dict.fromkeys(name for row in rows for name in list(row)[1:]))
    st.table(
        [
            {
                corner: name,
                **{
                    plain_text(head): plain_text(before_its_range(row.get(name, "")))
                    for head, row in zip(heads, rows, strict=True)
                },
            }
            for name in names
        ],
        border="horizontal",
        hide_index=True,
    )


def before_its_range(text: str) -> str:
    """A reading that breaks nowhere but before its range: "160 ms" over "(110 to 220)"."""
    best, opening, ends = text.partition(" (")
    return best.replace(" ", "\N{NO-BREAK SPACE}") + opening + ends.replace(" ", "\N{NO-BREAK SPACE}")


def in_lines(text: str) -> str:
    """Text that breaks only into lines of about `LONGEST_READING` characters: a narrow column does not stack its words."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > LONGEST_READING:
            lines.append(word)
        else:
            lines[-1] += f"\N{NO-BREAK SPACE}{word}" if lines[-1] else word
    return " ".join(lines)


def show_chart(made: Drawing, *, alt: str, key: str, on_select: Callable[[], None] | None = None) -> None:
    """A chart with the finding as its accessible name; its numbers as CSV below, as a picture in its own corner.

    `on_select`: called when a marker is clicked; `clicked(key)` then says which.
    """
    with st.container(gap="xxsmall"):
        st.plotly_chart(
            Prepared(made),
            key=key,
            alt=alt,
            config=_chart_config(key),
            on_select=on_select or "ignore",
            selection_mode="points",
        )
        st.download_button(
            "Chart data",
            lambda: to_csv(chart_rows(made)),
            f"ridgebeam-{key}.csv",
            "text/csv",
            key=f"{key}-chart-csv",
            on_click="ignore",
            type="tertiary",
            icon=":material/download:",
            help="The numbers drawn, as CSV. For a picture (PNG), use the camera in the chart's corner.",
        )


def clicked(key: str) -> str | None:
    """The custom data of the marker that was clicked last on a chart drawn with `on_select`; None after a click on nothing."""
    state = st.session_state.get(key)
    points = state.selection.points if state is not None else []
    if not points:
        return None
    found = points[0].get("customdata")
    return str(found[0] if isinstance(found, list | tuple) else found)


def _chart_config(key: str) -> dict[str, Any]:
    picture = {"format": "png", "filename": f"ridgebeam-{key}", "scale": 2}
    return CHART_CONFIG | {"toImageButtonOptions": picture}


def show_formulas(ids: Sequence[str], inputs: Mapping[str, float]) -> None:
    """Formulas of the registry with the numbers substituted, each with its source and what it ignores."""
    for formula_id in ids:
        formula = FORMULAS[formula_id]
        st.latex(formula_lines(formula.substituted(inputs)))
        st.caption(
            f"{plain_text(formula.title)}. Source: {plain_text(formula.source)}. "
            f"Ignores: {plain_text(formula.ignores or 'nothing')}."
        )


def with_room(latex: str) -> str:
    """A formula whose box is high enough for its fractions."""
    return latex + STRUT if r"\frac" in latex else latex


def formula_lines(latex: str) -> str:
    """A filled formula with room for its fractions; of a long one the result stands on a line of its own."""
    length = len(LATEX_SIGNS.sub("", latex))
    if length <= FORMULA_CHARACTERS:
        return with_room(latex)
    left, _, rest = latex.partition(" = ")
    filled, _, result = rest.rpartition(" = ")
    size = next((smaller for characters, smaller in SMALLER_FORMULAS if length > characters), "")
    return rf"{left} = {{{size}{with_room(filled)}}} \\ = {result}"


def show_worked(lines: Sequence[Worked]) -> None:
    """Worked formulas, one under the other; what a line is about stands above it, its source is said once."""
    said: set[str] = set()
    about = ""
    for line in lines:
        formula = FORMULAS[line.formula]
        if line.about and line.about != about:
            st.markdown(f"**{plain_text(line.about)}**")
        about = line.about
        st.latex(formula_lines(formula.substituted(line.inputs)))
        if line.formula not in said:
            st.caption(
                f"{plain_text(formula.title)}. Source: {plain_text(formula.source)}. "
                f"Ignores: {plain_text(formula.ignores or 'nothing')}."
            )
        said.add(line.formula)


def show_worked_maths(lines: Callable[[], Sequence[Worked]], *, key: str) -> None:
    """The page's arithmetic, folded away and worked out once it is opened."""
    with folded("Show the maths", icon=":material/function:", key=key) as is_open:
        if is_open:
            show_worked(lines())


def show_row_maths(rows: Mapping[str, Callable[[], Sequence[Worked]]], *, key: str, of: str) -> None:
    """The maths of a table, one row at a time, chosen by name and worked out once it is opened; `of`: what a row is."""
    with folded("Show the maths", icon=":material/function:", key=key) as is_open:
        if not is_open or not rows:
            return
        chosen = st.selectbox(of, list(rows), key=f"{key}-of")
        lines = rows[chosen]()
        if lines:
            show_worked(lines)
        else:
            st.markdown("This one does not work, so it has no numbers.")


def show_maths(ids: Sequence[str], inputs: Mapping[str, float], *, key: str) -> None:
    """Formulas of the registry with the page's numbers, folded away and set once they are opened."""
    with folded("Show the maths", icon=":material/function:", key=key) as is_open:
        if is_open:
            show_formulas(ids, inputs)


def show_data(made: Callable[[], Sequence[Mapping[str, Any]]], *, key: str, name: str) -> None:
    """The numbers behind the page as a table, CSV and JSON, folded away and made once they are opened."""
    with folded("Data", icon=":material/table:", key=key) as is_open:
        if not is_open:
            return
        rows = made()
        st.dataframe(_filled_columns(rows), hide_index=True, key=f"{key}-table")
        with st.container(horizontal=True):
            st.download_button(
                "CSV", lambda: to_csv(rows), f"{name}.csv", "text/csv", key=f"{key}-csv", on_click="ignore"
            )
            st.download_button(
                "JSON",
                lambda: json_of(list(rows), indent=2),
                f"{name}.json",
                "application/json",
                key=f"{key}-json",
                on_click="ignore",
            )


def _filled_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows as shown: a column in which nothing stands is left out."""
    filled = {name for row in rows for name, value in row.items() if value not in (None, "")}
    return [{name: value for name, value in row.items() if name in filled} for row in rows]


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV; a cell that a spreadsheet would run as a formula is quoted as text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    target = io.StringIO()
    writer = csv.DictWriter(target, names)
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _inert(value) for name, value in row.items()})
    return target.getvalue()


def _inert(value: object) -> object:
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
        else value
    )


def show_ignored(*what: str) -> None:
    """What the page leaves out, so that nobody has to guess."""
    with st.expander("What this ignores", icon=":material/visibility_off:"):
        st.markdown("\n".join(f"- {line}" for line in what))


def predict_first(
    *, key: str, question: str, unit: str, answer: float, reading: str, arithmetic: Sequence[str]
) -> None:
    """One question about the current scenario, a box for a guess, then the answer with its arithmetic.

    `arithmetic`: lines of Markdown made by us, with the scenario's numbers in them.
    """
    with st.expander("Predict first", icon=":material/quiz:", expanded=True):
        st.markdown(f"**{plain_text(question)}**")
        guess = st.number_input(
            f"Your guess, {unit}", value=None, key=f"{key}-guess", placeholder="type a number"
        )
        if guess is None:
            return
        st.markdown(f"**{reading}.** {verdict_on(float(guess), answer)}")
        st.markdown("\n\n".join(arithmetic))


def verdict_on(guess: float, answer: float) -> str:
    """How far a guess is from the answer, in words."""
    if guess == answer:
        return "Exactly."
    if answer == 0 or guess <= 0:
        return "Your guess is on the other side of zero."
    ratio = max(guess / answer, answer / guess)
    if ratio <= 1.1:
        return "Your guess is within 10%."
    return f"Your guess is {ratio:.3g} times too {'high' if guess > answer else 'low'}."
