"""Curves of single kernels, fitted on public kernel tables with shapes held out: GEMM, attention, experts, collectives.

Each curve is the product's own form of operator time with its constants free, per (system, engine, format):

    GEMM               t0 + quantised/(0.8 BW) + soft maximum of bytes/(e BW) and FLOP/(u F)    3 constants: t0, e, u
    experts            t0 + act/(0.8 BW) + the same over expected distinct experts               3 constants
    decode attention   t0 + t_sequence B + KV/(e BW)                                              3 constants
    prefill attention  t0 + FLOP (1 + half/prompt) / (u F)                                        3 constants
    collectives        alpha + (bytes + sqrt(bytes half)) / beta                                  3 constants

Rows that reference/kernels/README.md says not to use are dropped.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from calc.accelerator import Accelerator
from calc.operators.surroundings import product_bytes
from calc.quantization import FORMATS
from calc.step.rates import link_bytes_per_s
from calc.step.seconds import soft_maximum
from presets import accelerators

SYSTEMS = {
    "a100_sxm": "a100-sxm4-80gb",
    "b200_sxm": "b200-sxm-180gb",
    "b300_sxm": "b300-sxm-288gb",
    "gb200": "gb200-gpu",
    "gb300": "gb300-gpu",
    "h100_sxm": "h100-sxm5-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm", "nccl": "nccl"}
BYTES = {
    "bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "int4_wo": 0.53, "int8_wo": 1.0,
    "w4a16_mxfp4": 0.53125, "w4a8_mxfp4_mxfp8": 0.53125,
}  # fmt: skip
PRODUCTS = {
    "fp8": "fp8",
    "fp8_block": "fp8",
    "nvfp4": "nvfp4",
}  # formats whose inputs are quantised, by table
ACTIVATIONS = {  # bytes of one element as the grouped products read it
    "bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "int4_wo": 2.0, "int8_wo": 2.0, "w4a16_mxfp4": 2.0,
    "w4a8_mxfp4_mxfp8": 1.03125,
}  # fmt: skip
PEAK = {
    "bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4", "int4_wo": "bf16", "int8_wo": "bf16",
    "w4a16_mxfp4": "bf16", "w4a8_mxfp4_mxfp8": "fp8",
}  # fmt: skip
L2_SYSTEMS = ("l40s", "rtx_pro_6000_server")  # repeated runs of small data hit their large L2
L2_PASSES = 0.5  # of routed activations reach memory there, see FROM_KERNELS
ACTIVATION_SHARE = 0.8
FOLDS = 5
Rows = dict[str, np.ndarray]


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as stream:
        return list(csv.DictReader(stream))


def grouped(rows: list[dict[str, str]], keys: tuple[str, ...], numbers: tuple[str, ...]) -> dict[tuple, Rows]:
    groups: dict[tuple, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    out = {}
    for key, members in groups.items():
        columns = {name: np.array([float(m[name]) for m in members]) for name in numbers}
        columns["shape"] = np.array([m.get("model_shape", "") for m in members])
        out[key] = columns
    return out


def chosen(rows: Rows, keep: np.ndarray) -> Rows:
    return {name: values[keep] for name, values in rows.items()}


def fit(
    model: Callable[[np.ndarray, Rows], np.ndarray],
    rows: Rows,
    held: np.ndarray,
    start: list[float],
    low: list[float],
    high: list[float],
) -> tuple[np.ndarray, np.ndarray]:
    """(constants fitted on all rows, relative errors of each row predicted without its fold of shapes)."""

    def solve(data: Rows) -> np.ndarray:
        seen = np.log(data["latency_us"])
        return least_squares(
            lambda p: np.log(model(p, data)) - seen, start, bounds=(low, high), loss="soft_l1", f_scale=0.1
        ).x

    names = np.unique(held)
    errors = np.zeros(len(held))
    for fold in range(min(FOLDS, len(names))):
        out = np.isin(held, names[fold::FOLDS])
        constants = solve(chosen(rows, ~out))
        test = chosen(rows, out)
        errors[out] = model(constants, test) / test["latency_us"] - 1
    return solve(rows), errors


def record(
    kind: str, key: tuple[str, ...], constants: np.ndarray, names: tuple[str, ...], errors: np.ndarray
) -> dict:
    return {
        "kind": kind,
        "system": SYSTEMS[key[0]],
        "engine": ENGINES.get(key[1], key[1]),
        "format": "/".join(key[2:]),
        "constants": dict(zip(names, map(float, constants), strict=True)),
        "points": len(errors),
        "median_error": float(np.median(np.abs(errors))),
        "mean_error": float(np.mean(np.abs(errors))),
        "errors": errors,
    }


def work(
    weights: np.ndarray, flop: np.ndarray, act: np.ndarray, device: Accelerator, peak: float
) -> Callable:
    """t0, bandwidth share, compute share -> microseconds."""
    bandwidth = device.bandwidth_bytes_per_s

    def seconds(p: np.ndarray, keep: slice | np.ndarray = slice(None)) -> np.ndarray:
        soft = soft_maximum(weights[keep] / (p[1] * bandwidth), flop[keep] / (p[2] * peak), 3.0)
        return p[0] + 1e6 * (act[keep] / (ACTIVATION_SHARE * bandwidth) + soft)

    return seconds


def gemm_curves(folder: Path) -> list[dict]:
    out = []
    numbers = ("n", "k", "m", "latency_us")
    for key, rows in grouped(read(folder / "gemm.csv"), ("system", "engine", "gemm_dtype"), numbers).items():
        system, engine, form = key
        if engine == "vllm" and form == "fp8_block":
            continue  # launch bound
        device = accelerators.load(SYSTEMS[system])
        if PEAK[form] not in device.rates:
            continue
        keep = np.ones(len(rows["m"]), bool)
        weights = rows["n"] * rows["k"] * BYTES[form]
        if system in L2_SYSTEMS:
            keep &= weights + 2 * rows["m"] * (rows["n"] + rows["k"]) > 1.5 * (device.l2_bytes or 0)
            keep &= ~((engine == "trtllm") & (rows["m"] <= 256))
        for n, k in set(zip(rows["n"], rows["k"], strict=True)):
            same = (rows["n"] == n) & (rows["k"] == k)
            for index in np.flatnonzero(same):
                larger = same & (rows["m"] > rows["m"][index])
                keep[index] &= not np.any(rows["latency_us"][index] > 2 * rows["latency_us"][larger])
        rows = chosen(rows, keep)
        if len(rows["m"]) < 20:
            continue
        out.append(_work_fit("gemm", key, rows, device, form, held=rows["n"] * 1e6 + rows["k"]))
    return out


def _work_fit(kind: str, key: tuple, rows: Rows, device: Accelerator, form: str, held: np.ndarray) -> dict:
    peak = device.rate(PEAK[form]).flop_per_s
    if kind == "gemm":
        rows["weights"] = rows["n"] * rows["k"] * BYTES[form]
        rows["flop"] = 2 * rows["n"] * rows["k"] * rows["m"]
        moved = product_bytes(rows["k"], rows["n"], FORMATS[PRODUCTS.get(form, "bf16")])
        rows["weights"] += rows["m"] * moved["activation_bytes_per_token"]  # streamed beside its arithmetic
        rows["act"] = rows["m"] * moved["quantised_bytes_per_token"]
    model = lambda p, r: work(r["weights"], r["flop"], r["act"], device, peak)(p)
    constants, errors = fit(model, rows, held, [5, 0.7, 0.5], [0, 0.05, 0.02], [300, 1, 1])
    return record(kind, key, constants, ("floor_us", "bandwidth", "compute"), errors)


def expert_curves(folder: Path) -> list[dict]:
    out = []
    rows_of = [row for row in read(folder / "moe.csv") if row["distribution"] == "balanced"]
    numbers = ("hidden", "inter", "topk", "experts", "num_tokens", "latency_us")
    for key, rows in grouped(rows_of, ("system", "engine", "moe_dtype", "engine_version"), numbers).items():
        system, engine, form, version = key
        device = accelerators.load(SYSTEMS[system])
        if PEAK[form] not in device.rates:
            continue
        keep = np.ones(len(rows["topk"]), bool)
        if (engine, version) in (("sglang", "0.5.14"), ("vllm", "0.24.0")) and form in ("fp8_block", "nvfp4"):
            keep &= rows["shape"] != "DeepSeek-V3"
        if engine == "vllm" and version == "0.24.0" and form == "fp8" and system in ("h100_sxm", "h200_sxm"):
            continue
        if system in L2_SYSTEMS:
            keep &= rows["num_tokens"] > 2
        rows = chosen(rows, keep)
        if len(np.unique(rows["shape"])) < 2:
            continue
        tokens, top_k, experts = rows["num_tokens"], rows["topk"], rows["experts"]
        distinct = experts * (1 - (1 - top_k / experts) ** tokens)
        one = 3 * rows["hidden"] * rows["inter"]
        rows["weights"] = distinct * one * BYTES[form]
        rows["flop"] = 2 * one * tokens * top_k
        narrow = ACTIVATIONS[form]
        rows["act"] = tokens * top_k * ((6 + 2 * narrow) * rows["hidden"] + (8 + 2 * narrow) * rows["inter"])
        rows["act"] *= L2_PASSES if system in L2_SYSTEMS else 1.0
        shape = np.unique(rows["shape"], return_inverse=True)[1]
        out.append(_work_fit("experts", key, rows, device, form, held=shape))
    return out


def decode_attention_curves(folder: Path) -> list[dict]:
    out = []
    numbers = ("batch_size", "context", "latency_us")
    groups = grouped(read(folder / "attention_decode.csv"), ("system", "engine", "kv_cache_dtype"), numbers)
    for key, rows in groups.items():
        if key[:2] == ("a100_sxm", "trtllm"):
            continue  # faster than the memory
        device = accelerators.load(SYSTEMS[key[0]])
        rows["kv"] = rows["batch_size"] * np.maximum(rows["context"] - 1, 1) * 8 * 128 * 2 * BYTES[key[2]]
        if key[0] in L2_SYSTEMS:
            rows = chosen(rows, (rows["kv"] > 1.5 * (device.l2_bytes or 0)) | (rows["kv"] < 4e6))
        bandwidth = device.bandwidth_bytes_per_s
        model = lambda p, r, bw=bandwidth: p[0] + p[2] * r["batch_size"] + 1e6 * r["kv"] / (p[1] * bw)
        constants, errors = fit(
            model, rows, rows["batch_size"] * 1e7 + rows["context"], [8, 0.8, 0.05], [0, 0.1, 0], [100, 1, 5]
        )
        out.append(
            record("decode attention", key, constants, ("floor_us", "bandwidth", "sequence_us"), errors)
        )
    return out


def prefill_attention_curves(folder: Path) -> list[dict]:
    out = []
    numbers = ("batch_size", "isl", "latency_us")
    keys = ("system", "engine", "attn_dtype", "kv_cache_dtype")
    for key, rows in grouped(read(folder / "attention_prefill.csv"), keys, numbers).items():
        device = accelerators.load(SYSTEMS[key[0]])
        in_fp8 = key[2] == "fp8" or (
            key[3] == "fp8"
            and (
                (key[1] == "trtllm" and key[0] not in ("l40s", "rtx_pro_6000_server"))
                or (key[1] == "vllm" and key[0].startswith(("b", "g")))
            )
        )
        peak = device.rate("fp8" if in_fp8 else "bf16").flop_per_s
        rows["flop"] = rows["batch_size"] * 4.0 * 32 * 128 * rows["isl"] * (rows["isl"] + 1) / 2
        model = lambda p, r, f=peak: p[0] + 1e6 * r["flop"] * (1 + p[2] / r["isl"]) / (p[1] * f)
        constants, errors = fit(
            model, rows, rows["batch_size"] * 1e7 + rows["isl"], [10, 0.6, 1000], [0, 0.02, 0], [100, 1, 1e5]
        )
        out.append(
            record("prefill attention", key, constants, ("floor_us", "compute", "half_tokens"), errors)
        )
    return out


def collective_curves(folder: Path) -> list[dict]:
    out = []
    keys = ("system", "library", "kernel", "num_gpus", "dtype")
    for key, rows in grouped(read(folder / "collectives.csv"), keys, ("bytes", "latency_us")).items():
        if key[0] == "l40s" and key[3] != "2":
            continue  # a host without peer-to-peer
        keep = ~((key[:4] == ("h100_sxm", "sglang", key[2], "8")) & (rows["bytes"] == 1024))
        rows = chosen(rows, keep)
        link = link_bytes_per_s(accelerators.load(SYSTEMS[key[0]]))
        model = lambda p, r, rate=link: (
            p[0] + 1e6 * (r["bytes"] + np.sqrt(r["bytes"] * p[2] * 1e3)) / (p[1] * rate)
        )
        constants, errors = fit(model, rows, rows["bytes"], [5, 0.5, 100], [0, 0.001, 0], [300, 1, 1e6])
        found = record("collectives", key, constants, ("alpha_us", "beta_of_link", "half_kb"), errors)
        out.append({**found, "kernel": key[2], "ranks": int(key[3])})
    return out


def all_curves(folder: Path) -> list[dict]:
    """Every curve of every table, in a fixed order."""
    return [
        *gemm_curves(folder),
        *decode_attention_curves(folder),
        *prefill_attention_curves(folder),
        *expert_curves(folder),
        *collective_curves(folder),
    ]


def best_links(folder: Path, systems: tuple[str, ...]) -> tuple[list[dict], list[dict]]:
    """(all-reduce, all-gather) curves of a family: at each size the fastest kernel that a graph can capture, per GPU count."""
    rows = [row for row in read(folder / "collectives.csv") if row["system"] in systems]
    out: tuple[list[dict], list[dict]] = ([], [])
    for ranks in ("2", "4", "8"):
        for index, wanted in enumerate(("reduce", "gather")):
            best: dict[tuple[str, float], float] = {}
            for row in rows:
                gather = "gather" in row["kernel"]
                usable = not row["kernel"].endswith("eager") and row["num_gpus"] == ranks
                if row["system"] == "l40s" and ranks != "2":
                    continue
                if usable and gather == (wanted == "gather"):
                    at = (row["system"], float(row["bytes"]))
                    best[at] = min(best.get(at, np.inf), float(row["latency_us"]))
            if len(best) < 10:
                continue
            links = {s: link_bytes_per_s(accelerators.load(SYSTEMS[s])) for s in systems}
            data = {
                "bytes": np.array([size for _, size in best]),
                "latency_us": np.array(list(best.values())),
                "link": np.array([links[system] for system, _ in best]),
            }
            model = lambda p, r: (
                p[0] + 1e6 * (r["bytes"] + np.sqrt(r["bytes"] * p[2] * 1e3)) / (p[1] * r["link"])
            )
            constants, errors = fit(model, data, data["bytes"], [5, 0.5, 100], [0, 0.001, 0], [300, 1, 1e6])
            out[index].append(
                {
                    "ranks": int(ranks),
                    "alpha_s": constants[0] * 1e-6,
                    "beta_of_link": float(constants[1]),
                    "half_bytes": float(constants[2]) * 1e3,
                    "error": float(np.median(np.abs(errors))),
                }
            )
    return out
