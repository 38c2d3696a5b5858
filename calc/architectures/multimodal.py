"""Models that see or hear: a text decoder from its own family, and the towers beside it.

A config keeps the text fields in `text_config` (or at the top, for the older Qwen and GLM ones) and each tower in a
section of its own. Where a published text section leaves fields to the defaults of its class, those defaults stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from calc.architectures import audio, towers
from calc.architectures.assembly import LM, causal_lm, max_positions
from calc.architectures.config_reader import ConfigReader
from calc.architectures.deepseek import parse_deepseek
from calc.architectures.dense_llama import MISTRAL, QWEN2, RECIPES
from calc.architectures.family import Family
from calc.architectures.gemma import GEMMA3
from calc.architectures.layers import gated_mlp, grouped_attention, mixture
from calc.architectures.lfm2 import lfm2_blocks
from calc.architectures.mixtures import GLM4V_MOE_TEXT, QWEN3_MOE, after_dense, qwen_feed_forwards
from calc.architectures.qwen_next import parse_qwen_next
from calc.architectures.recipe import PRE_NORMS, Recipe, decoder, dense_mlp
from calc.architectures.tensors import Weights, linear, norm, norms, tensor, vector
from calc.model import Attention, Block, ModelSpec, Part, Stack

Stacks = tuple[Stack, ...]
TextParser = Callable[[ConfigReader, ConfigReader, Stacks], ModelSpec]


def dense_text(config: ConfigReader, outer: ConfigReader, stacks: Stacks, recipe: Recipe) -> ModelSpec:
    """A dense decoder as the text part."""
    mlp = dense_mlp(config, recipe, config.int("hidden_size"))
    return decoder(config, recipe, [mlp] * config.layers(), stacks=stacks, outer=outer, kind=LM)


def moe_text(config: ConfigReader, outer: ConfigReader, stacks: Stacks) -> ModelSpec:
    """Qwen3 MoE as the text part."""
    feed_forwards = qwen_feed_forwards(config, QWEN3_MOE, shared=False)
    return decoder(config, QWEN3_MOE, feed_forwards, stacks=stacks, outer=outer, kind=LM)


def next_text(config: ConfigReader, outer: ConfigReader, stacks: Stacks) -> ModelSpec:
    """Qwen3.5 as the text part."""
    return parse_qwen_next(config, outer=outer, stacks=stacks)


_DENSE: Final = {name: recipe for recipe in (*RECIPES, GEMMA3) for name in recipe.model_types}
_OTHER: Final[dict[str, TextParser]] = {
    "qwen3_vl_moe_text": moe_text,
    "qwen3_moe": moe_text,
    "qwen3_5_text": next_text,
    "qwen3_5_moe_text": next_text,
}

# What a text section that names only its model_type leaves to the class (transformers 5: LlamaConfig, Qwen2Config).
_TEXT_DEFAULTS: Final[dict[str, dict[str, object]]] = {
    "llama": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "qwen2": {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
    },
    "gemma3_text": {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
    },
}


def text_section(config: ConfigReader, default_type: str) -> tuple[ConfigReader, str]:
    """(the text fields, their model_type): a section, or the top where the config is flat."""
    section = config.section("text_config", "llm_config")
    if section is None:
        return config, default_type
    kind = section.str("model_type", default=default_type)
    return section.overlaid(_TEXT_DEFAULTS.get(kind, {})), kind


def parse_text(config: ConfigReader, outer: ConfigReader, kind: str, stacks: Stacks) -> ModelSpec:
    """The text part by its own model_type."""
    if kind in _OTHER:
        return _OTHER[kind](config, outer, stacks)
    if kind in _DENSE:
        return dense_text(config, outer, stacks, _DENSE[kind])
    raise config.unsupported(
        "model_type", "the text part of this model is of a family that is not known here"
    )


def parse_qwen_vl(
    config: ConfigReader, tower: Callable[[ConfigReader], Stacks], default_type: str
) -> ModelSpec:
    """Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5: text of that generation and its tower, whose merger ends in its width."""
    text, kind = text_section(config, default_type)
    if kind in ("qwen2_vl", "qwen2_5_vl"):
        kind = "qwen2"
    return parse_text(text, config, kind, tower(config.need_section("vision_config")))


def parse_glm4v(config: ConfigReader) -> ModelSpec:
    """GLM-4.1V: GLM-4 text with four norms and its tower."""
    text, _ = text_section(config, "glm4v_text")
    recipe = next(r for r in RECIPES if "glm4" in r.model_types)
    text = text.overlaid({"head_dim": text.int("hidden_size") // text.int("num_attention_heads")})
    return dense_text(text, config, towers.glm4v_tower(config.need_section("vision_config")), recipe)


def parse_glm4v_moe(config: ConfigReader) -> ModelSpec:
    """GLM-4.5V and 4.6V: GLM-4.5's mixtures and the tower of GLM-4.1V."""
    text, _ = text_section(config, "glm4v_moe_text")
    feed_forwards = after_dense(text, GLM4V_MOE_TEXT, correction="buffer")
    stacks = towers.glm4v_tower(config.need_section("vision_config"))
    return decoder(text, GLM4V_MOE_TEXT, feed_forwards, stacks=stacks, outer=config, kind=LM)


