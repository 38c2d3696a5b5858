"""Repositories without a config.json: which kind each is, and what to give instead."""

from __future__ import annotations

import re

from calc.errors import SourceError, SourceFault
from presets import hub_faults
from presets.config_text import MAX_CONFIG_BYTES
from presets.hub_client import HubClient, RepoInfo, json_object
from presets.hub_faults import Asked
from presets.model_ids import is_repo_id

_SHOWN_FILES = 4
# The quantisation in a GGUF file's name, as llama.cpp and its uploaders write it: Q4_K_M, IQ2_XXS, UD-Q4_K_XL, BF16.
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:I?Q\d[A-Z0-9_]*|BF16|F16|F32|MXFP4(?:_MOE)?|TQ\d_\d))(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def gguf_files(files: tuple[str, ...]) -> tuple[str, ...]:
    """The GGUF files that hold a language model: first parts of split ones, no vision projectors, no importance data."""
    found = []
    for file in files:
        name = file.rpartition("/")[2].lower()
        part = _PART.search(name)
        if not name.endswith(".gguf") or "mmproj" in name or "imatrix" in name:
            continue
        if part is None or part.group(1) == "00001":
            found.append(file)
    return tuple(found)


def quantization_of(file: str) -> str | None:
    """The quantisation that a GGUF file's name states, in capitals."""
    found = _QUANTIZATION.findall(file.rpartition("/")[2])
    return str(found[-1]).upper() if found else None


def no_config(client: HubClient, asked: Asked, info: RepoInfo) -> SourceError:
    """The error for a repository that exists and has no config.json: what it is, and what to do."""
    files = set(info.files)
    names = {file.rpartition("/")[2] for file in info.files}
    ggufs = gguf_files(info.files)
    if ggufs:
        return _only_gguf(asked, info, ggufs)
    if "adapter_config.json" in files:
        return _only_adapter(client, asked, info)
    if "model_index.json" in files:
        return _fault(
            asked,
            "is an image or video pipeline (diffusers)",
            "Only language models are planned: choose one that generates text.",
        )
    if "modules.json" in files or "config_sentence_transformers.json" in files:
        inner = sorted(file for file in files if file.endswith("/config.json"))
        where = f" ({inner[0]} in its files)" if inner else ""
        return _fault(
            asked,
            "is a sentence-transformers model whose transformer lies in a folder of its own",
            f"Give that transformer's id, or its config.json{where}.",
        )
    if "params.json" in names and any("consolidated" in name for name in names):
        return _fault(
            asked,
            "holds weights in their maker's own layout (params.json, consolidated.*)",
            "Take the repository with the transformers version of the model, often named ...-hf.",
        )
    return _other(asked, info, names)


def _other(asked: Asked, info: RepoInfo, names: set[str]) -> SourceError:
    kinds = (
        (".nemo", "is a NeMo checkpoint"),
        (".onnx", "holds ONNX files"),
        (".mlmodel", "holds Core ML files"),
        (".tflite", "holds TFLite files"),
        (".litertlm", "holds LiteRT files"),
        (".pth", "holds bare PyTorch files"),
        (".pt", "holds bare PyTorch files"),
        (".ckpt", "holds a training checkpoint"),
    )
    for ending, what in kinds:
        if any(name.endswith(ending) for name in names):
            return _fault(asked, f"{what} and no config.json", "Take the transformers version of the model.")
    if "open_clip_config.json" in names:
        return _fault(asked, "is an image model (OpenCLIP)", "Choose one that generates text.")
    if not names - {".gitattributes", "README.md"}:
        return _fault(asked, "is empty", "Check the revision, or take another repository.")
    library = f" (library: {info.library})" if info.library.isprintable() and info.library else ""
    return _fault(
        asked, f"has no config.json{library}", _base_step(info) or "Take the model that it was made from."
    )


def _only_gguf(asked: Asked, info: RepoInfo, ggufs: tuple[str, ...]) -> SourceError:
    stated = [quantization_of(file) for file in ggufs]
    known = list(dict.fromkeys(quantization for quantization in stated if quantization))
    if known:
        shown = ", ".join(known[:_SHOWN_FILES]) + (" ..." if len(known) > _SHOWN_FILES else "")
        pick = "Q4_K_M" if "Q4_K_M" in known else known[0]
        step = f"Name one: {asked.repo_id}:{pick} (there are {shown})."
    else:
        step = f"Name the file: {asked.repo_id}/{ggufs[0]}."
    return _fault(asked, "has GGUF files and no config.json", step, _base_step(info))


def _only_adapter(client: HubClient, asked: Asked, info: RepoInfo) -> SourceError:
    base = info.base_models[0] if info.base_models else _adapter_base(client, asked)
    step = f"Plan its base model {base}." if base else "Plan the base model that its page names."
    return _fault(asked, "is an adapter (LoRA or the like), which has no sizes of its own", step)


def _adapter_base(client: HubClient, asked: Asked) -> str | None:
    """The base model that adapter_config.json names, where it is a hub id."""
    try:
        got = client.file(asked.repo_id, "adapter_config.json", asked.revision, max_bytes=MAX_CONFIG_BYTES)
        base = None if got is None else json_object(got.data, asked).get("base_model_name_or_path")
    except SourceError:
        return None
    return base if isinstance(base, str) and is_repo_id(base) else None


def _base_step(info: RepoInfo) -> str:
    return f"Its base model is {info.base_models[0]}." if info.base_models else ""


def _fault(asked: Asked, what: str, *steps: str) -> SourceError:
    return hub_faults.fault(SourceFault.NO_CONFIG, f"{asked.model} {what}.", *filter(None, steps))
