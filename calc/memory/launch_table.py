"""The flags that our launch commands may hold, as each engine's own argument parser reads them; `problems_of` a command.

vLLM's and SGLang's rows were checked by parsing commands with the parsers of the packages named; the test marked
`peers` repeats that where they are installed. The others were read from the source that is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from calc.engine import Engine

INT, FLOAT, TEXT, SWITCH = "whole number", "number", "text", "switch"
Kind = str | tuple[str, ...]  # a tuple: one of these values


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTable:
    """One engine's flags. `version` and `date` of what was read, `source` of it; `start`: words before the flags."""

    version: str
    date: str
    source: str
    start: tuple[str, ...]
    flags: Mapping[str, Kind]


VLLM_CACHE = ("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4", "int8_per_token_head")
VLLM_WEIGHTS = ("fp8", "awq", "gptq", "compressed-tensors", "mxfp4", "modelopt", "modelopt_fp4")
SGLANG_CACHE = ("auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16", "nvfp4")
SGLANG_WEIGHTS = ("fp8", "awq", "gptq", "mxfp4", "modelopt_fp4", "w8a8_int8", "w8a8_fp8", "bitsandbytes")
SGLANG_ROLES = ("null", "prefill", "decode")
GGML_SPLITS = ("none", "layer", "row", "tensor")
GGML_CACHE = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
OLLAMA_CACHE = ("f16", "q8_0", "q4_0")


def _flags(names_of: Mapping[Kind, str]) -> Mapping[str, Kind]:
    """The kind of each flag, from the flags of each kind with blanks between."""
    return MappingProxyType({name: kind for kind, names in names_of.items() for name in names.split()})


VLLM = FlagTable(
    version="0.33.0",
    date="2026-11-30",
    source="vllm.entrypoints.common.cli_args.make_arg_parser of the published wheel",
    start=("vllm", "serve"),
    flags=_flags(
        {
            INT: """
                --tensor-parallel-size --pipeline-parallel-size --data-parallel-size --decode-context-parallel-size
                --max-model-len --max-num-batched-tokens --max-num-seqs --block-size --kv-cache-memory-bytes
                --max-loras --max-lora-rank --port
            """,
            FLOAT: "--gpu-memory-utilization --kv-offloading-size",
            TEXT: "--revision --host --kv-transfer-config",
            SWITCH: """
                --enable-expert-parallel --enforce-eager --no-enable-prefix-caching --no-enable-chunked-prefill
                --disable-hybrid-kv-cache-manager --enable-lora
            """,
            VLLM_CACHE: "--kv-cache-dtype",
            VLLM_WEIGHTS: "--quantization",
        }
    ),
)
SGLANG = FlagTable(
    version="0.5.23",
    date="2026-11-30",
    source="sglang.srt.server_args.ServerArgs.add_cli_args of the published wheel",
    start=("python", "-m", "sglang.launch_server"),
    flags=_flags(
        {
            INT: """
                --tp-size --pp-size --dp-size --ep-size --context-length --chunked-prefill-size
                --max-running-requests --page-size --max-mamba-cache-size --max-loras-per-batch
                --max-lora-rank --hicache-size --port
            """,
            FLOAT: "--mem-fraction-static --swa-full-tokens-ratio",
            TEXT: "--model-path --revision --host",
            SWITCH: """
                --enable-dp-attention --disable-cuda-graph --disable-radix-cache --enable-lora
                --enable-hierarchical-cache
            """,
            SGLANG_CACHE: "--kv-cache-dtype",
            SGLANG_WEIGHTS: "--quantization",
            SGLANG_ROLES: "--disaggregation-mode",
        }
    ),
)
TENSORRT_LLM = FlagTable(
    version="1.2",
    date="2026-11-30",
    source="tensorrt_llm/commands/serve.py and common_llm_options.py of NVIDIA/TensorRT-LLM",
    start=("trtllm-serve",),
    flags=_flags(
        {
            INT: "--tp_size --pp_size --ep_size --max_seq_len --max_num_tokens --max_batch_size --port",
            FLOAT: "--kv_cache_free_gpu_memory_fraction",
            TEXT: "--extra_llm_api_options --host",
        }
    ),
)
LLAMA_CPP = FlagTable(
    version="b11549",
    date="2026-11-30",
    source="common/arg.cpp of ggml-org/llama.cpp; long names found in the library of xllamacpp 2026.10.11549",
    start=("llama-server",),
    flags=_flags(
        {
            INT: "--ctx-size --parallel --ubatch-size --n-gpu-layers --cache-ram --port",
            TEXT: "--model --host",
            SWITCH: "--kv-unified --swa-full",
            GGML_SPLITS: "--split-mode",
            GGML_CACHE: "--cache-type-k --cache-type-v",
        }
    ),
)
OLLAMA = FlagTable(
    version="0.20",
    date="2026-11-30",
    source="FAQ and context-length pages of Ollama's documentation",
    start=("ollama", "serve"),
    flags=_flags(
        {
            INT: "OLLAMA_CONTEXT_LENGTH OLLAMA_NUM_PARALLEL OLLAMA_FLASH_ATTENTION",
            TEXT: "OLLAMA_HOST",
            OLLAMA_CACHE: "OLLAMA_KV_CACHE_TYPE",
        }
    ),
)
TABLES: Mapping[Engine, FlagTable] = MappingProxyType(
    {
        Engine.VLLM: VLLM,
        Engine.SGLANG: SGLANG,
        Engine.TENSORRT_LLM: TENSORRT_LLM,
        Engine.LLAMA_CPP: LLAMA_CPP,
        Engine.OLLAMA: OLLAMA,
    }
)


def problems_of(engine: Engine, words: tuple[str, ...]) -> tuple[str, ...]:
    """What the engine's parser would refuse in a command, in words; empty where it takes it."""
    table = TABLES[engine]
    return tuple(
        problem
        for name, value in _pairs(engine, words)
        for problem in [_problem(table, name, value)]
        if problem
    )


def _pairs(engine: Engine, words: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    """Flags with their values; switches with None. Ollama's are environment variables before the command."""
    if engine is Engine.OLLAMA:
        for word in words:
            name, equals, value = word.partition("=")
            if equals:
                yield name, value
        return
    table = TABLES[engine]
    rest = list(words[len(table.start) :])
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            takes_value = table.flags.get(word) != SWITCH and bool(rest)
            yield word, rest.pop(0) if takes_value else None


def _problem(table: FlagTable, name: str, value: str | None) -> str:
    kind = table.flags.get(name)
    if kind is None:
        return f"{name} is not a flag that was found in version {table.version}"
    if kind == SWITCH:
        return ""
    if value is None:
        return f"{name} needs a value"
    if isinstance(kind, tuple):
        return "" if value in kind else f"{name} {value}: version {table.version} takes {', '.join(kind)}"
    return (
        "" if kind == TEXT or _is_number(value, whole=kind == INT) else f"{name} {value}: it takes a {kind}"
    )


def _is_number(text: str, *, whole: bool) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return number == int(number) or not whole
