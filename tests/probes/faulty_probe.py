"""A probe whose cases fail in every way that a real one can; loaded by a worker, never by the tests themselves."""

import os
import signal
import time
from pathlib import Path

from probes.harness import Case, Measurement, WrongAnswerError


def fine():
    return Measurement(value=1.0, unit="s")


def raises():
    raise RuntimeError("the kernel refused these operands")


def unforeseen():
    return {}["missing"]


def wrong():
    raise WrongAnswerError("the result differs from fp32 by 0.5 of its largest value")


def out_of_memory():
    import resource

    import torch

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, before[1]))
    try:
        torch.empty(2**31, dtype=torch.uint8).fill_(1)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    return fine()


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def hangs():
    time.sleep(600)


def cases(_bench):
    order = (fine, raises, wrong, out_of_memory, unforeseen, killed, hangs)
    return [*(Case(name=call.__name__, run=call) for call in order), Case(name="last", run=fine)]
