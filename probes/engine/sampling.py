"""From logits to a token, and the rule by which drafts are accepted so that the target's distribution is kept.

Random numbers come from each request's own generator and meet the probabilities by inversion, so that a request draws the
same tokens whoever shares its batch and whatever the device.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from calc.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """temperature 0: greedy. top_p: the smallest set of tokens that holds this probability. seed: of the request."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100:
            raise InputError("temperature", self.temperature, "it must be from 0 to 100")
        if not 0 < self.top_p <= 1:
            raise InputError("top_p", self.top_p, "it must be above 0 and at most 1")


GREEDY = Sampling()


class Dice(random.Random):
    """Uniform numbers of one request."""

    def __init__(self, sampling: Sampling) -> None:
        super().__init__(sampling.seed)
        self.sampling = sampling


def probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The distribution (..., vocabulary) that `sampling` draws from; one at the largest logit where it is greedy."""
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(dim=-1), logits.shape[-1]).to(torch.float32)
    found = torch.softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.top_p < 1:
        ordered, order = found.sort(dim=-1, descending=True)
        kept = ordered.cumsum(dim=-1) - ordered < sampling.top_p  # the first that reaches it is kept too
        ordered = torch.where(kept, ordered, torch.zeros_like(ordered))
        found = torch.zeros_like(found).scatter(-1, order, ordered)
        found = found / found.sum(dim=-1, keepdim=True)
    return found


def draw(distribution: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Tokens (...) of distributions (..., vocabulary) by inversion: the first whose cumulated probability exceeds `uniform`."""
    mass = distribution.cumsum(dim=-1)
    wanted = uniform[..., None] * mass[..., -1:]
    token = (mass <= wanted).sum(dim=-1)
    last = distribution.shape[-1] - 1 - (distribution.flip(-1) > 0).to(torch.int8).argmax(dim=-1)
    return torch.minimum(token, last)  # a sum that rounding left short must not end on an impossible token


def next_tokens(logits: torch.Tensor, dice: list[Dice]) -> list[int]:
    """One token for each row of (rows, vocabulary) logits, each by its own request's rule."""
    found = logits.argmax(dim=-1)
    for row, one in enumerate(dice):
        if one.sampling.temperature > 0:
            uniform = torch.tensor(one.random(), device=logits.device)
            found[row] = draw(probabilities(logits[row], one.sampling), uniform)
    return found.tolist()


def accept(
    target: torch.Tensor, draft: torch.Tensor, drafted: torch.Tensor, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(accepted drafts, the token after them) of each row; the tokens then follow the target's distribution exactly.

    target (rows, k + 1, vocabulary), draft (rows, k, vocabulary), drafted (rows, k), uniform (rows, k + 1).
    Draft i is kept with probability min(1, p_i(x) / q_i(x)). After the first that is not, the next token comes from
    the part of p that q lacks, max(p - q, 0) made to sum to one; after k kept ones, from the target's own p.

    Source: Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1. Ignores: nothing.
    """
    rows, k = drafted.shape
    p = target[:, :k].gather(-1, drafted[..., None]).squeeze(-1)
    q = draft.gather(-1, drafted[..., None]).squeeze(-1)
    kept = uniform[:, :k] * q < p
    accepted = kept.to(torch.int64).cumprod(dim=1).sum(dim=1)
    each = torch.arange(rows, device=target.device)
    beyond = target[each, accepted]
    lacking = torch.cat((draft, torch.zeros_like(draft[:, :1])), dim=1)[each, accepted]
    rest = (beyond - lacking).clamp(min=0)
    rest = torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, beyond)
    return accepted, draw(rest, uniform[:, k])
