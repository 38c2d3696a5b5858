"""A run edited by hand: the first field that is not of its form is named; what is of the form is kept as it is."""

import copy

import pytest
from published_run import a100, case

from calc.errors import InputError
from probes import store

MODEL = {"config": {"model_type": "qwen3"}, "dtype": "bf16", "source": "Qwen/Qwen3-0.6B"}
TEXT = case("whole_path", "with a cache", 2.5, "s", parameters={**MODEL, "tokens": 256}, extra={"prompt": 32})


def changed(place, value):
    run = copy.deepcopy(a100())
    run["cases"].append(copy.deepcopy(TEXT))
    *way, last = place
    part = run
    for step in way:
        part = part[step]
    part[last] = value
    return run


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("device", "cache_bytes"), "40 MiB", "device cache_bytes"),
        (("device", "catalogue"), ["a100"], "device catalogue"),
        (("state",), {"remarks": "busy"}, "state remarks"),
        (("state",), {"layers": [{"case": "x", "measured_s": "1 ms"}]}, "layers measured_s"),
        (("problems",), [{"kind": 3}], "problem kind"),
        (("started",), None, "started"),
        (("cases", 0, "value"), 0, "case value"),
        (("cases", 0, "value"), 10**200, "case value"),
        (("cases", 0, "unit"), "GB/s", "bandwidth, triad unit"),
        (("cases", 0, "parameters"), {"kernel": "triad"}, "parameters bytes"),
        (("cases", 2, "parameters", "n"), 2.5, "parameters n"),
        (("cases", 2, "timing", "median_s"), -1.0, "timing median_s"),
        (("cases", 2, "bytes_per_call"), None, "bytes_per_call"),
        (("cases", 3, "extra", "burst"), "fast", "extra burst"),
        (("cases", 4, "parameters"), {}, "parameters way"),
        (("cases", 4, "tags"), "unstable", "tags"),
        (("cases", 6, "extra", "prompt"), 10**9, "extra prompt"),  # the simulator would play it for hours
        (("cases", 6, "parameters", "tokens"), None, "tokens"),
        (("cases", 6, "parameters"), {}, "tokens, scheme, drafts"),
    ],
)
def test_what_a_hand_broke_is_named(place, value, named):
    assert store.checked(changed(("id",), "r1"))["id"] == "r1"
    with pytest.raises(InputError) as refused:
        store.checked(changed(place, value))
    assert named in str(refused.value)


def test_a_probe_of_tomorrow_is_kept_as_it_is():
    run = changed(("cases", 0, "probe"), "tensor_cores")
    assert store.checked(run) is run
