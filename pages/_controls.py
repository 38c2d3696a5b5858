"""The scenario's controls as one table, each named by its URL parameter: where it stands, and how it looks.

Optional numbers are text boxes: an empty box means "none", which a bound number box could not put into the URL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from calc.engine import Engine
from calc.quantization import KV_FORMATS, WHAT_IF
from calc.scenario import Behind, Fidelity, Traffic
from calc.scenario_text import URL_PARAMETERS
from calc.workload import LengthShape
from presets import accelerators, models

PERCENTILES = ("mean", "50", "90", "95", "99")


class Kind(StrEnum):
    """What a control takes."""

    CHOICE = "one of its options"
    OPEN_CHOICE = "one of its options, or what is typed"
    NUMBER = "a number"
    WHOLE = "a whole number"
    OPTIONAL = "a number or none"
    TEXT = "text"
    SWITCH = "on or off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One control: its URL parameter (also its key), and how it looks.

    `placeholder`: what an empty box stands for.
    """

    parameter: str
    label: str
    kind: Kind
    options: Callable[[], tuple[str, ...]] = tuple
    low: float | None = None
    high: float | None = None
    step: float | None = None
    help: str = ""
    placeholder: str = ""

    @property
    def field(self) -> str:
        """The scenario's field that the control holds."""
        return URL_PARAMETERS[self.parameter]


def _choice(parameter: str, label: str, options: Iterable[str], *, explained: str = "") -> Control:
    offered = tuple(str(option) for option in options)
    return Control(
        parameter=parameter, label=label, kind=Kind.CHOICE, options=lambda: offered, help=explained
    )


def _open_choice(
    parameter: str, label: str, options: Callable[[], tuple[str, ...]], *, explained: str
) -> Control:
    return Control(parameter=parameter, label=label, kind=Kind.OPEN_CHOICE, options=options, help=explained)


def _number(
    parameter: str, label: str, *, low: float, high: float, step: float, explained: str = ""
) -> Control:
    return Control(
        parameter=parameter, label=label, kind=Kind.NUMBER, low=low, high=high, step=step, help=explained
    )


def _whole(parameter: str, label: str, *, low: int, high: int, explained: str = "") -> Control:
    return Control(
        parameter=parameter, label=label, kind=Kind.WHOLE, low=low, high=high, step=1, help=explained
    )


def _optional(parameter: str, label: str, *, empty: str, explained: str = "") -> Control:
    return Control(parameter=parameter, label=label, kind=Kind.OPTIONAL, placeholder=empty, help=explained)


def _text(parameter: str, label: str, *, empty: str, explained: str = "") -> Control:
    return Control(parameter=parameter, label=label, kind=Kind.TEXT, placeholder=empty, help=explained)


def _switch(parameter: str, label: str, *, explained: str) -> Control:
    return Control(parameter=parameter, label=label, kind=Kind.SWITCH, help=explained)


