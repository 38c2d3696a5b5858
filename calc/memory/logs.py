"""Reads the memory lines of a pasted start-up log: vLLM, SGLang, TensorRT-LLM, llama.cpp and Ollama.

`read_log` takes any text and keeps what it understands; a line that it does not know is left alone. Several ranks that print
the same line are kept apart in order; the smallest pool is the one that binds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from calc.engine import Engine
from calc.errors import InputError
from calc.units import GIB, MIB

MAX_CHARS = 5_000_000
MAX_LINE_CHARS = 4_000


class Quantity(StrEnum):
    """What a line of a log states."""

    TOTAL = "card total"
    FREE_BEFORE = "free before loading"
    FREE_AFTER = "free after loading"
    UTILIZATION = "memory utilisation"
    WEIGHTS = "weights"
    ACTIVATION = "activation peak"
    NON_TORCH = "outside torch"
    CONSUMED = "weights and outside torch"
    GRAPHS_ESTIMATED = "graphs, estimated"
    GRAPHS = "graphs"
    STATES = "recurrent states"
    COMPUTE_BUFFER = "compute buffer"
    KV = "KV pool"
    KV_WINDOWED = "KV pool of windows"
    TOKENS = "KV tokens"
    WINDOW_TOKENS = "KV tokens of windows"
    BLOCKS = "KV blocks"
    BLOCK_SIZE = "block size"
    CONCURRENCY = "concurrency"
    MAX_MODEL_LEN = "longest length"
    NEEDED = "needed for one sequence"
    LONGEST = "estimated longest length"
    PADDING_LAYERS = "padding layers"


BYTES = {
    Quantity.TOTAL,
    Quantity.FREE_BEFORE,
    Quantity.FREE_AFTER,
    Quantity.WEIGHTS,
    Quantity.ACTIVATION,
    Quantity.NON_TORCH,
    Quantity.CONSUMED,
    Quantity.GRAPHS_ESTIMATED,
    Quantity.GRAPHS,
    Quantity.STATES,
    Quantity.COMPUTE_BUFFER,
    Quantity.KV,
    Quantity.KV_WINDOWED,
    Quantity.NEEDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFact:
    """One stated quantity: bytes, tokens, blocks or a plain number, and the line that it stands in (from 1)."""

    quantity: Quantity
    value: float
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupLog:
    """What a log says: the engine, its version where it is printed, and the facts in order."""

    engine: Engine | None
    version: str | None
    facts: tuple[LogFact, ...]

    def values(self, quantity: Quantity) -> tuple[float, ...]:
        """Every value of a quantity, rank by rank."""
        return tuple(fact.value for fact in self.facts if fact.quantity is quantity)

    def binding(self, quantity: Quantity) -> float | None:
        """The value that binds: the smallest pool or token count, the largest of anything else; None if not stated."""
        found = self.values(quantity)
        if not found:
            return None
        pools = (Quantity.KV, Quantity.TOKENS, Quantity.BLOCKS, Quantity.CONCURRENCY)
        return min(found) if quantity in pools else max(found)


Reader = Callable[[re.Match[str]], Iterable[tuple[Quantity, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A line of one engine: what it looks like, and the quantities in it."""

    engine: Engine
    expression: re.Pattern[str]
    read: Reader


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _gib(quantity: Quantity, group: int = 1) -> Reader:
    return lambda m: [(quantity, _number(m[group]) * GIB)]


def _mib(quantity: Quantity, group: int = 1) -> Reader:
    return lambda m: [(quantity, _number(m[group]) * MIB)]


def _count(quantity: Quantity, group: int = 1) -> Reader:
    return lambda m: [(quantity, _number(m[group]))]


def _pattern(engine: Engine, expression: str, read: Reader) -> Pattern:
    return Pattern(engine=engine, expression=re.compile(expression, re.IGNORECASE), read=read)


# A number is bounded, and stands between no other digits: without that, a line of digits takes cubic time.
N = r"(?<![\d,.])(-?\d[\d,]{0,19}(?:\.\d{0,18})?)(?!,?\d)"
_UNITS = {"b": 1.0, "kib": 1024.0, "mib": MIB, "mb": MIB, "gib": GIB, "gb": GIB}


