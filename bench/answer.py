"""One full estimate (target: under 5 ms), the answer that tries several layouts, its levers, a ranking of the catalogue."""

from dataclasses import replace

from bench._timing import median_s
from calc.answer import answer
from calc.levers import lever_effects
from calc.plan.ranking import rank
from calc.scenario import Fidelity, Scenario
from calc.sized import answer_on
from presets.resolve import resolve


def rows():
    for fidelity in (Fidelity.TEXTBOOK, Fidelity.EXPECTED):
        inputs = resolve(replace(Scenario(), fidelity=fidelity))
        base = answer(inputs)
        one = median_s(lambda i=inputs, b=base: answer_on(i, b.layout), repeats=101)
        yield f"{fidelity}, one estimate", 1e3 * one, "ms"
        yield f"{fidelity}, answer over layouts", 1e3 * median_s(lambda i=inputs: answer(i), repeats=51), "ms"
    yield "levers of the expected answer", 1e3 * median_s(lambda: lever_effects(base)), "ms"
    per_offer = median_s(lambda: rank(inputs, inputs.catalogue), repeats=3) / len(inputs.catalogue)
    yield f"ranking of {len(inputs.catalogue)} accelerators, each", 1e3 * per_offer, "ms"
