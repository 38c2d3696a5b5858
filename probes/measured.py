"""A run as what the step model takes: an accelerator with its peaks, a `DeviceProfile`, and the profile file. No torch.

Shares refer to the datasheet's peaks where the device is in the catalogue, else to the best samples of the run itself, which
then are the accelerator's peaks. A number that was not measured keeps the family's fitted value, or, where there is none, the
value of its nearest measured sibling, as an assumption. An EngineProfile is never changed: what torch's attention reaches is
kept in a profile of the engine "torch", which stands for torch itself and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from calc.accelerator import Accelerator
from calc.collectives import LinkCurve
from calc.custom_accelerator import typed_accelerator
from calc.errors import InputError
from calc.profile import DeviceProfile, EngineProfile, Evidence, Profile, Schedule
from calc.profile_numbers import DEVICE_NUMBERS, ENGINE_DEFAULTS, ENGINE_NUMBERS, Number
from calc.provenance import Provenance
from presets import accelerators, profiles
from probes.readings import Readings, of_probe, readings

TORCH: Final = "torch"
DIGITS: Final = 3
# Where a number was not measured and no family has it: whose value it takes.
SIBLINGS: Final[Mapping[str, str]] = {
    "bandwidth.8bit": "bandwidth.16bit",
    "bandwidth.4bit": "bandwidth.16bit",
    "compute.fp8": "compute.16bit",
    "compute.fp4": "compute.16bit",
    "compute.int8": "compute.16bit",
    "compute.weight_only": "compute.16bit",
}
# A link that nobody measured: PCIe through the host, with what starting a collective takes there.
UNMEASURED_LINK: Final = LinkCurve(
    ranks=2,
    alpha_s=30e-6,
    beta_of_link=0.7,
    half_bytes=0.0,
    provenance=Provenance.ASSUMED,
    source="not measured",
)


def accelerator_of(run: Mapping[str, Any]) -> Accelerator:
    """The catalogue's entry of the run's device, or one whose peaks are the run's own best samples.

    Raises `InputError` where a run has neither bandwidth nor a 16-bit rate.
    """
    known = run["device"].get("catalogue")
    if isinstance(known, str) and known in accelerators.all_ids():
        return accelerators.load(known)
    found = readings(run)
    peak = found.peak_compute.get(found.sixteen_bit)
    if found.peak_bandwidth is None or peak is None:
        raise InputError(
            "run",
            run["id"],
            "it has no memory bandwidth or no 16-bit rate, so that no accelerator can be made of it",
            next_step="Measure again, without interrupting it.",
        )
    eight = found.peak_compute.get("fp8") or found.peak_compute.get("int8")
    return typed_accelerator(
        name=f"{run['device'].get('name') or 'device'} (measured)"[:80],
        memory_bytes=_rounded_up(
            float(run["device"].get("memory_bytes") or run["device"].get("free_bytes") or 1e9)
        ),
        bandwidth_bytes_per_s=_rounded_up(found.peak_bandwidth),
        flop_per_s_16bit=_rounded_up(peak),
        flop_per_s_8bit=_rounded_up(eight) if eight else None,
        node_size=1,
    )


def _rounded_up(value: float) -> float:
    """Up to three digits, so that no measured value exceeds the peak that it is a share of."""
    scale = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    return float(f"{math.ceil(value / scale) * scale:.{DIGITS}e}")


def measured_numbers(run: Mapping[str, Any], accelerator: Accelerator) -> dict[str, float]:
    """The numbers of a DeviceProfile that this run measured, as shares of the accelerator's peaks; none above 1."""
    found = readings(run)
    bandwidth = accelerator.bandwidth_bytes_per_s
    eight = next((found.weights[form] for form in ("fp8", "int8") if form in found.weights), None)
    numbers = {
        "bandwidth.16bit": _share(found.weights.get(found.sixteen_bit), bandwidth),
        "bandwidth.8bit": _share(eight, bandwidth),
        "bandwidth.activations": _share(found.bandwidth, bandwidth),
        "compute.16bit": _share(found.compute_16bit, accelerator.flop_per_s_16bit.flop_per_s),
        "kernel_s": found.kernel_s,
    }
    for form in ("fp8", "int8"):
        if form in accelerator.rates:
            numbers[f"compute.{form}"] = _share(found.compute.get(form), accelerator.rates[form].flop_per_s)
    return {name: value for name, value in numbers.items() if value is not None}


def _share(value: float | None, peak: float) -> float | None:
    return None if value is None else min(1.0, value / peak)


def device_profile(run: Mapping[str, Any], base: DeviceProfile | None = None) -> DeviceProfile:
    """What the run measured over what its family is known to reach (`base`), or over assumptions where that is not given.

    Raises `InputError` where the run measured neither memory nor compute.
    """
    accelerator = accelerator_of(run)
    numbers = measured_numbers(run, accelerator)
    source = _source(run, accelerator)
    needed = ("bandwidth.16bit", "bandwidth.activations", "compute.16bit", "kernel_s")
    missing = [name for name in needed if name not in numbers]
    if base is None:
        if missing:
            raise InputError(
                "run",
                run["id"],
                f"it did not measure {', '.join(missing)}",
                next_step="Measure again, without interrupting it.",
            )
        base = _assumed_base(run, numbers)
    curves = link_curves(run, accelerator)
    found = replace(base, accelerators=(accelerator.id,)).measured(numbers, source=source)
    return replace(found, all_reduce=curves or found.all_reduce, source=source)


