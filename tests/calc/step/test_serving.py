"""The serving point at fixed concurrency: its fixed point, its limits, and what layouts and calibrations change."""

import numpy as np
import pytest

from calc.errors import InputError
from calc.layout import Layout
from calc.operators import ForwardPass
from calc.profile import Calibration, Evidence
from calc.step import StepModel, offloaded_step, speculative_tpot_s
from calc.step.serving import FirstToken, interleave
from presets import accelerators, models, profiles

SPEC = models.load("meta-llama/Meta-Llama-3.1-70B")
H100 = accelerators.load("h100-sxm5-80gb")
FREE = FirstToken(server_s=0.0, steps=0.0, prefill=1.0)


def solved(**given):
    defaults = {"share": 1.0, "first_token": FREE}
    return interleave(**{**defaults, **given})


def test_one_user_sees_no_other_prompt():
    alone = solved(concurrency=1, output_tokens=100, decode_step_s=0.01, prefill_s=0.5, extra_s=0.4)
    assert float(alone.tpot_s) == pytest.approx(0.01)
    assert float(alone.ttft_s) == pytest.approx(0.5)


def test_the_fixed_point_solves_its_own_equation():
    users, tokens, step, extra = 64.0, 500.0, 0.02, 0.03
    found = solved(concurrency=users, output_tokens=tokens, decode_step_s=step, prefill_s=0.05, extra_s=extra)
    overlap = found.decode_s / (found.decode_s + found.ttft_s)
    assert float(found.decode_s) == pytest.approx(tokens * step + (users - 1) * overlap * extra, rel=0.01)


def test_every_prompt_of_the_others_stalls_the_decoders_when_outputs_are_long():
    found = solved(concurrency=33, output_tokens=1e5, decode_step_s=0.01, prefill_s=0.1, extra_s=0.1)
    assert float(found.decode_s) == pytest.approx(1e5 * 0.01 + 32 * 0.1, rel=1e-3)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_more_users_give_more_throughput_and_slower_tokens(engine):
    users = np.array([1.0, 4.0, 16.0, 64.0, 256.0])
    model = StepModel.of(SPEC, H100, Layout(tp=4), profiles.load(H100, engine), quantization="fp8")
    point = model.serving(input_tokens=1024, output_tokens=1024, concurrency=users)
    assert np.all(np.diff(point.tpot_s.best) > 0)
    assert np.all(np.diff(point.tokens_per_s.best) > 0)
    assert np.all(point.decoding <= users)
    assert point.tokens_per_s_per_gpu.best * 4 == pytest.approx(point.tokens_per_s.best)


def served(tp, **asked):
    model = StepModel.of(SPEC, H100, Layout(tp=tp), profiles.load(H100, "vllm"), quantization="fp8")
    return model.serving(**asked)


def test_both_definitions_of_tpot_share_one_end_to_end():
    tokens = 200
    point = served(8, input_tokens=2000, output_tokens=tokens, concurrency=8)
    e2e = float(point.e2e_s.best[0])
    assert e2e == pytest.approx(float(point.ttft_s.best[0]) + (tokens - 1) * float(point.tpot_s.best[0]))
    assert float(point.tpot_with_first_s.best[0]) * tokens == pytest.approx(e2e)


def test_long_prompts_behind_short_answers_saturate():
    assert str(served(2, input_tokens=30_000, output_tokens=20, concurrency=64).state[0]) == "saturated"
    assert str(served(8, input_tokens=100, output_tokens=500, concurrency=2).state[0]) == "stable"


def test_a_disaggregated_decoder_sees_no_prompts_but_waits_for_the_cache():
    model = StepModel.of(SPEC, H100, Layout(tp=8), profiles.load(H100, "vllm"))
    asked = {"input_tokens": 4000.0, "output_tokens": 200.0, "concurrency": 64.0}
    together, apart = model.serving(**asked), model.serving(**asked, disaggregated=True)
    assert float(apart.tpot_s.best[0]) < float(together.tpot_s.best[0])
    sent = 4000 * 80 * 8 * 128 * 2 * 2
    assert float(model.kv_transfer_s(4000)[0]) == pytest.approx(sent / (8 * 50e9))
    hidden = model.kv_transfer_s(4000, overlapped=True, prefill_s=1.0)
    assert float(hidden[0]) == pytest.approx(sent / (8 * 50e9) / 80)


def test_pipeline_stages_add_hops():
    profile = profiles.load(H100, "vllm")
    step = ForwardPass.decode(8.0, 1000.0)
    flat = StepModel.of(SPEC, H100, Layout(tp=4), profile).step(step)
    staged = StepModel.of(SPEC, H100, Layout(tp=4, pp=2), profile).step(step)
    assert float(staged.total.best[0]) > float(flat.total.best[0])
    rows = {row["name"]: row for row in staged.rows()}
    assert rows["pipeline hop"]["count"] == 1


def test_a_calibration_of_the_endpoint_moves_the_answer_and_narrows_the_range():
    step = ForwardPass.decode(16.0, 1000.0)
    fitted = StepModel.of(SPEC, H100, Layout(tp=4), profiles.load(H100, "vllm")).step(step)
    own = Calibration(scalars={"decode_factor": 1.1, "step_s": 1e-3})
    moved = StepModel.of(SPEC, H100, Layout(tp=4), profiles.load(H100, "vllm", calibration=own)).step(step)
    assert float(moved.total.best[0]) == pytest.approx(1.1 * float(fitted.total.best[0]) + 1e-3)
    assert moved.evidence is Evidence.CALIBRATED
    spread = [float(s.total.high[0] / s.total.best[0]) for s in (moved, fitted)]
    assert spread[0] < spread[1]


