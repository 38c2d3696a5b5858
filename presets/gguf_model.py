"""A GGUF header -> `ModelSpec`: its metadata as the config of the same family, each tensor's own stored format.

The metadata is translated into the fields of a config.json and read by the family's own adapter, so there is one set of
rules for shapes. Then every weight of the spec must find its tensor, with as many elements, and every tensor its
weight: a family whose layout differs from its adapter's is refused, never approximated.

Source of names: the `gguf` library's tensor map, which llama.cpp's own converter uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from calc.architectures import parse
from calc.architectures.assembly import runs
from calc.errors import SourceError, SourceFault, UnsupportedArchitecture, shown
from calc.model import Block, ModelSpec, Role, Stack, Sublayer, Weight
from calc.quantization import FORMATS
from presets.gguf_header import GgufHeader, GgufTensor, Value, unreadable

CHOOSE = "Give the config.json of the model that it was made from."


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How a GGUF architecture reads as a config: its model_type, that of its mixture-of-experts form, and its class."""

    model_type: str
    class_name: str
    moe_type: str | None = None
    moe_class: str | None = None
    windowed: bool = False  # the metadata's sliding window is the family's own
    states_bias: bool = True  # its config says whether projections have biases
    head_dim_from_width: bool = (
        True  # without key_length a head is width / heads; others have a default of their own
    )


FAMILIES: dict[str, Family] = {
    "llama": Family(
        model_type="llama",
        class_name="LlamaForCausalLM",
        moe_type="mixtral",
        moe_class="MixtralForCausalLM",
    ),
    "mistral3": Family(model_type="mistral", class_name="MistralForCausalLM"),
    "qwen2": Family(model_type="qwen2", class_name="Qwen2ForCausalLM", states_bias=False),
    "qwen3": Family(model_type="qwen3", class_name="Qwen3ForCausalLM"),
    "qwen3moe": Family(
        model_type="qwen3_moe",
        class_name="Qwen3MoeForCausalLM",
        moe_type="qwen3_moe",
        moe_class="Qwen3MoeForCausalLM",
    ),
    "gemma": Family(model_type="gemma", class_name="GemmaForCausalLM", head_dim_from_width=False),
    "gemma2": Family(
        model_type="gemma2", class_name="Gemma2ForCausalLM", windowed=True, head_dim_from_width=False
    ),
    "gemma3": Family(
        model_type="gemma3_text", class_name="Gemma3ForCausalLM", windowed=True, head_dim_from_width=False
    ),
    "phi3": Family(model_type="phi3", class_name="Phi3ForCausalLM", windowed=True),
    "granite": Family(model_type="granite", class_name="GraniteForCausalLM"),
    "olmo2": Family(model_type="olmo2", class_name="Olmo2ForCausalLM"),
    "smollm3": Family(model_type="smollm3", class_name="SmolLM3ForCausalLM"),
    "seed_oss": Family(model_type="seed_oss", class_name="SeedOssForCausalLM"),
    "arcee": Family(model_type="arcee", class_name="ArceeForCausalLM"),
}

# ggml type -> name in calc.quantization.FORMATS, where it is not the same in small letters.
_FORMAT_NAMES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}

# Tensors that belong to no layer's mathematics: precomputed rotary frequencies and their long-context factors.
_BESIDE = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

# Matrices that a file may hold fused, by the parts that an adapter lists apart.
_FUSED = {
    "self_attn.q_proj": "self_attn.qkv_proj",
    "self_attn.k_proj": "self_attn.qkv_proj",
    "self_attn.v_proj": "self_attn.qkv_proj",
    "mlp.gate_proj": "mlp.gate_up_proj",
    "mlp.up_proj": "mlp.gate_up_proj",
}


