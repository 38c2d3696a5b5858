"""A model on the hub -> its config text and what its checkpoint stores; cached, and with a reason where it is not there.

Requests for one model, in order: config.json, the repository's list of files, hf_quant_config.json where the list has
it, and the headers of the safetensors files. Only the first must succeed.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from calc.errors import SourceError, SourceFault
from calc.json_text import NOT_JSON, parse_json
from calc.typed_fields import check_value
from presets import checkpoint, hub_faults
from presets.checkpoint import CheckpointFacts, StoredTensor
from presets.config_text import CONFIG_FILE, MAX_CONFIG_BYTES, QUANTIZATION_FILE
from presets.hub_cache import PUBLIC, Entry, HubCache, credential
from presets.hub_client import (
    Fetched,
    HubClient,
    Limits,
    RepoInfo,
    endpoint_in_use,
    json_object,
    token_in_use,
)
from presets.hub_repositories import gguf_files, no_config, quantization_of
from presets.model_ids import HubReference

FIRST_WINDOW_BYTES = (
    100_000  # holds 97% of all safetensors headers (huggingface_hub, parse_safetensors_file_metadata)
)
SHARDS_READ_ONE_BY_ONE = 8  # beyond, all headers are asked for in one request first
PARALLEL_REQUESTS = 8

LIMITS = Limits()
CACHE = HubCache()


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """What was read of one model; `hf_quant_config` is the file that ModelOpt puts beside config.json, where there is one."""

    repo_id: str
    commit: str | None
    config: dict[str, object]
    hf_quant_config: dict[str, object] | None
    checkpoint: CheckpointFacts | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """A model as it came from the network: whether everybody may see it, and whether something passing was missed."""

    model: HubModel
    public: bool
    complete: bool


def open_client(token: str | None = None) -> HubClient:
    """A client of the hub that HF_ENDPOINT names, with `token` or the one that huggingface_hub finds."""
    return HubClient(endpoint=endpoint_in_use(), token=token_in_use(token), limits=LIMITS)


def fetch_model(reference: HubReference, *, token: str | None = None) -> HubModel:
    """Config and checkpoint facts of `reference`, from the cache (a day) or the hub.

    Where the hub fails in a passing way, an older cached reading serves, with a warning that says from when.
    """
    client = open_client(token)
    key = (client.endpoint, reference.repo_id.lower(), reference.revision or "")
    reader = credential(client.token)
    cached = CACHE.get(key, reader)
    if cached is not None and (model := _loaded(cached)) is not None:
        return model
    try:
        reading = _read(client, reference)
    except SourceError as error:
        old = CACHE.get(key, reader, stale=True) if error.fault in hub_faults.TRANSIENT else None
        if old is not None and (model := _loaded(old)) is not None:
            day = time.strftime("%Y-%m-%d", time.gmtime(old.read_at))
            return replace(model, warnings=(*model.warnings, f"{error.message} This is as read on {day}."))
        raise
    if reading.complete:
        CACHE.put(key, PUBLIC if reading.public else reader, _dumped(reading.model))
    return reading.model


def _read(client: HubClient, reference: HubReference) -> _Reading:
    repo_id, revision = reference.repo_id, reference.revision
    asked = client.asked_for_file(repo_id, CONFIG_FILE, revision)
    got = client.file(repo_id, CONFIG_FILE, revision, max_bytes=MAX_CONFIG_BYTES)
    if got is None:
        raise no_config(client, asked, client.info(repo_id, revision))
    config = json_object(got.data, asked)
    warnings: list[str] = []
    complete = True
    info: RepoInfo | None = None
    facts: CheckpointFacts | None = None
    quantization: dict[str, object] | None = None
    try:
        info = client.info(repo_id, revision)
        quantization = _quantization(client, reference, info)
        facts = read_facts(client, reference, info)
    except SourceError as error:
        complete = error.fault not in hub_faults.TRANSIENT
        warnings.append(f"What the checkpoint stores is not known: {error.message}")
    if info is not None and facts is None and not warnings:
        warnings.append(_without_safetensors(repo_id, info))
    model = HubModel(
        repo_id=(info.id if info else None) or repo_id,
        commit=got.commit or (info.commit if info else None),
        config=config,
        hf_quant_config=quantization,
        checkpoint=facts,
        warnings=tuple(warnings),
    )
    public = client.token is None if info is None else info.public or client.token is None
    return _Reading(model=model, public=public, complete=complete)


def _without_safetensors(repo_id: str, info: RepoInfo) -> str:
    ggufs = gguf_files(info.files)
    if not ggufs:
        return "The weights are not in safetensors files: stored bytes follow from the config."
    label = quantization_of(ggufs[0])
    one = f"{repo_id}:{label}" if label else f"{repo_id}/{ggufs[0]}"
    return f"The weights are GGUF files, and this is their config alone: name one of them, such as {one}."


def _quantization(client: HubClient, reference: HubReference, info: RepoInfo) -> dict[str, object] | None:
    """The separate quantisation config of a ModelOpt checkpoint; None where the repository has none."""
    if QUANTIZATION_FILE not in info.files:
        return None
    repo_id, revision = reference.repo_id, reference.revision
    got = client.file(repo_id, QUANTIZATION_FILE, revision, max_bytes=MAX_CONFIG_BYTES)
    if got is None:
        return None
    return json_object(got.data, client.asked_for_file(repo_id, QUANTIZATION_FILE, revision))


def read_facts(client: HubClient, reference: HubReference, info: RepoInfo) -> CheckpointFacts | None:
    """Exact sums over the headers of the model's safetensors files; None where it has none."""
    repo_id, revision = reference.repo_id, reference.revision
    if checkpoint.SINGLE_FILE in info.files:
        tensors = _header(client, reference, checkpoint.SINGLE_FILE)
        return checkpoint.facts_of(tensors, n_files=1, source="safetensors headers")
    if checkpoint.INDEX_FILE not in info.files:
        return None
    got = client.file(repo_id, checkpoint.INDEX_FILE, revision, max_bytes=checkpoint.MAX_INDEX_BYTES)
    if got is None:
        return None
    asked = client.asked_for_file(repo_id, checkpoint.INDEX_FILE, revision)
    shards = checkpoint.shards_of(json_object(got.data, asked))
    by_shard = _all_headers(client, repo_id, shards) if revision is None else None
    if by_shard is None:
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            by_shard = list(pool.map(lambda shard: _header(client, reference, shard), shards))
    tensors = [tensor for shard in by_shard for tensor in shard]
    return checkpoint.facts_of(tensors, n_files=len(shards), source="safetensors headers")


