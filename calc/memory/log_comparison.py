"""A pasted start-up log against the ledger of the same settings, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from calc.engine import Engine
from calc.memory.engines import EngineSettings, Ledger, LineKind
from calc.memory.logs import BYTES, Quantity, StartupLog


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedLine:
    """One quantity: predicted, as logged (None: the log does not say), and the line of the log (0: none).

    `unit`: bytes, tokens, blocks, sequences, layers or a share.
    """

    quantity: Quantity
    predicted: float | None
    logged: float | None
    unit: str
    line: int

    @property
    def error(self) -> float | None:
        """Predicted over logged, less one; None where either is missing."""
        if self.predicted is None or not self.logged:
            return None
        return self.predicted / self.logged - 1


UNITS = {
    Quantity.TOKENS: "tokens",
    Quantity.WINDOW_TOKENS: "tokens",
    Quantity.MAX_MODEL_LEN: "tokens",
    Quantity.LONGEST: "tokens",
    Quantity.BLOCK_SIZE: "tokens",
    Quantity.BLOCKS: "blocks",
    Quantity.CONCURRENCY: "sequences",
    Quantity.PADDING_LAYERS: "layers",
    Quantity.UTILIZATION: "share",
}


def settings_from_log(log: StartupLog, given: EngineSettings) -> EngineSettings:
    """`given` with what the log states about the start itself: engine, version, share, longest length, card total.

    What the engine reported (weights, pool, tokens) is not taken over: it is what the prediction is compared with.
    """
    from dataclasses import replace

    changes: dict[str, object] = {}
    if log.engine is not None:
        changes["engine"] = log.engine
    if log.version is not None and log.engine is not Engine.LLAMA_CPP:
        changes["version"] = log.version
    share, length = log.binding(Quantity.UTILIZATION), log.binding(Quantity.MAX_MODEL_LEN)
    if share is not None and 0 < share <= 1:
        changes["memory_utilization"] = share
    if length is not None and length >= 1:
        changes["max_model_len"] = int(length)
    total = log.binding(Quantity.TOTAL)
    if total is not None and total > 0:
        changes["device_memory_bytes"] = total
    free = log.binding(Quantity.FREE_BEFORE)
    if log.engine is Engine.SGLANG and free is not None and free > 0:
        changes["free_memory_bytes"] = free
    return replace(given, **changes)  # type: ignore[arg-type] # names and types are those of the fields above


def compare(log: StartupLog, ledger: Ledger) -> tuple[ComparedLine, ...]:
    """Every quantity that the log states and the ledger predicts, in the order of the log."""
    predicted = predictions(ledger)
    lines: list[ComparedLine] = []
    seen: set[Quantity] = set()
    for fact in log.facts:
        if fact.quantity in seen:
            continue
        seen.add(fact.quantity)
        lines.append(
            ComparedLine(
                quantity=fact.quantity,
                predicted=predicted.get(fact.quantity),
                logged=log.binding(fact.quantity),
                unit="bytes" if fact.quantity in BYTES else UNITS.get(fact.quantity, ""),
                line=fact.line,
            )
        )
    return tuple(lines)


def predictions(ledger: Ledger) -> dict[Quantity, float]:
    """What the ledger says about the quantities that logs state."""
    rank, kv = ledger.tightest, ledger.kv
    weights, non_torch = rank.bytes_of(LineKind.WEIGHTS), rank.bytes_of(LineKind.NON_TORCH)
    graphs = rank.bytes_of(LineKind.GRAPHS)
    found = {
        Quantity.TOTAL: float(rank.total.best),
        Quantity.UTILIZATION: float(rank.budget.best) / float(rank.total.best),
        Quantity.WEIGHTS: weights,
        Quantity.ACTIVATION: rank.bytes_of(LineKind.ACTIVATION),
        Quantity.NON_TORCH: non_torch,
        Quantity.CONSUMED: weights + non_torch,
        Quantity.GRAPHS: graphs,
        Quantity.GRAPHS_ESTIMATED: graphs,
        Quantity.COMPUTE_BUFFER: rank.bytes_of(LineKind.ACTIVATION),
        Quantity.STATES: rank.bytes_of(LineKind.STATES),
        Quantity.KV: float(rank.kv.best),
        Quantity.TOKENS: float(kv.printed_tokens),
        Quantity.BLOCKS: float(kv.num_blocks),
        Quantity.BLOCK_SIZE: float(kv.block_size),
        Quantity.CONCURRENCY: kv.max_concurrency,
        Quantity.MAX_MODEL_LEN: float(kv.max_model_len),
        Quantity.NEEDED: float(kv.needed_bytes),
        Quantity.LONGEST: float(kv.longest_length),
        Quantity.PADDING_LAYERS: float(kv.padding_layers),
    }
    if ledger.engine is Engine.SGLANG:
        found[Quantity.WEIGHTS] = weights + non_torch  # it prints what loading took from the free memory
    if kv.window_tokens is not None:
        found[Quantity.WINDOW_TOKENS] = float(kv.window_tokens)
    return found