def parse_gemma3(config: ConfigReader) -> ModelSpec:
    """Gemma 3 with SigLIP: one matrix and a norm as projector."""
    text, _ = text_section(config, "gemma3_text")
    vision = config.need_section("vision_config")
    width = vision.int("hidden_size")
    projector = tensor("mm_input_projection_weight", width, text.int("hidden_size"), part=Part.PROJECTOR)
    projector += norm("mm_soft_emb_norm", width)
    return dense_text(text, config, towers.siglip(vision, projector), GEMMA3)


def parse_llava(config: ConfigReader) -> ModelSpec:
    """LLaVA 1.5 and 1.6, Pixtral in the same wrapper: a tower, two matrices, a decoder of its own family."""
    text, kind = text_section(config, "llama")
    vision = config.need_section("vision_config")
    tower = vision.choice("model_type", allowed=("clip_vision_model", "pixtral"), default="clip_vision_model")
    width, text_width = vision.int("hidden_size"), text.int("hidden_size")
    bias = config.bool("multimodal_projector_bias", default=True)
    projector = towers.two_linears(width, text_width, text_width, bias=bias)
    if config.raw("model_type") == "llava_next":
        projector += vector("image_newline", text_width, Part.PROJECTOR)
    build = towers.clip if tower == "clip_vision_model" else towers.pixtral
    config.expect("vocab_size", text.int("vocab_size"))
    return parse_text(text, config, kind, build(vision, projector))


def parse_mistral3(config: ConfigReader) -> ModelSpec:
    """Mistral Small 3.1, Devstral Small 2 and Ministral 3 with Pixtral's tower and a merging projector.

    A config that states `ministral3` at the top is the same model when it has these sections, else plain text.
    """
    if config.section("text_config") is None:
        return dense_text(config, config, (), MISTRAL)
    text, _ = text_section(config, "mistral")
    vision = config.need_section("vision_config")
    width, text_width = vision.int("hidden_size"), text.int("hidden_size")
    merge = config.int("spatial_merge_size", default=2, high=64)
    bias = config.bool("multimodal_projector_bias", default=False)
    projector = (
        norm("multi_modal_projector.norm", width)
        + linear("multi_modal_projector.patch_merger.merging_layer", width * merge**2, width, Part.PROJECTOR)
        + towers.two_linears(width, text_width, text_width, bias=bias)
    )
    tying = replace(MISTRAL, tied_default=True)  # Mistral3Config ties where neither section says otherwise
    return dense_text(text, config, towers.pixtral(vision, projector), tying)


def parse_qwen2_audio(config: ConfigReader) -> ModelSpec:
    """Qwen2-Audio: Qwen 2 text and Whisper's encoder."""
    text, _ = text_section(config, "qwen2")
    stacks = audio.qwen2_audio_tower(config.need_section("audio_config"), text.int("hidden_size"))
    config.expect("vocab_size", text.int("vocab_size"))
    return dense_text(text, config, stacks, QWEN2)


def parse_kimi_k25(config: ConfigReader) -> ModelSpec:
    """Kimi K2.5 to K2.7: Kimi K2 text and MoonViT."""
    text = config.need_section("text_config")
    stacks = towers.moonvit(config.need_section("vision_config"))
    return parse_deepseek(text, outer=config, stacks=stacks)