MODEL = (
    _open_choice(
        "model",
        "Model",
        models.preset_ids,
        explained="A preset, or any Hugging Face model id: type or paste it and press Enter.",
    ),
    _open_choice(
        "weights",
        "Weights",
        lambda: ("auto", *WHAT_IF),
        explained="auto: as the checkpoint is stored. Another format asks: what if it were quantised?",
    ),
    _choice(
        "kv", "KV cache", ("auto", *KV_FORMATS), explained="Format of cached keys and values. auto: 16 bit."
    ),
)
MODEL_MORE = (_text("rev", "Revision", empty="main", explained="Branch, tag or commit of the repository."),)
HARDWARE = (
    _open_choice(
        "gpu",
        "Accelerator",
        accelerators.all_ids,
        explained="From the catalogue, or typed: a name, a MIG slice (h100:3g.40gb), or local for this machine's own.",
    ),
    _whole(
        "tp",
        "GPUs per replica (0: automatic)",
        low=0,
        high=1024,
        explained="0: the smallest number that fits.",
    ),
)
HARDWARE_MORE = (
    _whole("pp", "Pipeline stages", low=1, high=1024),
    _whole("dp", "Data-parallel engines per replica", low=1, high=4096),
    _whole(
        "ep", "Expert-parallel group", low=0, high=4096, explained="0: experts follow tensor parallelism."
    ),
    _whole("adp", "Attention data-parallel ranks", low=1, high=1024),
    _whole("nodes", "Nodes per replica", low=1, high=1024),
    _choice("engine", "Engine", Engine),
    _text("engine_version", "Engine version", empty="newest known"),
    _optional("util", "Memory share the engine may use", empty="engine default"),
    _optional("max_seqs", "Most sequences at once", empty="no cap", explained="Of a whole replica."),
    _optional(
        "budget",
        "Token budget of a step",
        empty="engine's default",
        explained="Of one scheduler: every rank of data-parallel attention has its own.",
    ),
    _switch("chunked", "Chunked prefill", explained="Off: a prompt runs alone while decoding waits."),
    _switch("prefix_cache", "Prefix cache", explained="Off: shared prompt tokens are computed again."),
    _whole(
        "drafts",
        "Speculative drafts per pass",
        low=0,
        high=16,
        explained="Proposals that cost nothing: looked up, or a head of the model.",
    ),
    _number("acceptance", "Chance that a draft is kept", low=0, high=1, step=0.05),
    _switch(
        "pools",
        "Prefill on replicas of its own",
        explained="Prompts and decoding on separate pools; caches travel between them.",
    ),
    _choice(
        "offload",
        "KV offload",
        Behind,
        explained="Where text waits that the card has no room for, until it comes back.",
    ),
    _optional(
        "offload_gb",
        "Offload room per GPU, GB",
        empty="a usual server's",
        explained="Empty: 128 GiB of host memory, or 3,840 GB of SSD. Decimal: 1 GB is 1e9 bytes.",
    ),
    _whole("adapters", "LoRA adapters loaded", low=0, high=10_000),
    _whole("adapter_rank", "Rank of the adapters", low=1, high=512),
    _optional("max_len", "Longest sequence, tokens", empty="the model's own"),
    _switch("paged", "Paged KV cache", explained="Off: each sequence reserves the longest."),
    _optional(
        "kv_gb",
        "KV cache per GPU, GB",
        empty="what the engine leaves",
        explained="Replaces what the memory rules leave for the cache. Decimal: 1 GB is 1e9 bytes.",
    ),
    _optional(
        "mem_gib",
        "Memory of one device, GiB",
        empty="the catalogue's",
        explained="Replaces the device's own total. Binary: 1 GiB is 2^30 bytes.",
    ),
    _optional("price", "Your price, $ per GPU hour", empty="dated list price"),
)
WORKLOAD = (
    _number("in", "Input tokens", low=1, high=1e8, step=64, explained="Mean prompt length."),
    _number("out", "Output tokens", low=1, high=1e8, step=64, explained="Mean answer length."),
    _optional(
        "tpot_ms",
        "Target: TPOT, ms",
        empty="no target",
        explained="Time per output token after the first. Empty: no target.",
    ),
)
RATE = _number("rate", "Requests per second, at peak", low=0, high=1e9, step=1)
USERS = _whole(
    "users",
    "Users at once",
    low=1,
    high=100_000_000,
    explained="Each waits for the answer before asking again.",
)
WORKLOAD_MORE = (
    _choice(
        "traffic",
        "Traffic stated as",
        Traffic,
        explained="rate: requests per second. users: a fixed number who each wait for their answer.",
    ),
    _optional("ttft_s", "Target: TTFT, s", empty="no target"),
    _optional("e2e_s", "Target: end to end, s", empty="no target"),
    _open_choice(
        "pct",
        "Percentile of the targets",
        lambda: PERCENTILES,
        explained="mean: targets are averages. 99: all but one in a hundred requests must hold them.",
    ),
    _number(
        "headroom",
        "Headroom",
        low=0,
        high=100,
        step=0.05,
        explained="0.3 buys 30% more than the busy share, rounded up.",
    ),
    _number(
        "prefix",
        "Share of the prompt already cached",
        low=0,
        high=0.999,
        step=0.05,
        explained="Text that prompts repeat: a system prompt, a document, what was said before.",
    ),
    _optional(
        "reuse_s",
        "That text comes back after, s",
        empty="always cached",
        explained="Mean seconds. Then only what the cache still holds is a hit, and KV offload keeps more of it.",
    ),
    _number(
        "arrival_cv",
        "Burstiness (CV of gaps)",
        low=0,
        high=100,
        step=0.5,
        explained="1: Poisson. 3: strong bursts. 0: evenly spaced.",
    ),
    _number("peak", "Peak over the stated rate", low=1, high=1000, step=0.1),
    _choice("in_shape", "Input lengths", LengthShape),
    _number("in_cv", "Input spread (CV)", low=0, high=100, step=0.1),
    _choice("out_shape", "Output lengths", LengthShape),
    _number("out_cv", "Output spread (CV)", low=0, high=100, step=0.1),
)
FIDELITY = (
    _choice(
        "fidelity",
        "Fidelity",
        Fidelity,
        explained="textbook: closed form over totals. roofline: per operator at datasheet rates, a bound. "
        "expected: per operator with fitted or measured efficiencies.",
    ),
)
FIDELITY_MORE = (
    _number("mfu", "Share of the peak that prefill reaches (textbook)", low=0.001, high=1, step=0.05),
    _text("profile", "Profile", empty="fitted to public measurements"),
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
