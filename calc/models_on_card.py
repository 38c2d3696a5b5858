"""Which of several models suits one accelerator best: every model in every format, judged by what it keeps and how fast."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from calc.errors import InputError, MissingSpec
from calc.parameters import count_parameters
from calc.result import Answer

FORMATS = ("auto", "fp8", "int4-g128")
"""As the checkpoint is stored, then what engines serve in 8 and 4 bits: from the least compressed to the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model in one format on the card. `why`: what stops it, empty where it works."""

    model: str
    quantization: str
    parameters: int
    answer: Answer | None
    why: str

    @property
    def user_tokens_per_s(self) -> float | None:
        """Tokens per second that one user sees."""
        return (
            None
            if self.answer is None or self.answer.tpot_s is None
            else 1.0 / float(self.answer.tpot_s.best)
        )


def models_on_card(models: Iterable[str], ask: Callable[[str, str], Answer]) -> tuple[Candidate, ...]:
    """Every model in its least compressed format that works on the card alone, the largest first; then what does not.

    `ask(model, quantization)` answers on one accelerator. Size stands for quality, for want of a better measure that
    needs no benchmark: a model in 4 bits is ranked by its parameters as well, and its format is shown.
    """
    found = [_first_that_works(model, ask) for model in models]
    if not found:
        raise InputError("models", "none", "name at least one model")
    return tuple(sorted(found, key=lambda c: (c.answer is None, -c.parameters)))


def _first_that_works(model: str, ask: Callable[[str, str], Answer]) -> Candidate:
    reasons, parameters = [], 0
    for quantization in FORMATS:
        try:
            result = ask(model, quantization)
        except (InputError, MissingSpec) as error:
            reasons.append(f"{quantization}: {error}")
            continue
        parameters = count_parameters(result.inputs.spec).total
        if result.verdict.fits and result.gpus == 1:
            return Candidate(
                model=model, quantization=quantization, parameters=parameters, answer=result, why=""
            )
        reasons.append(f"{quantization}: {result.verdict.reason or f'needs {result.gpus} GPUs'}")
    return Candidate(model=model, quantization="", parameters=parameters, answer=None, why="; ".join(reasons))
