"""A probe with many short cases, so that something can happen in the middle of it, and a process of its own beside it."""

import subprocess
import time

from probes.harness import Case, Measurement


def measure():
    time.sleep(0.2)
    return Measurement(value=2.0, unit="s")


def cases(_bench):
    subprocess.Popen(["sleep", "600"])
    return [Case(name=f"case {i}", run=measure) for i in range(500)]
