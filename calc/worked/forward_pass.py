"""One forward pass of a step model, asked for the arithmetic of each of its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from calc.arrays import first
from calc.operators import FEATURES, KINDS, ForwardPass, Kind
from calc.provenance import Estimate
from calc.quantization import FORMATS
from calc.step import Fidelity, StepEstimate, StepModel
from calc.step.links import endpoint_factor, link_of
from calc.step.rates import Rates, compute_class, link_bytes_per_s
from calc.step.seconds import link_rows
from calc.worked.formula import Worked


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkedPass:
    """One forward pass of a step model (the first candidate), asked for the arithmetic of each of its numbers."""

    model: StepModel
    step: ForwardPass
    estimate: StepEstimate = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "estimate", self.model.step(self.step))

    @property
    def _is_roofline(self) -> bool:
        return self.model.fidelity is Fidelity.ROOFLINE

    @property
    def _rates(self) -> Rates:
        return self.model.peak_rates if self._is_roofline else self.model.reached_rates

    @property
    def _is_eager(self) -> bool:
        return bool(np.ravel(np.asarray(self.step.prefill_tokens) > 0)[0])

    @property
    def _work_factor(self) -> float:
        if self._is_roofline:
            return 1.0
        return self.model.profile.calibration.get("prefill_factor" if self._is_eager else "decode_factor")

    def rows(self) -> tuple[int, ...]:
        """The operators that take time, slowest first."""
        seconds = self.estimate.operators.operators[:, 0]
        return tuple(int(row) for row in np.argsort(-seconds, kind="stable") if seconds[row] > 0)

    def name(self, row: int) -> str:
        """An operator's name and group."""
        operators = self.model.operators
        return f"{operators.names[row]} ({operators.groups[row]})"

    def row_named(self, name: str, group: str) -> int | None:
        """The row of an operator, or None."""
        operators = self.model.operators
        pairs = zip(operators.names, operators.groups, strict=True)
        return next((row for row, pair in enumerate(pairs) if pair == (name, group)), None)

    def operator(self, row: int) -> tuple[Worked, ...]:
        """One operator: the parts of its time, then their sum over all layers."""
        if row in link_rows(self.model.operators):
            return (self._collective(row),)
        return (self._at_the_peaks(row),) if self._is_roofline else tuple(self._expected(row))

    def whole(self) -> tuple[Worked, ...]:
        """The slowest operator in full, every collective, the engine, and the sum of the pass."""
        passed = self.estimate.operators
        links = link_rows(self.model.operators)
        seconds = passed.operators[:, 0]
        on_links = float(seconds[links].sum())
        slowest = next((row for row in self.rows() if row not in links), None)
        total = Worked(
            formula="pass_s",
            inputs={
                "kernels_s": float(seconds.sum()) - on_links,
                "links_s": on_links,
                "engine_overhead_s": first(passed.fixed),
            },
            result=first(passed.total),
        )
        return (
            *(() if slowest is None else self.operator(slowest)),
            *(self._collective(int(row)) for row in links if seconds[row] > 0),
            *(() if self._is_roofline else (self._engine(),)),
            total,
            *self.range(self.estimate.total, first(self.estimate.floor_s)),
        )

    def range(self, shown: Estimate, floor_s: float, *, spread: float | None = None) -> tuple[Worked, ...]:
        """The two ends of a time's range; none where the time is a bound."""
        if self._is_roofline:
            return ()
        best, factor = first(shown.best), self.model.factor if spread is None else spread
        return (
            Worked(
                formula="range_low_s",
                inputs={"best_s": best, "spread": factor, "floor_s": floor_s},
                result=first(shown.low),
            ),
            Worked(
                formula="range_high_s",
                inputs={"best_s": best, "spread": factor},
                result=first(shown.high),
            ),
        )

    def _at_the_peaks(self, row: int) -> Worked:
        passed, table = self.estimate.operators, self.estimate.operators.table
        return Worked(
            formula="roofline_operator_s",
            inputs={
                "repeats": float(table.count[row, 0]),
                "moved_bytes": float(table.bytes[row, 0]),
                "flop": float(np.broadcast_to(table.flop, table.units.shape)[row, 0]),
                "bandwidth_bytes_per_s": self.model.accelerator.bandwidth_bytes_per_s,
                "peak_flop_per_s": float(self._rates.flop_per_s[row, 0]),
            },
            result=float(passed.operators[row, 0]),
            about=self.name(row),
        )

    def _expected(self, row: int) -> Iterator[Worked]:
        passed, table = self.estimate.operators, self.estimate.operators.table
        about, shape = self.name(row), table.units.shape
        memory, compute, activation, floor = (
            float(np.broadcast_to(values, shape)[row, 0])
            for values in (passed.memory_s, passed.compute_s, passed.activation_s, passed.floor_s)
        )
        moved = float((table.weight_bytes + table.kv_bytes + table.streamed_bytes)[row, 0])
        yield from self._experts(row)
        if moved > 0:
            yield Worked(
                formula="operator_memory_s", inputs=self._memory(row, moved), result=memory, about=about
            )
        if compute > 0:
            yield from self._compute(row, compute)
        if activation > 0:
            yield Worked(
                formula="operator_activation_s",
                inputs={
                    "activation_bytes": float(table.passed_bytes[row, 0]),
                    "activation_share": float(self._rates.activation_bytes_per_s[row, 0])
                    / self.model.accelerator.bandwidth_bytes_per_s,
                    "bandwidth_bytes_per_s": self.model.accelerator.bandwidth_bytes_per_s,
                },
                result=activation,
                about=about,
            )
        if floor > 0:
            yield Worked(formula="operator_floor_s", inputs=self._floor(row), result=floor, about=about)
        yield Worked(
            formula="operator_s",
            inputs={
                "work_factor": self._work_factor,
                "repeats": float(table.count[row, 0]),
                "floor_s": floor,
                "activation_s": activation,
                "memory_s": memory,
                "compute_s": compute,
                "exponent": self._rates.exponent,
            },
            result=float(passed.operators[row, 0]),
            about=about,
        )

    def _memory(self, row: int, moved: float) -> dict[str, float]:
        bandwidth = self.model.accelerator.bandwidth_bytes_per_s
        return {
            "moved_bytes": moved,
            "bandwidth_share": float(self._rates.bytes_per_s[row, 0]) / bandwidth,
            "bandwidth_bytes_per_s": bandwidth,
        }

    def _compute(self, row: int, seconds: float) -> Iterator[Worked]:
        table, rate = self.estimate.operators.table, float(self._rates.flop_per_s[row, 0])
        flop = float(np.broadcast_to(table.flop, table.units.shape)[row, 0])
        half = float(self._rates.half_tokens[row, 0])
        about = self.name(row)
        if half > 0:
            prompt = first(np.asarray(self.step.prefill_tokens) / self.step.prefill_sequences)
            yield Worked(
                formula="prompt_slowdown",
                inputs={"half_tokens": half, "prompt_tokens": prompt},
                result=1.0 + half / max(prompt, 1.0),
                about=about,
            )
        peak = self._peak(row)
        yield Worked(
            formula="operator_compute_s",
            inputs={
                "slowdown": seconds * rate / flop,
                "flop": flop,
                "compute_share": rate / peak,
                "peak_flop_per_s": peak,
            },
            result=seconds,
            about=about,
        )

    def _peak(self, row: int) -> float:
        """The datasheet's rate that the operator's share refers to."""
        operators, accelerator = self.model.operators, self.model.accelerator
        if KINDS[operators.kind_index[row, 0]] in (Kind.GEMM, Kind.EXPERTS):
            form = FORMATS[operators.formats[operators.format_index[row, 0]]]
            return compute_class(form, accelerator, self.model.profile)[1]
        return accelerator.flop_per_s_16bit.flop_per_s

    def _floor(self, row: int) -> dict[str, float]:
        table, per_sequence = self.estimate.operators.table, float(self._rates.sequence_s[row, 0])
        decoding = first(self.step.decode_sequences) if per_sequence else 0.0
        return {
            "kernels": float(np.broadcast_to(table.kernels, table.units.shape)[row, 0]),
            "kernel_s": float(self._rates.kernel_s),
            "sequences": decoding if table.units[row, 0] > 0 else 0.0,
            "sequence_s": per_sequence,
        }

    def _experts(self, row: int) -> Iterator[Worked]:
        numbers, table = self.model.operators.numbers, self.estimate.operators.table
        experts, stored = float(numbers["n_experts"][row, 0]), float(numbers["weight_bytes"][row, 0])
        if experts > 1 and stored > 0:
            yield Worked(
                formula="experts_read",
                inputs={
                    "n_experts": experts,
                    "top_k": float(numbers["top_k"][row, 0]),
                    "tokens": float(table.units[row, 0] * numbers["token_ranks"][row, 0]),
                    "routing": self.model.routing,
                },
                result=experts * float(table.weight_bytes[row, 0]) / stored,
                about=self.name(row),
            )

    def _collective(self, row: int) -> Worked:
        model, passed = self.model, self.estimate.operators
        operators, table = model.operators, passed.table
        kind, ranks = KINDS[operators.kind_index[row, 0]], int(operators.numbers["ranks"][row, 0])
        inputs = {
            "repeats": float(table.count[row, 0]),
            "endpoint_factor": 1.0,
            "alpha_s": 0.0,
            "message_bytes": float(table.message_bytes[row, 0]),
            "half_bytes": 0.0,
            "link_share": 1.0,
            "link_bytes_per_s": link_bytes_per_s(model.accelerator, ranks),
        }
        if not self._is_roofline:
            curve, rate = link_of(
                model.accelerator,
                model.profile,
                kind,
                ranks,
                nodes=model.layout.nodes,
                gpus=model.layout.gpus_per_replica,
            )
            inputs |= {
                "endpoint_factor": endpoint_factor(model.profile) * self._work_factor,
                "alpha_s": curve.alpha_s,
                "half_bytes": curve.half_bytes,
                "link_share": curve.beta_of_link,
                "link_bytes_per_s": rate,
            }
        return Worked(
            formula="collective_s",
            inputs=inputs,
            result=float(passed.operators[row, 0]),
            about=self.name(row),
        )

    def _engine(self) -> Worked:
        model, rates = self.model, self._rates
        counts = {name: float(model.operators.features[name][0]) for name in FEATURES}
        fixed = {name: float(seconds) for name, seconds in zip(FEATURES, rates.fixed_s[:, 0], strict=True)}
        sequences = first(self.step.sequences)
        calibration = model.profile.calibration
        return Worked(
            formula="engine_s",
            inputs={
                "work_factor": self._work_factor,
                "n_layers": counts["layers"],
                "layer_s": fixed["layers"],
                "eager_layer_s": float(rates.eager_layer_s) if self._is_eager else 0.0,
                "special_layers_s": sum(counts[name] * fixed[name] for name in FEATURES[1:]),
                "per_step_s": float(rates.step_s),
                "per_sequence_s": float(rates.step_sequence_s),
                "sequences": sequences,
                "calibration_s": calibration.get("step_s") + calibration.get("sequence_s") * sequences,
            },
            result=first(self.estimate.operators.fixed),
        )
