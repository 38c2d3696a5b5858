"""Writes the section "Step time" of docs/accuracy.md from the stored held-out errors and the bundled measurements."""

from __future__ import annotations

import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from presets import accuracy, profiles
from presets.measurements import NEVER_FITTED

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
        f"One model with {counts['step time']} fitted constants (and {counts['first token']} for the first token, {counts['kernel medians']} medians of "
        "kernel curves that no serving point informs), physical ones at most 1.",
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


# Why a published maximum lies outside 0.9 to 1.6: (holds for a row and its ratio, reason). The first that holds is printed.
REASONS = (
    (
        lambda r, high: high and "30B-A3B" in r.model,
        "one GPU that the host of TensorRT-LLM 1.0 seems to hold back, on Grace (GB200) more than on x86 (B200): eight RTX PRO 6000 give up to twice the "
        "tokens/s of a GB200. A later change of the engine names 34 us a sequence and step on a GB200 (pull request 16564), which is of this size, but "
        "the page of 1.2 has 18 us a token on the same part; nothing public says what 1.0 cost",
    ),
    (
        lambda r, high: high,
        "attention ranks that step together: on one H200 the same model is met within 3%; no clean serving point has attention "
        "ranks, so nothing is fitted to them",
    ),
    (
        lambda r, high: r.group == "mlperf51",
        "tuned for the benchmark by its submitters, with kernels that no serving point or kernel table shows",
    ),
    (
        lambda r, high: "rtx-pro" in r.accelerator,
        "four and eight cards over PCIe: messages are more than half of a step, and the host that ran it is not the one of the tables",
    ),
    (
        lambda r, high: True,
        "within 5% of the bar: dense models measured faster than the kernel times of NVIDIA's own tables add up to (8- and 4-bit products, caches in 8 bits)",
    ),
)


def reason(row: object, *, high: bool) -> str:
    return next(text for holds, text in REASONS if holds(row, high))


def envelope_section(rows: list) -> list[str]:
    out, outside = [], {}
    for group in ENVELOPES:
        found = [(r.best / r.measured, r) for r in rows if r.group == group]
        good = [ratio for ratio, _ in found if 0.9 <= ratio <= 1.6]
        middle = sorted(ratio for ratio, _ in found)[len(found) // 2]
        typical = math.exp(sum(abs(math.log(ratio)) for ratio, _ in found) / len(found))
        out.append(
            f"- {group}: {len(good)} of {len(found)} within 0.9 to 1.6 of the measured maximum, median {middle:.2f}, "
            f"mean factor off {typical:.2f}; {sum(r.inside for _, r in found)} lie in the stated range"
        )
        for ratio, r in found:
            if not 0.9 <= ratio <= 1.6:
                outside.setdefault(reason(r, high=ratio > 1.6), []).append((ratio, r))
    lines = []
    for text, members in sorted(outside.items(), key=lambda item: -len(item[1])):
        listed = "; ".join(
            f"{ratio:.2f} {r.model.rsplit('/', 1)[-1]} on {r.accelerator}, {r.note.split(',')[0]} ({r.id})"
            for ratio, r in sorted(members, key=lambda item: item[0])
        )
        lines.append(f"- {text}: {listed}")
    return [
        "Maximum-load figures, batch not published, predicted as their authors ran them (`presets/maximum_load.py`, `presets/trtllm_bench.py`): as many",
        "sequences as the engine's memory rules hold (TensorRT-LLM admits a request only with room for all of its tokens, and charges windows in full) and",
        "as trtllm-bench's own estimate allows, its token budget, decode steps padded to the graphs that NVIDIA's pages ask for, their number of requests,",
        "filling up and draining included, the host working ahead of the GPU, no more requests/s than one Python process hands over, PCIe as on NVIDIA's",
        "own servers, and the best of the layouts that the figure leaves open (experts spread or not; MLPerf's degrees):",
        "",
        *out,
        "",
        "Ranges of maxima are those of step times: they hold no error of what a page leaves open, so that fewer than the 80% they are made for lie in them. Those of attention "
        "ranks are wider, and those of a run that its benchmark feeds have the slowest and the fastest host that fed one.",
        "",
        "Every one outside 0.9 to 1.6, with what is known of the reason. None was fitted, but the requests/s are read off trt10-106 (trt10-101 has the same):",
        "",
        *lines,
        "",
    ]


def unseen_section(rows: list) -> list[str]:
    """Rows of models that no fit has seen: every one, since they are few."""
    unseen = [r for r in rows if r.model in NEVER_FITTED]
    maxima = [r.best / r.measured for r in unseen if r.group in ENVELOPES]
    runs = [abs(r.error) for r in unseen if r.group not in ENVELOPES]
    good = sum(0.9 <= ratio <= 1.6 for ratio in maxima)
    listed = "; ".join(
        f"{r.best / r.measured:.2f} {r.model.rsplit('/', 1)[-1]} on {r.accelerator}, {r.note.split(', ')[-1]} ({r.id})"
        for r in sorted(unseen, key=lambda r: r.best / r.measured)
    )
    return [
        f"Models that were added when all constants stood, so that no fit has seen them ({', '.join(NEVER_FITTED)}): {good} of {len(maxima)} maxima within 0.9 to "
        f"1.6; {len(runs)} single runs {percent(sum(runs) / len(runs))} in the mean of their times. All ratios of predicted to measured (seconds, or tokens/s of maxima): "
        f"{listed}. The single runs were 30.5% off before one rule that they led to, llama.cpp's own products of MXFP4 (from its source; on a board and a model of another "
        f"page, gpt-oss-120b on a DGX Spark, it gives 0.90 of the measured prompt). One prompt figure (lmsys-007) is half of the rate that its page gives for a smaller and for a larger model on the same board.",
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
  limits, hosts that are slow.
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
            *unseen_section(rows),
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
