"""What rounding loses on one matrix as worked formulas: the mean error, a typical and the worst row, the largest error."""

from __future__ import annotations

import numpy as np

from calc.quantization_study import SchemeError, Studied, errors_in_steps, row_sizes
from calc.worked.formula import Worked


def worked_losses(studied: Studied, found: SchemeError) -> tuple[Worked, ...]:
    """One row of the table of schemes, in the order of its columns; the matrix is rounded again."""
    values, rounded = studied.values, found.scheme.rounding(studied.values)
    off = np.abs(rounded.values - values)[studied.others]
    errors, sizes = row_sizes(values, rounded.values)
    kept = ~rounded.saturated & (rounded.step > 0)
    steps = np.abs(errors_in_steps(values, rounded))
    lines = [
        Worked(
            formula="mean_of",
            inputs={"total": float(off.sum()), "points": float(off.size)},
            result=found.mean_absolute,
            about="mean error of the values beside the outlier",
        )
    ]
    ratios = np.divide(errors, sizes, out=np.zeros_like(sizes), where=sizes > 0)
    order = np.argsort(ratios, kind="stable")
    middle = order[
        (len(order) - 1) // 2 : len(order) // 2 + 1
    ]  # one row, or the two that the median lies between
    lines += [
        _ratio(
            "a row in the middle: error over size, root mean squares", float(errors[row]), float(sizes[row])
        )
        for row in middle
        if sizes[row] > 0
    ]
    lines.append(
        Worked(
            formula="mean_of",
            inputs={"total": float(ratios[middle].sum()), "points": float(len(middle))},
            result=found.typical_row,
            about="typical row: the median",
        )
    )
    worst = int(order[-1])
    if sizes[worst] > 0:
        about = "worst row: error over size, root mean squares"
        lines.append(_ratio(about, float(errors[worst]), float(sizes[worst])))
    if steps.size and steps.max() > 0:
        at = int(np.argmax(steps))
        error = float(np.abs(rounded.values - values)[kept][at])
        lines.append(
            _ratio(
                "largest error over the gap there",
                error,
                float(np.broadcast_to(rounded.step, values.shape)[kept][at]),
            )
        )
    if found.saturated_share:
        lines.append(_ratio("values that are clipped", float(rounded.saturated.sum()), float(values.size)))
    return tuple(lines)


def _ratio(about: str, measured: float, reference: float) -> Worked:
    return Worked(
        formula="ratio_to_reference",
        inputs={"measured": measured, "reference": reference},
        result=measured / reference,
        about=about,
    )