def spec_of(header: GgufHeader, tensors: Iterable[GgufTensor], *, model_id: str, file: str) -> ModelSpec:
    """The model in a GGUF file (or in all parts of a split one), with the stored format of each weight.

    Raises UnsupportedArchitecture for a family that is not mapped, SourceError where tensors and metadata disagree.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    architecture = header.fields.get("general.architecture")
    family = FAMILIES.get(architecture) if isinstance(architecture, str) else None
    if family is None or not isinstance(architecture, str):
        raise UnsupportedArchitecture(
            "general.architecture",
            architecture,
            f"GGUF files are read for {', '.join(FAMILIES)}",
            next_step=CHOOSE,
        )
    spec = parse(config_of(header, by_name, family, architecture), model_id=model_id)
    return _Matching(by_name, architecture, file).applied_to(spec)


def config_of(
    header: GgufHeader, tensors: Mapping[str, GgufTensor], family: Family, architecture: str
) -> dict[str, object]:
    """The metadata as the fields of a config.json."""
    metadata = _Metadata(header.fields, architecture)
    n_heads = metadata.one("attention.head_count")
    embeddings = tensors.get("token_embd.weight")
    head_dim = metadata.one("attention.key_length")
    if metadata.one("attention.value_length") not in (None, head_dim):
        raise metadata.unsupported("attention.value_length", "it must equal attention.key_length")
    if metadata.one("nextn_predict_layers"):
        raise metadata.unsupported("nextn_predict_layers", "files with draft layers are not read")
    config: dict[str, object] = {
        "model_type": family.model_type,
        "architectures": [family.class_name],
        "hidden_size": metadata.one("embedding_length"),
        "num_hidden_layers": metadata.one("block_count"),
        "num_attention_heads": n_heads,
        "num_key_value_heads": metadata.one("attention.head_count_kv") or n_heads,
        "intermediate_size": metadata.one("feed_forward_length"),
        "vocab_size": embeddings.shape[0] if embeddings else metadata.one("vocab_size"),
        "max_position_embeddings": metadata.one("context_length"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "torch_dtype": "float16",
    }
    if head_dim is None and not family.head_dim_from_width:
        raise metadata.unsupported("attention.key_length", "this family must state it")
    if head_dim is not None:
        config["head_dim"] = head_dim
    if family.states_bias:
        config["attention_bias"] = "blk.0.attn_q.bias" in tensors
        config["mlp_bias"] = "blk.0.ffn_up.bias" in tensors
    if family.windowed:
        config["sliding_window"] = metadata.one("attention.sliding_window")
    if metadata.one("expert_count"):
        config |= _experts(metadata, family)
    return {field: value for field, value in config.items() if value is not None}


def _experts(metadata: _Metadata, family: Family) -> dict[str, object]:
    if family.moe_type is None:
        raise metadata.unsupported("expert_count", "this family is known without experts only")
    if metadata.one("expert_shared_count") or metadata.one("leading_dense_block_count"):
        raise metadata.unsupported("expert_shared_count", "shared experts are not read from GGUF files")
    n_experts = metadata.one("expert_count")
    return {
        "model_type": family.moe_type,
        "architectures": [family.moe_class],
        "num_experts" if family.moe_type != "mixtral" else "num_local_experts": n_experts,
        "num_experts_per_tok": metadata.one("expert_used_count"),
        "moe_intermediate_size": metadata.one("expert_feed_forward_length"),
    }


@dataclass(frozen=True, slots=True)
class _Metadata:
    """The fields under the architecture's own prefix."""

    fields: Mapping[str, Value]
    architecture: str

    def one(self, name: str) -> Value | None:
        """A field; one value where a list repeats it for every layer."""
        value = self.fields.get(f"{self.architecture}.{name}")
        if not isinstance(value, tuple):
            return value
        if len(set(value)) != 1:
            raise self.unsupported(name, "layers of different sizes are not read from GGUF files")
        return value[0]

    def unsupported(self, name: str, why: str) -> UnsupportedArchitecture:
        field = f"{self.architecture}.{name}"
        return UnsupportedArchitecture(field, self.fields.get(field), why, next_step=CHOOSE)


