"""The process that measures: one group of probes on one device, torch inside, JSON lines on standard output.

Started as `python -m probes.worker` with one JSON object on its first line of standard input: {probes, device, depth,
done, model}. Standard input stays open: when it closes, the parent is gone and the worker ends at once.

Errors that a kernel or an allocation may raise cost their case. Anything else ends the process with its traceback, and
the parent goes on after that case in a new one; so does a CUDA context that an error has put beyond use.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

from probes.events import emit
from probes.processes import end_with_parent
from probes.registry import LEFT_OUT, budget_s
from probes.worker_codes import BAD_CONTEXT

PAUSE_SHARE, LONGEST_PAUSE_S = 5.0, 1.0
ROUNDS = 3
AGAIN_S = {"quick": 8.0, "full": 24.0}
"""On a processor the cases that a profile needs are measured up to three times, seconds apart, and the quickest counts:
what else runs there comes and goes, and only ever slows a kernel down. The rounds after the first take this long at most."""
FAULTS = (MemoryError, RuntimeError, NotImplementedError, ValueError, TypeError, AssertionError)
"""What a kernel or an allocation may raise."""
HEAVY = {"gemm", "sustained", "prefill_attention", "layer"}


def main() -> int:
    """Read the order, open the device, run the cases."""
    order = json.loads(sys.stdin.readline())
    end_with_parent()
    try:
        import torch
    except (ImportError, OSError) as error:
        emit("facts", software={"torch": None, "error": str(error)[:300]}, device=None)
        return 0
    if order.get("facts_only"):
        return _facts(order)
    from probes.harness import Bench
    from probes.torch_device import TorchDevice

    del torch
    device = TorchDevice(order["device"])
    emit("facts", software={}, device=device.facts())
    bench = Bench(device=device, depth=order["depth"], model=order.get("model"))
    done = {tuple(pair) for pair in order.get("done", ())}
    essential: list[tuple[str, Any, Any]] = []
    for probe in order["probes"]:
        code = _probe(bench, probe, done=done, essential=essential)
        if code:
            return code
    if bench.on_cpu:
        _again(essential, until_s=time.monotonic() + AGAIN_S[bench.depth])
    emit("done")
    return 0


def _facts(order: dict[str, Any]) -> int:
    """Which devices torch opens here, and whether each runs a kernel at all."""
    from probes import torch_device

    software = torch_device.software()
    devices = []
    for name in software["devices"]:
        if order.get("cpu_only") and name != "cpu":
            continue
        device = torch_device.TorchDevice(name)
        devices.append({**device.facts(), "error": torch_device.first_kernel_error(name)})
    emit("facts", software=software, device=None, devices=devices)
    return 0


def _probe(
    bench: Any, probe: dict[str, str], *, done: set[tuple[str, ...]], essential: list[tuple[str, Any, Any]]
) -> int:
    """Run the cases of one probe that are not done yet; a non-zero answer ends the process.

    What was measured of essential cases is added to `essential`: (probe, case, measurement).
    """
    module = importlib.import_module(probe["module"])
    name = probe["name"]
    deadline = time.monotonic() + budget_s(name, bench.depth)
    cases = module.cases(bench)
    emit("plan", probe=name, cases=[case.name for case in cases])
    for case in cases:
        if (name, case.name) in done:
            continue
        if time.monotonic() > deadline and not case.essential:
            emit(
                "problem",
                probe=name,
                case=case.name,
                kind=LEFT_OUT,
                message="The time for this probe was spent.",
            )
            continue
        emit("start", probe=name, case=case.name)
        started = time.perf_counter()
        answers, found = _case(bench, name, case)
        if not answers:
            return BAD_CONTEXT
        if found is not None and case.essential:
            essential.append((name, case, found))
        if name in HEAVY and bench.device.kind != "cpu":
            time.sleep(min(LONGEST_PAUSE_S, PAUSE_SHARE * (time.perf_counter() - started) / 10))
    return 0


def _again(essential: list[tuple[str, Any, Any]], *, until_s: float) -> None:
    """Measure essential cases again in rounds, and say where one was quicker; their first results stand as they are."""
    from probes.harness import WrongAnswerError

    best = {(probe, case.name): found for probe, case, found in essential}
    for _ in range(ROUNDS - 1):
        for probe, case, _first in essential:
            if time.monotonic() > until_s:
                return
            try:
                found = case.run()
            except (*FAULTS, WrongAnswerError):
                continue
            known = best[probe, case.name]
            quicker = found.value < known.value if found.unit == "s" else found.value > known.value
            if quicker:
                best[probe, case.name] = found
                emit("again", probe=probe, case=case.name, parameters=case.parameters, **found.as_json())


def _case(bench: Any, probe: str, case: Any) -> tuple[bool, Any]:
    """Measure one case; after too little memory once more on a clean device.

    Whether the device is still of use, and what was measured, if anything.
    """
    from probes.harness import WrongAnswerError

    for last in (False, True):
        try:
            found = case.run()
        except FAULTS as error:
            if not _device_answers(bench):
                _problem(probe, case.name, "device lost", error)
                return False, None
            bench.device.empty_cache()
            if _is_out_of_memory(error) and not last:
                continue
            _problem(probe, case.name, "out of memory" if _is_out_of_memory(error) else "not run", error)
        except WrongAnswerError as error:
            _problem(probe, case.name, "wrong answer", error)
        else:
            emit("result", probe=probe, case=case.name, parameters=case.parameters, **found.as_json())
            return True, found
        return True, None
    return True, None


def _problem(probe: str, case: str, kind: str, error: Exception) -> None:
    words = " ".join(str(error).split())[:400] or type(error).__name__
    emit("problem", probe=probe, case=case, kind=kind, message=words)


def _is_out_of_memory(error: Exception) -> bool:
    import torch

    words = str(error).lower()
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        "not enough memory" in words or "can't allocate memory" in words or "out of memory" in words
    )


def _device_answers(bench: Any) -> bool:
    """Whether the device still runs something after an error; a poisoned context never does."""
    try:
        bench.device.synchronize()
        bench.randn(1)
        bench.device.synchronize()
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
