"""Fit of the constants of device and engine profiles on public serving points, with held-out errors.

Unknowns are few, positive, and have log-normal priors from kernel tables (see PARAMETERS). The model is the product's own:
operator table, rates, fixed point of the serving point. Tables are evaluated once per round, at the number of decoding
sequences that the last round's constants imply; within a round only rates change, so that a fit takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from calc.collectives import curve_for
from calc.operators import KINDS, ForwardPass, Kind, Operators, compile_operators
from calc.profile import (
    DEVICE_NUMBERS,
    ENGINE_NUMBERS,
    DeviceProfile,
    EngineProfile,
    Number,
    Profile,
    Schedule,
)
from calc.provenance import Provenance
from calc.step.rates import Rates, RateTable, link_bytes_per_s, rate_table
from calc.step.seconds import link_rows, pass_seconds
from calc.step.serving import FirstToken, interleave
from presets import accelerators
from presets.measurements import ServingMeasurement
from presets.profiles import PARENTS

FAMILY = {
    "h100-sxm5-80gb": "hopper",
    "h200-sxm-141gb": "hopper",
    "b200-sxm-180gb": "blackwell",
    "b300-sxm-288gb": "blackwell",
    "gb200-gpu": "blackwell",
}
ENGINES = ("vllm", "sglang", "tensorrt-llm")
US = 1e-6
OLD = "1.1"  # TensorRT-LLM up to 1.1 is slower on latent attention in 8 bits


@dataclass(frozen=True)
class Parameter:
    """A fitted number: where it goes (scope is a family, an engine or ""), its prior and the prior's log-width."""

    name: str
    scope: str
    prior: float
    width: float
    limit: float = np.inf


def parameters() -> list[Parameter]:
    """All fitted constants with their priors: kernel tables for shares, round numbers for overheads."""
    out = [
        Parameter("bandwidth.16bit", "hopper", 0.87, 0.06, 1),
        Parameter("bandwidth.16bit", "blackwell", 0.80, 0.08, 1),
        Parameter("bandwidth.4bit", "blackwell", 0.70, 0.10, 1),
        Parameter("compute.16bit", "hopper", 0.76, 0.10, 1),
        Parameter("compute.16bit", "blackwell", 0.68, 0.10, 1),
        Parameter("compute.fp8", "hopper", 0.58, 0.12, 1),
        Parameter("compute.fp8", "blackwell", 0.50, 0.12, 1),
        Parameter("compute.fp4", "blackwell", 0.40, 0.12, 1),
        Parameter("compute.fp8", "tensorrt-llm/hopper", 0.66, 0.12, 1),
        Parameter("compute.fp4", "tensorrt-llm/blackwell", 0.45, 0.12, 1),
        Parameter("compute.weight_only", "", 0.60, 0.15, 1),
        Parameter("attention.bandwidth", "", 0.80, 0.10, 1),
        Parameter("latent_attention.bandwidth", "", 0.60, 0.20, 1),
        Parameter("prefill_attention.compute", "", 0.55, 0.15, 1),
        Parameter("experts.compute", "", 0.55, 0.25, 1),
        Parameter("experts.compute_4bit", "", 0.75, 0.20, 1),
        Parameter("experts.routing", "", 0.75, 0.12, 1),
        Parameter("activations.passes", "", 1.5, 0.35),
        Parameter("activations.passes", "tensorrt-llm", 1.1, 0.35),
        Parameter("layer.qk_norm_s", "", 10 * US, 0.35),
        Parameter("layer.latent_s", "", 20 * US, 0.35),
        Parameter("layer.latent_8bit_s", "tensorrt-llm@1.1", 50 * US, 0.5),
        Parameter("layer.indexer_s", "", 40 * US, 0.5),
        Parameter("layer.indexer_prefill", "", 2.0, 0.4),
        Parameter("layer.mixer_s", "", 30 * US, 0.4),
        Parameter("layer.experts_16bit_s", "", 20 * US, 0.35),
        Parameter("layer.experts_8bit_s", "", 25 * US, 0.35),
        Parameter("layer.experts_4bit_s", "", 8 * US, 0.5),
        Parameter("layer.quantised_activations_s", "", 7 * US, 0.35),
        Parameter("step_s", "", 650 * US, 0.3),
    ]
    for engine, layer in zip(ENGINES, (22, 22, 12), strict=True):
        out += [
            Parameter("layer_s", engine, layer * US, 0.3),
            Parameter("sequence_s", engine, 16 * US, 0.3),
            Parameter("collectives.factor", engine, 1.15, 0.10),
            Parameter("eager_layer_s", engine, 50 * US, 0.35),
        ]
    return out


