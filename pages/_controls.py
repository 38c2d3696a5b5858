"""The scenario's controls as one table, each named by its URL parameter, and the way back to a `Scenario`.

Optional numbers are text boxes: an empty box means "none", which a bound number box could not put into the URL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from calc.errors import InputError, shown
from calc.quantization import KV_FORMATS, WHAT_IF
from calc.scenario import URL_PARAMETERS, URL_UNITS, Behind, Engine, Fidelity, Scenario, Traffic, parse_value
from calc.workload import LengthShape
from presets import accelerators, models

CONFIG_KEY = "config_text"
GPU_JSON_KEY = "gpu_json"
PERCENTILES = ("mean", "50", "90", "95", "99")


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One control: its URL parameter (also its key), where it stands, and how it looks.

    kind: choice (one of options), open choice (others may be typed), number, whole, optional (a number or none),
    text, switch.
    """

    parameter: str
    label: str
    kind: str
    options: Callable[[], tuple[str, ...]] = tuple
    low: float | None = None
    high: float | None = None
    step: float | None = None
    help: str = ""
    placeholder: str = ""

    @property
    def field(self) -> str:
        return URL_PARAMETERS[self.parameter]


def _formats() -> tuple[str, ...]:
    return ("auto", *WHAT_IF)


MODEL = (
    Control(
        parameter="model",
        label="Model",
        kind="open choice",
        options=models.preset_ids,
        help="A preset, or any Hugging Face model id: type or paste it and press Enter.",
    ),
    Control(
        parameter="weights",
        label="Weights",
        kind="open choice",
        options=_formats,
        help="auto: as the checkpoint is stored. Another format asks: what if it were quantised?",
    ),
    Control(
        parameter="kv",
        label="KV cache",
        kind="choice",
        options=lambda: ("auto", *KV_FORMATS),
        help="Format of cached keys and values. auto: 16 bit.",
    ),
)
MODEL_MORE = (
    Control(
        parameter="rev",
        label="Revision",
        kind="text",
        placeholder="main",
        help="Branch, tag or commit of the repository.",
    ),
)
HARDWARE = (
    Control(
        parameter="gpu",
        label="Accelerator",
        kind="open choice",
        options=accelerators.all_ids,
        help="From the catalogue, or typed: a name, a MIG slice (h100:3g.40gb), or local for this machine's own.",
    ),
    Control(
        parameter="tp",
        label="GPUs per replica (0: automatic)",
        kind="whole",
        low=0,
        high=1024,
        step=1,
        help="0: the smallest number that fits.",
    ),
)
HARDWARE_MORE = (
    Control(parameter="pp", label="Pipeline stages", kind="whole", low=1, high=1024, step=1),
    Control(
        parameter="dp", label="Data-parallel engines per replica", kind="whole", low=1, high=4096, step=1
    ),
    Control(
        parameter="ep",
        label="Expert-parallel group",
        kind="whole",
        low=0,
        high=4096,
        step=1,
        help="0: experts follow tensor parallelism.",
    ),
    Control(parameter="adp", label="Attention data-parallel ranks", kind="whole", low=1, high=1024, step=1),
    Control(parameter="nodes", label="Nodes per replica", kind="whole", low=1, high=1024, step=1),
    Control(parameter="engine", label="Engine", kind="choice", options=lambda: tuple(map(str, Engine))),
    Control(parameter="engine_version", label="Engine version", kind="text", placeholder="newest known"),
    Control(
        parameter="util",
        label="Memory share the engine may use",
        kind="optional",
        placeholder="engine default",
    ),
    Control(parameter="max_seqs", label="Most sequences at once", kind="optional", placeholder="no cap"),
    Control(
        parameter="budget", label="Token budget of a step", kind="optional", placeholder="engine's default"
    ),
    Control(
        parameter="chunked",
        label="Chunked prefill",
        kind="switch",
        help="Off: a prompt runs alone while decoding waits.",
    ),
    Control(
        parameter="prefix_cache",
        label="Prefix cache",
        kind="switch",
        help="Off: shared prompt tokens are computed again.",
    ),
    Control(
        parameter="drafts",
        label="Speculative drafts per pass",
        kind="whole",
        low=0,
        high=16,
        step=1,
        help="Proposals that cost nothing: looked up, or a head of the model.",
    ),
    Control(
        parameter="acceptance", label="Chance that a draft is kept", kind="number", low=0, high=1, step=0.05
    ),
    Control(
        parameter="pools",
        label="Prefill on replicas of its own",
        kind="switch",
        help="Prompts and decoding on separate pools; caches travel between them.",
    ),
    Control(
        parameter="offload",
        label="KV offload",
        kind="choice",
        options=lambda: tuple(map(str, Behind)),
        help="Where text waits that the card has no room for, until it comes back.",
    ),
    Control(
        parameter="offload_gb",
        label="Offload room per GPU, GB",
        kind="optional",
        placeholder="a usual server's",
        help="Empty: 128 GiB of host memory, or 3,840 GB of SSD. Decimal: 1 GB is 1e9 bytes.",
    ),
    Control(parameter="adapters", label="LoRA adapters loaded", kind="whole", low=0, high=10_000, step=1),
    Control(parameter="adapter_rank", label="Rank of the adapters", kind="whole", low=1, high=512, step=1),
    Control(
        parameter="max_len", label="Longest sequence, tokens", kind="optional", placeholder="the model's own"
    ),
    Control(
        parameter="paged",
        label="Paged KV cache",
        kind="switch",
        help="Off: each sequence reserves the longest.",
    ),
    Control(
        parameter="kv_gb",
        label="KV cache per GPU, GB",
        kind="optional",
        placeholder="what the engine leaves",
        help="Replaces what the memory rules leave for the cache. Decimal: 1 GB is 1e9 bytes.",
    ),
    Control(
        parameter="mem_gib",
        label="Memory of one device, GiB",
        kind="optional",
        placeholder="the catalogue's",
        help="Replaces the device's own total. Binary: 1 GiB is 2^30 bytes.",
    ),
    Control(
        parameter="price", label="Your price, $ per GPU hour", kind="optional", placeholder="dated list price"
    ),
)
WORKLOAD = (
    Control(
        parameter="in",
        label="Input tokens",
        kind="number",
        low=1,
        high=1e8,
        step=64,
        help="Mean prompt length.",
    ),
    Control(
        parameter="out",
        label="Output tokens",
        kind="number",
        low=1,
        high=1e8,
        step=64,
        help="Mean answer length.",
    ),
    Control(
        parameter="tpot_ms",
        label="Target: TPOT, ms",
        kind="optional",
        placeholder="no target",
        help="Time per output token after the first. Empty: no target.",
    ),
)
RATE = Control(parameter="rate", label="Requests per second, at peak", kind="number", low=0, high=1e9, step=1)
USERS = Control(
    parameter="users",
    label="Users at once",
    kind="whole",
    low=1,
    high=100_000_000,
    step=1,
    help="Each waits for the answer before asking again.",
)
WORKLOAD_MORE = (
    Control(
        parameter="traffic",
        label="Traffic stated as",
        kind="choice",
        options=lambda: tuple(map(str, Traffic)),
        help="rate: requests per second. users: a fixed number who each wait for their answer.",
    ),
    Control(parameter="ttft_s", label="Target: TTFT, s", kind="optional", placeholder="no target"),
    Control(parameter="e2e_s", label="Target: end to end, s", kind="optional", placeholder="no target"),
    Control(
        parameter="pct",
        label="Percentile of the targets",
        kind="open choice",
        options=lambda: PERCENTILES,
        help="mean: targets are averages. 99: all but one in a hundred requests must hold them.",
    ),
    Control(
        parameter="headroom",
        label="Headroom",
        kind="number",
        low=0,
        high=100,
        step=0.05,
        help="0.3 buys 30% more than the busy share, rounded up.",
    ),
    Control(
        parameter="prefix",
        label="Share of the prompt already cached",
        kind="number",
        low=0,
        high=0.999,
        step=0.05,
        help="Text that prompts repeat: a system prompt, a document, what was said before.",
    ),
    Control(
        parameter="reuse_s",
        label="That text comes back after, s",
        kind="optional",
        placeholder="always cached",
        help="Mean seconds. Then only what the cache still holds is a hit, and KV offload keeps more of it.",
    ),
    Control(
        parameter="arrival_cv",
        label="Burstiness (CV of gaps)",
        kind="number",
        low=0,
        high=100,
        step=0.5,
        help="1: Poisson. 3: strong bursts. 0: evenly spaced.",
    ),
    Control(parameter="peak", label="Peak over the stated rate", kind="number", low=1, high=1000, step=0.1),
    Control(
        parameter="in_shape",
        label="Input lengths",
        kind="choice",
        options=lambda: tuple(map(str, LengthShape)),
    ),
    Control(parameter="in_cv", label="Input spread (CV)", kind="number", low=0, high=100, step=0.1),
    Control(
        parameter="out_shape",
        label="Output lengths",
        kind="choice",
        options=lambda: tuple(map(str, LengthShape)),
    ),
    Control(parameter="out_cv", label="Output spread (CV)", kind="number", low=0, high=100, step=0.1),
)
FIDELITY = (
    Control(
        parameter="fidelity",
        label="Fidelity",
        kind="choice",
        options=lambda: tuple(map(str, Fidelity)),
        help="textbook: closed form over totals. roofline: per operator at datasheet rates, a bound. "
        "expected: per operator with fitted or measured efficiencies.",
    ),
)
FIDELITY_MORE = (
    Control(
        parameter="mfu",
        label="Share of the peak that prefill reaches (textbook)",
        kind="number",
        low=0.001,
        high=1,
        step=0.05,
    ),
    Control(parameter="profile", label="Profile", kind="text", placeholder="fitted to public measurements"),
)
CONTROLS = (
    *MODEL,
    *MODEL_MORE,
    *HARDWARE,
    *HARDWARE_MORE,
    RATE,
    USERS,
    *WORKLOAD,
    *WORKLOAD_MORE,
    *FIDELITY,
    *FIDELITY_MORE,
)
DEFAULT = Scenario()


