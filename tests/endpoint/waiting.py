"""Waiting for a load test without spinning."""

import time


def finished(job, *, limit_s=120):
    """The last state of a job; its error is raised. Whatever happens, the job is over afterwards."""
    until = time.monotonic() + limit_s
    try:
        while (state := job.state()).running and time.monotonic() < until:
            time.sleep(0.05)
    finally:
        job.cancel()
    if state.error is not None:
        raise state.error
    assert state.run is not None, f"still at {state.stage} after {limit_s} s"
    return state
