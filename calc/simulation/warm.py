"""`python -m calc.simulation.warm`: compile every engine loop once, so that the first simulation starts at once."""

from __future__ import annotations

import numpy as np

from calc.simulation.requests import RequestTable
from calc.simulation.rules import EngineFamily, engine_rules
from calc.simulation.run import simulate
from calc.simulation.step_table import StepTable


def warm() -> None:
    """Run each family on one request; compiles, or finds that the cache has it."""
    one = np.ones(1, np.int64)
    requests = RequestTable(arrival_s=np.zeros(1), input_tokens=one, output_tokens=one)
    step = StepTable.affine(fixed_s=1e-3, prefill_s=1e-5, decode_s=1e-5, kv_s=0.0)
    for family in EngineFamily:
        simulate(requests, engine_rules(family, num_blocks=100), step)


if __name__ == "__main__":
    warm()
