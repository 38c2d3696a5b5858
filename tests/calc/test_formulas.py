"""The registry: every formula reproduces a published example, has consistent dimensions, and can be filled in."""

import inspect
import re
from math import isclose

import pint
import pytest

from calc.errors import InputError
from calc.formulas import FORMULAS, formula, latex_number, latex_reading, topics
from calc.formulas.symbols import SYMBOLS

ALL = pytest.mark.parametrize("record", FORMULAS.values(), ids=FORMULAS.keys())

UNITS = pint.UnitRegistry(None)
for definition in (
    "second = [time]",
    "byte = [memory]",
    "USD = [money]",
    "hour = [billed_time]",  # prices per hour keep their hour: formulas turn it into seconds themselves
    "joule = [energy]",
    "FLOP = []",
    "tick = 0.001 * second",
    "word = 8 * byte",
    "cent = 0.01 * USD",
    "shift = 8 * hour",
    "erg = 1e-7 * joule",
):
    UNITS.define(definition)
OTHER_UNITS = {"second": "tick", "byte": "word", "USD": "cent", "hour": "shift", "joule": "erg"}


def in_other_units(value, unit, skip=()):
    """The magnitude of `value` when every base unit is replaced by another one."""
    if unit == "1":
        return value
    replaced = unit
    for base, other in OTHER_UNITS.items():
        if base not in skip:
            replaced = re.sub(rf"\b{base}\b", other, replaced)
    return UNITS.Quantity(float(value), unit).to(replaced).magnitude


@ALL
def test_the_example_comes_out(record):
    value = record.value(record.example.inputs)
    assert isclose(value, record.example.value, rel_tol=record.example.rel), f"got {value}"


@ALL
def test_dimensions_are_consistent(record):
    """A formula that adds seconds to bytes, or forgets a rate, gives another answer in other units."""
    mixes_clocks = any("hour" in symbol.unit for symbol in record.symbols)
    skip = ("second", "hour") if mixes_clocks and record.result.unit != "USD/hour" else ()
    inputs = {s.name: in_other_units(record.example.inputs[s.name], s.unit, skip) for s in record.parameters}
    expected = in_other_units(record.value(record.example.inputs), record.result.unit, skip)
    assert isclose(record.value(inputs), expected, rel_tol=1e-9)


def test_wrong_dimensions_would_be_noticed():
    record = formula("decode_step_s")
    wrong = {
        s.name: in_other_units(record.example.inputs[s.name], s.unit, ("byte",)) for s in record.parameters
    }
    wrong["kv_bytes_per_token"] = in_other_units(record.example.inputs["kv_bytes_per_token"], "byte")
    assert not isclose(record.value(wrong), in_other_units(record.value(record.example.inputs), "second"))


@ALL
def test_letters_symbols_and_function_belong_together(record):
    assert record.id == record.function.__name__
    names = {symbol.name for symbol in record.parameters}
    in_template = set(re.findall(r"\$\{(\w+)\}", record.template))
    assert names == in_template == set(record.example.inputs)
    signature = inspect.signature(record.function).parameters
    assert names <= set(signature)
    required = {name for name, p in signature.items() if p.default is inspect.Parameter.empty}
    assert required <= names
    assert record.source
    assert record.ignores
    assert "`" not in record.source + record.ignores  # read by people, not by programmers
    assert record.example.source


@ALL
def test_it_can_be_filled_in(record):
    text = record.substituted(record.example.inputs)
    assert "$" not in text.replace(r"\$", "")
    assert text.count("{") == text.count("}")
    assert text.startswith(f"{record.result.latex} = ")
    assert "nan" not in text


def test_a_power_of_a_small_number_is_bracketed():
    """LaTeX refuses two exponents in a row, as in 2 x 10^{-6}^{3}."""
    inputs = dict(formula("operator_s").example.inputs) | {"memory_s": 2e-6, "exponent": 3.0}
    text = formula("operator_s").substituted(inputs)
    assert r"\left(2\times 10^{-6}\right)^{3}" in text
    assert not re.search(r"10\^\{-?\d+\}\^", text)


def test_numbers_in_the_formula_can_be_followed():
    text = formula("decode_step_s").substituted(formula("decode_step_s").example.inputs)
    assert text == (
        r"t_{step} = \max\left(\frac{13\times 10^{9} \cdot 2 + 79 \cdot 640 \cdot 819{,}200}{2.04\times 10^{12}}, "
        r"\frac{2 \cdot 13\times 10^{9} \cdot 79}{312\times 10^{12}}\right) = \text{33 ms}"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (819_200, "819{,}200"),
        (2.04e12, r"2.04\times 10^{12}"),
        (0.0165, "0.0165"),
        (2.5e-5, r"25\times 10^{-6}"),
        (0, "0"),
        (float("inf"), r"\infty"),
        (1e7, r"10\times 10^{6}"),
        (-3.5, "-3.5"),
    ],
)
def test_numbers_read_well(value, text):
    assert latex_number(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0331, "second", r"\text{33.1 ms}"),
        (50e9, "byte", r"\text{50 GB (46.6 GiB)}"),
        (819_200, "byte", r"819{,}200\,\text{bytes}"),
        (2390.4, "1/second", r"2{,}390\,\text{per second}"),
        (79, "1", "79"),
        (float("inf"), "second", r"\infty"),
    ],
)
def test_results_read_well(value, unit, text):
    assert latex_reading(value, unit) == text


def test_topics_hold_every_formula_once():
    listed = [record.id for records in topics().values() for record in records]
    assert sorted(listed) == sorted(FORMULAS)


def test_no_symbol_is_idle():
    used = {symbol.name for record in FORMULAS.values() for symbol in record.parameters}
    assert set(SYMBOLS) == used


def test_refusals_name_the_trouble():
    with pytest.raises(InputError, match="known formulas are"):
        formula("no such formula")
    with pytest.raises(InputError, match="also needs kv_bytes_per_token"):
        formula("tokens_that_fit").substituted({"cache_bytes": 1e9})
    with pytest.raises(InputError, match="pick one"):
        formula("tokens_that_fit").substituted({"cache_bytes": [1e9, 2e9], "kv_bytes_per_token": 1})


@pytest.mark.reference
def test_examples_from_worked_cases_exist(worked):
    named = {
        record.example.source.removeprefix("worked case ").split(":")[0]
        for record in FORMULAS.values()
        if record.example.source.startswith("worked case ")
    }
    assert named
    assert named <= set(worked)
