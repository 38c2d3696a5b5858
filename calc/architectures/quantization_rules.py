"""Which modules a checkpoint stores in which format: `quantization_config` of config.json and `hf_quant_config.json`.

Understood: DeepSeek-style and per-tensor fp8, FBGEMM fp8, AWQ, GPTQ, compressed-tensors, ModelOpt (NVFP4, FP8, mixed),
MXFP4, bitsandbytes. Another method is refused by name. Whatever the method, embeddings, heads, norms, routers and towers
stay in 16 bit: no published checkpoint known here quantises them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from calc.architectures.config_reader import ConfigReader
from calc.architectures.module_names import Matcher, Signature
from calc.errors import UnsupportedArchitecture
from calc.quantization import FORMATS

_MODELOPT: Final = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8-block",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A16_NVFP4": "nvfp4-weight",
    "W4A16_AWQ": "int4-g128",
    "W4A8_AWQ": "int4-g128",
    "MXFP8": "mxfp8",
    "MXFP4": "mxfp4",
}


# The same layout where activations stay in 16 bit: a matmul then computes in 16 bit.
_WEIGHT_ONLY: Final = {"int8": "int8-weight", "nvfp4": "nvfp4-weight"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The format of a module: by its own name, by the first target that matches, else `default`; None: not quantised.

    `experts`: a format of its own for routed experts, where the checkpoint names one (DeepSeek-V4).
    """

    default: str | None = None
    experts: str | None = None
    targets: tuple[tuple[Matcher, str], ...] = ()
    ignore: Matcher = field(default_factory=Matcher)

    def format_of(self, names: tuple[str, ...], layer: int, *, is_expert: bool) -> str | None:
        """The stored format of the module that goes by any of `names` in block `layer`."""
        if self.ignore.matches(names, layer):
            return None
        for matcher, name in self.targets:
            if matcher.matches(names, layer):
                return name
        if is_expert and self.experts is not None:
            return self.experts
        return self.default

    def signature(self, layer: int) -> tuple[Signature, ...]:
        """Equal for layers that the rules treat alike."""
        return (self.ignore.signature(layer), *(matcher.signature(layer) for matcher, _ in self.targets))


def read_rules(config: ConfigReader, hf_quant_config: Mapping[str, object] | None = None) -> Rules | None:
    """The rules that a config states at the top or in its text section; None where the checkpoint is not quantised."""
    section = config.section("quantization_config", "compression_config")
    if section is None:
        for inner in ("text_config", "llm_config", "thinker_config"):
            text = config.section(inner)
            if text is not None and text.section("quantization_config") is not None:
                section = text.section("quantization_config")
                break
    beside = None
    if hf_quant_config is not None:
        beside = ConfigReader(hf_quant_config, model_id=config.model_id, path="hf_quant_config.")
    if beside is not None and (section is None or not _lists_modules(section)):
        return _modelopt(beside.section("quantization") or beside)
    return None if section is None else _by_method(config, section)


def _lists_modules(section: ConfigReader) -> bool:
    return any(
        section.has(name) for name in ("ignore", "exclude_modules", "quantized_layers", "config_groups")
    )


def _by_method(config: ConfigReader, section: ConfigReader) -> Rules:
    method = section.str("quant_method", default="").lower()
    readers = {
        "fp8": lambda: _fp8(config, section),
        "fbgemm_fp8": lambda: Rules(default="fp8-row", ignore=_ignored(section)),
        "awq": lambda: _groups(section, "awq"),
        "gptq": lambda: _groups(section, "gptq"),
        "compressed-tensors": lambda: _compressed(section),
        "modelopt": lambda: _modelopt(section),
        "modelopt_fp4": lambda: _modelopt(section),
        "mxfp4": lambda: _mxfp4(section),
        "bitsandbytes": lambda: _bitsandbytes(section),
    }
    if not method and section.has("config_groups"):
        method = "compressed-tensors"
    if not method and (section.has("load_in_4bit") or section.has("load_in_8bit")):
        method = "bitsandbytes"
    if method not in readers:
        raise section.unsupported("quant_method", f"known are {', '.join(readers)}")
    return readers[method]()


def _ignored(section: ConfigReader) -> Matcher:
    names: list[str] = []
    for name in (
        "modules_to_not_convert",
        "ignore",
        "exclude_modules",
        "ignored_layers",
        "llm_int8_skip_modules",
    ):
        for entry in section.list(name) or ():
            if not isinstance(entry, str):
                raise section.unsupported(name, "it must list module names")
            names.append(entry)
    return Matcher(names)


def _fp8(config: ConfigReader, section: ConfigReader) -> Rules:
    """fp8 with a scale per tensor or per block; DeepSeek-V4 keeps one-byte scales, and experts in MXFP4 or NVFP4."""
    block = section.ints("weight_block_size", length=2, low=1)
    default = "fp8"
    if block is not None:
        if block != [128, 128]:
            raise section.unsupported("weight_block_size", "known are blocks of 128 x 128")
        default = "fp8-block"
    experts = None
    v4 = config.raw("model_type") in ("deepseek_v4", "deepseek_ref")
    if v4 and section.raw("scale_fmt") == "ue8m0":
        default = "fp8-block-e8m0"
    if v4 and (config.raw("expert_dtype") or section.raw("expert_dtype")) == "fp4":
        experts = "mxfp4"
    if section.has("quantized_layers"):
        mixed = _modelopt(section)
        return Rules(default=default, experts=experts, targets=mixed.targets)
    return Rules(default=default, experts=experts, ignore=_ignored(section))