# Numbers that serving points do not tell apart; from kernel tables and arithmetic.
FIXED_DEVICE = {
    "bandwidth.8bit": None,  # the 16-bit share
    "bandwidth.activations": 0.8,
    "compute.int8": 0.55,
    "bandwidth.16bit": 0.75,
    "compute.16bit": 0.6,
    "compute.fp8": 0.5,
    "compute.fp4": 0.4,
    "kernel_s": 2.0 * US,
}
FIXED_ENGINE = {
    "prefill_attention.compute_fp8": 0.0,
    "attention.sequence_s": 0.08 * US,
    "mixer.bandwidth": 0.7,
    "prefill_attention.half_tokens": 500.0,
    "experts.bandwidth": 0.92,
    "layer.latent_8bit_s": 0.0,
    "layer_s": 10.0 * US,
    "sequence_s": 5.0 * US,
    "collectives.factor": 1.15,
    "eager_layer_s": 0.0,
    "prefill.share": 1.0,
    "ttft.server_s": 0.02,
    "ttft.steps": 5.0,
    "ttft.prefill": 1.3,
}


# TensorRT-LLM computes prompts in 8 bits over an 8-bit cache; median of its kernel curves on Hopper and Blackwell.
FROM_KERNELS = {("prefill_attention.compute_fp8", "tensorrt-llm"): 0.41}


@dataclass(frozen=True)
class Row:
    """One serving point as the fit needs it."""

    group: tuple[str, str, str]
    klass: str
    accelerator: str
    engine: str
    old: bool
    operators: Operators
    tokens_in: float
    tokens_out: float
    concurrency: float
    ttft_s: float
    tpot_s: float
    together: bool


def rows_of(measured: Sequence[ServingMeasurement], spec_of: Callable[[str], object]) -> list[Row]:
    """Measurements with their compiled operators; configurations are compiled once."""
    out = []
    for m in measured:
        operators = compile_operators(
            spec_of(m.checkpoint), m.layout, quantization=m.quantization, kv_dtype=m.kv_dtype
        )
        old = m.engine == "tensorrt-llm" and (m.version.startswith(("1.0", "1.1")) or not m.version)
        out.append(
            Row(
                group=m.group,
                klass=m.model_class,
                accelerator=m.accelerator,
                engine=m.engine,
                old=old,
                operators=operators.merged(),
                tokens_in=m.input_tokens,
                tokens_out=m.output_tokens,
                concurrency=m.concurrency / m.layout.attention_dp,
                ttft_s=m.ttft_s,
                tpot_s=m.tpot_s,
                together=m.source == "vendor",
            )
        )
    return out


@dataclass(frozen=True)
class Origin:
    """Where a fitted number is from, and the median held-out error of the fit that made it."""

    source: str
    error: float | None


def number(name: str, value: float, origin: Origin | None = None) -> Number:
    """A constant with its origin; without one it is assumed."""
    of = DEVICE_NUMBERS.get(name) or ENGINE_NUMBERS[name]
    if origin is None:
        return Number(value=value, of=of, provenance=Provenance.ASSUMED)
    return Number(value=value, of=of, provenance=Provenance.FITTED, error=origin.error, source=origin.source)


def profile_of(
    values: dict[tuple[str, str], float],
    family: str,
    engine: str,
    *,
    version: str = "",
    links: dict[str, tuple],
    origins: dict[tuple[str, str], Origin] | None = None,
) -> Profile:
    """The profile that a set of constants means for one family, engine and version.

    A constant is taken from its closest scope: engine on a family, engine and version, engine, family, all.
    """
    parent = PARENTS.get(family, family)
    scopes = (
        f"{engine}/{family}",
        f"{engine}/{parent}",
        *([f"{engine}@{version}"] if version else []),
        engine,
    )

    def pick(name: str, default: float | None, order: tuple[str, ...]) -> Number:
        for scope in order:
            if (name, scope) in values:
                return number(name, values[name, scope], (origins or {}).get((name, scope)))
        if default is None:
            raise KeyError(name, order)
        return number(name, default)

    device = {}
    for name in DEVICE_NUMBERS:
        default = FIXED_DEVICE.get(name)
        if name in ("bandwidth.8bit", "bandwidth.4bit"):
            default = pick("bandwidth.16bit", 0.8, (family, parent, "")).value
        device[name] = pick(name, default, (family, parent, ""))
    own = {name: pick(name, 0.0, scopes) for name in DEVICE_NUMBERS if _own(values, name, scopes)}
    if "bandwidth.16bit" in own or "bandwidth.4bit" in own or "bandwidth.8bit" in own:
        for name in ("bandwidth.16bit", "bandwidth.8bit", "bandwidth.4bit"):
            own.setdefault(
                name, own.get("bandwidth.8bit") or own.get("bandwidth.16bit") or own["bandwidth.4bit"]
            )
    if "compute.16bit" in own or "compute.weight_only" in own:
        own.setdefault("compute.weight_only", own.get("compute.16bit"))
        own.setdefault("compute.16bit", own["compute.weight_only"])
    engine_numbers = {
        name: pick(name, FIXED_ENGINE.get(name), (*scopes, family, parent, "")) for name in ENGINE_NUMBERS
    }
    schedule = SCHEDULES.get(engine, Schedule.SINGLE_USER)
    return Profile(
        device=DeviceProfile(
            family=family,
            accelerators=tuple(a for a, f in FAMILY.items() if f == family),
            numbers=device,
            all_reduce=links.get(family, links.get(parent, links["ampere"]))[0],
            all_gather=links.get(family, links.get(parent, links["ampere"]))[1],
        ),
        engine=EngineProfile(
            engine=engine,
            version=version,
            schedule=schedule,
            families=(family,) if (f"{engine}/{family}" in {scope for _, scope in values}) else (),
            numbers={**engine_numbers, **own},
            chunk_tokens=512 if engine in ("llama.cpp", "ollama") else 8192,
        ),
    )


