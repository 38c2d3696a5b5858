"""The engine loops, one for each family: they run up to a number of passes and can be called again to go on."""

from __future__ import annotations

from calc.simulation.kernels.arrivals import next_move
from calc.simulation.kernels.layout import NONE, Replicas, Requests, Run, inlined, row
from calc.simulation.kernels.mixed import mixed_pass
from calc.simulation.kernels.nano_vllm import nano_pass
from calc.simulation.kernels.sglang import sglang_pass
from calc.simulation.kernels.static import static_pass


@inlined
def stuck(replicas: Replicas, run: Run, place: int, passes_before: int) -> bool:
    """Whether a replica that had something to do did nothing: a rule is broken, and the run must end."""
    state = replicas.state[place]
    if state["running"] == 0 and state["waiting"] > 0 and state["last_finished"] == 0:
        run.world["stuck"] += 1
    else:
        run.world["stuck"] = 0
    return bool(run.world["stuck"] > 1000 or state["passes"] == passes_before)


def run_mixed(requests: Requests, replicas: Replicas, run: Run, max_passes: int) -> int:
    """vLLM, Sarathi-Serve, Orca. Returns 1 when all requests are done, 0 if there is more, -1 if it is stuck."""
    place = 0
    replica = row(replicas, 0)
    for _ in range(max_passes):
        chosen, limit_s = next_move(requests, replicas, run)
        if chosen == NONE:
            return 1
        if chosen != place:
            place = chosen
            replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        mixed_pass(requests, replica, run, limit_s)
        if stuck(replicas, run, place, before):
            return -1
    return 0


def run_sglang(requests: Requests, replicas: Replicas, run: Run, max_passes: int) -> int:
    """SGLang; returns as `run_mixed`."""
    for _ in range(max_passes):
        place, limit_s = next_move(requests, replicas, run)
        if place == NONE:
            return 1
        replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        sglang_pass(requests, replica, run, limit_s)
        if stuck(replicas, run, place, before):
            return -1
    return 0


def run_nano_vllm(requests: Requests, replicas: Replicas, run: Run, max_passes: int) -> int:
    """nano-vllm; returns as `run_mixed`."""
    for _ in range(max_passes):
        place, limit_s = next_move(requests, replicas, run)
        if place == NONE:
            return 1
        replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        nano_pass(requests, replica, run, limit_s)
        if stuck(replicas, run, place, before):
            return -1
    return 0


def run_static(requests: Requests, replicas: Replicas, run: Run, max_passes: int) -> int:
    """Static batching, a whole batch a pass; returns as `run_mixed`."""
    for _ in range(max_passes):
        place, _ = next_move(requests, replicas, run)
        if place == NONE:
            return 1
        replica = row(replicas, place)
        before = int(replica.state[0]["passes"])
        static_pass(requests, replica, run)
        if stuck(replicas, run, place, before):
            return -1
    return 0