def parse_lfm2_vl(config: ConfigReader) -> ModelSpec:
    """LFM2-VL: LFM2 text and SigLIP 2 with merged patches."""
    text = config.need_section("text_config")
    vision = config.need_section("vision_config")
    width, text_width = vision.int("hidden_size"), text.int("hidden_size")
    merged = width * config.int("downsample_factor", default=2, high=64) ** 2
    middle = config.int("projector_hidden_size", default=2560)
    bias = config.bool("projector_bias", default=True)
    projector = towers.two_linears(merged, middle, text_width, bias=bias)
    if config.bool("projector_use_layernorm", default=True):
        projector += norm("multi_modal_projector.layer_norm", merged, bias=True)
    return causal_lm(
        text,
        default_architecture="Lfm2VlForConditionalGeneration",
        width=text_width,
        blocks=lfm2_blocks(text),
        final=norm("model.embedding_norm", text_width),
        tied=text.bool("tie_embedding", "tie_word_embeddings", default=True),
        max_positions=max_positions(text),
        stacks=towers.siglip2(vision, projector),
        outer=config,
    )


def parse_minicpmv46(config: ConfigReader) -> ModelSpec:
    """MiniCPM-V 4.6: Qwen3.5 text and SigLIP with two mergers."""
    text, kind = text_section(config, "qwen3_5_text")
    vision = config.need_section("vision_config")
    for same in ("insert_layer_id", "merge_kernel_size", "patch_size", "image_size"):
        config.raw(same)
    times = config.int("merger_times", default=1, high=8)
    stacks = towers.minicpmv_tower(vision, text.int("hidden_size"), times)
    return parse_text(text, config, kind, stacks)


def parse_llama4(config: ConfigReader) -> ModelSpec:
    """Llama 4: chunked attention but for every fourth layer, experts with a shared one beside them.

    Where the config leaves the tower's section out, the tower has the defaults of its class, as transformers builds it.
    """
    text = config.section("text_config") or config
    width, layers = text.int("hidden_size"), text.layers()
    alone = config.raw("model_type") == "llama4_text"
    vision = config.section("vision_config") or ConfigReader({}, model_id=config.model_id, read=config.read)
    every = text.int("interleave_moe_layer_step", default=1)
    listed = text.ints("moe_layers")
    sparse = set(listed) if listed is not None else set(range(every - 1, layers, every))
    attention = {full: _llama4_attention(text, width, full=full) for full in (False, True)}
    experts = mixture(
        width=width,
        n_experts=text.int("num_local_experts"),
        top_k=text.int("num_experts_per_tok"),
        intermediate=text.int("intermediate_size"),
        shared_intermediate=text.int("intermediate_size"),
        prefix="feed_forward",
        router="router",
        shared="shared_expert",
    )
    dense = gated_mlp(width=width, intermediate=text.int("intermediate_size_mlp"), prefix="feed_forward")
    built = {
        (full, is_sparse): Block(
            sublayers=(attention[full], experts if is_sparse else dense), norms=norms(width, *PRE_NORMS)
        )
        for full in (False, True)
        for is_sparse in (False, True)
    }
    fulls = _llama4_full_layers(text, layers)
    return causal_lm(
        text,
        default_architecture="Llama4ForConditionalGeneration",
        width=width,
        blocks=[built[full, layer in sparse] for layer, full in enumerate(fulls)],
        final=norm("model.norm", width),
        max_positions=max_positions(text),
        embedding_name="language_model.model.embed_tokens",
        path="language_model.model.layers",
        stacks=() if alone else towers.llama4_tower(vision, width),
        outer=config,
    )


def _llama4_full_layers(config: ConfigReader, layers: int) -> list[bool]:
    """Which layers see everything: those without rotary positions, every `no_rope_layer_interval`-th."""
    kinds = config.words("layer_types", allowed=("chunked_attention", "full_attention"), length=layers)
    flags = config.ints("no_rope_layers")
    every = config.int("no_rope_layer_interval", default=4)
    if kinds:
        return [kind == "full_attention" for kind in kinds]
    if flags:
        if len(flags) != layers:
            raise config.unsupported("no_rope_layers", f"it must have one entry for each of {layers} layers")
        return [flag == 0 for flag in flags]
    return [(layer + 1) % every == 0 for layer in range(layers)]


