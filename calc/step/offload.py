"""A model whose layers do not all fit the GPU: the rest runs on the host, one after the other (llama.cpp, Ollama)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calc.errors import InputError
from calc.operators import ForwardPass
from calc.provenance import Estimate
from calc.step.estimate import StepModel
from calc.step.rates import link_bytes_per_s


def offloaded_step(model: StepModel, host: StepModel, step: ForwardPass, *, gpu_layers: int) -> Estimate:
    """Seconds of a forward pass with `gpu_layers` decoder layers on the GPU and the rest on `host`.

    Embedding and output head run where `model` is. Between the two the activations of every token cross the link once
    each way. Raises InputError for more layers than there are.

    Ignores: prompts that engines send to the GPU although the weights are on the host.
    """
    decoder = model.spec.decoder
    layers = decoder.n_layers if decoder is not None else 0
    if not 0 <= gpu_layers <= layers:
        raise InputError("gpu_layers", gpu_layers, f"the model has {layers} layers")
    share = gpu_layers / layers if layers else 1.0
    near = replace(model, operators=model.operators.scaled(share, ends=1.0)).step(step).total
    if share == 1.0:
        return near
    far = replace(host, operators=host.operators.scaled(1.0 - share, ends=0.0)).step(step).total
    crossing = 2.0 * 2.0 * model.spec.width * np.asarray(step.tokens) / link_bytes_per_s(model.accelerator)
    total = near.plus(far)
    return Estimate(
        low=total.low + crossing,
        best=total.best + crossing,
        high=total.high + crossing,
        provenance=total.provenance,
    )
