"""`ridgebeam plan --models`: which of several models suits one accelerator best, in which format, and how fast."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from calc.errors import InputError
from commands.arguments import INFEASIBLE, OK, emit, scenario

if TYPE_CHECKING:
    from calc.result import Answer


def run_models(arguments: argparse.Namespace) -> int:
    """Rank the models of `--models` on the one accelerator of `--gpu`."""
    from calc import contract
    from calc import format as fmt
    from calc.answer import answer
    from calc.models_on_card import models_on_card
    from presets.resolve import resolve

    if len(arguments.gpu or ()) != 1 or arguments.input is None or arguments.output is None:
        raise InputError("plan", "--models", "it needs one --gpu, --input and --output")
    arguments.source = arguments.models[0]
    base = replace(scenario(arguments, gpu=arguments.gpu[0]), tp=1)

    def ask(model: str, quantization: str) -> Answer:
        asked = replace(base, model=model, quantization=quantization)
        return answer(replace(resolve(asked), catalogue=()))

    found = models_on_card(arguments.models, ask)
    works = [c for c in found if c.answer is not None]
    record = {
        "plans": [contract.plan_json(c.answer) | {"model": c.model} for c in works if c.answer],
        "levers": [],
        "rejected": [{"why": f"{c.model}: {c.why}", "count": 1} for c in found if c.answer is None],
    }
    lines = [
        f"{c.model} in {c.quantization}: {fmt.parameters(c.parameters)} parameters, "
        f"{fmt.optional(c.user_tokens_per_s, fmt.plain)} tokens/s per user"
        for c in works
    ]
    lines += [f"does not work: {c.model}: {c.why}" for c in found if c.answer is None]
    emit(arguments, record, lines)
    return OK if works else INFEASIBLE
