"""The scenario: everything a person chose, as one flat, frozen record that pages, links, files and the CLI share.

Fields are plain values, so that a scenario travels as text (`calc.scenario_text`). `workload`, `slo` and `layout` give the typed
views that the calculators take. What the scenario names (a model id, an accelerator id) is turned into inputs by
`presets/resolve.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum

from calc.engine import Engine
from calc.errors import InputError
from calc.layout import Layout
from calc.slo import Slo
from calc.typed_fields import check_value, field_kinds, member_of
from calc.workload import Lengths, LengthShape, Workload

MAX_JSON_CHARS = 2_000_000
MAX_TEXT_CHARS = 300


class Fidelity(StrEnum):
    """How a step is timed. Results never mix them."""

    TEXTBOOK = "textbook"
    ROOFLINE = "roofline"
    EXPECTED = "expected"


class Traffic(StrEnum):
    """How traffic is stated: requests per second (open), or users who each wait for their answer (closed)."""

    RATE = "rate"
    USERS = "users"


class Behind(StrEnum):
    """Where cached text goes that the card has no room for."""

    NONE = "none"
    HOST = "host"
    SSD = "ssd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One planning question. The defaults are the first visit's: a 13B chat model on A100s at 10 requests/s.

    `quantization` and `kv_dtype` "auto": as the checkpoint is stored, and 16 bit. `tp` 0: the smallest degree that fits.
    `max_batched_tokens`: the token budget of one scheduler's step, None: the engine's own; `max_seqs`: most sequences of a
    replica at once. `draft_tokens` above 0: speculative decoding
    whose proposals cost nothing (looked up, or a head of the model), each kept with chance `acceptance`. `disaggregated`:
    prompts on replicas of their own, whose caches travel to those that decode. `prefix_share` of every prompt repeats earlier
    text, which comes back after `reuse_after_s` in the mean (None: it is always in the cache); `kv_offload`: where text
    waits that the card has no room for, with `kv_offload_bytes` behind each GPU (None: a usual server's).
    `kv_bytes_per_gpu` replaces what the memory rules leave for the cache. `config_text` is a pasted config.json; it
    travels in files, never in a link. `adapters`: LoRA adapters of `adapter_rank` kept loaded beside the model. `device_memory_bytes` replaces the device's own total. `usd_per_gpu_hour` is the user's own price. Seconds, bytes, tokens, USD.
    """

    model: str = "meta-llama/Llama-2-13b-hf"
    revision: str = ""
    config_text: str = ""
    quantization: str = "auto"
    kv_dtype: str = "auto"
    gpu: str = "a100-sxm4-80gb"
    gpu_json: str = ""
    tp: int = 0
    pp: int = 1
    dp: int = 1
    ep: int = 0
    attention_dp: int = 1
    nodes: int = 1
    engine: str = Engine.VLLM
    engine_version: str = ""
    traffic: str = Traffic.RATE
    rate_per_s: float = 10.0
    users: int = 32
    arrival_cv: float = 1.0
    peak_factor: float = 1.0
    input_tokens: float = 512.0
    input_shape: str = LengthShape.FIXED
    input_cv: float = 0.0
    output_tokens: float = 256.0
    output_shape: str = LengthShape.FIXED
    output_cv: float = 0.0
    prefix_share: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = 0.050
    e2e_s: float | None = None
    percentile: float | None = None
    headroom: float = 0.3
    max_seqs: int | None = None
    max_model_len: int | None = None
    paged: bool = True
    max_batched_tokens: int | None = None
    chunked_prefill: bool = True
    prefix_caching: bool = True
    draft_tokens: int = 0
    acceptance: float = 0.7
    disaggregated: bool = False
    reuse_after_s: float | None = None
    kv_offload: str = Behind.NONE
    kv_offload_bytes: float | None = None
    memory_utilization: float | None = None
    kv_bytes_per_gpu: float | None = None
    device_memory_bytes: float | None = None
    mfu: float = 0.5
    fidelity: str = Fidelity.EXPECTED
    profile: str = ""
    usd_per_gpu_hour: float | None = None
    adapters: int = 0
    adapter_rank: int = 16

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field.name, getattr(self, field.name))
        member_of(Engine, self.engine, "engine")
        member_of(Fidelity, self.fidelity, "fidelity")
        member_of(Traffic, self.traffic, "traffic")
        member_of(LengthShape, self.input_shape, "input_shape")
        member_of(LengthShape, self.output_shape, "output_shape")
        _within("tp", self.tp, 0, 100_000)
        _within("headroom", self.headroom, 0, 100)
        _within("mfu", self.mfu, 1e-3, 1)
        if self.max_seqs is not None:
            _within("max_seqs", self.max_seqs, 1, 1_000_000)
        if self.max_model_len is not None:
            _within("max_model_len", self.max_model_len, 1, 1_000_000_000)
        if self.max_batched_tokens is not None:
            _within("max_batched_tokens", self.max_batched_tokens, 1, 10_000_000)
        _within("draft_tokens", self.draft_tokens, 0, 16)
        _within("acceptance", self.acceptance, 0, 1)
        if self.memory_utilization is not None:
            _within("memory_utilization", self.memory_utilization, 0.01, 1)
        if self.kv_bytes_per_gpu is not None:
            _within("kv_bytes_per_gpu", self.kv_bytes_per_gpu, 1, 1e15)
        if self.device_memory_bytes is not None:
            _within("device_memory_bytes", self.device_memory_bytes, 1, 1e15)
        if self.usd_per_gpu_hour is not None:
            _within("usd_per_gpu_hour", self.usd_per_gpu_hour, 0.001, 1000)
        member_of(Behind, self.kv_offload, "kv_offload")
        if self.kv_offload_bytes is not None:
            _within("kv_offload_bytes", self.kv_offload_bytes, 1, 1e15)
        _within("adapters", self.adapters, 0, 10_000)
        _within("adapter_rank", self.adapter_rank, 1, 512)
        _ = (
            self.slo,
            self.layout,
            *map(self._workload, Traffic),
        )  # their own checks, of the other traffic too

    @property
    def workload(self) -> Workload:
        return self._workload(Traffic(self.traffic))

    def _workload(self, traffic: Traffic) -> Workload:
        open_loop = traffic is Traffic.RATE
        return Workload(
            input=Lengths(
                mean_tokens=self.input_tokens, shape=LengthShape(self.input_shape), cv=self.input_cv
            ),
            output=Lengths(
                mean_tokens=self.output_tokens, shape=LengthShape(self.output_shape), cv=self.output_cv
            ),
            rate_per_s=self.rate_per_s if open_loop else None,
            concurrency=None if open_loop else self.users,
            arrival_cv=self.arrival_cv,
            prefix_share=self.prefix_share if self.prefix_caching else 0.0,
            reuse_after_s=self.reuse_after_s,
            peak_factor=self.peak_factor,
        )

    @property
    def decodes(self) -> bool:
        """Whether a token follows the first: an answer of one token (a class, a score) has no time per output token."""
        return self.output_tokens > 1

    @property
    def slo(self) -> Slo:
        """The targets that such requests can meet or miss."""
        tpot_s = self.tpot_s if self.decodes else None
        return Slo(ttft_s=self.ttft_s, tpot_s=tpot_s, e2e_s=self.e2e_s, percentile=self.percentile)

    def on(self, gpu: str) -> Scenario:
        """The same question on another accelerator; the JSON of one that was typed belongs to that one alone."""
        return replace(self, gpu=gpu, gpu_json=self.gpu_json if gpu == self.gpu else "")

    @property
    def kv_format(self) -> str:
        """The cache's format: 16 bit unless another was chosen."""
        return "bf16" if self.kv_dtype == "auto" else self.kv_dtype

    @property
    def layout(self) -> Layout:
        """The layout as far as it is chosen; `tp` 0 (choose for me) reads as 1 here."""
        return Layout(
            tp=self.tp or 1,
            pp=self.pp,
            dp=self.dp,
            ep=self.ep,
            attention_dp=self.attention_dp,
            nodes=self.nodes,
        )


def stated(text: str) -> str | None:
    """A scenario's choice of format or version, or None where it leaves the choice to the checkpoint or the engine."""
    return None if text in {"", "auto"} else text


_KINDS = field_kinds(Scenario)


def _check_type(name: str, value: object) -> None:
    longest = MAX_JSON_CHARS if name in {"config_text", "gpu_json"} else MAX_TEXT_CHARS
    check_value(name, value, _KINDS[name], longest=longest)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(name, value, f"it must be from {low:g} to {high:g}")
