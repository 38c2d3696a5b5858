"""Writes the section "Step time" of docs/accuracy.md from the stored held-out errors and the bundled measurements."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from presets import accuracy, profiles

DOC = ROOT / "docs/accuracy.md"
HEADING = "## Step time"
CLASSES = ("dense", "experts", "latent")
ENVELOPES = ("trt10", "trt12", "mlperf51")


def percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    line = lambda cells: "| " + " | ".join(cells) + " |"
    return [line(head), line(["---"] * len(head)), *map(line, rows), ""]


def held_out_section(report: dict) -> list[str]:
    counts = report["constants"]
    out = [
        f"TPOT at fixed concurrency, {report['group held out']['all']['points']:,} clean public points (copies counted once); mean |predicted/measured - 1|. "
        f"One model with {counts['step time']} fitted constants (and {counts['first token']} for the first token), physical ones at most 1.",
        "",
    ]
    rows = []
    for name in ("group held out", "GPU held out", "model held out", "in sample"):
        errors = report[name]
        whole = errors.get("all")
        rows.append(
            [
                name,
                *(percent(errors[c]["mean"]) for c in CLASSES),
                percent(whole["median"]) if whole else "",
                percent(whole["p90"]) if whole else "",
            ]
        )
    out += table(
        ["", "dense", "experts", "latent attention", "median of all", "90th percentile of all"], rows
    )
    out += ["Groups are (model, GPU, engine). Every group when it was held out, worst first:", ""]
    each = sorted(report["group held out, each"].items(), key=lambda item: -item[1]["mean"])
    out += table(
        ["group", "points", "mean error", "bias"],
        [
            [k.replace("|", ", "), str(v["points"]), percent(v["mean"]), f"{100 * v['bias']:+.1f}%"]
            for k, v in each
        ],
    )
    for name, title in (("GPU held out, each", "GPU held out"), ("model held out, each", "model held out")):
        each = sorted(report[name].items(), key=lambda item: -item[1]["mean"])
        out += [
            f"{title}: "
            + "; ".join(f"{k} {percent(v['mean'])} ({100 * v['bias']:+.0f}%)" for k, v in each)
            + ".",
            "",
        ]
    return out


def range_section(report: dict, spread: dict) -> list[str]:
    covered = report["range coverage"]
    return [
        "Ranges: a factor up and down that holds 80% of the held-out points of all three protocols together: "
        + ", ".join(f"{c} x/÷ {spread[c]:.2f}" for c in CLASSES)
        + f"; with the same model, GPU and engine in the fit {', '.join(format(spread[c + ', same model'], '.2f') for c in CLASSES)}; "
        f"a related GPU or engine times {spread['related']:.2f}, datasheet only times {spread['datasheet']:.2f} (assumed). Held-out points inside: "
        + "; ".join(
            f"{name}: " + ", ".join(f"{c} {100 * v[c]:.0f}%" for c in CLASSES) for name, v in covered.items()
        )
        + ". Errors are clustered: a group is mostly inside or mostly outside.",
        "",
        f"TTFT at up to 8 users, group held out: mean {percent(report['first token, group held out']['mean'])}, median "
        f"{percent(report['first token, group held out']['median'])} ("
        + ", ".join(
            f"{c} {percent(v['mean'])}" for c, v in report["first token, group held out"]["by class"].items()
        )
        + f"); range x/÷ {spread['time to first token']:.2f}.",
        "",
    ]


def kernel_section(report: dict) -> list[str]:
    rows = [
        [
            k,
            str(v["curves"]),
            f"{v['points']:,}",
            percent(v["median"]),
            percent(v["mean"]),
            f"{v['worst curve']}: {percent(v['its median'])}",
        ]
        for k, v in report["kernels"].items()
    ]
    return [
        "Kernels, shapes held out; three constants per (GPU, engine, format):",
        "",
        *table(["kernel", "curves", "points", "median error", "mean error", "worst curve, its median"], rows),
    ]


def points_section(report: dict) -> list[str]:
    shown = report["points"]
    late = report["points, GPU held out"]
    rows = [
        [
            k,
            str(v["points"]),
            percent(v["mean"]),
            percent(v["p90"]),
            f"{100 * v['bias']:+.1f}%",
            percent(late[k]["mean"]),
        ]
        for k, v in sorted(shown.items(), key=lambda item: -item[1]["mean"])
    ]
    return [
        f"Single runs and static batches ({report['constants']['single runs']} constants: for each engine and GPU family one number per format and phase it was "
        "measured in, and overheads). In sample, and with each accelerator held out in turn (then a family of one accelerator falls back on priors):",
        "",
        *table(["group", "points", "mean", "90th percentile", "bias", "accelerator held out"], rows),
    ]


def envelope_section(rows: list) -> list[str]:
    out = []
    for group in ENVELOPES:
        ratios = sorted((r.best / r.measured, r.id, r.model, r.accelerator) for r in rows if r.group == group)
        if not ratios:
            continue
        good = [r for r in ratios if 0.9 <= r[0] <= 1.6]
        worst = [*ratios[:2], *ratios[-2:]]
        out.append(
            f"- {group}: {len(good)} of {len(ratios)} within 0.9 to 1.6 of the measured maximum; extremes "
            + "; ".join(
                f"{ratio:.2f} {model.rsplit('/', 1)[-1]} on {gpu} ({name})"
                for ratio, name, model, gpu in worst
            )
        )
    return [
        "Maximum-load figures, batch not published; predicted at the best batch that memory holds, slots never empty, the host's work",
        "hidden behind the GPU's. TensorRT-LLM admits a request only with room for all of its tokens; a degree that the figure leaves",
        "open (experts spread or not; MLPerf's layouts) is the best one:",
        "",
        *out,
        "",
        "Kinds of misses: mixtures of experts at very large batches come out too fast (Qwen3-235B, DeepSeek and gpt-oss on Hopper 1.4 to 2.0",
        "times: no imbalance, no waiting of attention ranks for each other, no limit on the batch; Qwen3-30B-A3B on Blackwell up to 3);",
        "Qwen3-30B-A3B over PCIe with tensor parallelism is faster than the all-reduce tables allow (0.46 to 0.9); eight pipeline stages",
        "over PCIe have bubbles that are not modelled (up to 2.3 times); prompts of dense models in NVFP4 on Blackwell are up to 15%",
        "too slow (the share was fitted on servers under mixed load).",
        "",
    ]


def other_section(rows: list) -> list[str]:
    other = [r for r in rows if r.quantity == "TPOT" and r.id.startswith("serving") and not r.clean]
    states: dict[str, list] = {}
    for r in other:
        states.setdefault(r.note.rsplit("; ", 1)[-1], []).append(r)
    lines = []
    for state, members in sorted(states.items(), key=lambda item: -len(item[1])):
        errors = sorted(abs(r.error) for r in members)
        bias = sorted(r.error for r in members)[len(members) // 2]
        lines.append(
            f"- {state}: {len(members)} points, mean {percent(sum(errors) / len(errors))}, bias {100 * bias:+.0f}%"
        )
    everything = [abs(r.error) for r in rows if r.quantity == "TPOT" and r.id.startswith("serving")]
    return [
        f"Distinct rows that are not clean (shipped profiles; all {len(everything):,} distinct rows together {percent(sum(everything) / len(everything))}):",
        "",
        *lines,
        "",
    ]


LIMITS = """What to keep in mind:

