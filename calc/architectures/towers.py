"""Vision towers: what turns pixels into tokens, with the projector into the text width. They keep no cache.

Sources: the vision classes of transformers 5, which build the published checkpoints.
"""

from __future__ import annotations

from calc.architectures.assembly import even_head_dim, runs
from calc.architectures.config_reader import ConfigReader
from calc.architectures.layers import gated_mlp, grouped_attention, plain_mlp
from calc.architectures.tensors import Weights, linear, norm, norms, tensor, vector
from calc.model import Block, Part, Role, Stack, Weight

CHANNELS = ("num_channels", "in_channels", "in_chans")


def vit_block(
    config: ConfigReader,
    width: int,
    n_heads: int,
    intermediate: int,
    *,
    bias: bool = True,
    out_bias: bool | None = None,
    gated: bool = False,
    mlp_bias: bool = True,
    layer_norm: bool = True,
    qk_norm: bool = False,
    extra: Weights = (),
    norm_names: tuple[str, ...] = ("norm1", "norm2"),
) -> Block:
    """One layer of a vision transformer: full attention over patches, then a feed-forward layer."""
    head_dim = even_head_dim(config, width, n_heads)
    attention = grouped_attention(
        width=width,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        head_dim=head_dim,
        qkv_bias=bias,
        out_bias=bias if out_bias is None else out_bias,
        qk_norm=(head_dim, head_dim) if qk_norm else None,
        causal=False,
    )
    build = gated_mlp if gated else plain_mlp
    mlp = build(width=width, intermediate=intermediate, bias=mlp_bias)
    return Block(sublayers=(attention, mlp), norms=norms(width, *norm_names, bias=layer_norm) + extra)


def patches(width: int, *kernel: int, bias: bool, name: str = "patch_embed.proj") -> Weights:
    """The convolution that turns a patch into a vector; `kernel` is (channels, ...sizes)."""
    weights = tensor(name, width, *kernel, part=Part.POSITION)
    return weights + vector(f"{name}.bias", width, Part.POSITION) if bias else weights


def positions(count: int, width: int) -> Weights:
    """A learned table of positions."""
    return tensor("position_embedding", count, width, part=Part.POSITION)


def tower(
    width: int, blocks: list[Block], weights: Weights, path: str, role: Role = Role.VISION
) -> tuple[Stack]:
    """The stack of a tower."""
    return (Stack(role=role, width=width, runs=runs(blocks), weights=weights, path=path),)


def two_linears(
    n_in: int, middle: int, n_out: int, *, bias: bool, name: str = "multi_modal_projector"
) -> Weights:
    """A projector of two matrices with an activation between."""
    return linear(f"{name}.linear_1", n_in, middle, Part.PROJECTOR, bias=bias) + linear(
        f"{name}.linear_2", middle, n_out, Part.PROJECTOR, bias=bias
    )


def siglip_blocks(config: ConfigReader) -> tuple[int, list[Block], int]:
    """(width, blocks, patch size) of SigLIP and CLIP towers."""
    width = config.int("hidden_size")
    block = vit_block(config, width, config.int("num_attention_heads"), config.int("intermediate_size"))
    return width, [block] * config.layers("num_hidden_layers"), config.int("patch_size", high=1024)


def siglip(config: ConfigReader, projector: Weights, extra_blocks: Weights = ()) -> tuple[Stack]:
    """SigLIP without its pooling head (Gemma 3, MiniCPM-V 4.6)."""
    width, blocks, patch = siglip_blocks(config)
    if config.bool("vision_use_head", default=False):
        raise config.unsupported("vision_use_head", "the pooling head of SigLIP is not read")
    side = config.int("image_size") // patch
    weights = (
        patches(width, config.int(*CHANNELS, default=3, high=16), patch, patch, bias=True)
        + positions(side * side, width)
        + norm("post_layernorm", width, bias=True)
    )
    return tower(width, blocks, weights + extra_blocks + projector, "vision_tower.encoder.layers")


