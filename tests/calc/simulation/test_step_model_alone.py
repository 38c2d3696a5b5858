"""The step model's clock under the simulator, against real vLLM 0.19 runs that neither was calibrated on."""

import pytest
from test_served_logs import rules_of, served

from calc.layout import Layout
from calc.simulation.calibration import relative_errors
from calc.simulation.run import simulate
from calc.step import StepModel
from calc.step_clock import clock_error, step_clock
from presets import accelerators, models, profiles

# (model, accelerator, tensor parallel, largest error of a mean): the target is 15% (docs/accuracy.md has the errors).
RUNS = {
    "rtx4090_llama-3.1-8b": ("meta-llama/Meta-Llama-3.1-8B", "rtx-4090", 1, 0.15),
    "rtxpro6000_llama-3.1-8b": ("meta-llama/Meta-Llama-3.1-8B", "rtx-pro-6000-blackwell-server", 1, 0.15),
    "rtxpro6000_qwen3-32b": ("Qwen/Qwen3-32B", "rtx-pro-6000-blackwell-server", 2, 0.15),
}


@pytest.mark.reference
@pytest.mark.parametrize("run", RUNS)
def test_means_without_calibration(reference, run):
    model_id, gpu, tp, most = RUNS[run]
    accelerator = accelerators.load(gpu)
    profile = profiles.load(accelerator, "vllm", model_id=model_id, engine_version="0.19.0")
    model = StepModel.of(models.load(model_id), accelerator, Layout(tp=tp), profile)
    log = served(reference, run)
    usual = {
        "context_tokens": float((log.requests.input_tokens + log.requests.output_tokens / 2).mean()),
        "prompt_tokens": float(log.requests.input_tokens.mean()),
    }
    clock = step_clock(model, **usual)
    assert clock_error(clock, model, **usual) < 0.01
    errors = relative_errors(log, simulate(log.requests, rules_of(reference, run), clock), slice(None))
    assert max(abs(points["mean"]) for points in errors.values()) < most, errors
