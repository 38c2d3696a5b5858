"""Offline work: the steady state and whole runs against a simulation step by step, and what the host and a pipeline add."""

import numpy as np
import pytest

from calc.layout import Layout
from calc.operators import ForwardPass
from calc.step import OfflineWork, StepModel, offline_tokens_per_s
from calc.step.offline import overlapped_seconds
from presets import accelerators, models, profiles

H100 = accelerators.load("h100-sxm5-80gb")
SPEC = models.load("meta-llama/Meta-Llama-3.1-8B")


def model_on(gpu=H100, layout=None, engine="tensorrt-llm", spec=SPEC, **more):
    return StepModel.of(spec, gpu, layout or Layout(), profiles.load(gpu, engine), **more)


def simulated(model, *, prompt, output, slots, requests, budget):
    """Seconds of a run, one step at a time: decoders first, then prompt tokens up to the budget, a new request for each that ends."""
    waiting, decoding, ages, pending, clock = requests, 0, [], [], 0.0
    while waiting or pending or ages:
        while waiting and len(ages) + len(pending) < slots:
            pending.append(prompt)
            waiting -= 1
        room, took, done = budget - len(ages), 0, 0
        while pending and room > took:
            piece = min(pending[0], room - took)
            took += piece
            pending[0] -= piece
            if not pending[0]:
                pending.pop(0)
                done += 1
        decoding = len(ages)
        clock += float(step_seconds(model, decoding, took, prompt, output)[0])
        ages = [age + 1 for age in ages if age + 1 < output] + [0] * done
    return clock


_KNOWN = {}


def step_seconds(model, decoding, took, prompt, output):
    key = (id(model), decoding, took)
    if key not in _KNOWN:
        _KNOWN[key] = overlapped_seconds(
            model,
            ForwardPass(
                decode_sequences=decoding,
                decode_context=prompt + output / 2.0,
                prefill_tokens=took,
                prefill_sequences=max(took / prompt, 1.0),
                prefix_tokens=max(prompt - took, 0.0) / 2.0,
            ),
        )
    return _KNOWN[key]


@pytest.mark.parametrize(
    ("prompt", "output", "slots", "requests", "budget"),
    [
        (200, 200, 64, 512, 256),  # prompts in nearly every step
        (50, 400, 100, 300, 1024),  # wave by wave
        (50, 400, 100, 230, 1024),  # the last wave a small one
        (1000, 100, 32, 200, 512),  # prompts are most of the work
        (100, 300, 256, 200, 2048),  # fewer requests than slots
    ],
)
def test_a_run_takes_what_its_steps_take_one_by_one(prompt, output, slots, requests, budget):
    model = model_on()
    run_s = simulated(model, prompt=prompt, output=output, slots=slots, requests=requests, budget=budget)
    work = OfflineWork(
        input_tokens=prompt, output_tokens=output, requests=float(requests), token_budget=budget
    )
    rate = offline_tokens_per_s(model, work, slots=slots).best[0]
    assert rate == pytest.approx(requests * output / run_s, rel=0.08)


def test_a_long_run_comes_to_the_steady_state():
    steady = OfflineWork(input_tokens=500, output_tokens=500, token_budget=2048)
    long = OfflineWork(input_tokens=500, output_tokens=500, token_budget=2048, requests=1e6)
    model = model_on()
    best = offline_tokens_per_s(model, steady, slots=np.array([8.0, 128.0])).best
    assert offline_tokens_per_s(model, long, slots=np.array([8.0, 128.0])).best == pytest.approx(
        best, rel=1e-3
    )


