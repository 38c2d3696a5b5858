"""Between the scenario and what its controls show: a value for each box, and the way back, with the box named."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calc.errors import InputError, shown
from calc.scenario import Scenario
from calc.scenario_text import URL_PARAMETERS, URL_UNITS, VERSION_PARAMETER, parse_value
from pages._controls import CONTROLS, Control, Kind
from pages._registry import PAGES

_GROUPED = re.compile(r"[1-9]\d{0,2}(,\d{3})+(\.\d*)?")

PASTED_PARAMETER = "pasted"  # in a link: its scenario had a pasted config that the link could not carry
MOST_NAMED = 5  # of the names in a link that mean nothing
CONFIG_KEY = "config_text"
GPU_JSON_KEY = "gpu_json"
DEFAULT = Scenario()


def widget_value(control: Control, scenario: Scenario) -> Any:
    """What the control shows for a scenario."""
    value = getattr(scenario, control.field)
    if isinstance(value, float) and control.parameter in URL_UNITS:
        value = float(f"{value / URL_UNITS[control.parameter]:.12g}")
    if control.kind in {Kind.OPTIONAL, Kind.OPEN_CHOICE}:
        if value is None:
            return "mean" if control.kind is Kind.OPEN_CHOICE else ""
        return f"{value:.12g}" if isinstance(value, float) else str(value)
    if control.kind in {Kind.CHOICE, Kind.TEXT}:
        return str(value)  # a bound box refuses members of an enum among plain options
    return float(value) if control.kind is Kind.NUMBER else value


def field_value(control: Control, displayed: Any) -> object:
    """The scenario's value for what the control shows."""
    text = (
        "none"
        if displayed is None or (control.parameter == "pct" and displayed == "mean")
        else str(displayed)
    )
    value = parse_value(control.field, _ungrouped(control, text) if control.kind is Kind.OPTIONAL else text)
    if isinstance(value, float) and control.parameter in URL_UNITS:
        value = float(f"{value * URL_UNITS[control.parameter]:.12g}")
    return value


def _ungrouped(control: Control, text: str) -> str:
    """A typed number without the commas between its thousands; any other comma could be a decimal one, and is refused."""
    if "," not in text:
        return text
    if _GROUPED.fullmatch(text.strip()) is None:
        raise InputError(
            control.field,
            text,
            "a comma only parts thousands (1,000); a decimal point is a point (0.5)",
            next_step=f'Change "{control.label}" in the sidebar.',
        )
    return text.replace(",", "")


def read_controls(state: Mapping[str, Any]) -> Scenario:
    """The scenario that the controls describe; `InputError` names the field that cannot be used, and its box."""
    try:
        chosen = {c.field: field_value(c, state[c.parameter]) for c in CONTROLS if c.parameter in state}
        chosen[CONFIG_KEY] = state.get(CONFIG_KEY) or ""
        chosen[GPU_JSON_KEY] = state.get(GPU_JSON_KEY) or ""
        return replace(DEFAULT, **chosen)
    except InputError as error:
        box = next((control for control in CONTROLS if control.field == error.field), None)
        if box is None or error.next_step:
            raise
        emptied = ", or empty it" if box.kind is Kind.OPTIONAL else ""
        raise InputError(
            error.field,
            error.got,
            error.allowed,
            next_step=f'Change "{box.label}" in the sidebar{emptied}.',
        ) from error


def only_offered(opened: tuple[Scenario, tuple[str, ...]]) -> tuple[Scenario, tuple[str, ...]]:
    """What a link describes and what is said of it; a choice that no box offers is left out, and that is said too."""
    scenario, problems = opened
    for control in CONTROLS:
        if control.kind is not Kind.CHOICE:
            continue
        value, offered = widget_value(control, scenario), control.options()
        if value not in offered:
            known = ", ".join(offered)
            problems += (
                f"The link's {control.parameter} was left out: got {shown(value)}, but it must be one of {known}.",
            )
            scenario = replace(scenario, **{control.field: getattr(DEFAULT, control.field)})
    return scenario, problems


def unknown_names(query: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each of the first names in a link that are nobody's, with the one that it may have meant."""
    own = tuple(name for page in PAGES for name in page.parameters)
    known = {*URL_PARAMETERS, VERSION_PARAMETER, PASTED_PARAMETER}
    unknown = [name for name in query if name not in known and not name.startswith(own)]
    return tuple(
        f"The link's {shown(name)} was left out: nothing here has that name{_meant(name.lower())}"
        for name in unknown[:MOST_NAMED]
    )


def _meant(name: str) -> str:
    """The parameter of the field that is called so, or begins so; else one that is spelt nearly so."""
    fields = [one for one, field in URL_PARAMETERS.items() if name and field.startswith(name)]
    nearest = [*fields, *difflib.get_close_matches(name, URL_PARAMETERS, n=1)]
    return f"; did you mean {nearest[0]!r}?" if nearest else "."
