"""`ridgebeam bench`: load-test a running server, and set measured beside predicted."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calc.errors import InputError, ProbeError
from commands.arguments import (
    OK,
    add_formats,
    add_layout,
    emit,
    inputs,
    positive,
    tokens,
    verb,
    writable,
    write_file,
)

if TYPE_CHECKING:
    from calc.endpoint.plan import TestPlan
    from calc.endpoint.report import EndpointReport
    from calc.endpoint.run import EndpointRun
    from calc.step import StepModel
    from probes.endpoint.job import Question

KEY_VARIABLE = "RIDGEBEAM_API_KEY"
POLL_S = 0.2


def add(verbs: Any) -> None:
    parser = verb(verbs, "bench", run, "load-test a running server; measured beside predicted")
    parser.add_argument("url", metavar="URL", help="the server's address, as in http://127.0.0.1:8000")
    parser.add_argument("--model", default="", help="as the server names it; default: its first")
    parser.add_argument("--api", default="openai", choices=("openai", "openai-completions", "ollama"))
    parser.add_argument("--concurrency", default="1,4,16", metavar="1,4,16")
    parser.add_argument(
        "--prompts", default="256,1024,4096,8192", metavar="N,N", help="prompt lengths for TTFT"
    )
    parser.add_argument("--input", "--isl", type=tokens, default=512, help="prompt tokens under concurrency")
    parser.add_argument("--output", "--osl", type=tokens, default=128, help="output tokens")
    parser.add_argument(
        "--requests", type=tokens, help="per level; default: 8 times the concurrency, at least 32"
    )
    parser.add_argument("--rate", type=positive, help="also an open loop at that many requests per second")
    parser.add_argument(
        "--cached-pass", action="store_true", help="also send prompts twice, to see the prefix cache"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats and shorter prompts")
    parser.add_argument("--limit-s", type=positive, default=600.0, help="hard limit of the whole run")
    parser.add_argument("--yes", action="store_true", help="send without asking; needed off this machine")
    parser.add_argument(
        "--source", help="the model behind the server (hub id, config.json, .gguf): predict too"
    )
    parser.add_argument("--gpu", metavar="ID", help="the accelerator behind the server")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="a profile in place of the fitted one")
    parser.add_argument("--calibrate", metavar="FILE", help="fit a calibration and write the profile there")
    add_layout(parser)
    add_formats(parser)
    parser.add_argument("--ttft", type=positive, metavar="S", help="target, for goodput")
    parser.add_argument("--tpot", type=positive, metavar="S", help="target, for goodput")
    parser.add_argument("--e2e", type=positive, metavar="S", help="target, for goodput")
    parser.add_argument(
        "--second-opinion", action="store_true", help="let GuideLLM measure too, where it is installed"
    )
    parser.add_argument("--out", metavar="FILE", help="write the run: .json, .csv (levels) or .html (report)")


def run(arguments: argparse.Namespace) -> int:
    from calc.endpoint.report import report_of
    from calc.endpoint.tables import report_json, report_lines
    from calc.slo import Slo
    from probes.endpoint.job import Question
    from probes.endpoint.safety import ApiKey

    writable("--out", arguments.out)
    writable("--calibrate", arguments.calibrate)
    plan = _plan(arguments)
    model = _step_model(arguments)
    question = Question(
        url=arguments.url,
        api=_api(arguments.api),
        model=arguments.model,
        plan=plan,
        key=ApiKey(os.environ.get(KEY_VARIABLE, "")),
    )
    _confirm(arguments, plan)
    measured, record = _measure(question)
    slo = Slo(ttft_s=arguments.ttft, tpot_s=arguments.tpot, e2e_s=arguments.e2e)
    report = report_of(measured, model=model, slo=slo)
    content, lines = report_json(report), report_lines(report)
    try:
        if arguments.calibrate:
            content["calibration"], more = _calibrated(arguments, measured, model)
            lines += more
        if arguments.second_opinion:
            content["second_opinion"], more = _second_opinion(question, report)
            lines += more
    finally:  # what was measured is kept, whatever could not be made of it
        if arguments.out:
            write_file("--out", arguments.out, [_text_of(arguments.out, report, content | {"run": record})])
    emit(arguments, content, lines)
    return OK


def _api(text: str) -> Any:
    from probes.endpoint.dialects import Api

    return Api(text)


def _second_opinion(question: Question, report: EndpointReport) -> tuple[list[dict[str, Any]], list[str]]:
    """GuideLLM's figures beside ours; its failure is a line, for our own measurement stands without it."""
    from calc import format as fmt
    from probes.endpoint.safety import Policy, checked_target
    from probes.endpoint.second_opinion import Asked, second_opinion

    plan = question.plan
    asked = Asked(
        streams=plan.concurrency,
        input_tokens=plan.level_input,
        output_tokens=plan.level_output,
        limit_s=plan.total_limit_s,
    )
    try:
        target = checked_target(question.url, Policy())
        rows = second_opinion(target, asked, model=report.run.model, key=question.key).rows(report)
    except ProbeError as error:
        return [], [f"No second opinion: {error}"]
    ratios = [
        f"GuideLLM at {row['concurrency']}: {row['figure']} {fmt.plain(row['guidellm'])}, {fmt.factor(row['theirs_over_ours'])} ours"
        for row in rows
        if row["theirs_over_ours"]
    ]
    lengths = ", ".join(f"{row['their_input_tokens']:.0f}" for row in rows if row["figure"] == "tpot_s")
    return rows, [
        f"GuideLLM's prompts had {lengths} tokens.",
        *ratios,
        *dict.fromkeys(row["definitions"] for row in rows),
    ]


