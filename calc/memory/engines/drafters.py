"""What a drafter adds on a GPU: its weights, its own forward pass in the profile, and logits that the profile leaves out.

Three kinds: the checkpoint's multi-token-prediction layers, layers like the target's (EAGLE), and a model of its own. vLLM runs
the drafter once at the full token budget while the target's hidden states are still held, and then its rejection sampler with one
draft a sequence; more drafts than one come out of what is left free.

Source: vllm/v1/worker/gpu_model_runner.py (_dummy_run, _dummy_sampler_run) of 0.10 to 0.20; vllm/model_executor/models/llama_eagle.py.
Ignores: the auxiliary hidden states of EAGLE-3 (in the range), n-gram tables on the host.
"""

from __future__ import annotations

from calc.errors import InputError
from calc.memory.engines.settings import EngineSettings
from calc.memory.engines.shapes import ModelShape, shape_of
from calc.memory.engines.sharding import (
    ShardPlan,
    StageLayers,
    allocated,
    fused_bytes,
    stage_weights,
)
from calc.model import Attention, Block, Role
from calc.units import MIB

EAGLE_INPUTS = 2  # the token's embedding beside the target's hidden state, brought to one width by a matrix
# Feed-forward width of a drafting layer, in hidden widths, where the target has only experts.
DENSE_WIDTH = 4.0
DRAFT_ELEMENT_BYTES = 2  # drafters are kept in 16 bit
# Of one draft and vocabulary entry at run time: in 16 bit, and as a probability in fp32.
REJECTED_LOGIT_BYTES = 6
SMALLEST_LINE_BYTES = 1.0 * MIB


def uses_mtp(shape: ModelShape, settings: EngineSettings) -> bool:
    """Whether the checkpoint's own layers draft: as said, or because drafts are asked for and nothing else brings them."""
    if settings.mtp is not None:
        return settings.mtp
    others = settings.draft_layers or settings.drafter is not None
    return bool(settings.draft_tokens and shape.drafts and not others)


def target_block(shape: ModelShape, settings: EngineSettings) -> Block:
    """The plain attention block whose shape EAGLE's layers take."""
    for block in shape.blocks:
        if any(isinstance(s, Attention) and not s.window and not s.chunk for s in block.sublayers):
            return block
    raise InputError(
        "draft_layers", settings.draft_layers, "the model has no plain attention layer to draft with"
    )


def draft_blocks(shape: ModelShape, settings: EngineSettings) -> list[tuple[int, Block]]:
    """(count, block) of the layers whose cache a drafter adds."""
    blocks: list[tuple[int, Block]] = list(shape.drafts) if uses_mtp(shape, settings) else []
    if settings.draft_layers:
        blocks.append((settings.draft_layers, target_block(shape, settings)))
    if settings.drafter is not None:
        own = shape_of(settings.drafter)
        blocks += own.stage_blocks(0, own.n_layers)
    return blocks


def draft_weight_bytes(shape: ModelShape, settings: EngineSettings, plan: ShardPlan) -> float:
    """Bytes of an EAGLE head or of a drafting model on one GPU; MTP layers are counted with the checkpoint's.

    An EAGLE head shares embedding and output matrix with its target; it is divided by TP like it.
    """
    total = 0.0
    if settings.draft_layers:
        block = target_block(shape, settings)
        for sublayer in block.sublayers:
            if isinstance(sublayer, Attention):
                tensors = fused_bytes(
                    sublayer.weights, Role.DECODER, plan, plan.attention_tp, sublayer.n_kv_heads
                )
                total += settings.draft_layers * sum(map(allocated, tensors))
        matrices = shape.mlp_copies * shape.hidden * _dense_width(shape) / plan.dense_tp
        joined = EAGLE_INPUTS * shape.hidden * shape.hidden
        total += DRAFT_ELEMENT_BYTES * (settings.draft_layers * matrices + joined)
    if settings.drafter is not None:
        own = shape_of(settings.drafter)
        whole = StageLayers(index=0, first=0, last=own.n_layers, of=1)
        total += stage_weights(own, whole, plan).total
    return total


def draft_forward_elements(
    shape: ModelShape, settings: EngineSettings, *, tp: int, per_hidden: float
) -> float:
    """Elements per token alive in the drafter's own pass, the target's hidden state included; 0 without a drafter."""
    if not draft_blocks(shape, settings):
        return 0.0
    width, hidden, copies = _dense_width(shape), shape.hidden, shape.mlp_copies
    if settings.drafter is not None:
        own = shape_of(settings.drafter)
        width, hidden, copies = own.intermediate, own.hidden, own.mlp_copies
    return shape.hidden + copies * width / tp + per_hidden * hidden


def _dense_width(shape: ModelShape) -> int:
    """Feed-forward width of a layer that drafts for the target."""
    return shape.intermediate or int(DENSE_WIDTH * shape.hidden)


def unprofiled_logit_bytes(shape: ModelShape, *, sequences: int, draft_tokens: int) -> float:
    """Bytes that verifying more than one draft a sequence needs beyond what the profile has run; 0 where it is little."""
    extra = max(0, draft_tokens - 1) * sequences * shape.vocab_size * REJECTED_LOGIT_BYTES
    return float(extra) if extra > SMALLEST_LINE_BYTES else 0.0
