"""What comes from outside: JSON that is none, values of another type, and lines that would take cubic time."""

import pytest

from calc.architectures.module_names import compiled
from calc.endpoint.plan import TestPlan
from calc.endpoint.samples import sample_from_json
from calc.errors import InputError
from calc.json_text import NOT_JSON, parse_json
from calc.memory.logs import MAX_LINE_CHARS, Quantity, read_log
from calc.provenance import Provenance
from calc.typed_fields import check_value, checked_fields, member_of


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "1" * 301,
        '{"a": -' + "9" * 5000 + "}",
        '"\\ud800"',
        b"\xff",
        '["\\uDFFF"]',
        b'"\xed\xa0\x80"',  # half a character, written as such
    ],
)
def test_what_is_no_json_is_one_kind_of_error(text):
    with pytest.raises(NOT_JSON):
        parse_json(text)


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a": 1e999}'])
def test_only_our_own_formats_refuse_what_is_not_finite(text):
    parse_json(text)
    with pytest.raises(NOT_JSON):
        parse_json(text, finite=True)


def test_what_is_json_stays_what_it_is():
    assert parse_json('{"a": [1, 2.5, "\\ud83d\\ude00", null, true], "b": -12}', finite=True) == {
        "a": [1, 2.5, "\U0001f600", None, True],
        "b": -12,
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "int"), (True, "int"), (1.0, "int"), ("1", "int"), (10**16, "int"), (True, "float"), ("1", "float"),
        (float("nan"), "float"), (float("inf"), "float | None"), (10**400, "float"), (1, "bool"), (1, "str"), ("x" * 5000, "str"),
        ("ab", "tuple[str, ...]"), ([1, "2"], "tuple[int, ...]"), ([1], "Mapping[str, float]"), ({"a": None}, "Mapping[str, float]"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_by_its_field(value, kind):
    with pytest.raises(InputError) as refused:
        check_value("the field", value, kind)
    assert refused.value.field.startswith("the field")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "int | None"), (3, "int"), (3, "float"), (2.5, "float | None"), (False, "bool"), ("", "str"),
        ([], "tuple[int, ...]"), ((1, 2), "tuple[int, ...]"), ({"a": 1}, "Mapping[str, float]"),
    ],
)  # fmt: skip
def test_a_value_of_its_type_passes(value, kind):
    check_value("the field", value, kind)


def test_fields_of_a_record_are_known_typed_and_complete():
    assert checked_fields(TestPlan, {"concurrency": [1, 2]}, what="plan") == {"concurrency": (1, 2)}
    with pytest.raises(InputError, match="colour"):
        checked_fields(TestPlan, {"colour": 1}, what="plan")
    with pytest.raises(InputError, match="stage"):
        sample_from_json({"scheduled_s": 0, "start_s": 0})
    with pytest.raises(InputError, match="measured"):
        member_of(Provenance, "guessed", "provenance")


@pytest.mark.parametrize(
    "change",
    [{"first_s": 0.5}, {"last_s": 1.0}, {"end_s": 0.1}, {"output_tokens": -1}, {"prompt_tokens": 10**12}],
)
def test_a_sample_whose_times_or_counts_cannot_be_is_refused(change):
    record = {
        "stage": "decode",
        "scheduled_s": 1.0,
        "start_s": 1.0,
        "first_s": 2.0,
        "last_s": 3.0,
        "end_s": 3.0,
    }
    assert sample_from_json(record).ttft_s == 1.0
    with pytest.raises(InputError, match="sample"):
        sample_from_json(record | change)


def test_lines_of_digits_take_no_more_than_linear_time():
    """A number without a bound took cubic time: these lines hours, which the suite's own time limit ends."""
    log = read_log("\n".join(["GiB tokens " + "1" * (MAX_LINE_CHARS - 20)] * 50))
    assert log.facts == ()


@pytest.mark.parametrize("number", ["1" * 30, "9" * 400, "1,111" * 60])
def test_a_number_without_end_is_no_fact(number):
    assert read_log(f"GPU KV cache size: {number} tokens").values(Quantity.TOKENS) == ()
    assert read_log(f"llama_context: n_ctx = {number}").facts == ()


@pytest.mark.parametrize(
    "pattern", ["(.|.)*x", "(a|a)+b", ".*.*.*.*.*.*.*.*.*z", "(?=(.+)+)x", "a?" * 60, "(x{2}){3}", "[("]
)
def test_a_pattern_of_a_config_that_could_take_for_ever_is_refused(pattern):
    with pytest.raises(InputError, match="quantization_config"):
        compiled(pattern)


@pytest.mark.parametrize(
    "pattern", [r".*mlp\.(gate|up|gate_up|down)_proj.*", r".*ffn.*(gate|up|down)_proj$", "lm_head"]
)
def test_patterns_that_quantisers_write_are_taken(pattern):
    assert compiled(pattern).pattern == pattern
