"""The glossary: each term once, with formulas that exist, and every topic of the registry covered."""

import pytest

from calc.errors import InputError
from calc.formulas import FORMULAS
from calc.glossary import GLOSSARY, TERMS, term

EXPECTED = (
    "TTFT TPOT ITL Prefill Decode,KV cache,Arithmetic intensity,Ridge point,MFU,Goodput,Throughput,"
    "End-to-end latency,Little's law,Headroom"
)


def test_each_term_stands_once():
    assert len(GLOSSARY) == len(TERMS)
    assert len({t.name.casefold() for t in TERMS}) == len(TERMS)


@pytest.mark.parametrize("entry", TERMS, ids=lambda t: t.name)
def test_every_term_is_defined_and_its_formulas_exist(entry):
    assert entry.meaning.endswith(".")
    assert not entry.disagreement or entry.disagreement.endswith(".")
    assert set(entry.formulas) <= set(FORMULAS)


def test_the_field_s_standard_terms_are_there():
    first, *rest = EXPECTED.split(",")
    assert set(first.replace("KV cache", "").split()) | set(rest) <= set(GLOSSARY)


def test_tools_disagree_about_tpot():
    assert "first token" in term("TPOT").disagreement


def test_an_unknown_term_is_refused_with_the_list():
    with pytest.raises(InputError, match="Prefill, Decode"):
        term("magic")
