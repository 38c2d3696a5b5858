"""Self-contained HTML documents that can be mailed and opened anywhere: no script, nothing loaded, every text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } td, th { border-bottom: 1px solid rgba(128,128,128,.35); }
.small { opacity: .75; font-size: .88rem; }
"""


def document(title: str, body: Iterable[str], *, style: str) -> str:
    """The whole document. `title`: plain text; `body`: finished elements; `style`: what comes on top of `STYLE`."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style>"
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>'


def bullets(lines: Iterable[str]) -> str:
    """A list of plain texts."""
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