def _source(run: Mapping[str, Any], accelerator: Accelerator) -> str:
    peaks = "the datasheet's" if accelerator.vendor != "typed" else "this run's own best samples"
    return (
        f"measured on {run['device'].get('name')}, {run['started'][:10]}, {run['depth']}; peaks are {peaks}"
    )


def _assumed_base(run: Mapping[str, Any], numbers: Mapping[str, float]) -> DeviceProfile:
    values = {name: numbers[SIBLINGS[name]] if name in SIBLINGS else numbers[name] for name in DEVICE_NUMBERS}
    return DeviceProfile(
        family=str(run["device"]["kind"]),
        accelerators=(),
        numbers={
            name: Number(
                value=value,
                of=DEVICE_NUMBERS[name],
                provenance=Provenance.ASSUMED,
                source=f"not measured: as {SIBLINGS.get(name, name)}",
            )
            for name, value in values.items()
        },
        all_reduce=(UNMEASURED_LINK,),
        all_gather=(UNMEASURED_LINK,),
    )


def torch_engine(run: Mapping[str, Any], accelerator: Accelerator) -> EngineProfile:
    """Torch itself as an engine: its own attention, no scheduler, no overhead beside its kernels.

    It tests whether parts add up to a layer or a small decoder. It says nothing about a serving engine.
    """
    found: Readings = readings(run)
    attention = _share(found.attention, accelerator.bandwidth_bytes_per_s)
    prompts = _share(found.prefill_attention, accelerator.flop_per_s_16bit.flop_per_s)
    numbers = {name: 0.0 if unit.startswith("seconds") else 1.0 for name, unit in ENGINE_NUMBERS.items()}
    numbers |= {"prefill_attention.half_tokens": 0.0, "ttft.steps": 0.0, **ENGINE_DEFAULTS}
    measured = {"attention.bandwidth": attention, "latent_attention.bandwidth": attention}
    measured["prefill_attention.compute"] = prompts
    numbers |= {name: value for name, value in measured.items() if value is not None}
    return EngineProfile(
        engine=TORCH,
        version=str(run["software"].get("torch") or ""),
        schedule=Schedule.SINGLE_USER,
        families=(),
        numbers={
            name: Number(
                value=value,
                of=ENGINE_NUMBERS[name],
                provenance=Provenance.MEASURED if measured.get(name) is not None else Provenance.ASSUMED,
                source="torch's own kernels, by probe"
                if measured.get(name) is not None
                else "torch adds none",
            )
            for name, value in numbers.items()
        },
        source="torch, eager",
    )


def torch_profile(run: Mapping[str, Any]) -> Profile:
    """The run's device with torch itself as the engine: what the file of `ridgebeam probe --json` holds."""
    accelerator = accelerator_of(run)
    return Profile(
        device=device_profile(run, base_of(accelerator)),
        engine=torch_engine(run, accelerator),
        evidence=Evidence.SAME_FAMILY,
    )


def base_of(accelerator: Accelerator) -> DeviceProfile | None:
    """What the device's family is known to reach; None for a device that is not in the catalogue."""
    if accelerator.id not in accelerators.all_ids():
        return None
    return profiles.load(accelerator).device


def profile_json(run: Mapping[str, Any]) -> dict[str, object]:
    """One JSON object that is a profile (`--profile FILE`) and holds its run and the accelerator it belongs to (`gpu`)."""
    return {**torch_profile(run).as_json(), "gpu": accelerator_of(run).id, "run": dict(run)}


def link_curves(run: Mapping[str, Any], accelerator: Accelerator) -> tuple[LinkCurve, ...]:
    """All-reduce curves fitted to the run's own times, one per number of ranks.

    t = a + b bytes + c sqrt(bytes), least squares of relative errors; a negative coefficient is fitted again without it.
    """
    found = []
    for case in of_probe(run["cases"], "all_reduce"):
        rows = case["extra"].get("rows", [])
        ranks = int(case["parameters"]["ranks"])
        link = accelerator.link_among(ranks)
        if link is None or len(rows) < 4:
            continue
        size = np.array([float(row["bytes"]) for row in rows])
        seconds = np.array([float(row["queued"]["median_s"]) for row in rows])
        start_s, per_byte, per_root = _fit_times(size, seconds)
        if per_byte <= 0:
            continue
        predicted = start_s + per_byte * size + per_root * np.sqrt(size)
        found.append(
            LinkCurve(
                ranks=ranks,
                alpha_s=start_s,
                beta_of_link=min(1.0, 1.0 / (per_byte * link)),
                half_bytes=(per_root / per_byte) ** 2,
                provenance=Provenance.MEASURED,
                error=float(np.median(np.abs(predicted / seconds - 1.0))),
                source="all-reduce by probe",
            )
        )
    return tuple(found)


def _fit_times(size: Any, seconds: Any) -> tuple[float, float, float]:
    columns = [np.ones_like(size), size, np.sqrt(size)]
    kept = [0, 1, 2]
    while kept:
        matrix = np.stack([columns[i] / seconds for i in kept], axis=1)
        solved, *_ = np.linalg.lstsq(matrix, np.ones_like(seconds), rcond=None)
        if (solved >= 0).all():
            values = [0.0, 0.0, 0.0]
            for i, value in zip(kept, solved, strict=True):
                values[i] = float(value)
            return values[0], values[1], values[2]
        kept.pop(int(np.argmin(solved * np.array([columns[i].max() for i in kept]))))
    return 0.0, 0.0, 0.0