def _own(values: dict[tuple[str, str], float], name: str, scopes: tuple[str, ...]) -> bool:
    return any((name, scope) in values for scope in scopes if scope)


SCHEDULES = {
    "vllm": Schedule.MIXED,
    "tensorrt-llm": Schedule.MIXED,
    "sglang": Schedule.PREFILL_FIRST,
}


class Fit:
    """The rows side by side, and the prediction of their TPOT and TTFT for a vector of constants."""

    def __init__(self, rows: Sequence[Row], links: dict[str, tuple], chunk: float = 8192.0) -> None:
        self.rows = rows
        self.links = links
        self.operators = Operators.side_by_side([row.operators for row in rows])
        self.params = parameters()
        self.prompt = np.array([row.tokens_in for row in rows])
        self.output = np.array([row.tokens_out for row in rows])
        self.users = np.array([row.concurrency for row in rows])
        self.tpot = np.array([row.tpot_s for row in rows])
        self.ttft = np.array([row.ttft_s for row in rows])
        self.together = np.array([row.together for row in rows], dtype=float)
        self.klass = np.array([row.klass for row in rows])
        combos = sorted({(row.accelerator, row.engine, row.old) for row in rows})
        self.combos = combos
        self.which = np.array([combos.index((r.accelerator, r.engine, r.old)) for r in rows])
        self.sglang = np.array([row.engine == "sglang" for row in rows])
        self.chunk_tokens = np.minimum(self.prompt, chunk)
        self.chunks = np.maximum(1.0, self.prompt / chunk)
        self.prefix = (self.prompt - self.chunk_tokens) / 2.0
        self.decoding = self.users.copy()
        self.retable(np.array([p.prior for p in self.params]))

    def values(self, vector: np.ndarray) -> dict[tuple[str, str], float]:
        return FROM_KERNELS | {(p.name, p.scope): float(v) for p, v in zip(self.params, vector, strict=True)}

    def profiles(self, vector: np.ndarray) -> list[Profile]:
        values = self.values(vector)
        return [
            profile_of(values, FAMILY[a], e, version=OLD if old else "", links=self.links)
            for a, e, old in self.combos
        ]

    def _passes(self) -> tuple[ForwardPass, ForwardPass]:
        context = self.prompt + self.output / 2.0
        decode = ForwardPass.decode(self.decoding, context)
        riders = np.where(self.sglang, 0.0, self.decoding)
        mixed = ForwardPass.mixed(riders, context, prompt_tokens=self.chunk_tokens, prefix=self.prefix)
        return decode, mixed

    def retable(self, vector: np.ndarray) -> None:
        """Evaluate the operator tables at the current number of decoding sequences."""
        values = self.values(vector)
        routing = values["experts.routing", ""]
        self.passes = self._passes()
        self.tables = [self.operators.evaluate(step, routing_factor=routing) for step in self.passes]
        self.uniform = [self.operators.evaluate(step) for step in self.passes]
        self.link_seconds = [self._link_times(table) for table in self.tables]

    def _link_times(self, table: object) -> np.ndarray:
        """Seconds of every collective with factor one; row by row, since ranks differ."""
        rows = link_rows(self.operators)
        out = np.zeros((len(rows), len(self.rows)))
        ranks = self.operators.numbers["ranks"][rows]
        kinds = self.operators.kind_index[rows]
        sizes = table.message_bytes[rows]
        for combo, (accelerator, _, _) in enumerate(self.combos):
            link = link_bytes_per_s(accelerators.load(accelerator))
            reduce_curves, gather_curves = self.links[FAMILY[accelerator]]
            for n in np.unique(ranks):
                if n < 2:
                    continue
                for kind in np.unique(kinds):
                    curves = (
                        reduce_curves
                        if kind == KINDS.index(Kind.ALL_REDUCE) or not gather_curves
                        else gather_curves
                    )
                    where = (self.which[None, :] == combo) & (ranks == n) & (kinds == kind)
                    if where.any():
                        out[where] = curve_for(curves, int(n)).seconds(sizes[where], link)
        return out

    def step_seconds(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        profiles = self.profiles(vector)
        formats = self.operators.formats
        stacked = RateTable.stacked(
            [
                rate_table(formats, accelerators.load(a), profile)
                for (a, _, _), profile in zip(self.combos, profiles, strict=True)
            ]
        )
        rates = Rates.of(stacked, self.operators, self.which)
        factor = np.array([p.number("collectives.factor") for p in profiles])[self.which]
        values = self.values(vector)
        routing = values["experts.routing", ""]
        out = []
        for index, step in enumerate(self.passes):
            table = self._rerouted(index, routing)
            links = self.link_seconds[index] * factor
            out.append(pass_seconds(table, rates, step, lambda t, r, s=links: s, eager=index == 1).total)
        return out[0], out[1], np.asarray([p.number("prefill.share") for p in profiles])[self.which]

    def _rerouted(self, index: int, routing: float) -> object:
        """The table at another routing factor: only the experts' weight bytes change, between first token and uniform."""
        table, uniform = self.tables[index], self.uniform[index]
        return replace(table, weight_bytes=routed(uniform, self.operators, routing))

    def predict(self, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        decode, mixed, share = self.step_seconds(vector)
        extra = np.where(self.sglang, mixed, mixed - decode) * self.chunks
        found = interleave(
            concurrency=self.users,
            output_tokens=self.output,
            decode_step_s=decode,
            prefill_s=mixed * self.chunks,
            extra_s=extra,
            share=share,
            first_token=FirstToken(server_s=0.02, steps=0.0, prefill=1.5),
        )
        self.last = found
        self.prefill_s = mixed * self.chunks
        return found.tpot_s, found.decoding

    def solve(
        self,
        keep: np.ndarray,
        *,
        start: np.ndarray | None = None,
        strength: float = 1.4,
        rounds: int = 2,
        group_power: float = 0.35,
        nfev: int = 12,
        stride: int = 1,
    ) -> np.ndarray:
        """Constants fitted on the kept rows. Rows of large groups weigh less: their errors are not independent."""
        fit = self.subset(keep & (np.arange(len(keep)) % stride == 0))
        prior = np.log([p.prior for p in fit.params])
        width = np.array([p.width for p in fit.params])
        limit = np.log([min(p.limit, 1e9) for p in fit.params])
        names = np.array(["|".join(row.group) for row in fit.rows])
        counts = {name: np.sum(names == name) for name in np.unique(names)}
        weight = np.array([counts[name] ** -group_power for name in names])
        weight *= np.sqrt(len(names)) / np.sqrt(np.sum(weight**2)) * min(1.0, np.sqrt(EFFECTIVE / len(names)))
        x = np.log(start) if start is not None else prior.copy()
        for _ in range(rounds):
            fit.retable(np.exp(x))

            def residual(v: np.ndarray) -> np.ndarray:
                tpot, _ = fit.predict(np.exp(v))
                data = np.log(tpot / fit.tpot) / NOISE
                robust = np.sign(data) * np.sqrt(2 * (np.sqrt(1 + data**2 / 4) - 1)) * np.sqrt(2)
                return np.concatenate([robust * weight, strength * (v - prior) / width])

            x = least_squares(
                residual,
                np.minimum(x, limit - 1e-6),
                bounds=(np.full(len(x), -40.0), limit),
                method="trf",
                x_scale="jac",
                max_nfev=nfev,
                ftol=1e-4,
                xtol=1e-4,
            ).x
            _, fit.decoding = fit.predict(np.exp(x))
        return np.exp(x)

    def subset(self, keep: np.ndarray) -> Fit:
        return Fit([row for row, k in zip(self.rows, keep, strict=True) if k], self.links)

    def settled(self, vector: np.ndarray) -> np.ndarray:
        """Predicted TPOT of all rows with the number of decoding sequences that these constants imply."""
        for _ in range(3):
            self.retable(vector)
            tpot, self.decoding = self.predict(vector)
        return tpot


NOISE = 0.08  # repeat measurements across engine versions scatter by 3 to 19%
EFFECTIVE = 300.0  # independent observations that 1,662 clustered rows are worth


def routed(table: object, operators: Operators, routing: float) -> np.ndarray:
    """Weight bytes at a routing factor, from those at uniform routing."""
    n = operators.numbers
    experts = n["n_experts"] > 1
    share = n["top_k"] / n["n_experts"]
    floor = n["weight_bytes"] * share
    return np.where(
        experts & (table.units > 0),
        floor + routing * np.maximum(table.weight_bytes - floor, 0.0),
        table.weight_bytes,
    )
