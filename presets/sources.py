"""Where models come from: one function from what a person typed or pasted to a `ModelSpec`, with where it was read.

bundled preset      no network; wins over the hub unless a revision is asked for
hub id or URL       config.json and checkpoint headers through presets/hub
config.json         a path, a folder with one, or pasted text
GGUF                a file here or on the hub, by its header (presets/gguf_file)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from calc.architectures import parse
from calc.errors import InputError, SourceError, SourceFault
from calc.format import decimal_bytes
from calc.model import ModelSpec
from calc.quantization import stored_bytes
from presets import models
from presets.checkpoint import CheckpointFacts, read_local_facts
from presets.config_text import (
    CONFIG_FILE,
    MAX_CONFIG_BYTES,
    QUANTIZATION_FILE,
    check_is_model_config,
    parse_config,
)
from presets.deployment import may_read_paths
from presets.model_ids import HubReference, cleaned, looks_like_path, nearest, parse_reference
from presets.written import written

PASTED = "pasted config"
DISAGREEMENT = 0.01  # stored bytes of checkpoint and config further apart than this share are worth a warning

# safetensors' names of the formats in which unquantised weights are stored, as a config states them.
_TORCH_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
_HELPED_BY_BUNDLED = (SourceFault.OFFLINE, SourceFault.TIMEOUT, SourceFault.NOT_FOUND, SourceFault.GATED)


class SourceKind(StrEnum):
    """What a model was read from."""

    PRESET = "preset"
    HUB = "hub"
    HUB_GGUF = "hub-gguf"
    CONFIG_FILE = "config-file"
    CONFIG_TEXT = "config-text"
    GGUF_FILE = "gguf-file"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model, and where it was read: `id` as its source spells it, `revision` the commit where one is known.

    `checkpoint`: what the weights' own headers say, where they were read. `origin`: one sentence for people.
    `warnings`: what a person should know before trusting the numbers.
    """

    spec: ModelSpec
    kind: SourceKind
    id: str
    origin: str
    revision: str | None = None
    checkpoint: CheckpointFacts | None = None
    warnings: tuple[str, ...] = ()


def read(
    source: str, *, revision: str | None = None, token: str | None = None, allow_paths: bool | None = None
) -> ModelSource:
    """The model that `source` means: a preset, a hub id or URL, a path, or the text of a config.json.

    `token` is used for this call alone; None takes the one that huggingface_hub finds (HF_TOKEN, login). With
    `allow_paths=False` no file of this machine is ever read; None leaves it to presets/deployment.

    Raises InputError for what names no model or cannot be used, UnsupportedArchitecture for a model that is not
    understood, SourceError where a hub or a file did not deliver.
    """
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("{"):
        return read_config_text(source)
    text = cleaned(source)
    if revision is None and (preset := models.find(text)) is not None:
        return _preset(preset)
    may_read = may_read_paths() if allow_paths is None else allow_paths
    if looks_like_path(text) or (may_read and _is_model_folder(text)):
        if not may_read:
            raise InputError(
                "model",
                text,
                "this server reads no files of its own",
                next_step="Upload the file, or paste the config.json.",
            )
        return _read_path(_path(text))
    reference = _with_revision(parse_reference(text), revision)
    if reference.file is not None or reference.quantization is not None:
        return _hub_gguf(reference, token)
    if reference.revision is None and (preset := models.find(reference.repo_id)) is not None:
        return _preset(preset)
    return _hub(reference, token)


def model_written(source: str) -> str:
    """What tells apart two states of the files that a model is read from here; empty where it is from elsewhere or unread."""
    try:
        text = cleaned(source)
        if not may_read_paths() or models.find(text) is not None:
            return ""
        if not (looks_like_path(text) or _is_model_folder(text)):
            return ""
        path = _path(text)
    except InputError:  # names no model: whoever reads it says so
        return ""
    folder = path if path.is_dir() else path.parent
    return written(path, folder / CONFIG_FILE, folder / QUANTIZATION_FILE)


def read_config_text(text: str | bytes, *, name: str = PASTED) -> ModelSource:
    """The model of a pasted or uploaded config.json; `name` is what the model is called in the answer."""
    config = parse_config(text, name=name)
    return ModelSource(
        spec=_spec(config, name=name),
        kind=SourceKind.CONFIG_TEXT,
        id=name,
        origin="Read from the config that was pasted.",
    )


def _spec(
    config: Mapping[str, object], *, name: str, hf_quant_config: Mapping[str, object] | None = None
) -> ModelSpec:
    check_is_model_config(config, name=name)
    return parse(config, model_id=name, hf_quant_config=hf_quant_config)


def _preset(preset_id: str) -> ModelSource:
    return ModelSource(
        spec=models.load(preset_id),
        kind=SourceKind.PRESET,
        id=preset_id,
        origin=f"Bundled: {models.source_of(preset_id)}.",
    )


def _with_revision(reference: HubReference, revision: str | None) -> HubReference:
    """`reference` at `revision`; two different ones are a mistake that nobody should guess about."""
    asked = (revision or "").strip() or None
    if asked is None or asked == reference.revision:
        return reference
    if reference.revision is not None:
        raise InputError("revision", asked, f"the model was given with revision {reference.revision}")
    return replace(reference, revision=asked)


def _hub(reference: HubReference, token: str | None) -> ModelSource:
    from presets.hub import fetch_model

    try:
        model = fetch_model(reference, token=token)
    except SourceError as error:
        raise _with_suggestions(error, reference.repo_id) from None
    config, facts = model.config, model.checkpoint
    spec = _spec(_with_stored_dtype(config, facts), name=model.repo_id, hf_quant_config=model.hf_quant_config)
    return ModelSource(
        spec=spec,
        kind=SourceKind.HUB,
        id=model.repo_id,
        revision=model.commit or reference.revision,
        origin=f"Read from the hub: {model.repo_id} at {model.commit or reference.revision or 'main'}.",
        checkpoint=facts,
        warnings=(*model.warnings, *_disagreement(spec, facts)),
    )