def _groups(section: ConfigReader, kind: str) -> Rules:
    """AWQ and GPTQ: 4 (or 8) bit with a scale and a zero point per group."""
    bits = section.int("bits", "w_bit", default=4, high=16)
    group = section.int("group_size", "q_group_size", default=128, low=-1)
    if section.has("dynamic"):
        raise section.unsupported("dynamic", "rules per module in GPTQ checkpoints are not read")
    for unused in ("zero_point", "version", "desc_act", "sym", "lm_head"):
        section.raw(unused)
    prefix = kind if bits == 4 else f"{kind}{bits}"
    name = f"{prefix}-g{group}"
    if name not in FORMATS:
        raise section.unsupported(
            "group_size", f"{bits} bits with groups of {group} are not known for {kind}"
        )
    return Rules(default=name, ignore=_ignored(section))


def _compressed(section: ConfigReader) -> Rules:
    """compressed-tensors: groups of targets, each with a scheme for its weights."""
    groups = section.need_section("config_groups")
    targets: list[tuple[Matcher, str]] = []
    default = None
    for name in groups.fields:
        group = groups.need_section(str(name))
        weights = group.section("weights")
        if weights is None:
            continue
        stored = scheme_format(weights, group.raw("format") or section.raw("format"))
        if group.section("input_activations") is None:
            stored = _WEIGHT_ONLY.get(stored, stored)
        listed = [str(entry) for entry in group.list("targets") or ["Linear"]]
        if "Linear" in listed:
            default = stored
            listed = [entry for entry in listed if entry != "Linear"]
        if listed:
            targets.append((Matcher(listed), stored))
    return Rules(default=default, targets=tuple(targets), ignore=_ignored(section))


def scheme_format(weights: ConfigReader, layout: object = None) -> str:
    """The stored format of one compressed-tensors weight scheme."""
    bits = weights.int("num_bits", high=16)
    kind = weights.choice("type", allowed=("int", "float"), default="int")
    strategy = weights.str("strategy", default="")
    group = weights.optional_int("group_size")
    if not strategy:
        strategy = "group" if group else "tensor"
    one_byte = "uint8" in str(weights.raw("scale_dtype") or "") or "mxfp" in str(layout or "")
    known = {
        ("float", 8, "tensor"): "fp8",
        ("float", 8, "channel"): "fp8-channel",
        ("float", 8, "block"): "fp8-block-bf16" if layout is not None else "fp8-block",
        ("float", 8, "group"): "mxfp8" if one_byte and group == 32 else "",
        ("float", 4, "group"): "mxfp4" if one_byte and group == 32 else "nvfp4" if group == 16 else "",
        ("float", 4, "tensor_group"): "nvfp4",
        ("int", 8, "channel"): "int8",
        ("int", 8, "tensor"): "int8",
        ("int", 8, "group"): f"int8-g{group}",
        ("int", 4, "group"): f"int4-g{group}",
        ("int", 4, "channel"): "int4-channel",
    }
    found = known.get((kind, bits, strategy), "")
    if found not in FORMATS:
        raise weights.unsupported(
            "num_bits", f"{bits}-bit {kind} weights by {strategy} (group {group}) are not known"
        )
    return found


def _modelopt(section: ConfigReader) -> Rules:
    """ModelOpt: one algorithm for all but the excluded modules, or one for each listed layer."""
    layers = section.raw("quantized_layers")
    algorithm = section.str("quant_algo", default="").upper()
    if isinstance(layers, Mapping):
        by_format: dict[str, list[str]] = {}
        for name, entry in layers.items():
            stated = entry.get("quant_algo") if isinstance(entry, Mapping) else None
            by_format.setdefault(_algorithm(section, stated), []).append(str(name))
        return Rules(targets=tuple((Matcher(names), stored) for stored, names in by_format.items()))
    if algorithm == "MIXED_PRECISION" and section.has("config_groups"):
        return _compressed(section)
    if not algorithm and section.has("config_groups"):
        return _compressed(section)
    section.raw("group_size")
    return Rules(default=_algorithm(section, algorithm), ignore=_ignored(section))


def _algorithm(section: ConfigReader, stated: object) -> str:
    name = str(stated or "").upper()
    if name not in _MODELOPT:
        raise UnsupportedArchitecture(
            f"{section.path}quant_algo", stated, f"known are {', '.join(_MODELOPT)} and MIXED_PRECISION"
        )
    return _MODELOPT[name]


def _mxfp4(section: ConfigReader) -> Rules:
    """gpt-oss: the experts in MXFP4, everything else in 16 bit."""
    return Rules(experts="mxfp4", ignore=_ignored(section))


def _bitsandbytes(section: ConfigReader) -> Rules:
    """bitsandbytes: 4 bit with or without quantised scales, or 8 bit with a scale per row."""
    if section.bool("load_in_8bit", default=False):
        return Rules(default="bnb-8bit", ignore=_ignored(section))
    double = section.bool("bnb_4bit_use_double_quant", default=False)
    return Rules(default="bnb-4bit" if double else "bnb-4bit-single", ignore=_ignored(section))
