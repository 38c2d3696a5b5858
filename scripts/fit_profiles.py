"""Fit presets/profiles/ from public data and report how wrong it is on data that it did not see.

    python scripts/fit_profiles.py [--quick]

Reads the bundled measurements (presets/measurements) and, for kernel curves and links, RIDGEBEAM_REFERENCE/kernels. Writes
devices.json, engines.json, fit.json (what is in the fit, ranges, held-out errors) and the tables of docs/accuracy.md's
section on step time. About ten minutes on one core; --quick skips the held-out fits and keeps their stored errors.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from fit_constants import ENGINES, FAMILY, FROM_KERNELS, OLD, Origin, profile_of
from fit_first_tokens import first_token_fit, first_token_values, first_tokens
from fit_kernels import all_curves, best_links
from fit_points import OLD_VLLM, PointFit, usable
from fit_serving import Fit, rows_of

from calc.collectives import LinkCurve
from calc.profile import device_as_json, engine_as_json
from presets import measurements, models
from presets.profiles import KERNELS_ONLY

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = Path(os.environ.get("RIDGEBEAM_REFERENCE", ROOT / "../shared/reference"))
OUT = ROOT / "presets/profiles"
LINK_SYSTEMS = {
    "hopper": ("h100_sxm", "h200_sxm"),
    "blackwell": ("b200_sxm", "b300_sxm"),
    "ampere": ("a100_sxm",),
    "ada": ("l40s",),
    "blackwell-gddr": ("rtx_pro_6000_server",),
}
SERVED_FAMILIES = ("hopper", "blackwell")
OLD_VERSIONS = {"tensorrt-llm": (OLD,), "vllm": (OLD_VLLM,)}  # with constants of their own
KERNEL_FAMILIES = {
    "a100-sxm4-80gb": "ampere",
    "l40s": "ada",
    "rtx-pro-6000-blackwell-server": "blackwell-gddr",
}
KERNEL_NUMBERS = {
    "bfloat16": ("bandwidth.16bit", "compute.16bit"),
    "fp8": (None, "compute.fp8"),
    "nvfp4": (None, "compute.fp4"),
}


def spec_of(model_id: str) -> object:
    """A bundled model, or one of the reference configs."""
    if models.find(model_id):
        return models.load(model_id)
    from calc.architectures import parse

    path = REFERENCE / "configs" / f"{model_id.replace('/', '__')}.json"
    return parse(json.loads(path.read_text()), model_id=model_id)


def link_curves() -> dict[str, tuple]:
    out = {}
    for family, systems in LINK_SYSTEMS.items():
        parts = best_links(REFERENCE / "kernels", systems)
        out[family] = tuple(
            tuple(LinkCurve(**curve, source="kernel tables") for curve in part) for part in parts
        )
    for family, source in (
        ("ampere-gddr", "blackwell-gddr"),
        ("gb10", "blackwell-gddr"),
        ("volta", "ampere"),
        ("cdna", "ampere"),
        ("rdna", "blackwell-gddr"),
        ("apple", "ampere"),
        ("cpu", "ampere"),
    ):
        out[family] = out[source]
    return out


def kernel_values(curves: list[dict]) -> dict[tuple[str, str], float]:
    """Family constants from GEMM curves, where no serving point informs them: the median over engines."""
    found: dict[tuple[str, str], list[float]] = {}
    for curve in curves:
        family = KERNEL_FAMILIES.get(curve["system"])
        if curve["kind"] != "gemm" or family is None or curve["format"] not in KERNEL_NUMBERS:
            continue
        read, compute = KERNEL_NUMBERS[curve["format"]]
        if read:
            found.setdefault((read, family), []).append(curve["constants"]["bandwidth"])
        found.setdefault((compute, family), []).append(curve["constants"]["compute"])
    return {key: float(np.median(values)) for key, values in found.items()}


def held_out(fit: Fit, full: np.ndarray, key) -> np.ndarray:
    """TPOT of every row, predicted by a fit that saw no row of the same key."""
    keys = np.array(["|".join(np.atleast_1d(key(row))) for row in fit.rows])
    predicted = np.zeros(len(fit.rows))
    for name in np.unique(keys):
        out = keys == name
        constants = fit.solve(~out, start=full, stride=2, rounds=1, nfev=5)
        predicted[out] = fit.subset(out).settled(constants)
    return predicted


def summary(errors: np.ndarray) -> dict[str, float]:
    size = np.abs(errors)
    return {
        "points": len(size),
        "mean": round(float(size.mean()), 4),
        "median": round(float(np.median(size)), 4),
        "p90": round(float(np.quantile(size, 0.9)), 4),
        "bias": round(float(np.median(errors)), 4),
    }


def by(errors: np.ndarray, names: np.ndarray) -> dict[str, dict[str, float]]:
    return {str(name): summary(errors[names == name]) for name in dict.fromkeys(names)}


def spread80(predicted: np.ndarray, seen: np.ndarray) -> float:
    """The factor x for which 80% of measurements lie within predicted/x and predicted*x."""
    return float(np.exp(np.quantile(np.abs(np.log(predicted / seen)), 0.8)))


def covered(predicted: np.ndarray, seen: np.ndarray, factor: float) -> float:
    return float(np.mean(np.abs(np.log(predicted / seen)) <= np.log(factor) + 1e-9))


def main() -> None:
    quick = "--quick" in sys.argv
    links = link_curves()
    curves = all_curves(REFERENCE / "kernels")
    clean = [m for m in measurements.serving() if m.use == "clean"]
    fit = Fit(rows_of(clean, spec_of), links)
    everything = np.ones(len(fit.rows), bool)
    full = fit.solve(everything, stride=2)
    inside = fit.settled(full)
    found = first_token_fit(fit, everything)
    light = fit.users <= 8
    report = {
        "constants": {
            "step time": len(fit.params),
            "first token": 10,
            "kernel medians": len(FROM_KERNELS),
        },
        "burst share": float(found["burst"][0]),
        "in sample": by(inside / fit.tpot - 1, fit.klass),
        "first token, in sample": summary((first_tokens(fit, found) / fit.ttft - 1)[light]),
        "kernels": kernel_report(curves),
    }
    stored = json.loads((OUT / "fit.json").read_text()) if (OUT / "fit.json").exists() else {}
    spread = dict(stored.get("spread", {}))
    if quick:
        report = {**stored.get("report", {}), **report}
    else:
        spread |= held_out_reports(fit, full, inside, report)
    values = {**fit.values(full), **first_token_values(found)}
    base = {**kernel_values(curves), **values}
    points = [p for p in measurements.points() if usable(p)]
    point_fit = PointFit(points, spec_of, base, links)
    solved = point_fit.solve()
    report["points"] = point_report(point_fit, solved)
    report["constants"]["single runs"] = len(point_fit.params)
    spread.setdefault("related", 1.17)
    origins = origins_of(fit, point_fit, curves, found, report)
    write(fit, point_fit, solved, links, spread, report, origins)
    if not quick:
        spread["related"] = max(1.0, points_held_out(point_fit, solved, report) / spread["dense"])
        origins = origins_of(fit, point_fit, curves, found, report)
        write(fit, point_fit, solved, links, spread, report, origins)
    print(json.dumps({k: v for k, v in report.items() if k != "groups"}, indent=1)[:6000])


def kernel_of(name: str) -> str:
    """The kind of kernel curves that a constant is a median of."""
    kind = name.split(".", maxsplit=1)[0]
    return {"prefill_attention": "prefill attention", "attention": "decode attention"}.get(kind, kind)


def origins_of(
    fit: Fit, points: PointFit, curves: list[dict], found: dict, report: dict
) -> dict[tuple[str, str], Origin]:
    """Source and held-out error of every fitted constant, by name and scope."""
    errors = {kind: found["median"] for kind, found in report["kernels"].items()}
    kernels = {key: Origin("kernel tables", errors["gemm"]) for key in kernel_values(curves)}
    kernels |= {key: Origin("kernel tables", errors[kernel_of(key[0])]) for key in FROM_KERNELS}
    late = report["first token, group held out"]["median"]
    first = {key: Origin("serving points, first token", late) for key in first_token_values(found)}
    middle = report["group held out"]["all"]["median"]
    serving = {(p.name, p.scope): Origin("serving points", middle) for p in fit.params}
    single = report.get("points, GPU held out", report["points"])["all"]["median"]
    runs = {(p.name, p.scope): Origin("single runs", single) for p in points.params}
    return {**kernels, **first, **serving, **runs}


def held_out_reports(fit: Fit, full: np.ndarray, inside: np.ndarray, report: dict) -> dict[str, float]:
    """Every (model, GPU, engine), GPU, and model held out in turn; the ranges hold 80% of all held-out points of a class."""
    keys = {
        "group held out": lambda row: list(row.group),
        "GPU held out": lambda row: row.accelerator,
        "model held out": lambda row: row.group[0],
    }
    spread, seen_apart = {}, {}
    for name, key in keys.items():
        predicted = seen_apart[name] = held_out(fit, full, key)
        errors = predicted / fit.tpot - 1
        report[name] = by(errors, fit.klass) | {"all": summary(errors)}
        names = np.array(["|".join(np.atleast_1d(key(row))) for row in fit.rows])
        report[f"{name}, each"] = by(errors, names)
    report["range coverage"] = {name: {} for name in keys}
    for klass in ("dense", "experts", "latent"):
        rows = fit.klass == klass
        pooled = np.concatenate([predicted[rows] for predicted in seen_apart.values()])
        spread[klass] = round(spread80(pooled, np.tile(fit.tpot[rows], len(keys))), 3)
        spread[f"{klass}, same model"] = round(spread80(inside[rows], fit.tpot[rows]), 3)
        for name, predicted in seen_apart.items():
            report["range coverage"][name][klass] = round(
                covered(predicted[rows], fit.tpot[rows], spread[klass]), 3
            )
    groups = np.array(["|".join(row.group) for row in fit.rows])
    late = np.zeros(len(fit.rows))
    fit.settled(full)
    for name in np.unique(groups):
        out = groups == name
        late[out] = first_tokens(fit, first_token_fit(fit, ~out))[out]
    light = fit.users <= 8
    report["first token, group held out"] = summary((late / fit.ttft - 1)[light]) | {
        "by class": by((late / fit.ttft - 1)[light], fit.klass[light])
    }
    spread["time to first token"] = round(spread80(late[light], fit.ttft[light]), 3)
    return spread


def kernel_report(curves: list[dict]) -> dict[str, dict]:
    out = {}
    for kind in dict.fromkeys(curve["kind"] for curve in curves):
        own = [curve for curve in curves if curve["kind"] == kind]
        errors = np.abs(np.concatenate([curve["errors"] for curve in own]))
        worst = max(own, key=lambda curve: curve["median_error"])
        out[kind] = {
            "curves": len(own),
            "points": len(errors),
            "median": round(float(np.median(errors)), 4),
            "mean": round(float(errors.mean()), 4),
            "worst curve": f"{worst['system']} {worst['engine']} {worst['format']}",
            "its median": round(worst["median_error"], 4),
        }
    return out


def point_report(fit: PointFit, solved: np.ndarray) -> dict:
    errors = fit.predict(solved) / fit.observed - 1
    groups = np.array([point.group for point in fit.points])
    return by(errors, groups) | {"all": summary(errors)}


def points_held_out(fit: PointFit, solved: np.ndarray, report: dict) -> float:
    """Each accelerator of the single runs held out in turn; its spread is what a related device deserves."""
    names = np.array([point.accelerator for point in fit.points])
    predicted = np.zeros(len(names))
    for name in np.unique(names):
        out = names == name
        predicted[out] = fit.predict(fit.solve(keep=~out, start=solved, nfev=2))[out]
    errors = predicted / fit.observed - 1
    report["points, GPU held out"] = by(errors, np.array([p.group for p in fit.points])) | {
        "all": summary(errors)
    }
    report["points, GPU held out, each"] = by(errors, names)
    return spread80(predicted, fit.observed)


def device_entries(points: PointFit, merged: dict, links: dict, origins: dict) -> list[dict]:
    """What devices.json says of each family."""
    families = sorted(set(links) | {family for _, _, family, _, _ in points.terms})
    devices = []
    for family in families:
        profile = profile_of(merged, family, "vllm", links=links, origins=origins)
        ids = {a for a, f in FAMILY.items() if f == family} | {
            p.accelerator for p, _, f, _, _ in points.terms if f == family
        }
        entry = device_as_json(profile.device) | {
            "accelerators": sorted(ids),
            "source": SOURCES.get(family, "single runs"),
        }
        devices.append(entry)
    return devices


def served_entries(merged: dict, links: dict, origins: dict) -> list[dict]:
    """Engines that serving points tell about, by version and family."""
    engines = []
    for engine in ENGINES:
        versions = [*OLD_VERSIONS.get(engine, ()), ""]
        apart = [f for f in SERVED_FAMILIES if any(scope == f"{engine}/{f}" for _, scope in merged)]
        together = [f for f in SERVED_FAMILIES if f not in apart]
        for version in versions:
            for served in [[f] for f in apart] + ([together] if together else []):
                profile = profile_of(merged, served[0], engine, version=version, links=links, origins=origins)
                engines.append(
                    engine_as_json(profile.engine) | {"families": served, "source": "serving points"}
                )
            for family in KERNELS_ONLY:
                profile = profile_of(merged, family, engine, version=version, links=links, origins=origins)
                engines.append(
                    engine_as_json(profile.engine) | {"families": [family], "source": "kernel tables"}
                )
            if apart:  # on other families what the device reaches, not what this engine makes of these
                profile = profile_of(merged, "ampere", engine, version=version, links=links, origins=origins)
                engines.append(engine_as_json(profile.engine) | {"families": [], "source": "serving points"})
    return engines


def local_entries(points: PointFit, merged: dict, links: dict, origins: dict) -> list[dict]:
    """Engines that only single runs tell about, on the families of these and in general."""
    engines = []
    local = sorted(
        {(p.engine, f) for p, _, f, _, _ in points.terms if (p.engine not in ENGINES) or f == "cdna"}
    )
    for engine, family in local:
        profile = profile_of(merged, family, engine, links=links, origins=origins)
        engines.append(engine_as_json(profile.engine) | {"families": [family], "source": "single runs"})
    engines += [
        general(e, local, merged, links, origins) for e in sorted({e for e, _ in local if e not in ENGINES})
    ]
    apple = profile_of(merged, "apple", "llama.cpp", links=links, origins=origins)
    engines.append(
        engine_as_json(apple.engine)
        | {"engine": "mlx", "families": [], "source": "taken from llama.cpp on Apple"}
    )
    return engines


def write(
    fit: Fit,
    points: PointFit,
    solved: np.ndarray,
    links: dict,
    spread: dict,
    report: dict,
    origins: dict,
) -> None:
    merged = points.values(solved)
    devices = device_entries(points, merged, links, origins)
    engines = served_entries(merged, links, origins) + local_entries(points, merged, links, origins)
    keep = {
        "points": sorted(
            {(m, a, e) for m, a, e in (row.group for row in fit.rows)}
            | {(p.model, p.accelerator, p.engine) for p in points.points}
        )
    }
    spread = {name: float(value) for name, value in spread.items()}
    OUT.mkdir(exist_ok=True)
    for name, content in (
        ("devices", {"schema": 1, "devices": devices}),
        ("engines", {"schema": 1, "engines": engines}),
        ("fit", {"schema": 1, **keep, "spread": spread, "report": report}),
    ):
        (OUT / f"{name}.json").write_text(json.dumps(rounded(content), indent=1) + "\n")


SOURCES = {
    "hopper": "serving points, kernel tables",
    "blackwell": "serving points, kernel tables",
    "ampere": "kernel tables of A100",
    "ada": "kernel tables of L40S, single runs",
    "blackwell-gddr": "kernel tables of RTX PRO 6000",
}


def general(engine: str, local: list, merged: dict, links: dict, origins: dict) -> dict:
    """An engine on a family where it was never measured: the median of what it reaches elsewhere."""
    own = [f for e, f in local if e == engine]
    profiles = [profile_of(merged, family, engine, links=links, origins=origins).engine for family in own]
    middle = engine_as_json(profiles[0])
    names = {name for profile in profiles for name in profile.numbers}
    numbers = {}
    for name in sorted(names):
        found = [profile.numbers[name] for profile in profiles if name in profile.numbers]
        numbers[name] = found[0].as_json() | {"value": float(np.median([n.value for n in found]))}
    return middle | {"families": [], "numbers": numbers, "source": "median over families"}


def rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return value


if __name__ == "__main__":
    main()