def _vllm_terms() -> list[Pattern]:
    v = Engine.VLLM
    return [
        # "GB" of older releases is 2^30 as well.
        _pattern(v, rf"model (?:loading|weights) (?:took|take) {N} ?Gi?B", _gib(Quantity.WEIGHTS)),
        _pattern(
            v,
            rf"total_gpu_memory \({N} ?GiB\) x gpu_memory_utilization \({N}\)",
            lambda m: [(Quantity.TOTAL, _number(m[1]) * GIB), (Quantity.UTILIZATION, _number(m[2]))],
        ),
        _pattern(
            v,
            rf"model weights take {N} ?GiB; non_torch_memory takes {N} ?GiB; "
            rf"PyTorch activation peak memory takes {N} ?GiB; the rest of the memory reserved for KV Cache is {N} ?GiB",
            lambda m: [
                (Quantity.WEIGHTS, _number(m[1]) * GIB),
                (Quantity.NON_TORCH, _number(m[2]) * GIB),
                (Quantity.ACTIVATION, _number(m[3]) * GIB),
                (Quantity.KV, _number(m[4]) * GIB),
            ],
        ),
    ]


def _vllm_pool() -> list[Pattern]:
    v = Engine.VLLM
    return [
        _pattern(v, rf"available KV cache memory: {N} ?GiB", _gib(Quantity.KV)),
        _pattern(v, rf"GPU KV cache size: {N} tokens", _count(Quantity.TOKENS)),
        _pattern(v, rf"# (?:GPU|cuda) blocks: {N}", _count(Quantity.BLOCKS)),
        _pattern(
            v,
            rf"maximum concurrency for {N} tokens per request: {N}x",
            lambda m: [(Quantity.MAX_MODEL_LEN, _number(m[1])), (Quantity.CONCURRENCY, _number(m[2]))],
        ),
        _pattern(v, rf"setting attention block size to {N} tokens", _count(Quantity.BLOCK_SIZE)),
        _pattern(v, rf"add {N} padding layers", _count(Quantity.PADDING_LAYERS)),
        _pattern(v, rf"graph capturing finished in .*?took {N} ?GiB", _gib(Quantity.GRAPHS)),
        _pattern(v, rf"estimated CUDA graph memory:? {N} ?GiB", _gib(Quantity.GRAPHS_ESTIMATED)),
        _pattern(
            v,
            rf"CUDA graph pool memory: {N} ?GiB \(actual\), {N} ?GiB \(estimated\)",
            lambda m: [
                (Quantity.GRAPHS, _number(m[1]) * GIB),
                (Quantity.GRAPHS_ESTIMATED, _number(m[2]) * GIB),
            ],
        ),
        _pattern(v, rf"actual usage is {N} ?GiB for weight,", _gib(Quantity.WEIGHTS)),
        _pattern(v, rf"actual usage is {N} ?GiB for consumed memory", _gib(Quantity.CONSUMED)),
        _pattern(v, rf"{N} ?GiB for peak activation", _gib(Quantity.ACTIVATION)),
        _pattern(v, rf"{N} ?GiB for non-torch memory", _gib(Quantity.NON_TORCH)),
        _pattern(v, rf"{N} ?GiB for CUDAGraph memory", _gib(Quantity.GRAPHS)),
        _pattern(v, rf"torch peak memory increase: {N} ?GiB", _gib(Quantity.ACTIVATION)),
        _pattern(v, rf"non-torch forward increase memory: {N} ?GiB", _gib(Quantity.NON_TORCH)),
        _pattern(v, rf"weights memory: {N} ?GiB", _gib(Quantity.WEIGHTS)),
        _pattern(
            v,
            rf"free memory on device(?: cuda:\d+)? \({N}/{N} ?GiB\)",
            lambda m: [(Quantity.FREE_BEFORE, _number(m[1]) * GIB), (Quantity.TOTAL, _number(m[2]) * GIB)],
        ),
        _pattern(v, rf"desired GPU memory utilization is \({N},", _count(Quantity.UTILIZATION)),
        _pattern(
            v,
            rf"max seq len \({N}\), \(?{N} ?Gi?B KV cache is needed.*?available KV cache memory \({N} ?Gi?B\)",
            lambda m: [
                (Quantity.MAX_MODEL_LEN, _number(m[1])),
                (Quantity.NEEDED, _number(m[2]) * GIB),
                (Quantity.KV, _number(m[3]) * GIB),
            ],
        ),
        _pattern(v, rf"estimated maximum model length is {N}", _count(Quantity.LONGEST)),
        _pattern(
            v,
            rf"max seq len \({N}\) is larger than the maximum number of tokens that can be stored in KV cache \({N}\)",
            lambda m: [(Quantity.MAX_MODEL_LEN, _number(m[1])), (Quantity.TOKENS, _number(m[2]))],
        ),
    ]


