"""Reading configs: processor time and memory per reference config, and 20,000 damaged ones."""

import json
import os
import random
import statistics
import time
import tracemalloc
from pathlib import Path

from bench._mutations import mutated
from calc.architectures import parse
from calc.errors import RidgebeamError
from calc.parameters import APART, count_parameters
from presets import models

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = Path(os.environ.get("RIDGEBEAM_REFERENCE", ROOT / "../shared/reference"))
FUZZED = 20_000


def configs():
    """The reference configs where they are at hand, else the bundled ones."""
    files = sorted((REFERENCE / "configs").glob("*.json"))
    if files:
        return [json.loads(file.read_text()) for file in files]
    return [config for name in models.preset_ids() if (config := models.config_of(name))]


def timed(config):
    start = time.process_time()
    try:
        spec = parse(config, model_id="bench")
    except RidgebeamError:
        spec = None
    return spec, (time.process_time() - start) * 1e3


def rows():
    found = configs()
    for config in found:  # first pass: imports and caches
        timed(config)
    times = [timed(config)[1] for config in found]
    yield f"{len(found)} configs: median", statistics.median(times), "ms"
    yield "slowest", max(times), "ms"
    tracemalloc.start()
    peaks = []
    for config in found:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        kept = timed(config)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
        del kept
    tracemalloc.stop()
    yield "memory, median", statistics.median(peaks) / 1e3, "kB"
    yield "memory, largest", max(peaks) / 1e3, "kB"
    yield from fuzzed(found)


def fuzzed(found):
    """Damaged configs: how many are read, how many refused, and the slowest of each; any other error ends the run."""
    rng = random.Random(20_000)
    read, times = 0, []
    for _ in range(FUZZED):
        spec, ms = timed(mutated(rng.choice(found), found, rng))
        times.append(ms)
        if spec is not None:
            read += 1
            count = count_parameters(spec)
            apart = sum(count.parts.get(str(role), 0) for role in APART)
            if sum(count.parts.values()) - apart != count.total:
                raise SystemExit("parts do not sum to the total")
    yield f"{FUZZED:,} damaged configs: read", read, ""
    yield "refused by name", FUZZED - read, ""
    yield "median", statistics.median(times), "ms"
    yield "slowest", max(times), "ms"
