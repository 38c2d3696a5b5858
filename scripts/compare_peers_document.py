"""docs/compare.md from what each tool said: every point, errors, bytes of a long sequence, pools of public logs."""

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
# (model, accelerator, engine) of the points: dense and of experts, in 16 bit, FP8 and MXFP4, on three engines.
GROUPS = (
    ("meta-llama/Meta-Llama-3.1-8B", "h100-sxm5-80gb", "tensorrt-llm"),
    ("Qwen/Qwen3-32B", "h100-sxm5-80gb", "vllm"),
    ("meta-llama/Meta-Llama-3.1-70B", "h200-sxm-141gb", "tensorrt-llm"),
    ("Qwen/Qwen3-235B-A22B", "h200-sxm-141gb", "sglang"),
    ("openai/gpt-oss-120b", "h100-sxm5-80gb", "vllm"),
)
OURS, HELD_OUT = "Ridgebeam", "Ridgebeam, group held out"
TOGETHER = "vendor"  # source of rows whose users all send their first request at once


@dataclass(frozen=True)
class Said:
    """What one tool answered for a point (seconds), or why not; and its wall time."""

    answer: float | None
    wall_s: float
    why: str = ""
    ttft_s: float | None = None


@dataclass(frozen=True)
class Cache:
    """A tool's answers for the bytes of one long sequence: how many exact, the factors of the others, what it refuses."""

    name: str
    configs: int
    exact: int
    more: dict[str, float]
    less: dict[str, float]
    refused: list[str]
    wall_s: float


@dataclass(frozen=True)
class Log:
    """One public start-up log: its pool per GPU in bytes, as logged and as each tool answers; the kind of a known miss of ours."""

    case_id: str
    model: str
    cards: str
    version: str
    logged: float
    answers: dict[str, float | None]
    miss: str


def document(points, ours, held_out_s, table, caches, pools):
    held = [Said(s, 0.0) for s in held_out_s]
    answers = {OURS: ours, HELD_OUT: held, **table}
    lines = [
        "# Beside other planners",
        "",
        *found_lines(points, answers),
        *asked_lines(),
        *point_lines(points, answers),
        *error_lines(points, answers),
        *first_token_lines(points, answers),
        *cache_lines(caches),
        *pool_lines(*pools),
        *reading_lines(),
    ]
    return "\n".join(lines)


def found_lines(points, answers):
    """The first thing a reader wants: who came how close, ours by constants that saw the rows and by others."""
    said = []
    for name, given in answers.items():
        sizes = [abs(e) for g, p in zip(given, points, strict=True) if (e := error(g, p)) is not None]
        if sizes:
            count = "" if len(sizes) == len(points) else f" ({len(sizes)} answered)"
            said.append(f"{name} {statistics.median(sizes):.1%}{count}")
    return [
        f"In short: median error of the time per output token over {len(points)} public serving points: "
        + ", ".join(said)
        + ".",
        "",
    ]


def asked_lines():
    """How the tools were asked, so that a reader can ask them again."""
    return [
        "The same questions were put to each tool, and what was measured stands beside the answers. `scripts/compare_peers.py` writes this",
        "page in one run on one machine without a network, each tool in an environment of its own: "
        + ", ".join(f"{n} {v}" for n, v in VERSIONS.items())
        + ". How each was asked:",
        "",
        "- **Ridgebeam**: `ridgebeam serve-point MODEL --gpu --tp --engine --engine-version --input --output --concurrency`, with the",
        "  formats and the engine's release of the measured point. *Group held out*: the same model of a step with constants fitted",
        "  without any row of that model, card and engine. The first column's constants have seen these rows.",
        "- **aiconfigurator** (NVIDIA): `aiconfigurator cli estimate`, one batch of as many sequences as users, the quantised",
        "  checkpoint by its id as its README asks, the cache format stated. It answers from operator times measured on these cards",
        "  with vLLM 0.24, TensorRT-LLM 1.3.0rc20 and SGLang 0.5.14, the newest that it carries and for most operators the only ones;",
        "  the points were measured on older releases, which Ridgebeam can be told and aiconfigurator cannot.",
        "- **servcalc**: `servcalc estimate config.json`, the middle of its range. It knows one GPU, dense models, and vLLM 0.6.3.",
        "- **genz-llm**: `decode_moddeling` at its default of all of a card's peak, the context half way through the answer. Models",
        "  that it does not list are described to it by their config, the H200 by its data sheet, as its interface allows.",
        "- **llm-analysis**: `infer` with the efficiencies that its README names for inference (0.7 of FLOPS, 0.9 of bandwidth), model",
        "  and H200 described as its README says. It takes heads as wide as the hidden size over their number, has no FP8 (8 bit",
        "  stands for it) and calls itself a lower bound.",
        "- **kvfit**, **hf-mem** and **ridgepoint**: below, where they answer.",
        "",
    ]