def _sglang() -> list[Pattern]:
    s = Engine.SGLANG
    return [
        _pattern(s, rf"load weight begin\. avail mem={N} ?GB", _gib(Quantity.FREE_BEFORE)),
        _pattern(
            s,
            rf"load weight end\..*?avail mem={N} ?GB(?:, mem usage={N} ?GB)?",
            lambda m: [
                (Quantity.FREE_AFTER, _number(m[1]) * GIB),
                *([(Quantity.WEIGHTS, _number(m[2]) * GIB)] if m[2] else []),
            ],
        ),
        _pattern(
            s,
            rf"KV cache is allocated\.(?: dtype: [\w.]+,)? #tokens: {N}, K size: {N} ?GB, V size: {N} ?GB",
            lambda m: [
                (Quantity.TOKENS, _number(m[1])),
                (Quantity.KV, (_number(m[2]) + _number(m[3])) * GIB),
            ],
        ),
        _pattern(
            s,
            rf"KV cache is allocated\.(?: dtype: [\w.]+,)? #tokens: {N}, KV size: {N} ?GB",
            lambda m: [(Quantity.TOKENS, _number(m[1])), (Quantity.KV, _number(m[2]) * GIB)],
        ),
        _pattern(s, rf"max_total_num_tokens={N}", _count(Quantity.TOKENS)),
        _pattern(s, rf"mem_fraction_static={N}", _count(Quantity.UTILIZATION)),
        _pattern(s, rf"context_len={N}", _count(Quantity.MAX_MODEL_LEN)),
        _pattern(
            s,
            rf"mamba cache is allocated\..*?conv_state size: {N} ?GB.*?ssm_state size: {N} ?GB",
            lambda m: [(Quantity.STATES, (_number(m[1]) + _number(m[2])) * GIB)],
        ),
        _pattern(s, rf"capture [\w ]*graph end\..*?mem usage={N} ?GB", _gib(Quantity.GRAPHS)),
        _pattern(
            s,
            rf"SWAKVPool mem usage: {N} ?GB, swa size: {N}, full size: {N}",
            lambda m: [
                (Quantity.KV, _number(m[1]) * GIB),
                (Quantity.WINDOW_TOKENS, _number(m[2])),
                (Quantity.TOKENS, _number(m[3])),
            ],
        ),
    ]


def _tensorrt_llm() -> list[Pattern]:
    t = Engine.TENSORRT_LLM
    size = rf"{N} ?([KMG]i?B|B)"

    def bytes_in(quantity: Quantity) -> Reader:
        return lambda m: [(quantity, _number(m[1]) * _UNITS[m[2].lower()])]

    return [
        _pattern(t, rf"loaded engine size: {size}", bytes_in(Quantity.WEIGHTS)),
        _pattern(t, rf"allocated {size} for execution context memory", bytes_in(Quantity.ACTIVATION)),
        _pattern(
            t,
            rf"memory usage when calculating max tokens in paged kv cache: total: {size}, available: {size}",
            lambda m: [
                (Quantity.TOTAL, _number(m[1]) * _UNITS[m[2].lower()]),
                (Quantity.FREE_AFTER, _number(m[3]) * _UNITS[m[4].lower()]),
            ],
        ),
        _pattern(t, rf"allocated {size} for max tokens in paged KV cache", bytes_in(Quantity.KV)),
        _pattern(t, rf"for max tokens in paged KV cache \({N}\)", _count(Quantity.TOKENS)),
        _pattern(t, rf"number of blocks in KV cache primary pool: {N}", _count(Quantity.BLOCKS)),
        _pattern(t, rf"number of tokens per block: {N}", _count(Quantity.BLOCK_SIZE)),
    ]


