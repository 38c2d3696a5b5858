"""The timing and the kernels' own checks, in process on the CPU."""

import json
import time

import pytest
import torch

from calc.errors import ProbeError
from presets import models
from probes import all_reduce, gemm, layer, matmul, worker
from probes.harness import Bench, Case, Measurement, Timing, WrongAnswerError, checked
from probes.layer_shapes import layers_of, one_layer
from probes.torch_device import TorchDevice

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def bench():
    return Bench(device=TorchDevice("cpu"), sample_s=0.02)


def test_small_operands_rotate_past_the_last_cache(bench):
    copies = bench.rotation(4000)
    assert copies * 4000 > 5 * bench.device.cache_bytes() or copies == 4096
    assert len(bench.copies(torch.empty(6 * bench.device.cache_bytes(), dtype=torch.uint8))) == 1


def test_operands_are_random_normal_and_the_same_every_time(bench):
    values = bench.randn(400, 300)
    assert float(values.mean()) == pytest.approx(0, abs=0.02)
    assert float(values.std()) == pytest.approx(1, abs=0.02)
    assert torch.equal(values, Bench(device=TorchDevice("cpu")).randn(400, 300))


def test_every_call_of_a_rotation_is_made(bench):
    made = []
    found = bench.time([lambda i=i: made.append(i) for i in range(3)])
    assert set(made) == {0, 1, 2}
    assert found.p10_s <= found.median_s <= found.p90_s


def test_a_wide_spread_is_tagged():
    steady = {"median_s": 1.0, "best_s": 0.9, "samples": 10, "mode": "host"}
    assert Timing(p10_s=0.99, p90_s=1.02, **steady).tags == ()
    assert Timing(p10_s=0.9, p90_s=1.2, **steady).tags == ("unstable",)


@pytest.mark.parametrize("form", ["fp32", "bf16", "fp16", "int8"])
def test_a_product_that_did_nothing_is_found_out(bench, form):
    x, weight = matmul.operand(bench, 32, 64, form), matmul.operand(bench, 48, 64, form)
    got = matmul.product(form)(x, weight)
    assert matmul.answer_error(x, weight, got, form) <= matmul.TOLERANCE[form]
    with pytest.raises(WrongAnswerError):
        matmul.answer_error(x, weight, torch.zeros_like(got), form)


def test_nan_is_a_wrong_answer():
    with pytest.raises(WrongAnswerError):
        checked(torch.tensor([float("nan")]), torch.tensor([1.0]), tolerance=1.0)


MOE = {
    "kind": "moe",
    "n_experts": 8,
    "top_k": 4,
    "expert_intermediate": 48,
    "shared_intermediate": 32,
    "gated": True,
}
ATTENTION = {"n_heads": 4, "n_kv_heads": 2, "head_dim": 16, "value_head_dim": 16, "window": None}
LATENT = {
    "n_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "rope_dim": 8,
    "nope_dim": 16,
    "value_dim": 16,
}


def test_both_ways_of_running_experts_give_the_same(bench):
    """One token gathers its experts, six at once run expert by expert; the result per token is the same."""
    run = layer._moe(bench, MOE, 64, torch.float32)
    x = bench.randn(6, 1, 64)
    apart = torch.cat([run(x[i : i + 1]) for i in range(6)])
    assert torch.allclose(run(x), apart, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("Qwen/Qwen3-0.6B", ["attention", "mlp"]),
        ("Qwen/Qwen3-30B-A3B", ["attention", "moe"]),
        ("deepseek-ai/DeepSeek-V2-Lite", ["latent attention", "moe"]),
    ],
)
def test_layers_have_the_weights_that_the_model_has(model, kinds):
    """Matrices of the built layer against the model's own tensors."""
    spec = models.load(model)
    layers = layers_of(spec)
    assert sum(entry["count"] for entry in layers) == spec.decoder.n_layers
    assert [part["kind"] for part in layers[-1]["sublayers"]] == kinds
    block = one_layer(spec, len(layers) - 1).decoder.runs[0].block
    matrices = sum(w.elements for w in block.weights() if len(w.shape) > 1 and not w.buffer)
    assert layer.weight_bytes(layers[-1]) == 2 * matrices


def test_a_layer_with_a_mixer_is_refused_by_its_name():
    with pytest.raises(ProbeError, match="Mixer"):
        layers_of(models.load("mistralai/Mamba-Codestral-7B-v0.1"))


@pytest.mark.parametrize("part", [{"kind": "attention", **ATTENTION}, {"kind": "latent attention", **LATENT}])
@pytest.mark.parametrize("new_tokens", [1, 5])
def test_a_layer_gives_finite_values_of_its_inputs_shape(bench, part, new_tokens):
    shape = {"width": 64, "sublayers": [part, MOE]}
    context = 7 if new_tokens == 1 else 0
    run = layer.build(bench, shape, torch.float32, batch=2, new_tokens=new_tokens, context=context)
    x = bench.randn(2, new_tokens, 64)
    got = run(x)
    assert got.shape == x.shape
    assert torch.isfinite(got).all()


def test_ranks_really_sum_over_processes():
    """The same code as for GPUs, between two processes over gloo."""
    found = all_reduce.run("cpu", 2, (8192, 1 << 18))
    assert [row["bytes"] for row in found.extra["rows"]] == [8192, 1 << 18]
    assert found.value > 0


@pytest.mark.cuda
def test_products_run_in_a_graph_on_a_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    bench = Bench(device=TorchDevice("cuda:0"), sample_s=0.02)
    found = gemm.measure(bench, matmul.DEFAULT_SHAPES[3], bench.device.sixteen_bit, 16)
    assert found.timing.mode == "graph"
    assert found.extra["copies"] * found.bytes_per_call > 5 * bench.device.cache_bytes()


def test_on_a_shared_processor_the_quickest_of_three_rounds_counts(capsys):
    """Rounds that were disturbed are passed over, by rate or by seconds; a fault in one costs nothing."""
    disturbed = iter([5.0, RuntimeError("no"), 3.0, 2.0])

    def measure(unit):
        value = next(disturbed)
        if isinstance(value, Exception):
            raise value
        return Measurement(value=value, unit=unit)

    rate = Case(name="rate", run=lambda: measure("B/s"))
    wait = Case(name="wait", run=lambda: measure("s"))
    first = [("p", rate, Measurement(value=4.0, unit="B/s")), ("p", wait, Measurement(value=4.0, unit="s"))]
    worker._again(first, until_s=time.monotonic() + 60)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["event"], one["case"], one["value"]) for one in said] == [
        ("again", "rate", 5.0),
        ("again", "wait", 2.0),
    ]
