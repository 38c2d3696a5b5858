"""What a plan hands over: launch commands with the settings that it assumed, a manifest, and notes on both.

What the plan assumed and a command cannot say (which drafter, which pool) is said beside it, in sentences.

The plan's own engine comes first; the commands of the others start the same layout and length limit.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from types import MappingProxyType

from calc import format as fmt
from calc.bill import Day, start_of
from calc.engine import LLAMA_CPP_ENGINES, Engine
from calc.errors import InputError
from calc.expected import engine_settings, length_limit
from calc.kv_offload import room_behind
from calc.manifest import Pod, manifest
from calc.memory.engines import EngineSettings
from calc.memory.launch_flags import TENSORRT_OPTIONS_FILE, launch_flags, tensorrt_options
from calc.memory.launch_table import TABLES, problems_of
from calc.result import Answer
from calc.scenario import Behind, Fidelity
from calc.sizing import Limit

DEFAULT_SEQUENCES = 256
"""Most sequences of a rank at once that vLLM (on cards below 70 GiB) and TensorRT-LLM start with unless told otherwise."""
OTHER_ENGINES = (
    "The same layout and length limit; memory and times were worked out for the plan's own engine, and another may have room "
    "for less."
)
"""What to know of the commands for engines that the plan was not made for."""
ONLINE_WEIGHTS = ("auto", "fp8")
"""Weight formats that need no other checkpoint: as stored, and what vLLM and SGLang quantise while loading."""
DRAFT_OPTIONS = MappingProxyType(
    {
        Engine.VLLM: "--speculative-config",
        Engine.SGLANG: "--speculative-algorithm and --speculative-num-draft-tokens",
        Engine.TENSORRT_LLM: f"speculative_config in {TENSORRT_OPTIONS_FILE}",
        Engine.LLAMA_CPP: "--spec-type",
    }
)
"""What names the drafter and its proposals: the engines' own pages on speculative decoding, read 2026-11-30."""
ROLES = ("prefill", "decode")
ROLE_ENGINES = (Engine.VLLM, Engine.SGLANG)
"""Engines whose servers take their pool from a flag; the others part servers by a front of their own."""
FRONTS = MappingProxyType(
    {
        Engine.VLLM: "a proxy that sends each prompt to a prefill server first; NIXL must be installed, and "
        "VLLM_NIXL_SIDE_CHANNEL_HOST be the address at which the other pool reaches a server",
        Engine.SGLANG: "its router (sglang_router.launch_router --pd-disaggregation) with the addresses of both pools",
        Engine.TENSORRT_LLM: "trtllm-serve disaggregated, which is told both kinds of server",
    }
)
"""What stands before pools: the engines' own pages on disaggregated serving, read 2026-11-30."""
OFFLOAD_OPTIONS = MappingProxyType(
    {
        Engine.VLLM: "--kv-transfer-config with the OffloadingConnector's file tier",
        Engine.SGLANG: "--enable-hierarchical-cache with --hicache-storage-backend file",
        Engine.TENSORRT_LLM: f"kv_cache_config in {TENSORRT_OPTIONS_FILE}, from version 1.4",
    }
)
"""What keeps text on an SSD: vLLM 0.33's kv_offload.tiering, SGLang's parser, TensorRT-LLM 1.4's KvCacheConfig."""
ADAPTER_ENGINES = (Engine.VLLM, Engine.SGLANG)
WHOLE_PROMPT_ENGINES = (Engine.VLLM, Engine.SGLANG)
"""Engines whose commands name adapters, and whole prompts, by flags."""
UTILIZATION_ENGINES = (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One engine's command. `files`: what it reads, by name; `problems`: what its parser would refuse; `checked`: against what.

    `role`: the pool of a server that only prefills or only decodes; `replicas`: how many start so. `not_set`: what the plan
    assumed and the command leaves to you, in sentences.
    """

    engine: Engine
    role: str
    replicas: int
    words: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]
    checked: str
    not_set: tuple[str, ...]

    @property
    def text(self) -> str:
        """The command quoted for a POSIX shell."""
        return shlex.join(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The plan's own commands first (two where pools are parted), then those of the other engines.

    `manifest` None: `manifest_why` says why.
    """

    commands: tuple[Command, ...]
    manifest: str | None
    manifest_why: str
    notes: tuple[str, ...]

    @property
    def own(self) -> tuple[Command, ...]:
        """The commands of the plan's own engine."""
        return tuple(command for command in self.commands if command.engine is self.commands[0].engine)

    @property
    def others(self) -> tuple[Command, ...]:
        """Those of every other engine."""
        return self.commands[len(self.own) :]


def handover_of(result: Answer) -> Handover:
    """Commands, manifest and notes of an answer that works; raises `InputError` for one that does not."""
    if not result.verdict.fits or result.fleet is None:
        raise InputError("plan", result.verdict.reason, "only a plan that works can be handed over")
    own = Engine(result.inputs.scenario.engine)
    engines = (own, *(other for other in Engine if other is not own))
    commands = tuple(command for engine in engines for command in commands_of(result, engine))
    mine = tuple(command for command in commands if command.engine is own)
    try:
        text, why = _manifest(result, mine), ""
    except InputError as error:
        text, why = None, str(error)
    return Handover(commands=commands, manifest=text, manifest_why=why, notes=_notes(result, mine))


def commands_of(result: Answer, engine: Engine) -> tuple[Command, ...]:
    """The command that starts one replica of the plan on an engine; two where it has pools that flags can part.

    Settings that only the plan's own engine understands (its share of memory) go to that engine only.
    """
    replicas = result.fleet.replicas if result.fleet else 1
    prefilling = result.fleet.prefill_replicas if result.fleet else 0
    if not prefilling or engine not in ROLE_ENGINES:
        return (_command(result, engine, role="", replicas=replicas),)
    counts = (prefilling, replicas - prefilling)
    return tuple(
        _command(result, engine, role=role, replicas=count) for role, count in zip(ROLES, counts, strict=True)
    )


def _command(result: Answer, engine: Engine, *, role: str, replicas: int) -> Command:
    settings = replace(launch_settings(result, engine), role=role)
    model = result.inputs.spec.id
    words = launch_flags(model, result.layout, settings)
    files: tuple[tuple[str, str], ...] = ()
    if engine is Engine.TENSORRT_LLM and (options := tensorrt_options(result.layout, settings)):
        files = ((TENSORRT_OPTIONS_FILE, options),)
    table = TABLES[engine]
    return Command(
        engine=engine,
        role=role,
        replicas=replicas,
        words=words,
        files=files,
        problems=problems_of(engine, words),
        checked=f"{table.source}, version {table.version}, {table.date}",
        not_set=tuple(_not_set(result, engine)),
    )


def launch_settings(result: Answer, engine: Engine) -> EngineSettings:
    """The scenario's settings and what the plan relies on beyond them: how many sequences run at once.

    That number is stated where a target binds it (more would miss the target) and where it is above what engines start
    with; where memory binds, the engine's own pool limits it.
    """
    scenario, spec = result.inputs.scenario, result.inputs.spec
    settings = engine_settings(scenario, result.layout, max_model_len=length_limit(scenario, spec))
    settings = replace(settings, engine=engine)
    if engine is not Engine(scenario.engine):
        settings = replace(settings, version=None, memory_utilization=None, available_kv_bytes=None)
    elif engine not in UTILIZATION_ENGINES:
        settings = replace(settings, memory_utilization=None)
    if result.sequences is None:
        return settings
    batch = result.sequences.batch
    if (
        engine in LLAMA_CPP_ENGINES
    ):  # every slot has the whole length limit, and one scheduler serves all GPUs of a server
        slots = min(batch, scenario.max_seqs or batch) // result.layout.dp
        return replace(settings, unified_cache=False, max_seqs=max(1, slots))
    of_rank = result.layout.share_of_rank(batch)
    bound = result.sequences.binding not in {Limit.KV_MEMORY, Limit.ENGINE}
    if settings.max_seqs is None and (bound or of_rank > DEFAULT_SEQUENCES):
        settings = replace(settings, max_seqs=of_rank)
    return settings


def _not_set(result: Answer, engine: Engine) -> Iterator[str]:
    """What the plan assumed and no flag of the command says, and where it is set."""
    scenario, fleet = result.inputs.scenario, result.fleet
    if scenario.fidelity != Fidelity.TEXTBOOK and scenario.draft_tokens:
        option = DRAFT_OPTIONS.get(engine)
        where = f"choose one by {option}" if option else "this engine drafts nothing"
        drafts = fmt.plural(scenario.draft_tokens, "draft")
        yield (
            f"Not set: the plan assumes {drafts} a pass, {scenario.acceptance:.0%} of them kept, by a drafter that it does "
            f"not name; {where}."
        )
    if fleet is not None and fleet.prefill_replicas:
        front = FRONTS.get(engine)
        decoding = fleet.replicas - fleet.prefill_replicas
        parted = f"Not set: of {fleet.replicas} replicas, {fleet.prefill_replicas} only prefill and {decoding} only decode"
        if front is None:
            yield f"{parted}; this engine has no pools."
        elif engine in ROLE_ENGINES:
            yield f"Not set: what stands in front of both pools: {front}."
        else:
            yield f"{parted}; the command starts one without a role: part them by {front}."
    if scenario.kv_offload == Behind.SSD:
        option = OFFLOAD_OPTIONS.get(engine)
        where = f"it is set up by {option}" if option else "this engine has no such tier"
        yield f"Not set: {fmt.decimal_bytes(room_behind(scenario))} of SSD behind each GPU for text that comes back; {where}."
    if scenario.kv_offload == Behind.HOST and engine is Engine.OLLAMA:
        yield f"Not set: {fmt.binary_bytes(room_behind(scenario))} of host memory behind each GPU; this engine has no setting for it."
    if not scenario.chunked_prefill and engine not in WHOLE_PROMPT_ENGINES:
        yield "Not set: the plan assumes prompts that run whole while decoding waits."
    if scenario.adapters and engine not in ADAPTER_ENGINES:
        yield f"Not set: the plan keeps {fmt.plural(scenario.adapters, 'adapter')} of rank {scenario.adapter_rank} loaded."


def _manifest(result: Answer, commands: tuple[Command, ...]) -> str:
    """Raises `InputError` where Deployments of replicas that are all alike are not what the plan means."""
    fleet = result.fleet
    if fleet is not None and fleet.prefill_replicas and len(commands) == 1:
        raise InputError(
            "pools",
            f"{fleet.prefill_replicas} of {fleet.replicas} replicas prefill",
            "no flag of this engine gives a replica its pool",
            next_step="Deploy both pools by the engine's own operator, or plan without pools.",
        )
    return manifest(*(_pod(result, command) for command in commands))


def _pod(result: Answer, command: Command) -> Pod:
    accelerator = result.inputs.offer.accelerator
    per_node = max(1, accelerator.node_size)
    gpus = result.layout.gpus_per_replica
    return Pod(
        model_id=result.inputs.spec.id,
        engine=command.engine,
        vendor=accelerator.vendor,
        accelerator_id=accelerator.id,
        gpus=gpus,
        nodes=max(result.layout.nodes, 1 if per_node == 1 else ceil(gpus / per_node)),
        replicas=command.replicas,
        role=command.role,
        words=command.words,
        files=command.files,
        not_set=command.not_set,
        start_s=start_of(result, Day()),
    )


def _notes(result: Answer, commands: tuple[Command, ...]) -> tuple[str, ...]:
    scenario, command = result.inputs.scenario, commands[0]
    problems = dict.fromkeys(problem for one in commands for problem in one.problems)
    notes = [f"Flags checked against {command.checked}.", *problems, *command.not_set]
    if scenario.quantization not in ONLINE_WEIGHTS:
        notes.append(
            f"The plan assumes weights in {scenario.quantization}: name a checkpoint stored so in place of "
            f"{result.inputs.spec.id}."
        )
    if scenario.prefix_share > 0 and command.engine not in LLAMA_CPP_ENGINES:
        notes.append(
            f"The plan relies on {scenario.prefix_share:.0%} of prompt tokens in the prefix cache, which is on by "
            "default; route requests of one prefix to one replica."
        )
    if scenario.kv_offload == Behind.HOST:
        notes.append(
            f"Each host needs {fmt.binary_bytes(room_behind(scenario))} of free memory for every GPU, for text that comes back."
        )
    if command.engine in LLAMA_CPP_ENGINES:
        notes.append("llama.cpp reads a GGUF file: name the converted one in place of the model id.")
    if command.engine is Engine.LLAMA_CPP:
        notes.append("The command's context is that of all slots together; a request can use its own slot's.")
    if scenario.fidelity == Fidelity.TEXTBOOK:
        notes.append("Planned at textbook fidelity: the engine's own memory rules were not asked.")
    if scenario.kv_bytes_per_gpu is not None and command.engine is not Engine.VLLM:
        notes.append("The room for the cache was typed; this engine has no flag for it.")
    if result.fleet is not None and result.fleet.replicas > 1 and not result.fleet.prefill_replicas:
        notes.append(
            f"{result.fleet.replicas} replicas behind one address, least outstanding requests first."
        )
    return tuple(notes)