def test_slots_that_are_never_empty_give_what_their_steps_give():
    model = model_on(layout=Layout(tp=4), engine="vllm", quantization="fp8")
    slots = np.array([1.0, 32.0, 256.0])
    decode = model.step(ForwardPass.decode(slots, 1.0 + 500.0)).total.best
    free = offline_tokens_per_s(model, OfflineWork(input_tokens=1, output_tokens=1000), slots=slots).best
    profile = model.profile
    hidden = profile.number("sequence_s") * slots + profile.number(
        "step_s"
    )  # the host's, behind the GPU's back
    assert np.all(free >= 0.999 * slots / decode)
    assert np.all(free <= slots / (decode - hidden))
    work = OfflineWork(input_tokens=4000, output_tokens=1000)
    long = offline_tokens_per_s(model, work, slots=slots).best
    assert np.all(long < free)
    served = model.serving(input_tokens=4000.0, output_tokens=1000.0, concurrency=slots).tokens_per_s.best
    assert np.all(served <= long * 1.02)


def test_an_engine_that_prefills_alone_stops_its_decoders():
    work = OfflineWork(input_tokens=1000, output_tokens=200, token_budget=4096)
    slots = np.array([64.0])
    alone, mixed = (model_on(engine=engine) for engine in ("sglang", "vllm"))
    seconds = {
        name: 64 * 200 / offline_tokens_per_s(model, work, slots=slots).best[0]
        for name, model in (("alone", alone), ("mixed", mixed))
    }
    prompts = overlapped_seconds(alone, ForwardPass(prefill_tokens=4000.0, prefill_sequences=4.0))[0]
    assert seconds["alone"] > 64 / 4 * 0.95 * prompts
    assert seconds["alone"] > 0.9 * seconds["mixed"]


def test_the_slowest_stage_of_a_pipeline_has_the_output_head():
    card = accelerators.load("rtx-pro-6000-blackwell-server")
    model = model_on(card, Layout(pp=4), fidelity="roofline")
    step = ForwardPass.decode(64.0, 500.0)
    seconds = overlapped_seconds(model, step)[0]
    head_bytes = 128_256 * 4096 * 2
    head_s = head_bytes / card.bandwidth_bytes_per_s
    assert seconds - model.roofline(step).total[0] >= 3 * head_s
    assert seconds < 1.5 * model.roofline(step).total[0]


def test_a_host_shows_where_it_is_slower_than_the_gpu():
    card = accelerators.load("b200-sxm-180gb")
    small = model_on(card, spec=models.load("Qwen/Qwen2.5-1.5B"))
    step = ForwardPass.decode(1.0, 100.0)
    whole = small.expected(step, eager=False).total
    assert overlapped_seconds(small, step) <= whole
    eager = ForwardPass.mixed(1.0, 100.0, prompt_tokens=16.0)
    launches = small.operators.features["layers"] * small.profile.number("eager_layer_s")
    assert overlapped_seconds(small, eager) >= launches


def test_decode_steps_are_padded_to_the_next_graph():
    work = OfflineWork(input_tokens=1000.0, output_tokens=1000.0, graph_sizes=(1, 2, 4, 512, 640))
    held = np.array([1.0, 3.0, 4.0, 500.0, 529.0, 700.0])
    assert work.padded(held).tolist() == [1.0, 4.0, 4.0, 512.0, 640.0, 700.0]
    assert OfflineWork(input_tokens=1.0, output_tokens=1.0).padded(held) is held


@pytest.mark.parametrize("requests", [np.inf, 1200.0])
def test_padding_costs_what_the_larger_step_computes_and_no_cache(requests):
    """Short prompts, so that nearly all steps are graphs: 260 sequences in a graph of 384, between a run of 260 and one of 384."""
    model = model_on()
    work = {"input_tokens": 16.0, "output_tokens": 2000.0, "requests": requests, "token_budget": 8192.0}
    plain, exact, padded = (
        float(offline_tokens_per_s(model, OfflineWork(**work, graph_sizes=sizes), slots=260.0).best[0])
        for sizes in (None, (260,), (384,))
    )
    assert exact == pytest.approx(plain, rel=0.03 if requests < np.inf else 1e-9)  # the tail
    assert padded < exact
    step = float(overlapped_seconds(model, ForwardPass.decode(384.0, 16.0 + 1000.0))[0])
    assert padded > 260.0 / step  # a whole step of 384 would read their caches too
