"""What a ledger is: memory of each GPU line by line, the KV pool that is left, and whether the engine would start."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from calc.engine import Engine
from calc.memory.engines.kv_groups import Pool
from calc.provenance import Estimate
from calc.verdict import Verdict


class LineKind(StrEnum):
    """What a line of the ledger pays for."""

    WEIGHTS = "weights"
    ADAPTERS = "adapters"
    ACTIVATION = "activation"
    NON_TORCH = "non-torch"
    GRAPHS = "cuda graphs"
    DRAFTS = "drafts"
    STATES = "recurrent states"
    KV = "kv pool"
    RESERVE = "reserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line: bytes with range and provenance, and where they come from in words.

    `counted`: subtracted before the pool is sized. A line that is not counted is paid from what the engine leaves free.
    `formula` names the registry's formula that gives the best estimate from `inputs`, for lines that have one.
    """

    kind: LineKind
    bytes: Estimate
    note: str = ""
    counted: bool = True
    formula: str = ""
    inputs: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLedger:
    """The memory of one GPU; `gpus` of them look the same. `budget` is what the engine may use of `total`.

    `pool_share`: share of what the lines leave that the pool takes; None where the pool was asked for in bytes or tokens.
    `stage` counts pipeline stages from 0, of `stages`.
    """

    label: str
    gpus: int
    total: Estimate
    budget: Estimate
    lines: tuple[Line, ...]
    kv: Estimate
    left: Estimate
    pool_share: float | None = 1.0
    stage: int = 0
    stages: int = 1

    def bytes_of(self, kind: LineKind) -> float:
        """Best estimate of one kind of line, in bytes."""
        return float(sum(line.bytes.best for line in self.lines if line.kind is kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The room that bounds how many sequences run: `have` of `what`, of which each sequence takes `each`."""

    what: str
    have: int
    each: int

    @property
    def sequences(self) -> int:
        """Whole sequences."""
        return self.have // self.each


@dataclass(frozen=True, slots=True, kw_only=True)
class KvNumbers:
    """The KV pool three times over, and what it serves.

    logical_bytes_per_token: what the mathematics stores for one more token of a long sequence, whole model, bytes.
    reserved_bytes: what the pools of all GPUs of one replica allocate. printed_tokens: what the engine's log says;
    tokens: what can be used at the longest length. `longest_length`: of one sequence, at most max_model_len.
    max_concurrency: sequences of max_model_len as the engine counts them, each with the most that it ever holds;
    most_running: those that run at once, which are more where windows give blocks back after the prompt.
    """

    logical_bytes_per_token: int
    reserved_bytes: float
    block_size: int
    block_bytes: int
    num_blocks: int
    tokens: int
    printed_tokens: int
    max_model_len: int
    max_concurrency: float
    most_running: int
    needed_bytes: int
    available_bytes: float
    longest_length: int
    blocks_per_sequence: int = 0  # most blocks that a sequence of max_model_len ever holds
    blocks_while_decoding: int = 0  # ... and those that it holds once its prompt is computed
    room: Room | None = None  # engines without blocks: what bounds most_running
    most_requests: int | None = None  # requests that slots of state allow, however short they are
    n_groups: int = 1
    padding_layers: int = 0
    window_tokens: int | None = None  # SGLang: tokens of the sliding pool
    state_slots: int | None = None


def numbers_of(pool: Pool, *, logical_bytes: int, reserved_bytes: float, max_model_len: int) -> KvNumbers:
    """The numbers of a pool of blocks, with what the pool itself does not know."""
    return KvNumbers(
        logical_bytes_per_token=logical_bytes,
        reserved_bytes=reserved_bytes,
        block_size=pool.block_size,
        block_bytes=pool.block_bytes,
        num_blocks=pool.num_blocks,
        tokens=pool.tokens,
        printed_tokens=pool.printed_tokens,
        max_model_len=max_model_len,
        max_concurrency=pool.max_concurrency,
        most_running=pool.most_running,
        needed_bytes=pool.needed_bytes,
        available_bytes=pool.available_bytes,
        longest_length=pool.longest_length,
        blocks_per_sequence=pool.blocks_per_request,
        blocks_while_decoding=pool.blocks_while_decoding,
        n_groups=pool.n_groups,
        padding_layers=pool.padding_layers,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Everything about one replica: ranks with the tightest first, the pool, the verdict, and what was assumed.

    `start_shortfall_bytes`: what the engine asks for at start beyond what any process finds free; above 0 it refuses.
    `undecided`: on a board that shares its memory with the host, the pool's range covers a start and a refusal; the verdict is then
    that of the best estimate.
    """

    engine: Engine
    version: str
    ranks: tuple[RankLedger, ...]
    kv: KvNumbers
    n_layers: int
    verdict: Verdict
    assumptions: tuple[str, ...] = ()
    start_shortfall_bytes: float = 0.0
    undecided: bool = False

    @property
    def tightest(self) -> RankLedger:
        return self.ranks[0]
