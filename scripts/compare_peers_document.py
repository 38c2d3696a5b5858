"""docs/compare.md from what each tool said: every point, errors, bytes of a long sequence, an engine's pool."""

import statistics
from dataclasses import dataclass

from presets import accuracy

VERSIONS = {
    "aiconfigurator": "0.12.0",
    "kvfit": "0.3.0",
    "ridgepoint": "0.1.2",
    "servcalc": "0.1.0",
    "hf-mem": "0.5.6",
    "genz-llm": "0.0.16",
    "llm-analysis": "0.2.2",
}
# (model, accelerator, engine) of the points: what the tools know by name, dense and of experts.
GROUPS = (
    ("meta-llama/Meta-Llama-3.1-8B", "h100-sxm5-80gb", "tensorrt-llm"),
    ("Qwen/Qwen3-32B", "h100-sxm5-80gb", "vllm"),
    ("meta-llama/Meta-Llama-3.1-70B", "h200-sxm-141gb", "tensorrt-llm"),
)


@dataclass(frozen=True)
class Said:
    """What one tool answered (TPOT in seconds, or bytes of a pool), or why not; and its wall time."""

    answer: float | None
    wall_s: float
    why: str = ""


def error(said, point):
    return None if said.answer is None else said.answer / point.tpot_s - 1.0


def document(points, ours, table, states, memory):
    answers = {"Ridgebeam": ours, **table}
    lines = [
        "# Beside other planners",
        "",
        "Written by `scripts/compare_peers.py`, which runs every tool in one go on one machine without a network, each in an",
        "environment of its own. Versions: " + ", ".join(f"{n} {v}" for n, v in VERSIONS.items()) + ".",
        "",
        *point_lines(points, answers),
        *error_lines(points, answers),
        *cache_lines(*states),
        *pool_lines(*memory),
    ]
    return "\n".join(lines)


def point_lines(points, answers):
    """Every point with each tool's answer."""
    lines = [
        "## Time per output token",
        "",
        "Public serving points (aiconfigurator's own published sample, Apache-2.0), spread evenly over the clean rows of three",
        "groups. Ridgebeam's constants were fitted to a set that holds these rows; with the whole group held out its median",
        f"error on such rows is {held_out_words()} (docs/accuracy.md). aiconfigurator answers from operator times that were",
        "measured on these cards; it was asked by `cli estimate` for one batch of that many users, with the point's own formats of",
        "weights and cache and its newest database. The others use data sheets and efficiencies of their own. Answers of another",
        "release of the engine than the measured one are not corrected.",
        "",
        "| model, card, engine | in/out, users | measured | " + " | ".join(answers) + " |",
        "|---|---|---|" + "---|" * len(answers),
    ]
    for index, point in enumerate(points):
        cells = [cell(given[index], point) for given in answers.values()]
        what = f"{point.model}{' fp8' if point.quantization == 'fp8' else ''}, {point.layout.gpus_per_replica} x {point.accelerator}, {point.engine}"
        lines.append(
            f"| {what} | {point.input_tokens:g}/{point.output_tokens:g}, {point.concurrency:g} | "
            f"{point.tpot_s * 1e3:.1f} ms | " + " | ".join(cells) + " |"
        )
    return lines


def error_lines(points, answers):
    """Each tool's errors over all points, and why some have no answer."""
    lines = [
        "",
        "| tool | points answered | median error | largest error | wall time of one answer |",
        "|---|---|---|---|---|",
    ]
    for name, given in answers.items():
        errors = [abs(e) for said, p in zip(given, points, strict=True) if (e := error(said, p)) is not None]
        walls = [said.wall_s for said in given if said.answer is not None]
        wall = f"{statistics.median(walls):.2g} s" if walls else "none"
        middle = f"{statistics.median(errors):.1%}" if errors else "none"
        worst = f"{max(errors):.1%}" if errors else "none"
        lines.append(f"| {name} | {len(errors)} of {len(points)} | {middle} | {worst} | {wall} |")
    reasons = sorted(
        {
            f"{name}: {said.why}"
            for name, given in answers.items()
            if name != "Ridgebeam"
            for said in given
            if said.answer is None
        }
    )
    return [
        *lines,
        "",
        "Not answered: " + ("; ".join(reasons) if reasons else "nothing") + ".",
        "",
        "Wall times of the others include the start of their program; ours is the share of one run over all points. Two cores, not idle.",
        "",
    ]


def cache_lines(total, counts, theirs_s, ours_s):
    """Bytes of one long sequence, over every config that was counted."""
    return [
        "## Bytes of one sequence of 32,768 tokens",
        "",
        f"All {total} configs whose cache was counted from the model's own code (growing part, windows, recurrent state).",
        "",
        "| tool | exact | wrong | refused | wall time for all |",
        "|---|---|---|---|---|",
        f"| Ridgebeam | {counts['ours'][0]} | {counts['ours'][1]} | {counts['ours'][2]} | {ours_s:.2g} s |",
        f"| kvfit | {counts['kvfit'][0]} | {counts['kvfit'][1]} | {counts['kvfit'][2]} | {theirs_s:.2g} s |",
        "",
        "hf-mem reads weights and configs from the hub only and could not be asked without a network.",
        "",
    ]


def pool_lines(said, pool, wall):
    """The pool of one start, ours and theirs."""
    theirs = f"{said.answer / 2**30:.1f} GiB" if said.answer is not None else f"no answer: {said.why}"
    return [
        "## KV pool of an engine",
        "",
        "Llama 3 70B in 16 bit on four H100 under vLLM at 0.9, 8,192 tokens.",
        "",
        f"- ridgepoint: {theirs} ({said.wall_s:.2g} s)",
        f"- Ridgebeam: {pool / 2**30:.1f} GiB ({wall:.2g} s)",
        "",
        "No public log of exactly this start is known here, so neither is called right; how our ledger fares against 150 logs",
        "is in docs/accuracy.md. ridgepoint reads other models from the hub only, which needs a network.",
        "",
    ]


def cell(said, point):
    if said.answer is None:
        return "none"
    return f"{said.answer * 1e3:.1f} ms ({error(said, point):+.0%})"


def held_out_words():
    """The median errors of the groups with their own rows held out, as the fit wrote them."""
    each = accuracy.held_out()["group held out, each"]
    return ", ".join(f"{each['|'.join(group)]['median']:.1%}" for group in GROUPS)
