"""What a load test will send: `TestPlan`, and its token budget, known before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from calc.errors import InputError
from calc.typed_fields import checked_fields

PROMPT_LENGTHS = (256, 1024, 4096, 8192)
CONCURRENCY = (1, 4, 16)
MOST_CONCURRENCY = 512
ROOM_TOKENS = 64  # of the context, for a chat template and for words that make more tokens than the rule says
LENGTH_ERROR = 0.08  # random words make a few per cent more or fewer tokens than the rule says
SAFETY = 1.2  # a run stops when it has used this many times its budget
WARM_WORDS = (8, 8, 200)
RESCALE_TOKENS = 4  # tokens per word that a budget assumes before the server has counted any
FRONT_TOKENS = 48  # chat template and nonce: the shortest prompt that can be sent


@dataclass(frozen=True, slots=True, kw_only=True)
class TestPlan:
    """The stages of a run, in tokens and requests.

    `prompt_lengths` x `prompt_repeats` one at a time for TTFT; `decode_repeats` of `decode_tokens` one at a time for TPOT; each
    `concurrency` with `level_input`/`level_output` tokens; optionally an open loop of `open_rate_per_s` for `open_s` seconds.
    `cached_pass`: at the end the same prompts twice, on purpose. Limits in seconds: of a stage, of the whole run.
    """

    __test__ = False  # not a test, whatever its name begins with

    prompt_lengths: tuple[int, ...] = PROMPT_LENGTHS
    prompt_repeats: int = 5
    prompt_output: int = 8
    decode_repeats: int = 20
    decode_input: int = 256
    decode_tokens: int = 128
    concurrency: tuple[int, ...] = CONCURRENCY
    level_input: int = 512
    level_output: int = 128
    level_requests: int | None = None
    open_rate_per_s: float | None = None
    open_s: float = 30.0
    cached_pass: bool = False
    stage_limit_s: float = 60.0
    total_limit_s: float = 600.0

    def __post_init__(self) -> None:
        whole = (
            *self.prompt_lengths,
            self.prompt_output,
            self.decode_input,
            self.decode_tokens,
            self.level_input,
            self.level_output,
        )
        if any(not 1 <= n <= 1_000_000 for n in whole):
            raise InputError("tokens", whole, "lengths lie between 1 and 1,000,000 tokens")
        if any(not 1 <= n <= MOST_CONCURRENCY for n in self.concurrency):
            raise InputError("concurrency", self.concurrency, f"it lies between 1 and {MOST_CONCURRENCY}")
        if not (0 <= self.prompt_repeats <= 100 and 0 <= self.decode_repeats <= 1000):
            raise InputError("repeats", (self.prompt_repeats, self.decode_repeats), "at most 100 and 1,000")
        if self.open_rate_per_s is not None and not 0 < self.open_rate_per_s <= 1000:
            raise InputError(
                "open loop", self.open_rate_per_s, "a rate lies above 0 and up to 1,000 requests/s"
            )
        if not (
            1 <= self.stage_limit_s <= 3600 and 1 <= self.total_limit_s <= 7200 and 0 < self.open_s <= 3600
        ):
            raise InputError(
                "limit",
                (self.stage_limit_s, self.total_limit_s),
                "a stage takes up to 3,600 s, a run 7,200 s",
            )

    def requests_at(self, concurrency: int) -> int:
        """Requests of one level: eight times the concurrency, at least 32, so that the steady window holds six rounds."""
        return self.level_requests or max(32, 8 * concurrency)

    @property
    def open_requests(self) -> int:
        return round((self.open_rate_per_s or 0.0) * self.open_s)

    def within(self, context_tokens: int | None) -> TestPlan:
        """The plan as far as the server's context goes; a length that does not fit becomes the longest that does."""
        if context_tokens is None:
            return self
        most = max(16, int(context_tokens * (1.0 - LENGTH_ERROR)) - ROOM_TOKENS - self.prompt_output)
        lengths = sorted({min(n, most) for n in self.prompt_lengths})
        room = max(8, int(context_tokens * (1.0 - LENGTH_ERROR)) - ROOM_TOKENS)
        output = min(self.level_output, room // 2)
        decode = min(self.decode_tokens, room // 2)
        return replace(
            self,
            prompt_lengths=tuple(lengths),
            level_output=output,
            level_input=min(self.level_input, room - output),
            decode_tokens=decode,
            decode_input=min(self.decode_input, room - decode),
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_from_json(data: Mapping[str, Any]) -> TestPlan:
    """Read a plan back; raises InputError for unknown fields and for values of another type."""
    return TestPlan(**checked_fields(TestPlan, data, what="plan"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Requests and tokens that a plan will use, at most and about: every prompt may carry a template and a nonce on top."""

    requests: int
    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def words(self) -> str:
        return f"about {self.requests:,} requests, {self.input_tokens:,} prompt tokens and {self.output_tokens:,} output tokens"


def budget_of(plan: TestPlan) -> Budget:
    """The budget, warm-up included."""
    levels = [plan.requests_at(n) for n in plan.concurrency]
    served = sum(levels) + plan.open_requests
    cached = 2 * len(plan.prompt_lengths) if plan.cached_pass else 0
    alone = len(plan.prompt_lengths) * plan.prompt_repeats
    requests = len(WARM_WORDS) + alone + plan.decode_repeats + served + cached
    return Budget(
        requests=requests,
        input_tokens=FRONT_TOKENS * requests
        + RESCALE_TOKENS * sum(WARM_WORDS)
        + sum(plan.prompt_lengths) * plan.prompt_repeats
        + (2 * sum(plan.prompt_lengths) if plan.cached_pass else 0)
        + plan.decode_input * plan.decode_repeats
        + plan.level_input * served,
        output_tokens=plan.prompt_output * (len(WARM_WORDS) + alone + cached)
        + plan.decode_tokens * plan.decode_repeats
        + plan.level_output * served,
    )