class _Matching:
    """Pairs the weights of a spec with the tensors of a file."""

    def __init__(self, tensors: Mapping[str, GgufTensor], architecture: str, file: str) -> None:
        self.tensors = tensors
        self.architecture = architecture
        self.file = file
        self.claimed: defaultdict[str, int] = defaultdict(int)  # tensor -> elements that weights want of it
        self.names: dict[str, str] = {}

    def applied_to(self, spec: ModelSpec) -> ModelSpec:
        """The spec with the stored format of every weight; checked in both directions."""
        from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

        numbers = {name: number for number, name in MODEL_ARCH_NAMES.items()}
        n_layers = max(stack.n_layers for stack in spec.stacks)
        name_map = get_tensor_name_map(MODEL_ARCH(numbers[self.architecture]), n_layers)
        self.names = {name: target for name, (_, target) in name_map.mapping.items()}
        matched = replace(
            spec,
            embeddings=self._weights(spec.embeddings, ""),
            lm_head=self._weights(spec.lm_head, ""),
            stacks=tuple(self._stack(stack) for stack in spec.stacks),
        )
        self._check()
        return matched

    def _stack(self, stack: Stack) -> Stack:
        if stack.role is not Role.DECODER:
            raise self._disagree(f"the family has a {stack.role} stack, which GGUF keeps in another file")
        blocks: list[Block] = []
        for run in stack.runs:
            for _ in range(run.count):
                blocks.append(self._block(run.block, f"{stack.path}.{len(blocks)}."))
        return replace(stack, runs=runs(blocks), weights=self._weights(stack.weights, ""))

    def _block(self, block: Block, prefix: str) -> Block:
        sublayers: tuple[Sublayer, ...] = tuple(
            replace(sublayer, weights=self._weights(sublayer.weights, prefix)) for sublayer in block.sublayers
        )
        return replace(block, sublayers=sublayers, norms=self._weights(block.norms, prefix))

    def _weights(self, weights: tuple[Weight, ...], prefix: str) -> tuple[Weight, ...]:
        return tuple(self._weight(weight, prefix) for weight in weights)

    def _weight(self, weight: Weight, prefix: str) -> Weight:
        tensor = self._tensor_of(weight, prefix)
        self.claimed[tensor.name] += prod(weight.shape)
        stored = _FORMAT_NAMES.get(tensor.format, tensor.format.lower())
        if stored not in FORMATS:
            raise unreadable(
                self.file, f"{tensor.name} is stored as {tensor.format}, which is not known here"
            )
        return replace(weight, stored=stored)

    def _tensor_of(self, weight: Weight, prefix: str) -> GgufTensor:
        """The tensor that holds `weight`, alone or fused with others."""
        module, bias = weight.name.removesuffix(".bias"), weight.name.endswith(".bias")
        ending = ".bias" if bias else ".weight"
        own = self.names.get(f"{prefix}{module}")
        fused = self.names.get(f"{prefix}{_FUSED.get(module, module)}")
        for name in (own, fused):
            if name is not None and f"{name}{ending}" in self.tensors:
                return self.tensors[f"{name}{ending}"]
        known = own or fused
        raise self._disagree(
            f"it lacks the tensor {known}{ending}" if known else f"no tensor is known for {prefix}{module}"
        )

    def _check(self) -> None:
        """Every tensor is claimed whole, and by nothing more."""
        for name, tensor in self.tensors.items():
            wanted = self.claimed.get(name)
            if wanted is None and name not in _BESIDE:
                raise self._disagree(f"it holds the tensor {shown(name)}, which this family does not have")
            if wanted is not None and wanted != tensor.elements:
                why = f"{name} has {tensor.elements:,} elements where the metadata means {wanted:,}"
                raise self._disagree(why)

    def _disagree(self, why: str) -> SourceError:
        return SourceError(
            SourceFault.UNREADABLE,
            f"{self.file} does not fit what is known of {self.architecture}: {why}.",
            next_step=CHOOSE,
        )
