"""The engine loops, one for each family: they run up to a number of passes and can be called again to go on."""

from __future__ import annotations

from calc.simulation.kernels.arrivals import next_move
from calc.simulation.kernels.layout import NEVER, NONE, Replicas, Requests, Run, Runs, inlined, row
from calc.simulation.kernels.mixed import mixed_pass
from calc.simulation.kernels.nano_vllm import nano_pass
from calc.simulation.kernels.sglang import sglang_pass
from calc.simulation.kernels.static import static_pass
from calc.simulation.kernels.transfer import dispatch
from calc.simulation.kernels.vllm_v0 import v0_pass


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


@inlined
def ending(requests: Requests, runs: Runs) -> int:
    """What it means that nothing can move: all is done, or a rule is broken."""
    return 1 if runs.world["done"] == len(requests) else -1


def run_mixed(requests: Requests, replicas: Replicas, runs: Runs, max_passes: int) -> int:
    """vLLM, Sarathi-Serve, Orca. Returns 1 when all requests are done, 0 if there is more, -1 if it is stuck."""
    place = 0
    replica = row(replicas, 0)
    first = run = Run(runs.settings[0], runs.world, runs.table[0], runs.draft[0])
    for _ in range(max_passes):
        chosen, limit_s = next_move(requests, replicas, runs, first)
        if chosen == NONE:
            return ending(requests, runs)
        if chosen != place:
            place = chosen
            replica = row(replicas, place)
            run = Run(
                runs.settings[replica.state[0]["pool"]],
                runs.world,
                runs.table[replica.state[0]["pool"]],
                runs.draft[replica.state[0]["pool"]],
            )
        before = int(replica.state[0]["passes"])
        mixed_pass(requests, replica, run, limit_s)
        if replica.state[0]["departing"] > 0:
            dispatch(requests, replica, run.settings, runs)
        if stuck(replicas, runs, place, before):
            return -1
    return 0


def run_sglang(requests: Requests, replicas: Replicas, runs: Runs, max_passes: int) -> int:
    """SGLang; returns as `run_mixed`."""
    first = run = Run(runs.settings[0], runs.world, runs.table[0], runs.draft[0])
    for _ in range(max_passes):
        place, limit_s = next_move(requests, replicas, runs, first)
        if place == NONE:
            return ending(requests, runs)
        replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        sglang_pass(requests, replica, run, limit_s)
        if stuck(replicas, runs, place, before):
            return -1
    return 0


def run_nano_vllm(requests: Requests, replicas: Replicas, runs: Runs, max_passes: int) -> int:
    """nano-vllm; returns as `run_mixed`."""
    first = run = Run(runs.settings[0], runs.world, runs.table[0], runs.draft[0])
    for _ in range(max_passes):
        place, limit_s = next_move(requests, replicas, runs, first)
        if place == NONE:
            return ending(requests, runs)
        replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        nano_pass(requests, replica, run, limit_s)
        if stuck(replicas, runs, place, before):
            return -1
    return 0


def run_vllm_v0(requests: Requests, replicas: Replicas, runs: Runs, max_passes: int) -> int:
    """VLLM before V1; returns as `run_mixed`."""
    first = run = Run(runs.settings[0], runs.world, runs.table[0], runs.draft[0])
    for _ in range(max_passes):
        place, limit_s = next_move(requests, replicas, runs, first)
        if place == NONE:
            return ending(requests, runs)
        replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        v0_pass(requests, replica, run, limit_s)
        if stuck(replicas, runs, place, before):
            return -1
    return 0


def run_static(requests: Requests, replicas: Replicas, runs: Runs, max_passes: int) -> int:
    """Static batching, a whole batch a pass; returns as `run_mixed`."""
    first = run = Run(runs.settings[0], runs.world, runs.table[0], runs.draft[0])
    for _ in range(max_passes):
        place, _ = next_move(requests, replicas, runs, first)
        if place == NONE:
            return ending(requests, runs)
        replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        static_pass(requests, replica, run)
        if stuck(replicas, runs, place, before):
            return -1
    return 0
