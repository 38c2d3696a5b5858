"""The median of repeated calls, after one that warms up."""

import statistics
import time
from collections.abc import Callable


def median_s(call: Callable[[], object], *, repeats: int = 9, warm_up: int = 1) -> float:
    for _ in range(warm_up):
        call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
