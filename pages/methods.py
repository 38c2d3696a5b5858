"""Methods: every formula from the registry, the glossary, where the data come from and under which licence."""

from __future__ import annotations

import streamlit as st

from calc.formulas import FORMULAS, Formula, topics
from calc.formulas.record import latex_reading
from calc.glossary import TERMS
from pages._origins import ORIGINS, Origin, Source
from pages._registry import PAGES
from pages._ui import formula_lines, plain_text, show_table, show_title, with_room

SOURCES = (
    "**Model shapes**: fields of published config.json files, facts restated, with revision where it is known.",
    "**Accelerators**: vendors' datasheets and public tables, each record with its source, date and confirmation.",
    "**Formulas**: the source stands beside each; none is used on a page that is not in this registry.",
    "**Licence**: Ridgebeam is under Apache-2.0. Figures of others are restated as facts with their source.",
)


def main() -> None:
    """Formulas by topic, then words, then sources."""
    show_title(
        f"{len(FORMULAS)} formulas, {len(TERMS)} terms: everything the answers are made of.",
        "Each formula is the one that the code runs; its example was published by others or worked by hand, and is tested.",
    )
    formulas, by_page, glossary, sources = st.tabs(["Formulas", "By page", "Glossary", "Sources"])
    with formulas:
        by_topic = topics()
        chosen = st.pills(
            "Topic",
            list(by_topic),
            default=next(iter(by_topic)),
            required=True,
            key="topic",
            bind="query-params",
        )
        for record in by_topic[chosen]:
            _draw_formula(record)
    with by_page:
        _draw_page()
    with glossary:
        show_table(
            [
                {
                    "term": term.name,
                    "meaning": term.meaning,
                    "where tools differ": term.disagreement,
                    "formulas": "; ".join(FORMULAS[name].title for name in term.formulas),
                }
                for term in TERMS
            ]
        )
    with sources:
        st.markdown("\n".join(f"- {line}" for line in SOURCES))


def _draw_page() -> None:
    """Where each card and column of a page comes from."""
    titles = {entry.title: entry.file for entry in PAGES if ORIGINS.get(entry.file)}
    chosen = st.selectbox("Page", list(titles), key="methods-page")
    st.caption("*Show the maths* on the page fills each formula with the numbers that are shown there.")
    show_table(
        [
            {"number": name, "from": _source_words(source)}
            for name, source in ORIGINS[titles[chosen]].items()
            if source is not Origin.WORDS
        ]
    )


def _source_words(source: Source) -> str:
    if isinstance(source, Origin):
        return str(source)
    return "; ".join(f"{FORMULAS[one].title} ({FORMULAS[one].topic})" for one in source)


def _draw_formula(record: Formula) -> None:
    with st.container(border=True):
        st.markdown(f"**{plain_text(record.title)}**")
        st.latex(with_room(record.latex))
        st.table(
            [
                {"symbol": f"${symbol.latex}$", "meaning": plain_text(symbol.meaning), "unit": symbol.unit}
                for symbol in record.symbols
            ],
            border="horizontal",
            hide_index=True,
        )
        st.markdown("Worked example:")
        st.latex(formula_lines(record.substituted(record.example.inputs)))
        st.caption(
            f"To be reached: ${latex_reading(record.example.value, record.result.unit)}$ ({plain_text(record.example.source)}).  \n"
            f"Source: {plain_text(record.source)}.  \nIgnores: {plain_text(record.ignores or 'nothing')}."
        )


main()