def siglip2(config: ConfigReader, projector: Weights) -> tuple[Stack]:
    """SigLIP 2 with flattened patches and a table for `num_patches` positions (LFM2-VL)."""
    width, blocks, patch = siglip_blocks(config)
    if config.bool("vision_use_head", default=False):
        raise config.unsupported("vision_use_head", "the pooling head of SigLIP is not read")
    channels = config.int(*CHANNELS, default=3, high=16)
    weights = (
        linear("patch_embedding", channels * patch * patch, width, Part.POSITION, bias=True)
        + positions(config.int("num_patches"), width)
        + norm("post_layernorm", width, bias=True)
    )
    return tower(width, blocks, weights + projector, "vision_tower.encoder.layers")


def clip(config: ConfigReader, projector: Weights) -> tuple[Stack]:
    """CLIP's vision tower (LLaVA 1.5); the text width `projection_dim` and `vocab_size` of CLIP are not built."""
    width, blocks, patch = siglip_blocks(config)
    for unused in ("projection_dim", "vocab_size"):
        config.raw(unused)
    side = config.int("image_size") // patch
    weights = (
        vector("class_embedding", width, Part.POSITION)
        + patches(width, config.int(*CHANNELS, default=3, high=16), patch, patch, bias=False)
        + positions(side * side + 1, width)
        + norms(width, "pre_layrnorm", "post_layernorm", bias=True)
    )
    return tower(width, blocks, weights + projector, "vision_tower.encoder.layers")


