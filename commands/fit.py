"""`ridgebeam fit`: does it fit under the engine's own rules, and how many KV tokens will it print."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from calc.units import GIB
from commands.arguments import (
    INFEASIBLE,
    OK,
    add_formats,
    add_hardware,
    add_source,
    emit,
    inputs,
    positive,
    refuse_alone,
    tokens,
    verb,
)

if TYPE_CHECKING:
    from calc.memory.engines import EngineSettings
    from calc.memory.engines.ledger import KvNumbers
    from calc.model import ModelSpec


def add(verbs: Any) -> None:
    parser = verb(verbs, "fit", run, "does it fit, and how many KV tokens does the engine get")
    add_source(parser)
    add_hardware(parser)
    add_formats(parser)
    parser.add_argument("--device-memory-gib", type=positive, help="the total that the CUDA runtime reports")
    parser.add_argument("--available-kv-gib", type=positive, help="skip the ledger: only the KV arithmetic")
    parser.add_argument("--max-model-len", type=tokens)
    parser.add_argument("--max-batched-tokens", type=tokens, help="tokens of a step, of one attention rank")
    parser.add_argument("--max-seqs", type=tokens, help="sequences at once, of one attention rank")
    parser.add_argument("--block-size", type=tokens)
    rare = parser.add_argument_group("flags that few starts need")
    rare.add_argument("--decode-context-parallel", type=tokens, default=1, metavar="N")
    rare.add_argument("--draft-tokens", type=tokens, default=0, metavar="N", help="speculative tokens")
    rare.add_argument(
        "--draft-layers", type=tokens, default=0, metavar="N", help="layers that a drafter caches"
    )
    rare.add_argument(
        "--max-loras", type=tokens, default=0, metavar="N", help="adapters that a batch may mix"
    )
    rare.add_argument("--max-lora-rank", type=tokens, default=16, metavar="R", help="their largest rank")
    rare.add_argument("--mtp", action="store_true", help="the checkpoint's own draft layers are loaded")
    rare.add_argument("--enforce-eager", action="store_true", help="no CUDA graphs")
    rare.add_argument("--no-prefix-caching", action="store_true")
    rare.add_argument("--offline", action="store_true", help="the LLM class instead of the API server")
    rare.add_argument(
        "--images", type=int, metavar="N", help="images in the profiling pass; 0 leaves the towers out"
    )
    rare.add_argument("--state-dtype", metavar="D", help="format of recurrent states")
    rare.add_argument("--gpu-layers", type=tokens, metavar="N", help="llama.cpp: layers on the GPU")


def settings(arguments: argparse.Namespace) -> EngineSettings:
    """What the arguments tell the engine."""
    from calc.engine import Engine, engine_named
    from calc.errors import InputError
    from calc.memory.engines import EngineSettings
    from calc.scenario import stated

    if arguments.max_loras and engine_named(arguments.engine) is not Engine.VLLM:
        raise InputError(
            "--max-loras",
            arguments.max_loras,
            f"what {arguments.engine} sets aside for adapters is not known",
        )

    def bytes_of(gib: float | None) -> float | None:
        return None if gib is None else gib * GIB

    return EngineSettings(
        engine=engine_named(arguments.engine),
        version=stated(arguments.engine_version),
        memory_utilization=arguments.memory_utilization,
        max_model_len=arguments.max_model_len,
        max_batched_tokens=arguments.max_batched_tokens,
        max_seqs=arguments.max_seqs,
        block_size=arguments.block_size,
        kv_dtype=stated(arguments.kv_dtype),
        quantization=stated(arguments.quantization),
        device_memory_bytes=bytes_of(arguments.device_memory_gib),
        available_kv_bytes=bytes_of(arguments.available_kv_gib),
        decode_context_parallel=arguments.decode_context_parallel,
        draft_tokens=arguments.draft_tokens,
        draft_layers=arguments.draft_layers,
        mtp=arguments.mtp or None,
        adapters=arguments.max_loras,
        adapter_rank=arguments.max_lora_rank,
        enforce_eager=arguments.enforce_eager,
        prefix_caching=False if arguments.no_prefix_caching else None,
        offline=arguments.offline,
        image_items=arguments.images,
        state_dtype=stated(arguments.state_dtype or ""),
        gpu_layers=arguments.gpu_layers,
    )


def _running(kv: KvNumbers) -> list[str]:
    """How many run at once, where that is not what the pool's count says."""
    from calc import format as fmt

    if kv.most_running == int(kv.max_concurrency):
        return []
    if kv.room is not None:
        return [f"{fmt.plural(kv.most_running, 'such sequence')} at once: {kv.room.what} bound"]
    return [
        f"{fmt.plural(kv.most_running, 'such sequence')} at once: windows give blocks back after the prompt"
    ]


def _refuse_unused(arguments: argparse.Namespace, chosen: EngineSettings, spec: ModelSpec) -> None:
    """Flags about a part that the model lacks, or that the chosen engine's ledger does not read."""
    from calc.engine import LLAMA_CPP_ENGINES, Engine
    from calc.memory.engines.shapes import shape_of

    shape = shape_of(spec)
    towers = chosen.engine is Engine.VLLM and shape.vision is not None
    images = None if chosen.image_items is None else str(chosen.image_items)
    refuse_alone("--images", images, useful=towers, without="--engine vllm and a model that sees images")
    refuse_alone(
        "--mtp",
        arguments.mtp,
        useful=bool(shape.drafts),
        without="a model that brings draft layers of its own",
    )
    refuse_alone(
        "--state-dtype", chosen.state_dtype, useful=shape.recurrent, without="a model with recurrent states"
    )
    refuse_alone(
        "--decode-context-parallel",
        chosen.decode_context_parallel if chosen.decode_context_parallel > 1 else None,
        useful=chosen.engine is Engine.VLLM,
        without="--engine vllm",
    )
    refuse_alone(
        "--gpu-layers",
        chosen.gpu_layers,
        useful=chosen.engine in LLAMA_CPP_ENGINES,
        without="--engine llama.cpp or ollama",
    )


def run(arguments: argparse.Namespace) -> int:
    from calc import format as fmt
    from calc.memory.engines import ledger
    from calc.memory.report import fit_json

    chosen = settings(arguments)
    found = inputs(arguments, gpu=arguments.gpu)
    _refuse_unused(arguments, chosen, found.spec)
    layout = found.scenario.layout
    result = ledger(found.spec, found.offer.accelerator, layout, chosen)
    rank, kv = result.tightest, result.kv
    lines = [
        "fits" if result.verdict.fits else f"does not fit: {result.verdict.reason}",
        f"{result.engine} {result.version}, {layout.label}, per GPU ({rank.label}):",
        f"  total        {fmt.binary_bytes(rank.total)}, of which the engine may use {fmt.binary_bytes(rank.budget)}",
        *(
            f"  {line.kind:12s} {fmt.binary_bytes(line.bytes)}{'' if line.counted else ' (beside the budget)'}"
            for line in rank.lines
        ),
        f"  KV pool      {fmt.binary_bytes(max(0.0, kv.available_bytes))}",
        f"the log will say {fmt.count(kv.printed_tokens)} tokens",
        f"{fmt.count(kv.tokens)} can be used: {kv.max_concurrency:.2f} sequences of {fmt.count(kv.max_model_len)} tokens",
        *_running(kv),
        *(f"assumed: {text}" for text in result.assumptions),
        *(f"would fit: {change.text}" for change in result.verdict.nearest),
    ]
    emit(arguments, fit_json(result, layout), lines)
    return OK if result.verdict.fits else INFEASIBLE