def _llama4_attention(config: ConfigReader, width: int, *, full: bool) -> Attention:
    bias = config.bool("attention_bias", default=False)
    config.bool("use_qk_norm", default=True)  # without scale: no tensor
    return grouped_attention(
        width=width,
        n_heads=config.int("num_attention_heads"),
        n_kv_heads=config.int("num_key_value_heads"),
        head_dim=config.int("head_dim", default=128),
        qkv_bias=bias,
        out_bias=bias,
        chunk=None if full else config.optional_int("attention_chunk_size"),
    )


def parse_mllama(config: ConfigReader) -> ModelSpec:
    """Llama 3.2 Vision: some layers attend to the image instead of the text, with gates; 8 more embedding rows."""
    text = config.need_section("text_config")
    width, layers = text.int("hidden_size"), text.layers()
    crossing = set(text.ints("cross_attention_layers") or ())
    mlp = gated_mlp(width=width, intermediate=text.int("intermediate_size"))
    n_heads, n_kv_heads = text.int("num_attention_heads"), text.int("num_key_value_heads")
    head_dim = width // n_heads
    own = grouped_attention(width=width, n_heads=n_heads, n_kv_heads=n_kv_heads, head_dim=head_dim)
    cross = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        qk_norm=(head_dim, head_dim),
        prefix="cross_attn",
        cross=True,
    )
    gates: Weights = vector("cross_attn_attn_gate", 1) + vector("cross_attn_mlp_gate", 1)
    plain = Block(sublayers=(own, mlp), norms=norms(width, *PRE_NORMS))
    seeing = Block(sublayers=(cross, mlp), norms=norms(width, *PRE_NORMS) + gates)
    vocab = text.int("vocab_size")
    return causal_lm(
        text,
        default_architecture="MllamaForConditionalGeneration",
        width=width,
        blocks=[seeing if layer in crossing else plain for layer in range(layers)],
        final=norm("model.norm", width),
        max_positions=max_positions(text),
        vocab_size=vocab,
        embedding_rows=vocab + 8,
        embedding_name="language_model.model.embed_tokens",
        path="language_model.model.layers",
        stacks=towers.mllama_tower(config.need_section("vision_config"), width),
        outer=config,
    )


FAMILIES: Final = (
    Family(
        model_types=("qwen2_vl",),
        parse=partial(parse_qwen_vl, tower=towers.qwen2_vl_tower, default_type="qwen2"),
        architectures=("Qwen2VLForConditionalGeneration",),
    ),
    Family(
        model_types=("qwen2_5_vl",),
        parse=partial(parse_qwen_vl, tower=towers.qwen2_5_vl_tower, default_type="qwen2"),
        architectures=("Qwen2_5_VLForConditionalGeneration",),
    ),
    Family(
        model_types=("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"),
        parse=partial(parse_qwen_vl, tower=towers.qwen3_vl_tower, default_type="qwen3"),
        architectures=("Qwen3VLForConditionalGeneration",),
    ),
    Family(
        model_types=("glm4v", "glm46v"), parse=parse_glm4v, architectures=("Glm4vForConditionalGeneration",)
    ),
    Family(
        model_types=("glm4v_moe",), parse=parse_glm4v_moe, architectures=("Glm4vMoeForConditionalGeneration",)
    ),
    Family(model_types=("gemma3",), parse=parse_gemma3, architectures=("Gemma3ForConditionalGeneration",)),
    Family(
        model_types=("llava", "llava_next"),
        parse=parse_llava,
        architectures=("LlavaForConditionalGeneration",),
    ),
    Family(
        model_types=("mistral3", "ministral3"),
        parse=parse_mistral3,
        architectures=("Mistral3ForConditionalGeneration",),
    ),
    Family(
        model_types=("qwen2_audio",),
        parse=parse_qwen2_audio,
        architectures=("Qwen2AudioForConditionalGeneration",),
    ),
    Family(
        model_types=("kimi_k25",), parse=parse_kimi_k25, architectures=("KimiK25ForConditionalGeneration",)
    ),
    Family(model_types=("lfm2_vl",), parse=parse_lfm2_vl, architectures=("Lfm2VlForConditionalGeneration",)),
    Family(
        model_types=("minicpmv4_6",),
        parse=parse_minicpmv46,
        architectures=("MiniCPMV4_6ForConditionalGeneration",),
    ),
    Family(
        model_types=("llama4", "llama4_text"),
        parse=parse_llama4,
        architectures=("Llama4ForConditionalGeneration",),
    ),
    Family(model_types=("mllama",), parse=parse_mllama, architectures=("MllamaForConditionalGeneration",)),
)
