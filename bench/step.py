"""Step time: one estimate (target 5 ms) and a batch x context grid of 10,000 points (target 0.5 s), compiled before."""

import numpy as np

from bench._timing import median_s
from calc.layout import Layout
from calc.operators import ForwardPass
from calc.step import StepModel
from presets import accelerators, models, profiles


def rows():
    device = accelerators.load("b200-sxm-180gb")
    profile = profiles.load(device, "vllm")
    batch, context = (
        axis.ravel() for axis in np.meshgrid(np.arange(1.0, 101.0), np.arange(100.0, 10100.0, 100.0))
    )
    for model_id in ("meta-llama/Meta-Llama-3.1-70B", "deepseek-ai/DeepSeek-V3"):
        spec = models.load(model_id)
        model = StepModel.of(spec, device, Layout(tp=8), profile)
        name = model_id.rsplit("/", 1)[-1]
        one = ForwardPass.decode(16.0, 1000.0)
        yield f"{name}, one step", 1e3 * median_s(lambda m=model, s=one: m.step(s), repeats=31), "ms"
        yield (
            f"{name}, one serving point",
            1e3
            * median_s(lambda m=model: m.serving(input_tokens=1024, output_tokens=1024, concurrency=16.0)),
            "ms",
        )
        grid = ForwardPass.decode(batch, context)
        yield f"{name}, grid of 10,000", median_s(lambda m=model, s=grid: m.step(s), repeats=3), "s"
