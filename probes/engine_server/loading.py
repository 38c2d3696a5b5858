"""Which model the engine gets: weights from a folder or the hub, else random ones, scaled down to what the machine can run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from calc.errors import InputError, ProbeError, SourceError
from presets import models
from presets.checkpoint import weight_files
from presets.config_text import parse_config
from presets.hub_weights import fetched
from probes.engine.checkpoint import Weights, load_weights, weight_shapes
from probes.engine.decoder import Decoder
from probes.engine.shape import DecoderShape, shape_of
from probes.torch_device import TorchDevice, available

FEWEST_LAYERS = 2
NARROWEST = 128  # a narrower model says nothing about reading weights
SMALLEST_VOCABULARY = 4096
CPU_PARAMETERS = 30_000_000  # random weights on a processor: tens of tokens a second on two cores
GPU_PARAMETERS = 2_000_000_000
WEIGHTS_SHARE = 0.5  # of the free memory
INITIAL_SPREAD = 0.02  # transformers' initializer_range of both kinds
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A decoder, what it is called, whether its weights are random, where its tokenizer may be, and what to say about it."""

    decoder: Decoder
    name: str
    random: bool
    folder: Path | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to load. dtype "": fp32 on a processor, else 16 bits. parameters: the most random weights; None: by device."""

    source: str = "Qwen/Qwen3-0.6B"
    device: str = "auto"
    dtype: str = ""
    quantization: str | None = None
    random: bool = False
    parameters: int | None = None


def load(wanted: Wanted) -> Loaded:
    """The decoder. Raises InputError, UnsupportedArchitecture, SourceError or ProbeError."""
    device = TorchDevice(available()[0] if wanted.device == "auto" else wanted.device)
    kind = wanted.dtype or ("fp32" if device.kind == "cpu" else device.sixteen_bit)
    if kind not in DTYPES:
        raise InputError("dtype", kind, f"choose one of {', '.join(DTYPES)}")
    dtype = DTYPES[kind]
    shape = shape_of(config_of(wanted.source))
    needed, room = parameters_of(shape) * dtype.itemsize, int(WEIGHTS_SHARE * device.free_bytes())
    folder, why = (None, "as asked") if wanted.random else _folder_of(wanted.source, needed, room)
    if folder is not None:
        weights = load_weights(folder, dtype=dtype, device=device.device)
        note = f"weights of {wanted.source}"
    else:
        most = wanted.parameters or (CPU_PARAMETERS if device.kind == "cpu" else GPU_PARAMETERS)
        most = min(most, room // dtype.itemsize)
        whole, shape = shape, scaled_down(shape, most)
        weights = random_weights(shape, dtype=dtype, device=device.device)
        size = (
            "in full size"
            if shape == whole
            else f"scaled down to {parameters_of(shape) / 1e6:.0f} million weights"
        )
        note = f"random weights ({why}), the shape of {wanted.source} {size}"
    decoder = Decoder(shape, weights, quantization=wanted.quantization)
    formats = kind if wanted.quantization is None else f"{wanted.quantization} and {kind}"
    return Loaded(
        decoder=decoder,
        name=wanted.source,
        random=folder is None,
        folder=folder,
        note=f"{note}, {formats}, on {device.device}",
    )


def config_of(source: str) -> dict[str, Any]:
    """The config of a folder, a config.json, a bundled model, or a model on the hub. Raises SourceError or InputError."""
    path = Path(source)
    if path.is_dir() or path.is_file():
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():
            raise InputError("model", source, "the folder has no config.json")
        return parse_config(file.read_bytes(), name=str(file))
    bundled = models.config_of(source)
    if bundled is not None:
        return bundled
    return config_of(str(fetched(source, weights=False)))


def _folder_of(source: str, needed_bytes: int, room_bytes: int) -> tuple[Path | None, str]:
    """(folder with weights, ""), or (None, why there is none). Raises ProbeError before it downloads what has no room."""
    path = Path(source)
    if path.exists():
        folder = path if path.is_dir() else path.parent
        if not weight_files(folder):
            return None, "no safetensors beside the config"
        _require_room(source, needed_bytes, room_bytes)
        return folder, ""
    try:
        fetched(source, weights=False)  # whether the hub delivers at all
        _require_room(source, needed_bytes, room_bytes)
        return fetched(source), ""
    except SourceError as error:
        return None, f"no weights from the hub: {error.fault}"


def _require_room(source: str, needed_bytes: int, room_bytes: int) -> None:
    if needed_bytes > room_bytes:
        raise ProbeError(
            f"{source} needs {needed_bytes:,} bytes of weights, and {room_bytes:,} are a half of what is free.",
            next_step="Take a smaller model, a 16-bit --dtype, or --random.",
        )


def parameters_of(shape: DecoderShape) -> int:
    """Weights in all."""
    return sum(math.prod(size) for size in weight_shapes(shape).values())


def scaled_down(shape: DecoderShape, most_parameters: int) -> DecoderShape:
    """The same kind of decoder with at most that many weights: fewer layers, then narrower, then fewer words.

    Heads shrink with the width and keep their dimension and their grouping, so that kinds of work stay in proportion.
    """
    found = shape
    while parameters_of(found) > most_parameters:
        if found.layers > 4 * FEWEST_LAYERS:
            found = replace(found, layers=found.layers // 2)
        elif (
            found.vocabulary * found.width * 2 > parameters_of(found)
            and found.vocabulary > SMALLEST_VOCABULARY
        ):
            found = replace(found, vocabulary=found.vocabulary // 2)
        elif found.width > NARROWEST and found.kv_heads % 2 == 0:
            found = replace(
                found,
                width=found.width // 2,
                intermediate=found.intermediate // 2,
                heads=found.heads // 2,
                kv_heads=found.kv_heads // 2,
            )
        elif found.layers > FEWEST_LAYERS:
            found = replace(found, layers=found.layers // 2)
        elif found.width > NARROWEST:
            found = replace(found, width=found.width // 2, intermediate=found.intermediate // 2)
        else:
            raise InputError(
                "weights", most_parameters, f"the smallest of this kind has {parameters_of(found):,}"
            )
    return found


def config_of_shape(shape: DecoderShape, *, dtype: str = "bfloat16") -> dict[str, Any]:
    """The config.json of this shape, for the calculators and for transformers."""
    found: dict[str, Any] = {
        "model_type": shape.kind,
        "architectures": ["Qwen3ForCausalLM" if shape.kind == "qwen3" else "LlamaForCausalLM"],
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_theta": shape.rope_base,
        "attention_bias": shape.attention_bias,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": shape.positions,
        "hidden_act": "silu",
        "torch_dtype": dtype,
    }
    return found | ({"mlp_bias": shape.mlp_bias} if shape.kind == "llama" else {})


def random_weights(
    shape: DecoderShape,
    *,
    dtype: torch.dtype,
    device: torch.device,
    seed: int = 0,
    spread: float = INITIAL_SPREAD,
) -> Weights:
    """Weights as training would begin with: normal matrices, norms of one, biases of zero. Speed does not depend on them."""
    generator = torch.Generator().manual_seed(seed)
    found: Weights = {}
    for name, size in weight_shapes(shape).items():
        if len(size) == 2:
            tensor = torch.randn(*size, generator=generator) * spread
        elif name.endswith(".bias"):
            tensor = torch.zeros(size)
        else:
            tensor = torch.ones(size)
        found[name] = tensor.to(device=device, dtype=dtype)
    return found