def widget_value(control: Control, scenario: Scenario) -> Any:
    """What the control shows for a scenario."""
    value = getattr(scenario, control.field)
    if isinstance(value, float) and control.parameter in URL_UNITS:
        value = float(f"{value / URL_UNITS[control.parameter]:.12g}")
    if control.kind in {"optional", "open choice"}:
        if value is None:
            return "mean" if control.kind == "open choice" else ""
        return f"{value:.12g}" if isinstance(value, float) else str(value)
    if control.kind in {"choice", "text"}:
        return str(value)  # a bound box refuses members of an enum among plain options
    return float(value) if control.kind == "number" else value


def field_value(control: Control, displayed: Any) -> object:
    """The scenario's value for what the control shows."""
    text = (
        "none"
        if displayed is None or (control.parameter == "pct" and displayed == "mean")
        else str(displayed)
    )
    value = parse_value(control.field, text.replace(",", "") if control.kind == "optional" else text)
    if isinstance(value, float) and control.parameter in URL_UNITS:
        value = float(f"{value * URL_UNITS[control.parameter]:.12g}")
    return value


def read_controls(state: Mapping[str, Any]) -> Scenario:
    """The scenario that the controls describe; `InputError` names the field that cannot be used, and its box."""
    try:
        chosen = {c.field: field_value(c, state[c.parameter]) for c in CONTROLS if c.parameter in state}
        chosen[CONFIG_KEY] = state.get(CONFIG_KEY) or ""
        chosen[GPU_JSON_KEY] = state.get(GPU_JSON_KEY) or ""
        return replace(DEFAULT, **chosen)
    except InputError as error:
        box = next((control for control in CONTROLS if control.field == error.field), None)
        if box is None or error.next_step:
            raise
        emptied = ", or empty it" if box.kind == "optional" else ""
        raise InputError(
            error.field,
            error.got,
            error.allowed,
            next_step=f'Change "{box.label}" in the sidebar{emptied}.',
        ) from error


def only_offered(opened: tuple[Scenario, tuple[str, ...]]) -> tuple[Scenario, tuple[str, ...]]:
    """What a link describes and what is said of it; a choice that no box offers is left out, and that is said too."""
    scenario, problems = opened
    for control in CONTROLS:
        if control.kind != "choice":
            continue
        value, offered = widget_value(control, scenario), control.options()
        if value not in offered:
            known = ", ".join(offered)
            problems += (
                f"The link's {control.parameter} was left out: got {shown(value)}, but it must be one of {known}.",
            )
            scenario = replace(scenario, **{control.field: getattr(DEFAULT, control.field)})
    return scenario, problems


def unused_fields() -> set[str]:
    """Scenario fields that no control holds: a test keeps this empty."""
    held = {control.field for control in CONTROLS} | {CONFIG_KEY, GPU_JSON_KEY}
    return {field.name for field in fields(Scenario)} - held
