"""The engine loop, once for each family: it runs up to a number of passes and can be called again to go on."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from calc.simulation.kernels.arrivals import next_move
from calc.simulation.kernels.layout import NEVER, NONE, Replica, Replicas, Requests, Run, Runs, inlined, row
from calc.simulation.kernels.mixed import mixed_pass
from calc.simulation.kernels.nano_vllm import nano_pass
from calc.simulation.kernels.sglang import sglang_pass
from calc.simulation.kernels.static import static_pass
from calc.simulation.kernels.transfer import dispatch
from calc.simulation.kernels.vllm_v0 import v0_pass

Pass = Callable[[Requests, Replica, Run, float], None]

# What a loop says when it stops
MORE, FINISHED, STUCK, HOST_FULL = 0, 1, -1, -2
"""There is more to do; all requests are done; a rule is broken; a group of samples must go to a host that is full."""


@inlined
def stuck(replicas: Replicas, runs: Runs, place: int, passes_before: int) -> bool:
    """Whether a replica that had something to do did nothing: a rule is broken, and the run must end."""
    state = replicas.state[place]
    if state["passes"] == passes_before:
        return bool(state["wake"] < NEVER)  # else it sleeps until something arrives
    if state["running"] == 0 and state["waiting"] > 0 and state["last_finished"] == 0:
        runs.world["stuck"] += 1
    else:
        runs.world["stuck"] = 0
    return bool(runs.world["stuck"] > 1000)


def run_passes(requests: Requests, replicas: Replicas, runs: Runs, max_passes: int) -> int:
    """Passes in the order of time until none can be made; calls `engine_pass`, which `loop_of` binds. Returns why it stopped."""
    place = 0
    replica = row(replicas, 0)
    first = run = Run(runs.settings[0], runs.world, runs.table[0], runs.draft[0])
    for _ in range(max_passes):
        chosen, limit_s = next_move(requests, replicas, runs, first)
        if chosen == NONE:
            return FINISHED if runs.world["done"] == len(requests) else STUCK
        if chosen != place:
            place = chosen
            replica = row(replicas, place)
            pool = int(replica.state[0]["pool"])
            run = Run(runs.settings[pool], runs.world, runs.table[pool], runs.draft[pool])
        before = int(replica.state[0]["passes"])
        engine_pass(requests, replica, run, limit_s)
        if replica.state[0]["departing"] > 0:
            dispatch(requests, replica, run.settings, runs)
        if replica.state[0]["host_full"]:
            return HOST_FULL
        if stuck(replicas, runs, place, before):
            return STUCK
    return MORE


engine_pass: Pass = mixed_pass


def loop_of(one_pass: Pass) -> Callable[..., int]:
    """`run_passes` for the family whose pass is given: the same code with that in the place of `engine_pass`."""
    scope = run_passes.__globals__ | {"engine_pass": one_pass}
    return FunctionType(run_passes.__code__, scope, f"run_{one_pass.__name__}")


run_mixed = loop_of(mixed_pass)  # vLLM V1, Sarathi-Serve, Orca
run_sglang = loop_of(sglang_pass)
run_nano_vllm = loop_of(nano_pass)
run_vllm_v0 = loop_of(v0_pass)
run_static = loop_of(static_pass)
