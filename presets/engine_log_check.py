"""Predicted against logged for the public start-up logs: the quantities of a row to compare.

Three questions, each with its own rows: does the KV arithmetic give the logged tokens from the logged bytes; are the
weights right; is the whole pool right when nothing is taken from the log but its settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from calc.engine import LLAMA_CPP_ENGINES, Engine
from calc.errors import RidgebeamError
from calc.memory.engines import Ledger, LineKind, RankLedger, ledger
from calc.memory.engines.versions import release
from calc.quantization import weight_bytes
from calc.units import GIB
from presets.engine_log_cards import card_is_described, card_of, named_card
from presets.engine_log_models import spec_of
from presets.engine_log_settings import engine_of, layout_of, quantization_of, settings_of
from presets.engine_logs import EngineLog, flag_number, readings

CONSUMED_SINCE = (0, 28, 0)
HALF_DIGIT_BYTES = 0.005 * GIB  # logs print two decimals of GiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One quantity of one row. `error` is relative, `rounding` the relative half digit of what the log printed.

    `low` and `high`: the range that was stated with a predicted pool.
    """

    case_id: str
    quantity: str
    predicted: float
    logged: float
    rounding: float = 0.0
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float:
        return self.predicted / self.logged - 1 if self.logged else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowResult:
    """All comparisons of a row, or why there are none."""

    case_id: str
    comparisons: tuple[Comparison, ...] = ()
    unusable: str = ""

    @property
    def worst(self) -> Comparison | None:
        return max(self.comparisons, key=lambda c: abs(c.error), default=None)


def check_kv(log: EngineLog, configs: Path) -> RowResult:
    """KV arithmetic alone: the logged bytes in, tokens, blocks, concurrency or needed bytes out."""
    spec = spec_of(log, configs)
    if isinstance(spec, str):
        return RowResult(case_id=log.case_id, unusable=spec)
    settings = settings_of(log)
    available = settings.available_kv_bytes if settings.available_kv_bytes is not None else log.kv_bytes
    if available is None and log.needed_bytes is None:
        return RowResult(case_id=log.case_id, unusable="the log states no bytes of the KV cache")
    settings = replace(settings, available_kv_bytes=available or 1.0)
    try:
        kv = ledger(spec, card_of(log), layout_of(log), settings).kv
    except RidgebeamError as error:
        return RowResult(case_id=log.case_id, unusable=f"refused: {error.message}")
    printed = 2 if settings.engine is Engine.SGLANG else 1  # SGLang prints K and V apart, each rounded
    digits = printed * HALF_DIGIT_BYTES / available if available else 0.0
    found: list[Comparison] = []

    def compare(quantity: str, predicted: float, logged: float | None, rounding: float) -> None:
        if logged:
            found.append(
                Comparison(
                    case_id=log.case_id,
                    quantity=quantity,
                    predicted=predicted,
                    logged=logged,
                    rounding=rounding,
                )
            )

    if available and available > 0:
        compare("tokens", kv.printed_tokens, log.tokens, digits)
        compare("blocks", kv.num_blocks, log.blocks, digits)
        if log.max_model_len and log.concurrency:
            compare("concurrency", kv.max_concurrency, log.concurrency, digits + 0.005 / log.concurrency)
    if log.needed_bytes:
        compare("needed bytes", kv.needed_bytes, log.needed_bytes, HALF_DIGIT_BYTES / log.needed_bytes)
    if not found:
        return RowResult(
            case_id=log.case_id, unusable="the log states neither tokens, blocks nor needed bytes"
        )
    return RowResult(case_id=log.case_id, comparisons=tuple(found))


def ledger_of(log: EngineLog, configs: Path, *, whole: bool = True) -> Ledger | str:
    """The whole ledger of a row from its settings alone, or the reason why there is none.

    `whole=False`: the card does not matter for what is asked (weights).
    """
    spec = spec_of(log, configs)
    if isinstance(spec, str):
        return spec
    reading = readings().get(log.case_id)
    if reading is not None and reading.only_cache:
        return reading.only_cache
    if spec.model_type == "cache-only":
        return "only the model's caches are known, not its weights"
    if whole and not card_is_described(log):
        return "the log does not say on which card"
    settings = settings_of(log)
    settings = replace(
        settings,
        quantization=quantization_of(log, spec),
        available_kv_bytes=flag_number(log, "kv_cache_memory_bytes"),
    )
    if named_card(log) is None and log.total_bytes is not None:
        settings = replace(settings, device_memory_bytes=log.total_bytes)
    if settings.engine is Engine.SGLANG:
        settings = replace(settings, free_memory_bytes=log.free_bytes)
    try:
        return ledger(spec, card_of(log), layout_of(log), settings)
    except RidgebeamError as error:
        return f"refused: {error.message}"


def hidden_flag(log: EngineLog) -> str | None:
    """What a log does not show although the activation peak depends on it, or None."""
    reading = readings().get(log.case_id)
    return reading.hidden if reading is not None and reading.hidden else None


def _printing_rank(result: Ledger) -> RankLedger:
    """The rank whose terms a log shows: the first stage."""
    return min(result.ranks, key=lambda rank: rank.label)