def _hub_gguf(reference: HubReference, token: str | None) -> ModelSource:
    from presets.gguf_file import read_hub_gguf

    try:
        model = read_hub_gguf(reference, token=token)
    except SourceError as error:
        raise _with_suggestions(error, reference.repo_id) from None
    return ModelSource(
        spec=model.spec,
        kind=SourceKind.HUB_GGUF,
        id=model.spec.id,
        revision=model.commit or reference.revision,
        origin=f"Read from the header of {model.file} of {reference.repo_id} on the hub.",
        checkpoint=model.checkpoint,
        warnings=model.warnings,
    )


def _with_suggestions(error: SourceError, repo_id: str) -> SourceError:
    """The same error, naming bundled models of a similar name where they would help."""
    similar = nearest(repo_id, models.preset_ids()) if error.fault in _HELPED_BY_BUNDLED else ()
    if not similar:
        return error
    step = f"Bundled models with a similar name: {', '.join(similar)}."
    return SourceError(error.fault, error.message, next_step=f"{error.next_step} {step}")


def _is_model_folder(text: str) -> bool:
    try:
        return (Path(text) / CONFIG_FILE).is_file()
    except OSError:  # too long for a name
        return False


def _path(text: str) -> Path:
    """`text` as a path that this system can look up."""
    try:
        path = Path(text).expanduser()
        path.stat()
    except FileNotFoundError:
        return path
    except (
        OSError,
        RuntimeError,
        ValueError,
    ) as error:  # too long, not permitted, an unknown user, a null character
        step = "Check the path, or give a hub id."
        raise InputError("model", text, "this path cannot be looked up", next_step=step) from error
    return path


def _read_path(path: Path) -> ModelSource:
    """A config.json, a folder with one, or a .gguf file; regular files only."""
    if path.is_dir():
        folder, path = path, path / CONFIG_FILE
        if not path.is_file():
            raise _no_config_in(folder)
    if not path.is_file():
        what = "it is not a regular file" if path.exists() else "there is no such file"
        raise InputError("model", str(path), what, next_step="Check the path, or give a hub id.")
    if path.suffix.lower() == ".gguf":
        return _gguf_file(path)
    return _config_file(path)


def _no_config_in(folder: Path) -> InputError:
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))[:3]
    step = f"Name the file: {folder / ggufs[0]}." if ggufs else "Give the folder that holds a config.json."
    if (folder / "adapter_config.json").is_file():
        step = "It holds an adapter, which has no sizes of its own: give its base model."
    return InputError("model", str(folder), "the folder has no config.json", next_step=step)


def _config_file(path: Path) -> ModelSource:
    config = _read_object(path)
    folder = path.resolve().parent
    is_checkpoint = path.name == CONFIG_FILE
    name = folder.name if is_checkpoint else path.stem
    warnings: tuple[str, ...] = ()
    facts: CheckpointFacts | None = None
    quantization: dict[str, object] | None = None
    if is_checkpoint:
        if (folder / QUANTIZATION_FILE).is_file():
            quantization = _read_object(folder / QUANTIZATION_FILE)
        try:
            facts = read_local_facts(folder)
        except SourceError as error:
            warnings = (error.message,)
    spec = _spec(_with_stored_dtype(config, facts), name=name, hf_quant_config=quantization)
    return ModelSource(
        spec=spec,
        kind=SourceKind.CONFIG_FILE,
        id=name,
        origin=f"Read from {path}.",
        checkpoint=facts,
        warnings=(*warnings, *_disagreement(spec, facts)),
    )


def _read_object(path: Path) -> dict[str, object]:
    """The JSON object in a file, never more than the cap."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        step = "Check that the file may be read."
        raise InputError(
            "model", str(path), f"it cannot be opened ({error.strerror})", next_step=step
        ) from error
    return parse_config(data, name=str(path))


def _gguf_file(path: Path) -> ModelSource:
    from presets.gguf_file import read_local_gguf

    model = read_local_gguf(path)
    return ModelSource(
        spec=model.spec,
        kind=SourceKind.GGUF_FILE,
        id=model.spec.id,
        origin=f"Read from the header of {path}.",
        checkpoint=model.checkpoint,
        warnings=model.warnings,
    )


def _with_stored_dtype(config: Mapping[str, object], facts: CheckpointFacts | None) -> Mapping[str, object]:
    """The config, with the dtype of the stored weights where it states none and they are not quantised."""
    stated = any(
        config.get(field) for field in ("torch_dtype", "dtype", "quantization_config", "text_config")
    )
    if facts is None or stated or not facts.bytes_by_format:
        return config
    main = max(facts.bytes_by_format, key=lambda entry: entry[1])[0]
    return {**config, "torch_dtype": _TORCH_DTYPES[main]} if main in _TORCH_DTYPES else config


def _disagreement(spec: ModelSpec, facts: CheckpointFacts | None) -> tuple[str, ...]:
    """A warning where what the checkpoint stores is not what the config's shapes and formats come to."""
    if facts is None:
        return ()
    computed = stored_bytes(spec)
    expected = computed.stored + computed.apart
    if abs(facts.stored_bytes - expected) <= DISAGREEMENT * expected:
        return ()
    stored = decimal_bytes(facts.stored_bytes)
    config = decimal_bytes(expected)
    return (f"The checkpoint stores {stored}, but shapes and formats of its config come to {config}.",)
