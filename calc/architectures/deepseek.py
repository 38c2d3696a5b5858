"""DeepSeek V2, V3 and V3.2, Kimi K2, GLM-5 and MiniCPM3: latent attention, mostly with mixtures of experts.

Sources: modelling code in transformers 5; DeepSeek-V3 technical report; published checkpoints for what MTP layers store.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from calc.architectures.assembly import causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.draft import mtp_stack
from calc.architectures.family import Family
from calc.architectures.latent import latent_attention, read_indexer
from calc.architectures.mixtures import EXPERTS, after_dense
from calc.architectures.recipe import MLP_BIAS, PRE_NORMS, Recipe, dense_mlp
from calc.architectures.tensors import norm, norms
from calc.model import Block, Mlp, ModelSpec, Moe, Stack

FEED_FORWARD: Final = Recipe(architecture="DeepseekV3ForCausalLM", model_types=(), mlp_bias=MLP_BIAS)


def parse_deepseek(
    config: ConfigReader,
    *,
    architecture: str = "DeepseekV3ForCausalLM",
    correction: str = "buffer",
    sparse_attention: bool = False,
    mtp_copies_embedding: bool = True,
    outer: ConfigReader | None = None,
    stacks: tuple[Stack, ...] = (),
) -> ModelSpec:
    """Latent attention on every layer; a dense beginning, then mixtures with shared experts.

    `sparse_attention`: layers have an indexer; `indexer_types` may say "shared" for layers that reuse another's choice.
    """
    width = config.int("hidden_size")
    feed_forwards = feed_forward_layers(config, correction)
    owners = indexer_owners(config, len(feed_forwards)) if sparse_attention else []
    built: dict[tuple[int, bool], Block] = {}
    blocks = []
    for index, feed_forward in enumerate(feed_forwards):
        owns = owners[index] if sparse_attention else False
        key = (id(feed_forward), owns)
        if key not in built:
            indexer = read_indexer(config, owns_keys=owns) if sparse_attention else None
            attention = latent_attention(config, width, indexer=indexer)
            built[key] = Block(sublayers=(attention, feed_forward), norms=norms(width, *PRE_NORMS))
        blocks.append(built[key])
    drafts = mtp_stack(config, _last_full(blocks), width, copies_embedding=mtp_copies_embedding)
    return causal_lm(
        config,
        default_architecture=architecture,
        width=width,
        blocks=blocks,
        final=norm("model.norm", width),
        max_positions=max_positions(config),
        outer=outer,
        stacks=(*stacks, *drafts),
    )


def feed_forward_layers(config: ConfigReader, correction: str) -> list[Mlp | Moe]:
    """Dense and mixture layers in order."""
    if not any(config.has(name) for name in EXPERTS):
        mlp = dense_mlp(config, FEED_FORWARD, config.int("hidden_size"))
        return [mlp] * config.layers()
    return after_dense(config, FEED_FORWARD, correction=correction)


def indexer_owners(config: ConfigReader, layers: int) -> list[bool]:
    """Which layers have index keys of their own: all, or those that `indexer_types` calls "full"."""
    config.words("layer_types", allowed=("deepseek_sparse_attention", "indexed_attention"), length=layers)
    listed = config.words("indexer_types", allowed=("full", "shared"), length=layers)
    if listed:
        return [kind == "full" for kind in listed]
    if config.has("index_topk_pattern"):
        pattern = config.str("index_topk_pattern")
        return [pattern[index % len(pattern)] == "F" for index in range(layers)]
    frequency = config.int("index_topk_freq", default=1)
    if frequency != 1:
        raise config.unsupported(
            "index_topk_freq", "with shared selections, indexer_types must list the layers"
        )
    return [True] * layers


def _last_full(blocks: list[Block]) -> Block:
    """The last block that owns everything it uses: what a prediction layer is made like."""
    for block in reversed(blocks):
        indexer = getattr(block.sublayers[0], "indexer", None)
        if indexer is None or indexer.owns_keys:
            return block
    return blocks[-1]


def parse_minicpm3(config: ConfigReader) -> ModelSpec:
    """MiniCPM3: latent attention in a dense model; the value width follows from the heads where it is not stated."""
    width = config.int("hidden_size")
    n_heads = config.int("num_attention_heads")
    value = config.int("v_head_dim", default=max(width // n_heads, 1))
    attention = latent_attention(config, width, value_dim=value)
    mlp = dense_mlp(config, FEED_FORWARD, width)
    return causal_lm(
        config,
        default_architecture="MiniCPM3ForCausalLM",
        width=width,
        blocks=[Block(sublayers=(attention, mlp), norms=norms(width, *PRE_NORMS))] * config.layers(),
        final=norm("model.norm", width),
        tied_default=True,
        max_positions=max_positions(config),
    )


FAMILIES: Final = (
    Family(
        model_types=("deepseek_v2",),
        parse=partial(parse_deepseek, architecture="DeepseekV2ForCausalLM", correction=""),
        architectures=("DeepseekV2ForCausalLM",),
    ),
    Family(
        model_types=("deepseek_v3", "kimi_k2", "sarvam_mla"),
        parse=parse_deepseek,
        architectures=("DeepseekV3ForCausalLM",),
    ),
    Family(
        model_types=("mistral4",),
        parse=partial(parse_deepseek, architecture="Mistral4ForCausalLM", correction=""),
        architectures=("Mistral4ForCausalLM",),
    ),
    Family(
        model_types=("deepseek_v32",),
        parse=partial(parse_deepseek, architecture="DeepseekV32ForCausalLM", sparse_attention=True),
        architectures=("DeepseekV32ForCausalLM",),
    ),
    Family(
        model_types=("glm_moe_dsa",),
        parse=partial(
            parse_deepseek,
            architecture="GlmMoeDsaForCausalLM",
            sparse_attention=True,
            mtp_copies_embedding=False,
        ),
        architectures=("GlmMoeDsaForCausalLM",),
    ),
    Family(
        model_types=("glm4_moe_lite",),
        parse=partial(parse_deepseek, architecture="Glm4MoeLiteForCausalLM"),
        architectures=("Glm4MoeLiteForCausalLM",),
    ),
    Family(model_types=("minicpm3",), parse=parse_minicpm3, architectures=("MiniCPM3ForCausalLM",)),
)
