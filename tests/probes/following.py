"""Following a job to its end, as a page does."""

import time
from pathlib import Path

import pytest

from probes import jobs

HERE = Path(__file__).parent
LONGEST_S = 240


def finished(job_id, *, longest_s=LONGEST_S):
    """Follow a job to its end, as a page does."""
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline:
        found = jobs.progress(job_id)
        if not found.running:
            return found
        time.sleep(0.1)
    jobs.cancel(job_id)
    return pytest.fail("the job did not end")
