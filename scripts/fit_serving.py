"""Fit of the constants of device and engine profiles on public serving points, with held-out errors.

The model is the product's own: operator table, rates, fixed point of the serving point. Tables are evaluated once per round, at the
number of decoding sequences that the last round's constants imply; within a round only rates change, so that a fit takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from fit_constants import FAMILY, FROM_KERNELS, FROM_SOURCE, OLD, parameters, profile_of
from scipy.optimize import least_squares

from calc.collectives import curve_for
from calc.operators import KINDS, ForwardPass, Kind, Operators, compile_operators
from calc.profile import Profile
from calc.step.rates import Rates, RateTable, link_bytes_per_s, rate_table
from calc.step.seconds import link_rows, pass_seconds
from calc.step.serving import FirstToken, interleave
from presets import accelerators
from presets.measurements import ServingMeasurement


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
        fitted = {(p.name, p.scope): float(v) for p, v in zip(self.params, vector, strict=True)}
        return FROM_KERNELS | FROM_SOURCE | fitted

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

    def _link_times(self, table: object) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of every collective that an engine's factor multiplies, and the others; row by row, since ranks differ."""
        rows = link_rows(self.operators)
        small, large = np.zeros((2, len(rows), len(self.rows)))
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
                        curve = curve_for(curves, int(n))
                        large[where] = sizes[where] / (curve.beta_of_link * link)
                        small[where] = curve.seconds(sizes[where], link) - large[where]
        return small, large

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
            small, large = self.link_seconds[index]
            links = small * factor + large
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