def error(said, point):
    return None if said.answer is None else said.answer / point.tpot_s - 1.0


def point_lines(points, answers):
    """Every point with each tool's answer."""
    lines = [
        "## Time per output token",
        "",
        "Public serving points (the sample that aiconfigurator publishes, Apache-2.0): of five groups the clean rows, sorted by TP",
        "and lengths, every n-th. TPOT in ms; the error against the measured one in brackets.",
        "",
        "| model, card, engine | in/out, users | measured | " + " | ".join(answers) + " |",
        "|---|---|---|" + "---|" * len(answers),
    ]
    for index, point in enumerate(points):
        cells = [cell(given[index], point) for given in answers.values()]
        lines.append(
            f"| {described(point)} | {point.input_tokens:g}/{point.output_tokens:g}, {point.concurrency:g} | "
            f"{point.tpot_s * 1e3:.1f} ms | " + " | ".join(cells) + " |"
        )
    return lines


def described(point):
    """Model with its format, cards, engine with its release where the source states one."""
    form = f" {point.quantization}" if point.quantization else ""
    release = f" {point.version}" if point.version else ""
    return (
        f"{point.model}{form}, {point.layout.gpus_per_replica} x {point.accelerator}, {point.engine}{release}"
    )


def error_lines(points, answers):
    """Each tool's errors over all points, and why some have no answer."""
    lines = [
        "",
        "| tool | points answered | median error | largest error | too short | wall time of one answer |",
        "|---|---|---|---|---|---|",
    ]
    for name, given in answers.items():
        errors = [e for said, p in zip(given, points, strict=True) if (e := error(said, p)) is not None]
        walls = [said.wall_s for said in given if said.answer is not None and said.wall_s]
        wall = f"{statistics.median(walls):.2g} s" if walls else ""
        sizes = [abs(e) for e in errors]
        middle = f"{statistics.median(sizes):.1%}" if sizes else "none"
        worst = f"{max(sizes):.1%}" if sizes else "none"
        short = f"{sum(e < 0 for e in errors)} of {len(errors)}"
        lines.append(f"| {name} | {len(errors)} of {len(points)} | {middle} | {worst} | {short} | {wall} |")
    reasons = {}
    for name, given in answers.items():
        for said, point in zip(given, points, strict=True):
            if said.answer is None:
                reasons.setdefault(f"{name}: {said.why}", set()).add(point.model.split("/")[-1])
    return [
        *lines,
        "",
        "Wall times hold the start of each program with its libraries, on two cores that had other work to do: compare their size.",
        "",
        "Not answered: "
        + (
            "; ".join(f"{why} ({', '.join(sorted(models))})" for why, models in sorted(reasons.items()))
            or "nothing"
        )
        + ".",
        "",
    ]


def first_token_lines(points, answers):
    """Errors of the time to the first token where the source's users do not all start at once."""
    lines = [
        "## Time to first token",
        "",
        "The points among them whose users did not all start at once; of the others the first token tells more of the start than",
        "of the load. genz-llm and llm-analysis know a prompt's own time only and were not asked.",
        "",
        "| tool | points answered | median error | largest error |",
        "|---|---|---|---|",
    ]
    for name in (OURS, "aiconfigurator", "servcalc"):
        sizes = [
            abs(said.ttft_s / point.ttft_s - 1)
            for said, point in zip(answers[name], points, strict=True)
            if point.source != TOGETHER and said.ttft_s is not None
        ]
        asked = sum(point.source != TOGETHER for point in points)
        found = f"{statistics.median(sizes):.0%} | {max(sizes):.0%}" if sizes else "none | none"
        lines.append(f"| {name} | {len(sizes)} of {asked} | {found} |")
    late = accuracy.held_out()["first token, group held out"]["median"]
    return [
        *lines,
        "",
        f"Over all points up to 8 users our median error with the group held out is {late:.1%} (docs/accuracy.md): the first token is",
        "the weakest of our numbers.",
        "",
    ]


