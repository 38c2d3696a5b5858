"""The registry's LaTeX as one line of plain text, for documents that cannot typeset: a fraction reads (a) / (b)."""

from __future__ import annotations

import re

FRACTION = "\\frac"
SIGNS = {
    r"\overline": "mean ",
    r"\log": "log",
    r"\eta": "η",
    r"\Delta": "Δ",
    r"\cdot": "·",
    r"\times": " ×",
    r"\left": "",
    r"\right": "",
    r"\lfloor": "⌊",
    r"\rfloor": "⌋",
    r"\lceil": "⌈",
    r"\rceil": "⌉",
    r"\max": "max",
    r"\min": "min",
    r"\ln": "ln",
    r"\sqrt": "√",
    r"\sum": "Σ",
    r"\int": "∫",
    r"\theta": "θ",
    r"\varphi": "φ",
    r"\pi": "π",
    r"\Big": "",
    r"\infty": "∞",
    r"\lambda": "λ",
    r"\rho": "ρ",
    r"\alpha": "α",
    r"\beta": "β",
    r"\mu": "μ",
    r"\gamma": "γ",
    r"\le": "≤",
    r"\ge": "≥",
    r"\textstyle": "",
    r"\bar": "",
    r"\$": "$",
    r"\%": "%",
    r"\,": " ",
    r"\ ": " ",
    "{,}": ",",
}
WORDS = re.compile(r"\\(?:text|mathrm|operatorname)\{([^{}]*)\}")
COMMAND = re.compile(r"\\(?:[a-zA-Z]+|[$%, ])|\{,\}")
SIMPLE = re.compile(r"[\w.,^·]+")


def plain_maths(latex: str) -> str:
    """One line of text with the same arithmetic; commands without a plain sign keep their name."""
    text = WORDS.sub(r"\1", latex)
    text = re.sub(r"_\{(\w+)\}", r"_\1", text)
    text = _each_braced(text, r"\sqrt", "√")
    while FRACTION in text:
        text = _without_last_fraction(text)
    text = COMMAND.sub(lambda found: SIGNS.get(found[0], found[0].lstrip("\\")), text)
    text = _each_braced(_each_braced(text, "^", "^"), "_", "_")
    return " ".join(text.replace("{", "").replace("}", "").split())


def _each_braced(text: str, command: str, sign: str) -> str:
    """Every `command{x}` as `sign(x)`, or as `sign x` where x is a single sign or number."""
    while (start := text.find(command + "{")) >= 0:
        inside, end = _braced(text, start + len(command))
        shown = inside if re.fullmatch(r"[\w.]+", inside) else f"({inside})"
        text = f"{text[:start]}{sign}{shown}{text[end:]}"
    return text


def _without_last_fraction(text: str) -> str:
    """The innermost of the last fractions as a quotient: it holds no other fraction."""
    start = text.rindex(FRACTION)
    above, after = _braced(text, start + len(FRACTION))
    below, end = _braced(text, after)
    return f"{text[:start]}{_grouped(above)} / {_grouped(below)}{text[end:]}"


def _braced(text: str, start: int) -> tuple[str, int]:
    """What stands between the braces that open at or after `start`, and where they end."""
    opening = text.index("{", start)
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1 : position], position + 1
    return text[opening + 1 :], len(text)


def _grouped(part: str) -> str:
    return part if SIMPLE.fullmatch(part.replace("{,}", ",").strip()) else f"({part.strip()})"