def check_weights(log: EngineLog, configs: Path) -> RowResult:
    """Weights per GPU against what the engine says that loading took.

    Some logs are known only through a published error of the checkpoint's stored bytes against what was loaded; the
    loaded figure is then the stored bytes over one plus that error, known to 0.005%.
    """
    if log.weights_bytes is None and log.stored_error is None:
        return RowResult(case_id=log.case_id, unusable="the log states no weights")
    result = ledger_of(log, configs, whole=False)
    if isinstance(result, str):
        return RowResult(case_id=log.case_id, unusable=result)
    logged, rounding = log.weights_bytes, 0.00005
    if logged is not None:
        rounding = HALF_DIGIT_BYTES / logged
    elif log.stored_error is not None:
        logged = _stored_per_gpu(log, configs) / (1 + log.stored_error)
    rank = _printing_rank(result)
    predicted = rank.bytes_of(LineKind.WEIGHTS)
    if result.engine is Engine.SGLANG:
        predicted += rank.bytes_of(LineKind.NON_TORCH)  # it prints what loading took from the free memory
    return RowResult(
        case_id=log.case_id,
        comparisons=(
            Comparison(
                case_id=log.case_id,
                quantity="weights",
                predicted=predicted,
                logged=logged or 0.0,
                rounding=rounding,
            ),
        ),
    )


def _stored_per_gpu(log: EngineLog, configs: Path) -> float:
    """Stored bytes of the checkpoint over its GPUs, as the published error counts them."""
    spec = spec_of(log, configs)
    if isinstance(spec, str):
        return 0.0
    return weight_bytes(spec, quantization_of(log, spec)).stored / (log.tp * log.pp)


def check_terms(log: EngineLog, configs: Path) -> RowResult:
    """Activation peak and memory outside torch, where a log states them."""
    if log.activation_bytes is None and log.non_torch_bytes is None:
        return RowResult(case_id=log.case_id, unusable="the log states neither")
    if (hidden := hidden_flag(log)) is not None:
        return RowResult(case_id=log.case_id, unusable=hidden)
    version = settings_of(log).version
    if "vllm" in log.engine and version is not None and release(version) >= CONSUMED_SINCE:
        return RowResult(
            case_id=log.case_id,
            unusable="this release prints other terms (consumed memory; the peak with graphs in it)",
        )
    result = ledger_of(log, configs)
    if isinstance(result, str):
        return RowResult(case_id=log.case_id, unusable=result)
    found = [
        Comparison(
            case_id=log.case_id,
            quantity=str(kind),
            predicted=_printing_rank(result).bytes_of(kind),
            logged=logged,
            rounding=HALF_DIGIT_BYTES / logged,
        )
        for kind, logged in (
            (LineKind.ACTIVATION, log.activation_bytes),
            (LineKind.NON_TORCH, log.non_torch_bytes),
        )
        if logged
    ]
    return RowResult(case_id=log.case_id, comparisons=tuple(found))


def no_pool(log: EngineLog) -> str | None:
    """Why a row cannot test a predicted pool, or None."""
    reason = hidden_flag(log)
    if log.kv_bytes is None:
        reason = "the log states no pool"
    elif engine_of(log) in LLAMA_CPP_ENGINES:
        reason = "llama.cpp allocates what is asked for; it fills nothing"
    elif flag_number(log, "kv_cache_memory_bytes") is not None:
        reason = "the pool is set by a flag"
    elif log.kv_bytes <= 0:
        reason = "the pool was negative: judged as a refusal"
    return reason


def check_pool(log: EngineLog, configs: Path) -> RowResult:
    """The KV pool per GPU with nothing taken from the log but its settings and its card."""
    if (reason := no_pool(log)) is not None:
        return RowResult(case_id=log.case_id, unusable=reason)
    result = ledger_of(log, configs)
    if isinstance(result, str):
        return RowResult(case_id=log.case_id, unusable=result)
    return RowResult(
        case_id=log.case_id,
        comparisons=(
            Comparison(
                case_id=log.case_id,
                quantity="pool",
                predicted=float(result.tightest.kv.best),
                logged=log.kv_bytes or 0.0,
                rounding=HALF_DIGIT_BYTES / abs(log.kv_bytes or 1.0),
                low=float(result.tightest.kv.low),
                high=float(result.tightest.kv.high),
            ),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Whether an engine started, as logged and as predicted; how the prediction was made, or why there is none."""

    case_id: str
    started: bool
    predicted: bool | None
    how: str


def check_start(log: EngineLog, configs: Path) -> Start:
    """The verdict of the whole ledger; where card or weights are unknown, of the KV arithmetic on the logged bytes."""
    result, how = _start_ledger(log, configs)
    predicted = None if result is None else result.verdict.fits
    free_length = settings_of(log).max_model_len is None or engine_of(log) is Engine.SGLANG
    if result is not None and not log.failed and free_length:
        # A length that the log does not show was short enough, and SGLang starts with any pool that is not empty.
        predicted = result.kv.available_bytes > 0
    if result is not None and result.undecided:
        predicted, how = None, "memory shared with the host: the range covers a start and a refusal"
    return Start(case_id=log.case_id, started=not log.failed, predicted=predicted, how=how)


def _start_ledger(log: EngineLog, configs: Path) -> tuple[Ledger | None, str]:
    """The ledger that a start is judged by and how it came about, or None and why there is none."""
    reading = readings().get(log.case_id)
    reason = reading.foreign or reading.hidden if reading is not None else ""
    result = ledger_of(log, configs)
    if reason:
        return None, reason
    if isinstance(result, Ledger):
        return result, "from the settings alone"
    spec = spec_of(log, configs)
    allocates = engine_of(log) in LLAMA_CPP_ENGINES
    if allocates or isinstance(spec, str) or log.kv_bytes is None:
        # What llama.cpp prints is what it allocated, not what was free.
        return None, spec if isinstance(spec, str) else result
    settings = settings_of(log)
    if settings.available_kv_bytes is None:
        # The pool that was printed is known to half a digit, or to two for K and V printed apart.
        settings = replace(settings, available_kv_bytes=log.kv_bytes + 2 * HALF_DIGIT_BYTES)
    return ledger(spec, card_of(log), layout_of(log), settings), f"from the logged pool ({result})"