def _llama_cpp() -> list[Pattern]:
    c = Engine.LLAMA_CPP
    device = r"(?:CUDA|ROCm|Metal|Vulkan|SYCL|MUSA|HIP)\d*"
    return [
        _pattern(c, rf"{device}(?:_Mapped)? model buffer size = +{N} MiB", _mib(Quantity.WEIGHTS)),
        _pattern(
            c,
            rf"llama_kv_cache\w*: +size = +{N} MiB \( *{N} cells, +{N} layers",
            lambda m: [(Quantity.KV, _number(m[1]) * MIB), (Quantity.TOKENS, _number(m[2]))],
        ),
        _pattern(c, rf"llama_kv_cache_init: +{device} KV buffer size = +{N} MiB", _mib(Quantity.KV)),
        _pattern(
            c,
            rf"llama_memory_recurrent: +size = +{N} MiB \( *{N} cells",
            lambda m: [(Quantity.STATES, _number(m[1]) * MIB)],
        ),
        _pattern(c, rf"{device} compute buffer size = +{N} MiB", _mib(Quantity.COMPUTE_BUFFER)),
        _pattern(c, rf"llama_context: n_ctx +?= +{N}", _count(Quantity.MAX_MODEL_LEN)),
        _pattern(c, rf"llama_new_context_with_model: n_ctx +?= +{N}", _count(Quantity.MAX_MODEL_LEN)),
        _pattern(
            c,
            rf"using device {device}.*?- {N} MiB free",
            _mib(Quantity.FREE_BEFORE),
        ),
    ]


PATTERNS: tuple[Pattern, ...] = (*_vllm_terms(), *_vllm_pool(), *_sglang(), *_tensorrt_llm(), *_llama_cpp())
# A line without any of these states nothing that is read here; most lines of a log are like that.
TELLING_WORDS = (
    "gib",
    "mib",
    "mb",
    "gb",
    "tokens",
    "blocks",
    "n_ctx",
    "context_len",
    "mem_fraction",
    "padding layers",
    "model length",
    "version",
    "engine (v",
    "build:",
)
_VERSIONS = (
    (Engine.VLLM, re.compile(r"(?:vLLM API server version|LLM engine \(v) ?v?(\d+\.\d+[\w.+-]*)")),
    (Engine.VLLM, re.compile(r"vLLM\D{0,30}version v?(\d+\.\d+[\w.+-]*)", re.IGNORECASE)),
    (Engine.SGLANG, re.compile(r"sglang[=\s]+v?(\d+\.\d+[\w.+-]*)", re.IGNORECASE)),
    (Engine.TENSORRT_LLM, re.compile(r"TensorRT-LLM version: (\d+\.\d+[\w.+-]*)")),
    (Engine.LLAMA_CPP, re.compile(r"build: (\d+) \(")),
)


def read_log(text: str) -> StartupLog:
    """The facts of a pasted log. Raises `InputError` for a text that is too large; an unknown text has no facts."""
    if len(text) > MAX_CHARS:
        raise InputError(
            "log", f"{len(text):,} characters", f"at most {MAX_CHARS:,} are read; paste the start-up part"
        )
    facts: list[LogFact] = []
    hits: dict[Engine, int] = {}
    version: str | None = None
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw[:MAX_LINE_CHARS]
        lowered = line.lower()
        if not any(word in lowered for word in TELLING_WORDS):
            continue
        if version is None:
            version = next((m[1] for _, pattern in _VERSIONS if (m := pattern.search(line))), None)
        for pattern in PATTERNS:
            match = pattern.expression.search(line)
            if match is None:
                continue
            hits[pattern.engine] = hits.get(pattern.engine, 0) + 1
            facts += [
                LogFact(quantity=quantity, value=value, line=number, text=line.strip()[:300])
                for quantity, value in pattern.read(match)
            ]
    engine = max(hits, key=hits.__getitem__) if hits else None
    return StartupLog(engine=engine, version=version, facts=_once(facts))


def _once(facts: list[LogFact]) -> tuple[LogFact, ...]:
    """Facts without those that two patterns found in one line."""
    seen: set[tuple[Quantity, int, float]] = set()
    kept: list[LogFact] = []
    for fact in facts:
        key = (fact.quantity, fact.line, fact.value)
        if key not in seen:
            seen.add(key)
            kept.append(fact)
    return tuple(kept)
