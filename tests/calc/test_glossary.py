"""The glossary: each term once, with formulas that exist, and every topic of the registry covered."""

import pytest

from calc.formulas import FORMULAS
from calc.glossary import TERMS

EXPECTED = (
    "TTFT TPOT ITL Prefill Decode,KV cache,Arithmetic intensity,Ridge point,MFU,Goodput,Throughput,"
    "End-to-end latency,Little's law,Headroom"
)


def test_each_term_stands_once():
    assert len({t.name.casefold() for t in TERMS}) == len(TERMS)


@pytest.mark.parametrize("entry", TERMS, ids=lambda t: t.name)
def test_every_term_is_defined_and_its_formulas_exist(entry):
    assert entry.meaning.endswith(".")
    assert not entry.disagreement or entry.disagreement.endswith(".")
    assert set(entry.formulas) <= set(FORMULAS)


def test_the_field_s_standard_terms_are_there():
    first, *rest = EXPECTED.split(",")
    assert set(first.replace("KV cache", "").split()) | set(rest) <= {term.name for term in TERMS}


def test_tools_disagree_about_tpot():
    (tpot,) = [term for term in TERMS if term.name == "TPOT"]
    assert "first token" in tpot.disagreement