def test_wide_expert_parallelism_sends_tokens_across_nodes():
    spec = models.load("deepseek-ai/DeepSeek-V3")
    layout = Layout(tp=8, dp=2, ep=16, nodes=2, attention_dp=8)
    wide = StepModel.of(spec, H100, layout, profiles.load(H100, "sglang"))
    rows = {row["name"]: row for row in wide.step(ForwardPass.decode(16.0, 1000.0)).rows()}
    assert rows["expert dispatch"]["kind"] == "all-to-all"
    assert rows["expert dispatch"]["message_bytes"] == 16 * 8 * 7168
    assert rows["expert dispatch"]["s"] > 0


def test_textbook_has_no_operator_table():
    with pytest.raises(InputError, match="fidelity"):
        StepModel.of(SPEC, H100, Layout(), profiles.load(H100, "vllm"), fidelity="textbook")


def test_layers_on_the_host_cost_what_the_host_reads():
    spec, gpu, cpu = models.load("meta-llama/Meta-Llama-3.1-8B"), "rtx-4090", "epyc-9654"
    step = ForwardPass.decode(1.0, 500.0)
    on_gpu, on_host = (
        StepModel.of(spec, accelerators.load(d), Layout(), profiles.load(d, "llama.cpp")) for d in (gpu, cpu)
    )
    times = [float(offloaded_step(on_gpu, on_host, step, gpu_layers=n).best[0]) for n in (32, 24, 16, 0)]
    assert times == sorted(times)
    assert times[0] == pytest.approx(float(on_gpu.step(step).total.best[0]))
    layer_bytes = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    bandwidth = accelerators.load(cpu).bandwidth_bytes_per_s
    assert times[1] - times[0] > 0.5 * 8 * layer_bytes / bandwidth
    with pytest.raises(InputError, match="gpu_layers"):
        offloaded_step(on_gpu, on_host, step, gpu_layers=33)


def test_drafts_pay_at_small_batches_and_not_at_large_ones():
    spec, profile = models.load("meta-llama/Meta-Llama-3.1-8B"), profiles.load(H100, "vllm")
    model = StepModel.of(spec, H100, Layout(), profile)
    gains = []
    for batch in (1.0, 1024.0):
        plain = float(model.step(ForwardPass.decode(batch, 1000.0)).total.best[0])
        drafted = speculative_tpot_s(model, batch=batch, context=1000.0, drafts=4, tokens_per_pass=3.36)
        gains.append(plain / float(drafted.best[0]))
    assert 2.5 < gains[0] < 3.36  # a verify pass costs a little more than a decode step
    assert gains[1] < 0.6 * gains[0]
    slow = speculative_tpot_s(model, batch=1.0, context=1000.0, drafts=4, tokens_per_pass=3.36, draft=model)
    assert float(slow.best[0]) > 4 / 3.36 * float(model.step(ForwardPass.decode(1.0, 1000.0)).total.best[0])
    with pytest.raises(InputError, match="tokens_per_pass"):
        speculative_tpot_s(model, batch=1.0, context=1000.0, drafts=4, tokens_per_pass=6.0)


def test_a_model_that_generates_nothing_has_no_serving_point():
    encoder = models.load("BAAI/bge-reranker-v2-m3")
    model = StepModel.of(encoder, H100, Layout(), profiles.load(H100, "vllm"))
    assert float(model.step(ForwardPass.prefill(512.0)).total.best[0]) > 0
    with pytest.raises(InputError, match="generates no tokens"):
        model.serving(input_tokens=10, output_tokens=10, concurrency=1)


def test_steps_with_and_without_prompts_stand_side_by_side():
    """Which step a graph captures is a matter of each candidate, not of its neighbours."""
    model = StepModel.of(SPEC, H100, Layout(tp=4), profiles.load(H100, "vllm"))
    together = model.step(
        ForwardPass(
            decode_sequences=np.array([8.0, 8.0, 0.0]),
            decode_context=700.0,
            prefill_tokens=np.array([0.0, 512.0, 512.0]),
        )
    ).total.best
    alone = [
        ForwardPass.decode(8.0, 700.0),
        ForwardPass.mixed(8.0, 700.0, prompt_tokens=512.0),
        ForwardPass.prefill(512.0),
    ]
    assert together == pytest.approx([float(model.step(step).total.best[0]) for step in alone], rel=1e-12)


def test_a_transfer_behind_the_prefill_shows_only_where_it_is_slower():
    """Splitwise and Mooncake: max(0, transfer - prefill) + one layer of 80."""
    model = StepModel.of(SPEC, H100, Layout(tp=4), profiles.load(H100, "vllm"), quantization="fp8")
    serial = float(model.kv_transfer_s(8000)[0])
    hidden = float(model.kv_transfer_s(8000, overlapped=True, prefill_s=10.0)[0])
    short = float(model.kv_transfer_s(8000, overlapped=True, prefill_s=0.25 * serial)[0])
    assert hidden == pytest.approx(serial / 80)
    assert short == pytest.approx(0.75 * serial + serial / 80)
    asked = {"input_tokens": 8000.0, "output_tokens": 200.0, "concurrency": 4.0, "disaggregated": True}
    late, early = (float(model.serving(**asked, overlapped=o).ttft_s.best[0]) for o in (False, True))
    assert early < late


def test_adapters_cost_their_matrices_and_kernels():
    """LoRA: two thin GEMMs beside every matrix; more adapters in a batch read more of them."""
    profile = profiles.load(H100, "vllm")
    step = ForwardPass.decode(32.0, 1000.0)

    def seconds(**adapters):
        return float(StepModel.of(SPEC, H100, Layout(tp=4), profile, **adapters).step(step).total.best[0])

    plain, one, many = seconds(), seconds(lora_rank=16), seconds(lora_rank=16, lora_adapters=32)
    assert plain < one < many < 2 * plain
