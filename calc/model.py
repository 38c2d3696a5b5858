"""What a model is: `ModelSpec`, its stacks, blocks, sublayers and every weight in them.

A spec is read once from a config by `calc/architectures` and from then on is the only description of the model:
parameter counts, stored bytes, sharded bytes, KV and state, and the operator table are sums over it.

    ModelSpec
    ├── embeddings, lm_head          weights; lm_head is empty when tied
    └── stacks                       decoder, encoder, vision, audio, mtp, draft: each with its own width
        ├── weights                  final norm, positions, projector: what belongs to no block
        └── runs                     (count, Block), in order: equal neighbours are coded once
            └── Block                norms, sublayers: Attention | LatentAttention | CompressedAttention | Mixer | Mlp | Moe
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from calc.errors import InputError


class Role(StrEnum):
    """What a stack is for. MTP and draft stacks are counted apart from the model itself."""

    DECODER = "decoder"
    ENCODER = "encoder"
    VISION = "vision"
    AUDIO = "audio"
    MTP = "mtp"
    DRAFT = "draft"


class Part(StrEnum):
    """What a weight does. Breakdown, stored format and sharding are decided by it."""

    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    ATTENTION = "attention"
    MIXER = "mixer"
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    INDEXER = "indexer"
    NORM = "norm"
    POSITION = "position"
    PROJECTOR = "projector"
    UNSTATED = "unstated"  # a made-up model that states its total and nothing else


class Split(StrEnum):
    """How tensor parallelism divides a weight among its ranks."""

    REPLICATED = "replicated"
    COLUMN = "column"  # along the output features
    ROW = "row"  # along the input features
    KV_HEADS = "kv-heads"  # along the output features, by whole KV heads: replicated past their number
    VOCAB = "vocab"  # along the vocabulary, padded
    EXPERT = "expert"  # a stack of experts: by width under TP, by expert under EP


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One stored tensor. `shape` is as in torch: (out, in) for a matrix, (experts, out, in) for stacked experts.

    A matrix that the checkpoint fuses (qkv, gate and up) is listed in its parts, under the fused name.
    `name` is the module path inside its block in the checkpoint ("self_attn.q_proj"), `stored` the format that the
    checkpoint keeps it in (a key of `calc.quantization.FORMATS`).
    """

    name: str
    shape: tuple[int, ...]
    part: Part
    split: Split = Split.REPLICATED
    stored: str = "bf16"
    tied: bool = False  # an embedding that serves as the output head as well
    buffer: bool = False  # in the checkpoint, but no parameter (router score corrections and the like)

    @property
    def elements(self) -> int:
        return prod(self.shape)


INDEX_KEY_SCALE_BYTES = 4  # vLLM's DeepseekV32IndexerCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The key selector of sparse attention (DSA): scores all cached index keys, keeps `top_k` tokens.

    `owns_keys=False`: reuses the selection of an earlier layer and stores no keys.
    """

    n_heads: int
    head_dim: int
    top_k: int
    owns_keys: bool = True

    @property
    def engine_key_bytes(self) -> int:
        """Bytes of one cached key as engines keep it, whatever the cache's format: fp8 with one fp32 scale."""
        return self.head_dim + INDEX_KEY_SCALE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention that caches keys and values per token (MHA, GQA, MQA).

    `window`: a query sees at most that many last tokens, and the cache needs no more. `chunk`: tokens attend within
    aligned chunks of that size. `causal=False`: an encoder layer, which keeps no cache. `cross=True`: keys and values
    come from the encoder, once per encoder token. `shares_cache=True`: reads the cache of an earlier layer and stores
    nothing itself.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    value_head_dim: int | None = None  # where it differs from head_dim
    window: int | None = None
    chunk: int | None = None
    causal: bool = True
    cross: bool = False
    shares_cache: bool = False
    qk_norm: bool = False
    indexer: Indexer | None = None
    weights: tuple[Weight, ...] = ()

    def __post_init__(self) -> None:
        positive(n_heads=self.n_heads, n_kv_heads=self.n_kv_heads, head_dim=self.head_dim)
        if self.n_heads % self.n_kv_heads:
            raise InputError(
                "num_key_value_heads",
                self.n_kv_heads,
                f"num_attention_heads ({self.n_heads}) must be a multiple of it",
                next_step="Check the config, or choose another model.",
            )

    @property
    def cached_elements_per_token(self) -> int:
        """Elements of K and V that one token adds to this layer's own cache (0 where it has none)."""
        if not self.causal or self.shares_cache:
            return 0
        return self.n_kv_heads * (self.head_dim + (self.value_head_dim or self.head_dim))


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): caches one compressed vector and one rotary key per token."""

    n_heads: int
    kv_lora_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    q_lora_rank: int | None = None
    indexer: Indexer | None = None
    weights: tuple[Weight, ...] = ()

    def __post_init__(self) -> None:
        positive(n_heads=self.n_heads, kv_lora_rank=self.kv_lora_rank, value_dim=self.value_dim)

    @property
    def cached_elements_per_token(self) -> int:
        """Elements of the latent and the rotary key, one copy for all heads; index keys are counted apart."""
        return self.kv_lora_rank + self.rope_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedAttention:
    """Attention over a short window and, beyond it, over compressed entries (DeepSeek-V4).

    Each token keeps one vector that is key and value at once, shared by all heads, for `window` tokens; with `ratio`,
    every `ratio` tokens leave one more such vector for good, of which an indexer selects.
    """

    n_heads: int
    head_dim: int
    window: int
    ratio: int | None = None
    indexer: Indexer | None = None
    weights: tuple[Weight, ...] = ()

    def __post_init__(self) -> None:
        positive(n_heads=self.n_heads, head_dim=self.head_dim, window=self.window)

    @property
    def entry_elements(self) -> int:
        """Elements of one cached vector."""
        return self.head_dim


class MixerKind(StrEnum):
    """Token mixers whose state does not grow with the context."""

    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    GATED_DELTA_NET = "gated delta net"
    LINEAR_ATTENTION = "linear attention"
    SHORT_CONVOLUTION = "short convolution"
    RWKV = "rwkv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """A recurrent token mixer: fixed state per sequence, in elements, with the format its reference code keeps.

    `stated_format`: the recurrent format that the config itself asks for (`mamba_ssm_dtype` and the like); engines
    that find none keep the state in the model's own type, unlike the reference code.
    """

    kind: MixerKind
    conv_elements: int
    recurrent_elements: int
    conv_format: str = "bf16"
    recurrent_format: str = "fp32"
    stated_format: str | None = None
    n_heads: int = 1
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A dense feed-forward layer; gated ones (SwiGLU, GeGLU) have a gate beside the up projection."""

    intermediate: int
    gated: bool = True
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """A mixture-of-experts layer: router, routed experts of which `top_k` serve a token, shared experts."""

    n_experts: int
    top_k: int
    expert_intermediate: int
    shared_intermediate: int = 0
    gated: bool = True
    weights: tuple[Weight, ...] = ()

    def __post_init__(self) -> None:
        positive(n_experts=self.n_experts, top_k=self.top_k, expert_intermediate=self.expert_intermediate)
        if self.top_k > self.n_experts:
            raise InputError("num_experts_per_tok", self.top_k, f"there are {self.n_experts} experts")