def cache_lines(caches):
    """Bytes of one long sequence, over every config that was counted."""
    total = max(cache.configs for cache in caches)
    lines = [
        "## Bytes of one sequence of 32,768 tokens",
        "",
        f"All {total} configs whose cache was counted by running the model's own code (growing part, windows, recurrent state), in 16",
        "bit. Ridgebeam's rules were written with these configs at hand. kvfit was asked by `estimate_cache`. hf-mem reads models from",
        "the hub only, so its own function was given the config; it says that it counts what an engine reserves, so that for windows",
        "and recurrent layers more than the model needs is what it means to say.",
        "",
        "| tool | exact | too much | too little | refused | largest factor | wall time for all |",
        "|---|---|---|---|---|---|---|",
    ]
    for cache in caches:
        factors = {**cache.more, **{name: 1 / f if f else float("inf") for name, f in cache.less.items()}}
        worst = max(factors, key=factors.get) if factors else None
        largest = f"{factors[worst]:.3g} ({worst})" if worst else "none"
        lines.append(
            f"| {cache.name} | {cache.exact} | {len(cache.more)} | {len(cache.less)} | {len(cache.refused)} | {largest} | {cache.wall_s:.2g} s |"
        )
    ours = next(cache for cache in caches if cache.name == OURS)
    kvfit = next((cache for cache in caches if cache.name == "kvfit"), None)
    wrong = ", ".join(sorted([*kvfit.more, *kvfit.less])) if kvfit else ""
    return [
        *lines,
        "",
        f"Ridgebeam refuses {', '.join(ours.refused)}." + (f" kvfit differs on {wrong}." if wrong else ""),
        "Refused: no number, by name or with an error; for hf-mem also what it does not take for a language model.",
        "",
    ]


def pool_lines(logs, walls):
    """The pool of public starts: logged, ours and theirs."""
    names = list(logs[0].answers)
    lines = [
        "## KV pool of an engine",
        "",
        "Public start-up logs of vLLM that can be put to the others: a published config in 16 bit or FP8, tensor parallel only, nine",
        "tenths of the memory of a card that one of them lists. GiB per GPU. Ridgebeam's constants of memory were fitted to all public",
        "logs, these among them; docs/accuracy.md says how little they move when a model is left out. ridgepoint takes a share of 0.9",
        "and no other; configs and parameter counts, which it reads from the hub, were handed to it. aiconfigurator was asked by",
        "`estimate_kv_cache` with the card's memory as logged; it does not list the cards where it has no answer.",
        "",
        "| log, model | cards, vLLM | logged | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for log in logs:
        cells = [
            "none" if said is None else f"{said / 2**30:.2f} ({said / log.logged - 1:+.1%})"
            for said in log.answers.values()
        ]
        lines.append(
            f"| {log.case_id}, {log.model} | {log.cards}, {log.version} | {log.logged / 2**30:.2f} | "
            + " | ".join(cells)
            + " |"
        )
    middles = []
    for name in names:
        sizes = [abs(log.answers[name] / log.logged - 1) for log in logs if log.answers[name] is not None]
        middles.append(
            f"{name} {statistics.median(sizes):.1%} and {max(sizes):.0%} over {len(sizes)}"
            if sizes
            else f"{name} none"
        )
    return [
        *lines,
        "",
        "Median and largest error: " + "; ".join(middles) + ".",
        "The logs M... are one publisher's sweep on one machine, so they count for less than their number.",
        *[f"Our miss {log.case_id}: {log.miss}." for log in logs if log.miss],
        "Wall time: "
        + ", ".join(
            f"{name} {wall:.2g} s {'a ledger' if name == OURS else 'for all, with its start'}"
            for name, wall in walls.items()
        )
        + ".",
        "",
    ]


def reading_lines():
    """What the numbers do not say."""
    return [
        "## What this does not show",
        "",
        "- The points are of two data-centre cards of one maker, and of sources that our constants were fitted to. On other cards our",
        "  error is larger (docs/accuracy.md).",
        "- A tool is asked only what it answers. aiconfigurator searches deployments with prefill apart and writes their manifests;",
        "  kvfit measures servers and plans nodes; hf-mem reads the stored bytes of any repository; llm-analysis covers training;",
        "  genz-llm takes hardware that does not exist. None of that is compared.",
        "- Simulators (Vidur, BLIS, AISimulate) need another toolchain, profiles or another index and could not be run here.",
        "",
    ]


def cell(said, point):
    if said.answer is None:
        return "none"
    return f"{said.answer * 1e3:.1f} ms ({error(said, point):+.0%})"