def _all_headers(client: HubClient, repo_id: str, shards: tuple[str, ...]) -> list[list[StoredTensor]] | None:
    """The headers of many shards by one request, or None where the hub does not offer that or misses one."""
    if len(shards) <= SHARDS_READ_ONE_BY_ONE:
        return None
    try:
        answer = client.safetensors_headers(
            repo_id, checkpoint.INDEX_FILE, max_bytes=checkpoint.MAX_INDEX_BYTES
        )
        headers = answer.get("headers")
        if not isinstance(headers, dict) or set(headers) != set(shards):
            return None
        return [checkpoint.tensors_of(headers[shard], file=shard) for shard in shards]
    except SourceError:
        return None


def _header(client: HubClient, reference: HubReference, file: str) -> list[StoredTensor]:
    """The tensors of one safetensors file, by one range request, or two where its header is long."""
    first = _window(client, reference, file, 0, FIRST_WINDOW_BYTES)
    length = checkpoint.header_length(first.data, file=file)
    header = first.data[checkpoint.LENGTH_BYTES : checkpoint.LENGTH_BYTES + length]
    if len(header) < length:
        stop = checkpoint.LENGTH_BYTES + length
        header += _window(client, reference, file, FIRST_WINDOW_BYTES, stop).data
    if len(header) < length:
        raise hub_faults.cut_short(client.asked_for_file(reference.repo_id, file, reference.revision))
    return checkpoint.parse_header(header, file=file)


def _window(client: HubClient, reference: HubReference, file: str, start: int, stop: int) -> Fetched:
    got = client.window(reference.repo_id, file, reference.revision, start=start, stop=stop)
    if got is None:
        asked = client.asked_for_file(reference.repo_id, file, reference.revision)
        raise hub_faults.fault(
            SourceFault.UNREADABLE,
            f"{asked.model} lists {file}, but the hub does not have it.",
            "Try another revision.",
        )
    return got


def _dumped(model: HubModel) -> str:
    facts = model.checkpoint
    stored = None
    if facts is not None:
        stored = {name: getattr(facts, name) for name in CheckpointFacts.__slots__}
    return json.dumps(
        {
            "repo_id": model.repo_id,
            "commit": model.commit,
            "config": model.config,
            "hf_quant_config": model.hf_quant_config,
            "checkpoint": stored,
            "warnings": model.warnings,
        }
    )


def _loaded(entry: Entry) -> HubModel | None:
    """The model in a cache entry, or None where it holds something else."""
    try:
        stored = parse_json(entry.text)
        facts = stored["checkpoint"]
        if facts is not None:
            for name in ("bytes_by_format", "elements_by_format"):
                facts[name] = tuple((str(format_), int(count)) for format_, count in facts[name])
            for name in ("stored_bytes", "n_tensors", "n_files"):
                check_value(name, facts[name], "int")
            facts = CheckpointFacts(**facts)
        return HubModel(
            repo_id=str(stored["repo_id"]),
            commit=stored["commit"],
            config=dict(stored["config"]),
            hf_quant_config=None if stored["hf_quant_config"] is None else dict(stored["hf_quant_config"]),
            checkpoint=facts,
            warnings=tuple(map(str, stored["warnings"])),
        )
    except (*NOT_JSON, TypeError, KeyError, OverflowError):
        return None
