"""What is kept of a replica answers as if it were worked out anew, whatever was asked before."""

from dataclasses import fields, replace

import pytest

from calc import replica
from calc.answer import answer
from calc.errors import InputError
from calc.scenario import Scenario, Traffic
from presets.resolve import resolve, subject

OTHERS = {
    "traffic": Traffic.USERS,
    "rate_per_s": 37.0,
    "users": 500,
    "arrival_cv": 3.0,
    "peak_factor": 2.0,
    "headroom": 0.0,
    "ttft_s": 0.4,
    "tpot_s": 0.03,
    "e2e_s": 9.0,
    "percentile": 99.0,
    "usd_per_gpu_hour": 1.0,
}
ASKED = {
    "the first visit": {},
    "drafts": {"draft_tokens": 4, "tp": 2},
    "pools": {"disaggregated": True, "tp": 2},
    "text that comes back": {"prefix_share": 0.6, "reuse_after_s": 60.0, "kv_offload": "host"},
    "prompts alone": {"chunked_prefill": False},
}


def said(inputs):
    """The whole answer as text; of a question that is refused, the refusal."""
    try:
        return repr(answer(inputs))
    except InputError as refused:
        return str(refused)


def forget():
    for kept in (replica._memory, replica._times, replica._decode, replica._prefill):
        kept.cache_clear()


@pytest.fixture(scope="module")
def resolved():
    kept = {}

    def inputs(scenario):
        key = repr(subject(scenario))
        kept[key] = kept.get(key) or resolve(scenario)
        return replace(kept[key], scenario=scenario)

    return inputs


def test_every_field_of_the_traffic_has_another_value_here():
    assert set(OTHERS) == set(replica.TRAFFIC) <= {field.name for field in fields(Scenario)}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_was_asked_before_changes_no_answer(resolved, asked):
    first = Scenario(**asked)
    questions = [first, *(replace(first, **{name: value}) for name, value in OTHERS.items())]
    forget()
    warm = [said(resolved(question)) for question in questions]
    for question, found in zip(questions, warm, strict=True):
        forget()
        assert said(resolved(question)) == found


def test_another_rate_asks_the_step_model_for_no_new_replica(resolved):
    scenario = Scenario(rate_per_s=3.0)
    forget()
    answer(resolved(scenario))
    asked = replica._times.cache_info().misses
    answer(resolved(replace(scenario, rate_per_s=4.0)))
    assert replica._times.cache_info().misses == asked
    assert replica._times.cache_info().maxsize == replica._memory.cache_info().maxsize == replica.KEPT
