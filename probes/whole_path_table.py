"""The whole path as tables: what was measured, and beside it what the step model and the simulator predict from the run.

Predictions use the profile of the run itself: bandwidth, products and attention of this device by torch's own kernels, no
engine overhead. Where the engine's own cost (Python, tokens, HTTP) matters, measured exceeds predicted; that is the point
of standing beside it. No torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from calc import format as fmt
from calc.accelerator import Accelerator
from calc.architectures import parse
from calc.errors import InputError, MissingSpec
from calc.layout import Layout
from calc.operators import ForwardPass
from calc.profile import Profile
from calc.quantization import weight_bytes
from calc.simulation.requests import RequestTable
from calc.simulation.results import SimulationResult
from calc.simulation.rules import EngineRules, engine_rules
from calc.simulation.run import simulate
from calc.speculative import tokens_per_pass
from calc.step import StepModel
from calc.step_clock import step_clock
from probes import measured
from probes.readings import of_probe
from probes.whole_path_line import WHOLE_PATH, WholePathLine

BLOCKS = 4096  # more than the measured runs could fill
NAMES = {"static": "static", "vllm": "continuous"}


def lines(run: Mapping[str, Any]) -> list[WholePathLine]:
    """All lines of a run, table by table; none where the whole path was not measured."""
    cases = {str(case["case"]): case for case in of_probe(run["cases"], WHOLE_PATH)}
    if not cases:
        return []
    single = cases.get("1 drafts")
    acceptance = None if single is None else float(single["extra"]["acceptance"])
    found = _Predictor(run, next(iter(cases.values()))["parameters"], acceptance)
    return [
        line
        for name, case in cases.items()
        for line in _lines_of(name, case, found)
    ]  # fmt: skip


def _lines_of(name: str, case: Mapping[str, Any], predict: _Predictor) -> list[WholePathLine]:
    given, extra, value = case["parameters"], case["extra"], float(case["value"])
    if name.endswith("a cache"):
        return [
            WholePathLine(
                table="cache",
                what=name,
                measured=value,
                predicted=predict.text_s(name, given, extra),
                unit="s",
            )
        ]
    if "scheme" in given:
        return _scheme_lines(given["scheme"], extra, value, predict)
    if "drafts" in given:
        note = f"acceptance {extra['acceptance']:.2f}, {extra['passes']} passes, {extra['speedup']:.2f}x as fast as without"
        expected = predict.tokens_per_pass(int(given["drafts"]))
        return [
            WholePathLine(
                table="drafts",
                what=fmt.plural(int(given["drafts"]), "draft"),
                measured=value,
                predicted=expected,
                unit="tokens a pass",
                note=note,
            )
        ]
    family = NAMES[given["family"]]
    if name.endswith("mixed lengths"):
        result = predict.mixed(given["family"], extra)
        speed = None if result is None else result.output_tokens_per_s
        return [WholePathLine(table="mixed", what=family, measured=value, predicted=speed, unit="tokens/s")]
    return [line for level in extra["levels"] for line in _level_lines(family, level, given, extra, predict)]


def _scheme_lines(
    scheme: str, extra: Mapping[str, Any], tpot_s: float, predict: _Predictor
) -> list[WholePathLine]:
    note = f"logits move by {extra['logit_error']:.1%}, same best token {extra['same_argmax']:.0%}"
    context = float(extra["prompt"])
    shown = "unquantised" if scheme == "none" else scheme
    rows = [
        ("weights", float(extra["weight_bytes"]), predict.weight_bytes(scheme), "B", note),
        ("TTFT", float(extra["ttft_s"]), predict.prefill_s(context, scheme), "s", ""),
        ("TPOT", tpot_s, predict.decode_s(1, context + 32, scheme), "s", ""),
    ]
    return [
        WholePathLine(
            table="weights", what=f"{shown}: {what}", measured=got, predicted=expected, unit=unit, note=words
        )
        for what, got, expected, unit, words in rows
    ]


def _level_lines(
    family: str,
    level: Mapping[str, Any],
    given: Mapping[str, Any],
    extra: Mapping[str, Any],
    predict: _Predictor,
) -> list[WholePathLine]:
    users = int(level["concurrency"])
    result = predict.level(given["family"], users, extra)
    spread = None if result is None else result.spread("ttft_s")
    speed = None if result is None else result.output_tokens_per_s
    rows = [("throughput", level["tokens_per_s"], speed, "tokens/s")]
    for name in ("p50", "p90", "p99"):  # P99 only where the load test had requests enough for it
        predicted = None if spread is None else getattr(spread, name)
        rows.append((f"TTFT {name}", level.get(f"ttft_{name}_s"), predicted, "s"))
    return [
        WholePathLine(
            table="levels",
            what=f"{family}, {users} at once: {what}",
            measured=float(got),
            predicted=expected,
            unit=unit,
        )
        for what, got, expected, unit in rows
        if got is not None
    ]


class _Predictor:
    """The step model and the simulator on the run's own profile."""

    def __init__(
        self, run: Mapping[str, Any], parameters: Mapping[str, Any], acceptance: float | None
    ) -> None:
        self._acceptance = acceptance
        self._spec = parse(dict(parameters["config"]), model_id="the engine's model")
        self._models: dict[str, StepModel | None] = {}
        self._device: tuple[Accelerator, Profile] | None = None
        with suppress(InputError):  # a run that measured the whole path and too little else predicts nothing
            self._device = measured.accelerator_of(run), measured.torch_profile(run)

    def _model(self, scheme: str = "none") -> StepModel | None:
        if self._device is None:
            return None
        accelerator, profile = self._device
        if scheme not in self._models:
            try:
                self._models[scheme] = StepModel.of(
                    self._spec,
                    accelerator,
                    Layout(),
                    profile,
                    quantization=None if scheme == "none" else scheme,
                )
            except (InputError, MissingSpec):
                self._models[scheme] = None
        return self._models[scheme]

    def _seconds(self, scheme: str, step: ForwardPass) -> Any:
        model = self._model(scheme)
        return None if model is None else model.expected(step, eager=False).total

    def prefill_s(self, tokens: float, scheme: str = "none") -> float | None:
        found = self._seconds(scheme, ForwardPass.prefill(tokens))
        return None if found is None else float(found[0])

    def decode_s(self, batch: float, context: float, scheme: str = "none") -> float | None:
        found = self._seconds(scheme, ForwardPass.decode(batch, context))
        return None if found is None else float(found[0])

    def tokens_per_pass(self, drafts: int) -> float | None:
        """The formula at the acceptance of single drafts; nothing for those themselves, which it was counted from."""
        if drafts == 1 or self._acceptance is None:
            return None
        return float(tokens_per_pass(acceptance=self._acceptance, drafts=drafts))

    def weight_bytes(self, scheme: str) -> float | None:
        """Bytes of all weights, embedding and head included, which no scheme touches."""
        try:
            return float(weight_bytes(self._spec, None if scheme == "none" else scheme).stored)
        except InputError:
            return None

    def text_s(self, name: str, given: Mapping[str, Any], extra: Mapping[str, Any]) -> float | None:
        """Seconds of a whole text: every prefix anew, or the prompt once and then token by token."""
        prompt, tokens = float(extra["prompt"]), int(given["tokens"])
        if name.startswith("without"):
            found = self._seconds("none", ForwardPass.prefill(prompt + np.arange(tokens)))
            return None if found is None else float(np.sum(found))
        first = self.prefill_s(prompt)
        rest = self._seconds(
            "none", ForwardPass.decode(np.ones(tokens - 1), prompt + 1 + np.arange(tokens - 1))
        )
        return None if first is None or rest is None else first + float(np.sum(rest))

    def level(self, family: str, users: int, extra: Mapping[str, Any]) -> SimulationResult | None:
        count = max(users, 32)
        return self._simulated(
            family,
            users,
            np.full(count, int(extra["input"])),
            np.full(count, int(extra["output"])),
            int(extra["slots"]),
        )

    def mixed(self, family: str, extra: Mapping[str, Any]) -> SimulationResult | None:
        prompts, answers = (np.array(column) for column in zip(*extra["traffic"], strict=True))
        return self._simulated(family, int(extra["users"]), prompts, answers, int(extra["slots"]))

    def _simulated(
        self, family: str, users: int, prompts: Any, answers: Any, slots: int
    ) -> SimulationResult | None:
        """A closed loop of users under the engine's own rules."""
        model = self._model()
        if model is None:
            return None
        context = float(prompts.mean() + answers.mean() / 2)
        clock = step_clock(model, context_tokens=context, prompt_tokens=float(prompts.mean()))
        count = len(prompts)
        table = RequestTable(
            arrival_s=np.where(np.arange(count) < users, 0.0, np.nan),
            input_tokens=prompts,
            output_tokens=answers,
            predecessor=np.where(np.arange(count) < users, -1, np.arange(count) - users),
        )
        return simulate(table, _rules(family, slots), clock, compiled=False)  # a few hundred passes


def _rules(family: str, slots: int) -> EngineRules:
    if family == "static":
        return engine_rules(family, num_blocks=BLOCKS, batch_size=slots, batch_timeout_s=0.05)
    return engine_rules(family, num_blocks=BLOCKS, max_seqs=slots, prefix_cache=False)


def markdown(found: Sequence[WholePathLine], table: str) -> list[str]:
    """One table's lines as Markdown."""

    def shown(value: float | None, unit: str) -> str:
        if value is None:
            return ""
        return (
            fmt.seconds(value)
            if unit == "s"
            else fmt.si(value, unit)
            if unit == "B"
            else f"{value:.3g} {unit}"
        )

    rows = ["| | measured | predicted | measured / predicted | |", "|---|---|---|---|---|"]
    for line in found:
        if line.table == table:
            ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
            rows.append(
                f"| {line.what} | {shown(line.measured, line.unit)} | {shown(line.predicted, line.unit)} | {ratio} | {line.note} |"
            )
    return rows
