"""The forward pass: tokens in, logits of each piece's last token out.

Sequences of any length stand end to end, so that every product sees all tokens of the pass at once; only attention
looks at each sequence by itself. In every layer keys and values are written before anything is read, so that a chunk
sees itself, and a request that hits a block of another one in the same pass sees that too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from calc.errors import InputError
from probes.engine.cache import BlockStore, Group, Pass, Piece, plan_pass
from probes.engine.checkpoint import Weights, weight_shapes
from probes.engine.quantized import Linear, linear, weight_bytes
from probes.engine.shape import DecoderShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One block. query_key_value and gate_up are one matrix each: one read of the input, one product."""

    input_norm: torch.Tensor
    query_key_value: Linear
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    output: Linear
    feed_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """A decoder on one device. `quantization`: a scheme of `quantized.SCHEMES` for all matrices but embedding and head."""

    def __init__(self, shape: DecoderShape, weights: Weights, *, quantization: str | None = None) -> None:
        for name, size in weight_shapes(shape).items():
            if name not in weights or tuple(weights[name].shape) != size:
                got = tuple(weights[name].shape) if name in weights else "nothing"
                raise InputError(name, got, f"the config says {size}")
        self.shape, self.quantization = shape, quantization
        self.embedding = weights["model.embed_tokens.weight"]
        self.dtype, self.device = self.embedding.dtype, self.embedding.device
        self.head = self.embedding if shape.tied else weights["lm_head.weight"]
        self.norm = weights["model.norm.weight"]
        self.layers = [self._layer(weights, f"model.layers.{i}.") for i in range(shape.layers)]
        self.cosine, self.sine = _rotary(shape, self.dtype, self.device)

    def _layer(self, weights: Weights, at: str) -> Layer:
        def matrix(*names: str) -> Linear:
            weight = torch.cat([weights[f"{at}{name}.weight"] for name in names])
            biases = [weights[f"{at}{name}.bias"] for name in names if f"{at}{name}.bias" in weights]
            return linear(weight, torch.cat(biases) if biases else None, self.quantization)

        return Layer(
            input_norm=weights[f"{at}input_layernorm.weight"],
            query_key_value=matrix("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            query_norm=weights.get(f"{at}self_attn.q_norm.weight"),
            key_norm=weights.get(f"{at}self_attn.k_norm.weight"),
            output=matrix("self_attn.o_proj"),
            feed_norm=weights[f"{at}post_attention_layernorm.weight"],
            gate_up=matrix("mlp.gate_proj", "mlp.up_proj"),
            down=matrix("mlp.down_proj"),
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of everything that a decode step reads, and of an embedding that is not the head."""
        matrices = sum(
            weight_bytes(part)
            for layer in self.layers
            for part in (layer.query_key_value, layer.output, layer.gate_up, layer.down)
        )
        tables = self.embedding.numel() * (1 if self.shape.tied else 2)
        return matrices + tables * self.embedding.element_size()

    def store(self, *, num_blocks: int, block_size: int) -> BlockStore:
        """An empty cache for this decoder."""
        return BlockStore(
            self.shape, num_blocks=num_blocks, block_size=block_size, dtype=self.dtype, device=self.device
        )

    def logits(
        self, pieces: Sequence[Piece], store: BlockStore | None = None, *, every_token: bool = False
    ) -> torch.Tensor:
        """fp32 logits (pieces, vocabulary) of each piece's last token; with `every_token` of all tokens, in order."""
        size = store.block_size if store is not None else 1
        with torch.inference_mode():
            plan = plan_pass(pieces, block_size=size, device=self.device)
            hidden = self.forward(plan, store)
            wanted = hidden if every_token else hidden[plan.last]
            return functional.linear(wanted, self.head).float()

    def forward(self, plan: Pass, store: BlockStore | None) -> torch.Tensor:
        """(tokens, width) after the last norm."""
        shape, epsilon = self.shape, self.shape.norm_epsilon
        x = functional.embedding(plan.tokens, self.embedding)
        cosine, sine = self.cosine[plan.positions, None], self.sine[plan.positions, None]
        query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        for index, layer in enumerate(self.layers):
            normed = functional.rms_norm(x, (shape.width,), layer.input_norm, epsilon)
            parts = torch.split(layer.query_key_value(normed), [query, key, key], dim=-1)
            q, k, v = (part.reshape(len(x), -1, shape.head_dim) for part in parts)
            if layer.query_norm is not None and layer.key_norm is not None:
                q = functional.rms_norm(q, (shape.head_dim,), layer.query_norm, epsilon)
                k = functional.rms_norm(k, (shape.head_dim,), layer.key_norm, epsilon)
            q, k = _rotated(q, cosine, sine), _rotated(k, cosine, sine)
            if store is not None and plan.slots is not None:
                store.write(index, plan.slots, k, v)
            x = x + layer.output(self._attend(index, plan.groups, (q, k, v), store))
            normed = functional.rms_norm(x, (shape.width,), layer.feed_norm, epsilon)
            gate, up = layer.gate_up(normed).chunk(2, dim=-1)
            x = x + layer.down(functional.silu(gate) * up)
        return functional.rms_norm(x, (shape.width,), self.norm, epsilon)

    def _attend(
        self, layer: int, groups: tuple[Group, ...], new: tuple[torch.Tensor, ...], store: BlockStore | None
    ) -> torch.Tensor:
        """(tokens, heads x dimension) from the pass's own queries, keys and values, and what the store holds.

        Heads that share a KV head stand as further queries of it, so that no key is repeated.
        """
        q, k, v = new
        groups_of_heads, share = self.shape.kv_heads, self.shape.heads // self.shape.kv_heads
        mixed = torch.empty_like(q)
        for group in groups:
            sequences, count = group.rows.shape
            split = (sequences, count, groups_of_heads, share, self.shape.head_dim)
            queries = q[group.rows].reshape(split).permute(0, 2, 3, 1, 4).flatten(2, 3)
            if group.tables is None or store is None:
                keys, values = k[group.rows].transpose(1, 2), v[group.rows].transpose(1, 2)
            else:
                keys, values = store.read(layer, group.tables)
            mask = group.mask.repeat(1, share, 1)[:, None]
            seen = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
            seen = seen.reshape(sequences, groups_of_heads, share, count, -1).permute(0, 3, 1, 2, 4)
            mixed[group.rows] = seen.flatten(2, 3)
        return mixed.flatten(1)


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def _rotary(
    shape: DecoderShape, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """(positions, dimension) cosines and sines, worked out in fp32. Source: RoFormer, arXiv 2104.09864; Llama 3.1's scaling."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32)
    frequency = 1.0 / shape.rope_base ** (half / shape.head_dim)
    scaling = shape.rope_scaling
    if scaling is not None:
        turns = (
            scaling.original_positions * frequency / (2 * math.pi)
        )  # over the positions of the first training
        low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
        share = ((turns - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (share + (1 - share) / scaling.factor)
    angle = torch.arange(shape.positions, dtype=torch.float32)[:, None] * frequency.repeat(2)
    return angle.cos().to(device=device, dtype=dtype), angle.sin().to(device=device, dtype=dtype)
