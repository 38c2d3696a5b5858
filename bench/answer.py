"""One full textbook answer, the levers, and a ranking of the whole catalogue (target: an estimate under 5 ms)."""

from bench._timing import median_s
from calc.answer import answer
from calc.levers import lever_effects
from calc.plan import rank
from calc.scenario import Scenario
from presets.resolve import resolve


def rows():
    inputs = resolve(Scenario())
    base = answer(inputs)
    yield "answer, one accelerator", 1e3 * median_s(lambda: answer(inputs), repeats=51), "ms"
    yield "levers of one answer", 1e3 * median_s(lambda: lever_effects(base)), "ms"
    per_offer = median_s(lambda: rank(inputs, inputs.catalogue)) / len(inputs.catalogue)
    yield f"ranking of {len(inputs.catalogue)} accelerators, each", 1e3 * per_offer, "ms"