Sublayer = Attention | LatentAttention | CompressedAttention | Mixer | Mlp | Moe


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One layer as the config counts them: its sublayers in order, and its norms.

    `shares_weights=True`: a repeated use of weights that an earlier block owns (Zamba); counted once, run every time.
    """

    sublayers: tuple[Sublayer, ...]
    norms: tuple[Weight, ...] = ()
    shares_weights: bool = False

    def weights(self) -> Iterator[Weight]:
        """Every tensor of the block, owned or shared."""
        for sublayer in self.sublayers:
            yield from sublayer.weights
        yield from self.norms


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`count` equal blocks in a row."""

    count: int
    block: Block

    def __post_init__(self) -> None:
        positive(count=self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A pile of blocks of one width, with what belongs to none of them (final norm, positions, projector)."""

    role: Role
    width: int
    runs: tuple[Run, ...]
    weights: tuple[Weight, ...] = ()
    path: str = "model.layers"  # the module that holds the blocks in the checkpoint: block i is "<path>.<i>"

    @property
    def n_layers(self) -> int:
        return sum(run.count for run in self.runs)

    def sublayers(self) -> Iterator[tuple[int, Sublayer]]:
        """(how often it is run, sublayer), in order."""
        for run in self.runs:
            for sublayer in run.block.sublayers:
                yield run.count, sublayer


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model, exactly: enough to count its parameters, store it, shard it, cache for it and time it."""

    id: str
    architecture: str
    model_type: str
    vocab_size: int
    width: int
    embeddings: tuple[Weight, ...]
    lm_head: tuple[Weight, ...]
    tied: bool
    stacks: tuple[Stack, ...]
    max_positions: int | None
    dtype: str = "bf16"

    def check_length(self, tokens: float, *, field: str) -> None:
        """Raises `InputError` for a sequence that is longer than the model's positions; encoders count their input apart."""
        encodes = any(stack.role is Role.ENCODER for stack in self.stacks)
        if self.max_positions is not None and tokens > self.max_positions and not encodes:
            raise InputError(
                field,
                round(tokens),
                f"{self.id} ends at {self.max_positions:,} positions",
                next_step="Ask for a shorter sequence, or choose a model with a longer context.",
            )

    def stacks_of(self, role: Role) -> tuple[Stack, ...]:
        return tuple(stack for stack in self.stacks if stack.role is role)

    @property
    def decoder(self) -> Stack | None:
        """The stack that generates tokens; None for encoders and rerankers."""
        found = self.stacks_of(Role.DECODER)
        return found[0] if found else None

    def decoder_sublayers(self) -> Iterator[tuple[int, Sublayer]]:
        """(how often it is run, sublayer) of the stack that generates; nothing for encoders."""
        if self.decoder is not None:
            yield from self.decoder.sublayers()

    @property
    def has_experts(self) -> bool:
        """Whether the stack that generates routes tokens to experts."""
        return any(isinstance(sublayer, Moe) for _, sublayer in self.decoder_sublayers())


def positive(**fields: int) -> None:
    """Refuse a count that is not a positive integer, by its name."""
    for name, value in fields.items():
        if value < 1:
            raise InputError(name, value, "it must be a positive integer")
