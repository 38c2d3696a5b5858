"""Every formula, once: what "Show the maths", the CLI and the Methods page render.

`FORMULAS` maps an id to its `Formula`: letters, symbols with units, the function that computes it, where it is from,
what it ignores, and an example that somebody else published. Adding one means adding one record in the file of its
topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from calc.errors import InputError
from calc.formulas.bill_formulas import BILL_FORMULAS
from calc.formulas.ledger_formulas import LEDGER_FORMULAS
from calc.formulas.measurement_formulas import MEASUREMENT_FORMULAS
from calc.formulas.memory_formulas import MEMORY_FORMULAS
from calc.formulas.queueing_formulas import QUEUE_FORMULAS
from calc.formulas.record import Example, Formula, Symbol, latex_number, latex_reading
from calc.formulas.roofline_formulas import ROOFLINE_FORMULAS
from calc.formulas.serving_formulas import SERVING_FORMULAS
from calc.formulas.sizing_formulas import FLEET_FORMULAS
from calc.formulas.speculation_and_cost_formulas import COST_FORMULAS, SPECULATION_FORMULAS
from calc.formulas.step_formulas import OPERATOR_FORMULAS
from calc.formulas.timing_formulas import DECODE_FORMULAS, REQUEST_FORMULAS, SIZING_FORMULAS

__all__ = ["FORMULAS", "Example", "Formula", "Symbol", "formula", "latex_number", "latex_reading", "topics"]

FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        record.id: record
        for record in (
            *MEMORY_FORMULAS,
            *LEDGER_FORMULAS,
            *ROOFLINE_FORMULAS,
            *DECODE_FORMULAS,
            *REQUEST_FORMULAS,
            *OPERATOR_FORMULAS,
            *SERVING_FORMULAS,
            *SIZING_FORMULAS,
            *FLEET_FORMULAS,
            *QUEUE_FORMULAS,
            *SPECULATION_FORMULAS,
            *COST_FORMULAS,
            *BILL_FORMULAS,
            *MEASUREMENT_FORMULAS,
        )
    }
)


def formula(formula_id: str) -> Formula:
    """The formula of this id, or an error that lists those that are known."""
    found = FORMULAS.get(formula_id)
    if found is None:
        raise InputError("formula", formula_id, f"known formulas are {', '.join(FORMULAS)}")
    return found


def topics() -> dict[str, tuple[Formula, ...]]:
    """All formulas by topic, in the order of the Methods page."""
    by_topic: dict[str, tuple[Formula, ...]] = {}
    for record in FORMULAS.values():
        by_topic[record.topic] = (*by_topic.get(record.topic, ()), record)
    return by_topic
