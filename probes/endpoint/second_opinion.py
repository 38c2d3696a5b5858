"""A second opinion on a running server: GuideLLM as a child process on prompts of ours, its result beside our own.

GuideLLM (Apache-2.0, extra `loadtest`) is asked for the same concurrency, prompt and output lengths. It writes its own
result, which `presets.load_test_files` reads; nothing of it is imported here, and it may stand in another environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calc.endpoint.calibration import Quantity
from calc.endpoint.report import EndpointReport
from calc.errors import ProbeError
from calc.json_text import NOT_JSON, parse_json
from presets.load_test_files import read_load_test
from probes.endpoint.prompts import LengthRule, PromptMaker
from probes.endpoint.safety import ApiKey, Target
from probes.processes import end_group, how_it_ended, new_group, start_time
from probes.workers import last_words

PROGRAM: Final = "guidellm"
INSTALL: Final = "pip install -e '.[loadtest]', or put a guidellm of your own on the path."
SPARE_S: Final = 60.0  # it loads torch and transformers before it sends anything
LARGEST_RESULT_BYTES: Final = 50_000_000
ASKED_PER_STREAM: Final = 4  # requests for each concurrent stream, so that most of them meet a full batch

# What each of its figures means, where that is not what ours means.
DEFINITIONS: Final[Mapping[str, str]] = {
    "ttft_s": "Theirs: from sending to the first chunk of any kind, warm-up included. Ours: to the first chunk with text.",
    "tpot_s": "Theirs: inter-token latency, (last - first)/(n - 1) weighted by tokens; what it calls time per output token "
    "has the first token in it. Ours: (last - first)/(n - 1), median over requests.",
    "tokens_per_s": "Theirs: over the whole run, ramp and tail included. Ours: in the window with a full batch.",
}
_OURS: Final = {Quantity.TTFT: "ttft_s", Quantity.TPOT: "tpot_s", Quantity.THROUGHPUT: "tokens_per_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What GuideLLM is asked for: streams at a time (one benchmark each), tokens in and out, seconds in all."""

    streams: tuple[int, ...]
    input_tokens: int
    output_tokens: int
    limit_s: float

    @property
    def requests(self) -> int:
        return ASKED_PER_STREAM * max(self.streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """GuideLLM's result: for each number of streams its TTFT, TPOT and tokens/s, medians in seconds; and the file.

    `input_tokens`: prompt tokens by the server's count, for words are asked and not tokens.
    """

    by_streams: dict[int, dict[str, float]]
    input_tokens: dict[int, float]
    text: str

    def rows(self, report: EndpointReport) -> list[dict[str, Any]]:
        """One row per level and figure: ours, theirs, the ratio, and how the definitions differ."""
        own = {row.level.concurrency: row.level for row in report.levels if row.level.concurrency}
        found = []
        for streams, theirs in self.by_streams.items():
            level = own.get(streams)
            ours = {
                "ttft_s": None if level is None or level.ttft_s is None else level.ttft_s.p50,
                "tpot_s": None if level is None or level.tpot_s is None else level.tpot_s.p50,
                "tokens_per_s": None if level is None else level.tokens_per_s,
            }
            for name, value in theirs.items():
                mine = ours[name]
                found.append(
                    {
                        "concurrency": streams,
                        "figure": name,
                        "ours": mine,
                        "guidellm": value,
                        "theirs_over_ours": None if not mine else value / mine,
                        "their_input_tokens": self.input_tokens.get(streams),
                        "definitions": DEFINITIONS[name],
                    }
                )
        return found


def command() -> list[str] | None:
    """How GuideLLM is started here; None where it is not installed."""
    if importlib.util.find_spec(PROGRAM) is not None:
        return [sys.executable, "-m", PROGRAM]
    program = shutil.which(PROGRAM)
    return None if program is None else [program]


def second_opinion(target: Target, asked: Asked, *, model: str, key: ApiKey) -> Opinion:
    """Run GuideLLM against a checked server and read its result.

    Raises ProbeError where it is not installed, does not end in time, or leaves no result, with its own last words. A
    server behind a key is not asked: GuideLLM takes a key from a file or the list of processes, where ours never goes.
    """
    start = command()
    if start is None:
        raise ProbeError("GuideLLM is not installed here.", next_step=INSTALL)
    if key:
        raise ProbeError(
            "GuideLLM takes an API key from a file or its command line, where others could read it.",
            next_step="Run it yourself, and import its JSON.",
        )
    with tempfile.TemporaryDirectory(prefix="ridgebeam-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        _write_question(place, target, asked, model)
        _run([*start, "run", "-c", str(place / "question.json"), "--disable-console"], place, asked)
        text = _result(place / "result.json")
    try:
        return _opinion(text)
    except (*NOT_JSON, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ProbeError(
            "GuideLLM's result has another form than the one of version 0.8.",
            next_step="Run it yourself, and import its JSON.",
        ) from error


def _write_question(place: Path, target: Target, asked: Asked, model: str) -> None:
    """Its configuration, and prompts of our own: a nonce first, so that no cache answers."""
    maker, words = PromptMaker(), LengthRule().words_for(asked.input_tokens)
    lines = (
        json.dumps({"prompt": maker.make(words), "output_tokens_count": asked.output_tokens})
        for _ in range(asked.requests * len(asked.streams))
    )
    (place / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    question = {
        "backend": {
            "kind": "openai_http",
            "target": target.shown,
            "model": model,
            "follow_redirects": False,
            "http2": False,
        },
        "profile": {"kind": "concurrent", "streams": list(asked.streams)},
        "constraints": [
            {"kind": "max_requests", "count": asked.requests},
            {"kind": "max_duration", "seconds": asked.limit_s / len(asked.streams)},
        ],
        "data": [{"kind": "json_file", "path": str(place / "prompts.jsonl")}],
        "outputs": [{"kind": "json", "path": str(place / "result.json")}],
    }
    (place / "question.json").write_text(json.dumps({"spec": question}), encoding="utf-8")


def _run(arguments: Sequence[str], place: Path, asked: Asked) -> None:
    """Start it in a group of its own, wait, and end the whole group whatever happens: it starts workers itself."""
    limit_s = asked.limit_s + SPARE_S
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    log = place / "words.txt"
    try:
        with log.open("wb") as words:
            process = subprocess.Popen(  # noqa: S603 - our own argv, no shell
                arguments,
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                **new_group(),  # type: ignore[call-overload]
            )
    except OSError as error:
        raise ProbeError(f"GuideLLM could not be started: {error.strerror}.", next_step=INSTALL) from error
    started = start_time(process.pid)
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise ProbeError(
            f"GuideLLM did not end within {limit_s:.0f} s and was stopped.",
            next_step="Ask for fewer streams or shorter answers.",
        ) from None
    finally:
        end_group(process.pid, started)
        process.wait()
    if code:
        raise ProbeError(
            f"GuideLLM {how_it_ended(code)}: {last_words(log) or 'it left no word'}",
            next_step="Version 0.8 is meant; an older one takes other arguments.",
        )


def _result(path: Path) -> str:
    try:
        if path.stat().st_size <= LARGEST_RESULT_BYTES:
            return path.read_text(encoding="utf-8")
    except OSError:
        pass
    raise ProbeError(
        "GuideLLM left no result that can be read.", next_step="Run it yourself, and import its JSON."
    )


def _opinion(text: str) -> Opinion:
    """Figures of each benchmark by the streams that it says it ran."""
    content = parse_json(text)
    found: dict[int, dict[str, float]] = {}
    lengths: dict[int, float] = {}
    for benchmark in content.get("benchmarks") or ():
        streams = int(benchmark["config"]["strategy"]["streams"])
        points = read_load_test(json.dumps({**content, "benchmarks": [benchmark]})).observations
        found[streams] = {_OURS[point.quantity]: point.value for point in points}
        lengths[streams] = points[0].input_tokens
    return Opinion(by_streams=found, input_tokens=lengths, text=text)