def pixtral(config: ConfigReader, projector: Weights) -> tuple[Stack]:
    """Pixtral's tower: rotary positions, RMS norms, gated feed-forward, no biases."""
    width = config.int("hidden_size")
    patch = config.int("patch_size", high=1024)
    config.raw("image_size")
    n_heads = config.int("num_attention_heads")
    config.expect("head_dim", width // n_heads)
    block = vit_block(
        config,
        width,
        n_heads,
        config.int("intermediate_size"),
        bias=False,
        gated=True,
        mlp_bias=False,
        layer_norm=False,
    )
    weights = patches(
        width, config.int(*CHANNELS, default=3, high=16), patch, patch, bias=False, name="patch_conv"
    )
    weights += norm("ln_pre", width)
    return tower(width, [block] * config.layers(), weights + projector, "vision_tower.transformer.layers")


def qwen2_vl_tower(config: ConfigReader) -> tuple[Stack]:
    """Qwen2-VL: `embed_dim` is the tower's width, `hidden_size` the text's; a merger of merge² patches."""
    width = config.int("embed_dim", default=1280)
    text = config.int("hidden_size")
    ratio = config.int("mlp_ratio", default=4, high=64)
    block = vit_block(config, width, config.int("num_heads", default=16), ratio * width)
    patch = config.int("patch_size", "spatial_patch_size", default=14, high=1024)
    merged = width * config.int("spatial_merge_size", default=2, high=64) ** 2
    weights = (
        _video_patches(config, width, patch, bias=False)
        + norm("merger.ln_q", width, bias=True)
        + two_linears(merged, merged, text, bias=True, name="merger.mlp")
    )
    return tower(width, [block] * config.int("depth", default=32, high=1024), weights, "visual.blocks")


def qwen2_5_vl_tower(config: ConfigReader) -> tuple[Stack]:
    """Qwen2.5-VL: RMS norms, gated feed-forward with biases, windows over patches (which keep no cache)."""
    width = config.int("hidden_size")
    config.raw("fullatt_block_indexes")
    config.raw("window_size")
    config.expect("embed_dim", width)
    block = vit_block(
        config, width, config.int("num_heads"), config.int("intermediate_size"), gated=True, layer_norm=False
    )
    patch = config.int("patch_size", "spatial_patch_size", default=14, high=1024)
    config.raw("spatial_patch_size")
    merged = width * config.int("spatial_merge_size", default=2, high=64) ** 2
    weights = (
        _video_patches(config, width, patch, bias=False)
        + norm("merger.ln_q", width)
        + two_linears(merged, merged, config.int("out_hidden_size"), bias=True, name="merger.mlp")
    )
    return tower(width, [block] * config.layers("depth"), weights, "visual.blocks")


def qwen3_vl_tower(config: ConfigReader) -> tuple[Stack]:
    """Qwen3-VL and Qwen3.5: learned positions, a merger, and one more merger per deep-stack layer."""
    width = config.int("hidden_size")
    text = config.int("out_hidden_size")
    block = vit_block(config, width, config.int("num_heads"), config.int("intermediate_size"))
    patch = config.int("patch_size", high=1024)
    merged = width * config.int("spatial_merge_size", default=2, high=64) ** 2
    weights = (
        _video_patches(config, width, patch, bias=True)
        + positions(config.int("num_position_embeddings"), width)
        + norm("merger.norm", width, bias=True)
        + two_linears(merged, merged, text, bias=True, name="merger")
    )
    for index in config.ints("deepstack_visual_indexes") or ():
        name = f"deepstack_merger_list.{index}"
        weights += norm(f"{name}.norm", merged, bias=True) + two_linears(
            merged, merged, text, bias=True, name=name
        )
    return tower(width, [block] * config.layers("depth"), weights, "visual.blocks")


def glm4v_tower(config: ConfigReader) -> tuple[Stack]:
    """GLM-4.1V and 4.5V: blocks as wide as the text inside, a strided convolution, a gated merger."""
    width = config.int("hidden_size")
    text = config.int("out_hidden_size")
    patch = config.int("patch_size", high=1024)
    merge = config.int("spatial_merge_size", default=2, high=64)
    bias = config.bool("attention_bias", default=False)
    block = vit_block(
        config,
        width,
        config.int("num_heads"),
        text,
        bias=bias,
        out_bias=False,
        gated=True,
        mlp_bias=False,
        layer_norm=False,
    )
    side = config.int("image_size") // patch
    merger = gated_mlp(width=text, intermediate=config.int("intermediate_size"), prefix="merger")
    weights = (
        positions(side * side, width)
        + _video_patches(config, width, patch, bias=True)
        + norms(width, "post_conv_layernorm", "post_layernorm")
        + patches(text, width, merge, merge, bias=True, name="downsample")
        + linear("merger.proj", text, text, Part.PROJECTOR)
        + norm("merger.post_projection_norm", text, bias=True)
        + merger.weights
    )
    return tower(width, [block] * config.layers("depth"), weights, "visual.blocks")


def _video_patches(config: ConfigReader, width: int, patch: int, *, bias: bool) -> Weights:
    """Patches over `temporal_patch_size` frames."""
    frames = config.int("temporal_patch_size", default=2, high=64)
    return patches(width, config.int(*CHANNELS, default=3, high=16), frames, patch, patch, bias=bias)


def llama4_tower(config: ConfigReader, text: int) -> tuple[Stack]:
    """Llama 4: a transformer over patches, a pixel shuffle, two adapter matrices and the projector."""
    width = config.int("hidden_size", default=768)
    patch = config.int("patch_size", default=14, high=1024)
    side = config.int("image_size", default=448) // patch
    block = vit_block(
        config,
        width,
        config.int("num_attention_heads", default=16),
        config.int("intermediate_size", default=5632),
    )
    config.raw("pixel_shuffle_ratio")
    intermediate = config.int("intermediate_size", default=5632)
    middle = config.int("projector_input_dim", default=4096)
    out = config.int("projector_output_dim", default=4096)
    channels = config.int(*CHANNELS, default=3, high=16)
    weights = (
        vector("class_embedding", width, Part.POSITION)
        + positions(side * side + 1, width)
        + linear("patch_embedding.linear", channels * patch * patch, width, Part.POSITION)
        + norms(width, "layernorm_pre", "layernorm_post", bias=True)
        + linear("vision_adapter.mlp.fc1", intermediate, middle, Part.PROJECTOR)
        + linear("vision_adapter.mlp.fc2", middle, out, Part.PROJECTOR)
        + linear(
            "multi_modal_projector.linear_1",
            config.int("vision_output_dim", default=7680),
            text,
            Part.PROJECTOR,
        )
    )
    config.expect("multi_modal_projector_bias", False)
    layers = config.int("num_hidden_layers", default=34, high=1024)
    return tower(width, [block] * layers, weights, "vision_model.model.layers")


def mllama_tower(config: ConfigReader, text: int) -> tuple[Stack]:
    """Llama 3.2 Vision: local and gated global layers, gated position tables for tiles, the projector with bias."""
    width, n_heads = config.int("hidden_size"), config.int("attention_heads", "num_attention_heads")
    intermediate = config.int("intermediate_size")
    patch = config.int("patch_size", high=1024)
    per_tile = (config.int("image_size") // patch) ** 2 + 1
    tiles = config.int("max_num_tiles", high=64)
    ratios = len(config.list("supported_aspect_ratios") or ()) + 1
    local = vit_block(config, width, n_heads, intermediate, bias=False)
    gates = vector("gate_attn", 1) + vector("gate_ffn", 1)
    world = vit_block(config, width, n_heads, intermediate, bias=False, extra=gates)
    blocks = [local] * config.layers() + [world] * config.int("num_global_layers", high=1024)
    part = Part.POSITION
    weights = (
        vector("class_embedding", width, part)
        + patches(width, config.int(*CHANNELS, default=3, high=16), patch, patch, bias=False)
        + positions(per_tile, width)
        + tensor("gated_positional_embedding.tile_embedding", ratios, tiles * per_tile * width, part=part)
        + tensor("pre_tile_positional_embedding", ratios, tiles * width, part=part)
        + tensor("post_tile_positional_embedding", ratios, tiles * width, part=part)
        + vector("position_gates", 3, part)
        + norms(width, "layernorm_pre", "layernorm_post", bias=True)
        + linear("multi_modal_projector", config.int("vision_output_dim"), text, Part.PROJECTOR, bias=True)
    )
    config.ints("intermediate_layers_indices")
    return tower(width, blocks, weights, "vision_model.transformer.layers")


def moonvit(config: ConfigReader) -> tuple[Stack]:
    """MoonViT of Kimi K2.5: a table of 2-D positions, a projector over merged patches."""
    width, text = config.int("vt_hidden_size"), config.int("text_hidden_size")
    config.expect("mm_projector_type", "patchmerger")
    config.expect("mm_hidden_size", width)
    config.raw("init_pos_emb_time")
    height, across = config.int("init_pos_emb_height"), config.int("init_pos_emb_width")
    merge = config.ints("merge_kernel_size", length=2, low=1) or [2, 2]
    merged = width * merge[0] * merge[1]
    patch = config.int("patch_size", high=1024)
    block = vit_block(config, width, config.int("vt_num_attention_heads"), config.int("vt_intermediate_size"))
    weights = (
        patches(width, 3, patch, patch, bias=True)
        + positions(height * across, width)
        + norm("final_layernorm", width, bias=True)
        + norm("mm_projector.pre_norm", width, bias=True)
        + two_linears(merged, merged, text, bias=True, name="mm_projector")
    )
    return tower(width, [block] * config.layers("vt_num_hidden_layers"), weights, "vision_tower.layers")


def minicpmv_tower(config: ConfigReader, text: int, merger_times: int) -> tuple[Stack]:
    """MiniCPM-V 4.6: SigLIP, a merging attention layer inside, and a merger into the text width."""
    width, intermediate = config.int("hidden_size"), config.int("intermediate_size")
    kernel = config.ints("window_kernel_size", length=2, low=1) or [2, 2]
    merged = width * kernel[0] * kernel[1]
    config.raw("insert_layer_id")
    inner = grouped_attention(
        width=width,
        n_heads=config.int("num_attention_heads"),
        n_kv_heads=config.int("num_attention_heads"),
        head_dim=even_head_dim(config, width, config.int("num_attention_heads")),
        qkv_bias=True,
        out_bias=True,
        causal=False,
    )
    between = (
        inner.weights
        + norm("vit_merger.layer_norm1", width, bias=True)
        + norm("vit_merger.pre_norm", merged, bias=True)
        + two_linears(merged, intermediate * kernel[0] * kernel[1], width, bias=True, name="vit_merger")
    )
    projector: Weights = ()
    for step in range(merger_times):
        name = f"merger.mlp.{step}"
        out = text if step == merger_times - 1 else width
        projector += norm(f"{name}.pre_norm", merged, bias=True)
        projector += two_linears(merged, merged, out, bias=True, name=name)
    return siglip(config, projector, between)


def clip_bounds(linears: int) -> Weights:
    """Four bounds for each clipped linear layer, kept as buffers."""
    return buffers("clip_bounds", 4 * linears)


def buffers(name: str, count: int) -> Weights:
    """Numbers that the checkpoint stores and that are not parameters."""
    return (Weight(name=name, shape=(count,), part=Part.NORM, buffer=True),)