- The list of terms and the strength of the priors were chosen with these data in view; only points never looked at can confirm them.
- Cache formats and some weight formats of the serving points are inferred (memory capacity, engine defaults), not recorded.
- Only Hopper and Blackwell data-centre GPUs carry serving points. A100, L40S and RTX PRO 6000 stand on kernel tables, the rest on single
  runs; MI300X on 16 static batches of one model; AMD links, TPUs, Trainium, Gaudi, Intel GPUs and CPUs on nothing but datasheets.
- Not modelled: speculative decoding inside a serving point, prefix caches that fill over time, preemption when the cache is full, power
  limits, hosts that are slow. gpt-oss-20b and R1-Distill-Qwen-14B of the DGX Spark page are not bundled and not predicted.
"""


def main() -> None:
    report = accuracy.held_out()
    spread = profiles.fitted()[1]
    rows = list(accuracy.comparisons())
    section = "\n".join(
        [
            HEADING,
            "",
            *held_out_section(report),
            *range_section(report, spread),
            *kernel_section(report),
            *points_section(report),
            *envelope_section(rows),
            *other_section(rows),
            LIMITS,
        ]
    )
    text = DOC.read_text() if DOC.exists() else "# Accuracy\n"
    before, _, rest = text.partition(HEADING)
    following = rest.partition("\n## ")[2]
    DOC.write_text(
        before.rstrip() + "\n\n" + section.rstrip() + "\n" + (f"\n## {following}" if following else "")
    )


if __name__ == "__main__":
    main()
