"""A GGUF header -> `ModelSpec`: its metadata as the config of the same family, each tensor's own stored format.

The metadata is translated into the fields of a config.json and read by the family's own adapter, so there is one set of
rules for shapes. Then every weight of the spec must find its tensor, with as many elements, and every tensor its
weight: a family whose layout differs from its adapter's is refused, never approximated.

Source of names: the `gguf` library's tensor map, which llama.cpp's own converter uses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from calc.architectures import parse
from calc.architectures.assembly import runs
from calc.errors import SourceError, SourceFault, shown
from calc.model import Block, ModelSpec, Role, Stack, Sublayer, Weight
from calc.quantization import FORMATS
from presets.gguf_families import CHOOSE, config_of
from presets.gguf_header import GgufHeader, GgufTensor, unreadable

# ggml type -> name in calc.quantization.FORMATS, where it is not the same in small letters.
_FORMAT_NAMES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}

# Tensors that belong to no layer's mathematics: precomputed rotary frequencies and their long-context factors.
_BESIDE = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")

# Matrices that a file may hold in two tensors: MLA's up-projection of the latent, for keys and for values; the delta
# net's inputs, with the gate apart.
_HALVES = {
    "self_attn.kv_b_proj": ("attn_k_b", "attn_v_b"),
    "linear_attn.in_proj_qkvz": ("attn_qkv", "attn_gate"),
}

# Matrices that a file may hold fused, by the parts that an adapter lists apart.
_FUSED = {
    "self_attn.q_proj": "self_attn.qkv_proj",
    "self_attn.k_proj": "self_attn.qkv_proj",
    "self_attn.v_proj": "self_attn.qkv_proj",
    "mlp.gate_proj": "mlp.gate_up_proj",
    "mlp.up_proj": "mlp.gate_up_proj",
    "mlp.experts.gate_proj": "mlp.experts.gate_up_proj",
    "mlp.experts.up_proj": "mlp.experts.gate_up_proj",
}

# Modules that the converter renames before it maps them.
_RENAMED = {"linear_attn.dt": "linear_attn.dt_proj"}


def spec_of(header: GgufHeader, tensors: Iterable[GgufTensor], *, model_id: str, file: str) -> ModelSpec:
    """The model in a GGUF file (or in all parts of a split one), with the stored format of each weight.

    Raises UnsupportedArchitecture for a family that is not mapped, SourceError where tensors and metadata disagree.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    spec = parse(config_of(header.fields, by_name), model_id=model_id)
    return _Matching(by_name, str(header.fields["general.architecture"]), file).applied_to(spec)


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
        return tuple(stored for weight in weights for stored in self._stored(weight, prefix))

    def _stored(self, weight: Weight, prefix: str) -> tuple[Weight, ...]:
        """`weight` in the format of its tensor; in two parts where the file keeps it in two."""
        layer = prefix.rstrip(".").rpartition(".")[2]
        halves = [self.tensors.get(f"blk.{layer}.{half}.weight") for half in _HALVES.get(weight.name, ())]
        parts = [half for half in halves if half is not None]
        if len(parts) < 2 or len(weight.shape) != 2:
            tensor = self._tensor_of(weight, prefix)
            return (replace(weight, stored=self._claim(tensor, weight.elements)),)
        columns = weight.shape[1]
        if sum(half.elements for half in parts) != weight.elements:
            raise self._disagree(f"the two halves of {prefix}{weight.name} are not as large as it")
        return tuple(
            replace(
                weight, shape=(half.elements // columns, columns), stored=self._claim(half, half.elements)
            )
            for half in parts
        )

    def _claim(self, tensor: GgufTensor, elements: int) -> str:
        """The stored format of `tensor`, of which a weight wants `elements`."""
        self.claimed[tensor.name] += elements
        stored = _FORMAT_NAMES.get(tensor.format, tensor.format.lower())
        if stored not in FORMATS:
            raise unreadable(
                self.file, f"{tensor.name} is stored as {tensor.format}, which is not known here"
            )
        return stored

    def _tensor_of(self, weight: Weight, prefix: str) -> GgufTensor:
        """The tensor that holds `weight`, alone or fused with others."""
        module, ending = weight.name, ".weight"
        for bias in (".bias", "_bias"):
            if module.endswith(bias):
                module, ending = module.removesuffix(bias), ".bias"
        module = _RENAMED.get(module, module.replace("block_sparse_moe.", "mlp."))
        own = self.names.get(f"{prefix}{module}")
        fused = self.names.get(f"{prefix}{_FUSED.get(module, module)}")
        for name in filter(None, (own, fused)):
            for tensor in (f"{name}{ending}", name):  # bare vectors (ssm_a) have no ending
                if tensor in self.tensors:
                    return self.tensors[tensor]
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
