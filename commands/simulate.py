"""`ridgebeam simulate`: percentiles under load, from a trace or from made-up traffic."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from commands.arguments import (
    INFEASIBLE,
    OK,
    add_fidelity,
    add_formats,
    add_layout,
    emit,
    not_negative,
    positive,
    seed,
    tokens,
    verb,
    writable,
    write_file,
)
from commands.patience import patience
from commands.simulate_experiment import experiment_of
from commands.simulate_features import add_features, refuse_unused, told_of_features

if TYPE_CHECKING:
    from collections.abc import Callable

    from calc.simulation.capacity import Capacity
    from calc.simulation.replicated import Experiment

LOGGED_PASSES = 50_000
SLOWEST_RATE_PER_S = 3.9e-7  # below, the clock is so far on that a double no longer resolves single steps


def add(verbs: Any) -> None:
    parser = verb(
        verbs, "simulate", run, "percentiles under load: a trace or made-up traffic through an engine"
    )
    parser.add_argument(
        "source", metavar="SOURCE", nargs="?", help="model, as for step; instead of --step-ms"
    )
    parser.set_defaults(revision="", headroom=0.0)
    _add_traffic(parser)
    _add_engine(parser)
    add_features(parser)
    step = parser.add_argument_group("step time")
    step.add_argument("--step-ms", metavar="FIXED,PREFILL,DECODE,KV", help="or give SOURCE and --gpu")
    step.add_argument("--gpu", metavar="ID")
    add_layout(parser)
    add_formats(parser)
    add_fidelity(parser)
    targets = parser.add_argument_group("targets")
    for name in ("ttft", "tpot", "e2e"):
        targets.add_argument(f"--{name}", type=positive, metavar="S")
    targets.add_argument("--percentile", type=positive, metavar="P", help="default: targets are means")
    targets.add_argument("--find", choices=("rate", "replicas"), help="search what holds the targets")
    more = parser.add_argument_group("output and place")
    more.add_argument("--repeat", type=tokens, default=1, metavar="N", help="runs with consecutive seeds")
    more.add_argument("--scheduler", metavar="ADDR", help="Dask scheduler for repeated runs")
    more.add_argument("--csv", metavar="FILE", help="one line a request")
    more.add_argument("--chrome-trace", metavar="FILE", help="the schedule, for Perfetto")


def _add_traffic(parser: argparse.ArgumentParser) -> None:
    traffic = parser.add_argument_group("traffic")
    traffic.add_argument(
        "--trace", metavar="FILE", help="Azure, BurstGPT, Mooncake, Bailian, Vidur, vLLM, or own"
    )
    traffic.add_argument("--traffic", metavar="NAME", help="like a public trace: azure-conversation, ...")
    traffic.add_argument(
        "--rate", type=_rate, help="requests per second (with a trace: stretch it to this rate)"
    )
    traffic.add_argument("--concurrency", "--users", type=tokens, help="users who each wait for their answer")
    traffic.add_argument("--input", "--isl", type=tokens, help="mean prompt tokens")
    traffic.add_argument("--output", "--osl", type=tokens, help="mean output tokens")
    traffic.add_argument(
        "--length-cv", type=not_negative, default=0.0, help="spread of lengths; 0: all alike"
    )
    traffic.add_argument("--arrival-cv", type=not_negative, default=1.0)
    traffic.add_argument("--peak-factor", type=positive, default=1.0, help="a day's peak over its mean")
    traffic.add_argument("--prefix-share", type=not_negative, default=0.0)
    traffic.add_argument(
        "--think", type=not_negative, default=0.0, metavar="S", help="between answer and question"
    )
    traffic.add_argument("--requests", type=tokens, default=None)
    traffic.add_argument("--seed", type=seed, default=0)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--engine-rules",
        help="vllm vllm-v0 sglang nano-vllm sarathi orca static; default: those of --engine, else vllm",
    )
    engine.add_argument("--blocks", type=tokens, help="KV blocks of a replica; default: ample")
    for name in (
        "block-size",
        "token-budget",
        "max-seqs",
        "batch-size",
        "long-prefill-threshold",
        "reserve-tokens",
    ):
        engine.add_argument(f"--{name}", type=tokens)
    engine.add_argument("--watermark", type=not_negative)
    engine.add_argument("--batch-timeout", type=not_negative, metavar="S")
    engine.add_argument(
        "--admit-first-chunk", action="store_true", help="admit a prompt if its first chunk fits"
    )
    engine.add_argument("--no-prefix-cache", action="store_true")
    engine.add_argument("--replicas", type=tokens, default=1)
    engine.add_argument("--router", default="round-robin")


def run(arguments: argparse.Namespace) -> int:
    began = time.perf_counter()
    refuse_unused(arguments)
    writable("--csv", arguments.csv)
    writable("--chrome-trace", arguments.chrome_trace)
    experiment = experiment_of(arguments)
    with patience() as told:
        if arguments.find:
            record, lines = _found(arguments, experiment, told)
        elif arguments.repeat > 1:
            record, lines = _repeated(arguments, experiment)
        else:
            record, lines = _single(arguments, experiment, told)
    record["wall_s"] = time.perf_counter() - began
    emit(arguments, record, lines)
    return INFEASIBLE if record["state"] == "saturated" else OK


def _rate(text: str) -> float:
    """Requests per second; slower ones than one in a month would be years of idle clock."""
    value = positive(text)
    if value < SLOWEST_RATE_PER_S:
        raise argparse.ArgumentTypeError(f"{text} must be at least {SLOWEST_RATE_PER_S:g} requests/s")
    return value


def _single(
    arguments: argparse.Namespace, experiment: Experiment, told: Callable[[str], None]
) -> tuple[dict[str, Any], list[str]]:
    from calc.simulation.export import chrome_trace, request_lines
    from calc.simulation.replicated import summary

    def running(share: float) -> bool:
        told(f"{share:4.0%} of the requests have their answer")
        return True

    result = experiment.run(log_passes=LOGGED_PASSES if arguments.chrome_trace else 0, progress=running)
    if arguments.csv:
        write_file("--csv", arguments.csv, request_lines(result))
    if arguments.chrome_trace:
        write_file("--chrome-trace", arguments.chrome_trace, [json.dumps(chrome_trace(result))])
    record = summary(result, experiment.slo)
    return record, _lines(record, targets=_has_targets(experiment))


def _has_targets(experiment: Experiment) -> bool:
    slo = experiment.slo
    return any(target is not None for target in (slo.ttft_s, slo.tpot_s, slo.e2e_s))


def _lines(record: dict[str, Any], *, targets: bool) -> list[str]:
    from calc import format as fmt

    def line(name: str, values: dict[str, Any]) -> str:
        shown = "   ".join(f"{k} {fmt.seconds(v)}" for k, v in values.items() if v is not None)
        return f"{name:<12}{shown}"

    met = f"{record['attainment']:.1%} meet the targets" if targets else "no targets were set"
    return [
        f"{record['requests']:,} requests, {record['state']}",
        line("TTFT", record["ttft_s"]),
        line("TPOT", record["tpot_s"]),
        line("end to end", record["e2e_s"]),
        f"{'goodput':<12}{record['goodput_per_s']:.4g} requests/s, {met}",
        f"{'engine':<12}{record['steps']:,} steps, {record['preemptions']:,} preemptions",
        *told_of_features(record, line),
    ]


def _repeated(arguments: argparse.Namespace, experiment: Experiment) -> tuple[dict[str, Any], list[str]]:
    from calc.executor import executor_for
    from calc.simulation.replicated import Interval, repeated, run_all

    runs = run_all(repeated(experiment, arguments.repeat), executor_for(arguments.scheduler))
    worst = max((run["state"] for run in runs), key=("stable", "near saturation", "saturated").index)
    record: dict[str, Any] = {
        "runs": len(runs),
        "requests": sum(run["requests"] for run in runs),
        "state": worst,
    }
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        kinds = [kind for kind, value in runs[0][name].items() if value is not None]
        record[name] = {kind: Interval.of([run[name][kind] for run in runs]).as_json() for kind in kinds}
    for name in ("goodput_per_s", "attainment"):
        record[name] = Interval.of([run[name] for run in runs]).as_json()
    for name in ("preemptions", "steps"):
        record[name] = sum(run[name] for run in runs)
    lines = [f"{len(runs)} runs, {record['requests']:,} requests, {worst}"]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        shown = (f"{k} {v['mean']:.4g} ({v['low']:.4g} to {v['high']:.4g})" for k, v in record[name].items())
        lines.append(f"{name:<12}{'   '.join(shown)}")
    return record, lines


def _found(
    arguments: argparse.Namespace, experiment: Experiment, told: Callable[[str], None]
) -> tuple[dict[str, Any], list[str]]:
    from calc.simulation.capacity import Searched, Trial, fewest_replicas, largest_rate
    from calc.simulation.replicated import summary

    def tried(trial: Trial) -> None:
        held = "holds" if trial.holds else "breaks"
        told(f"{trial.rate_per_s:.4g} requests/s on {trial.replicas} replica(s): the promise {held}")

    searched = Searched(
        requests=experiment.table(),
        rules=experiment.rules,
        step=experiment.step,
        slo=experiment.slo,
        cluster=experiment.cluster,
    )
    if arguments.find == "rate":
        capacity: Capacity = largest_rate(searched, replicas=arguments.replicas, told=tried)
    else:
        capacity = fewest_replicas(searched, told=tried)
    best = capacity.best
    trials = [{"rate_per_s": t.rate_per_s, "replicas": t.replicas, "holds": t.holds} for t in capacity.trials]
    if best is None or best.result is None:
        return {"state": "saturated", "trials": trials, "rate_per_s": None, "replicas": None}, [
            "No load was found that holds the targets."
        ]
    record = {"rate_per_s": best.rate_per_s, "replicas": best.replicas, "trials": trials}
    record |= summary(best.result, experiment.slo)
    lines = [
        f"{best.rate_per_s:.4g} requests/s on {best.replicas} replica(s) hold the targets",
        *_lines(record, targets=_has_targets(experiment)),
    ]
    return record, lines