def _whole_numbers(text: str, name: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise InputError(name, text, "it must be whole numbers separated by commas") from None
    return tuple(dict.fromkeys(found))


def _plan(arguments: argparse.Namespace) -> TestPlan:
    from calc.endpoint.plan import TestPlan

    quick = arguments.quick
    lengths = _whole_numbers(arguments.prompts, "prompts")
    return TestPlan(
        prompt_lengths=lengths[:2] if quick else lengths,
        prompt_repeats=3 if quick else 5,
        decode_repeats=5 if quick else 20,
        decode_input=min(256, arguments.input),
        decode_tokens=arguments.output,
        concurrency=_whole_numbers(arguments.concurrency, "concurrency"),
        level_input=arguments.input,
        level_output=arguments.output,
        level_requests=arguments.requests,
        open_rate_per_s=arguments.rate,
        cached_pass=arguments.cached_pass,
        stage_limit_s=min(60.0, arguments.limit_s),
        total_limit_s=arguments.limit_s,
    )


def _step_model(arguments: argparse.Namespace) -> StepModel | None:
    """The step model of what runs behind the server, where both model and accelerator were named."""
    if not (arguments.source and arguments.gpu):
        if arguments.calibrate or arguments.source or arguments.gpu or arguments.profile:
            raise InputError("bench", "only a part", "a prediction needs --source and --gpu")
        return None
    from calc.replica_model import replica_model
    from calc.scenario import Fidelity

    hardware = {
        name: value for name, value in vars(arguments).items() if name != "rate"
    }  # traffic is measured
    found = inputs(argparse.Namespace(**hardware, revision=""), gpu=arguments.gpu)
    return replica_model(found, found.scenario.layout, fidelity=Fidelity.EXPECTED)


def _confirm(arguments: argparse.Namespace, plan: TestPlan) -> None:
    """Say what will be sent; off this machine ask first, because a paid service may be behind the URL."""
    from calc.endpoint.plan import budget_of
    from probes.endpoint.safety import Policy, checked_target

    target = checked_target(arguments.url, Policy())
    words = f"This sends {budget_of(plan).words} to {target.shown}, within {plan.total_limit_s:g} s."
    print(words, file=sys.stderr)
    if target.loopback or arguments.yes:
        return
    if not sys.stdin.isatty():
        raise InputError("bench", target.shown, "a server off this machine needs --yes", next_step=words)
    if input("Send it? [y/N] ").strip().lower() not in {"y", "yes"}:
        raise ProbeError("Nothing was sent.")


def _measure(question: Question) -> tuple[EndpointRun, dict[str, Any]]:
    from probes.endpoint.job import Job

    job = Job.start(question)
    shown = ""
    try:
        while (state := job.state()).running:
            if sys.stderr.isatty() and state.stage != shown:
                shown = state.stage
                print(f"{state.done} of {state.total}: {shown}", file=sys.stderr)
            time.sleep(POLL_S)
    finally:
        job.cancel()
    if state.run is None or state.record is None:
        raise state.error or ProbeError("The load test gave no result.")
    return state.run, state.record


def _text_of(path: str, report: EndpointReport, content: dict[str, Any]) -> str:
    """The report in the format that the file's ending names; JSON for any other."""
    from calc.endpoint.html import report_html
    from calc.endpoint.tables import level_rows, rows_csv

    suffix = Path(path).suffix.lower()
    if suffix == ".html":
        return report_html(report)
    if suffix == ".csv":
        return rows_csv(level_rows(report))
    return json.dumps(content, indent=1)


def _calibrated(
    arguments: argparse.Namespace, measured: EndpointRun, model: StepModel | None
) -> tuple[dict[str, Any], list[str]]:
    from calc.endpoint.calibration import calibrate, observations_of

    if model is None:
        raise InputError("--calibrate", arguments.calibrate, "it needs --source and --gpu")
    fitted = calibrate(model, observations_of(measured), source=f"{measured.model} at {measured.target}")
    write_file("--calibrate", arguments.calibrate, [json.dumps(fitted.profile.as_json(), indent=1)])
    return fitted.as_json(), fitted.lines()
