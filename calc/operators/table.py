"""The operator table: coefficients of every operator of a model, and their evaluation for a forward pass.

An `Operator` is one row in words: what it does per token, per cached token, per sequence. `Operators` holds the rows as
columns of numbers, compiled once per model and layout. `Operators.evaluate` multiplies them with a `ForwardPass` and
gives an `OperatorTable`: FLOP and bytes per operator (first axis) and candidate (last axis). Everything that Ridgebeam
says about FLOP, bytes or messages of a pass comes from here.

All numbers are per GPU of one replica and per instance of the operator; `count` says how many layers repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.operators.forward import ForwardPass
from calc.operators.row_sets import RowSets
from calc.operators.rows import FEATURES, KINDS, NUMBERS, Kind, Operator

Array = NDArray[np.float64]
GEMM = KINDS.index(Kind.GEMM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operators:
    """Compiled rows: every array has shape (operators, 1), or (operators, candidates) when models stand side by side.

    `formats` are the distinct stored formats, `format_index` points into them, `kind_index` into `KINDS`. `features`:
    layers of the decoder that have each of `FEATURES`, shape (1 or candidates,).
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    formats: tuple[str, ...]
    kind_index: NDArray[np.intp]
    format_index: NDArray[np.intp]
    driver: NDArray[np.intp]
    reads: NDArray[np.intp]
    numbers: dict[str, Array]
    features: dict[str, Array]
    sets: RowSets = field(init=False, repr=False)
    feature_counts: Array = field(init=False, repr=False)  # (features, 1 or candidates)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sets", RowSets.of(self.kind_index, self.reads, self.numbers))
        object.__setattr__(self, "feature_counts", np.stack([self.features[name] for name in FEATURES]))

    @classmethod
    def of(cls, rows: Sequence[Operator], features: Mapping[str, float]) -> Operators:
        """Rows as columns."""
        formats = tuple(dict.fromkeys(row.format for row in rows))
        where = {name: index for index, name in enumerate(formats)}
        kinds = {kind: index for index, kind in enumerate(KINDS)}
        return cls(
            names=tuple(row.name for row in rows),
            groups=tuple(row.group for row in rows),
            formats=formats,
            kind_index=np.array([[kinds[row.kind]] for row in rows], dtype=np.intp),
            format_index=np.array([[where[row.format]] for row in rows], dtype=np.intp),
            driver=np.array([[int(row.driver)] for row in rows], dtype=np.intp),
            reads=np.array([[int(row.reads)] for row in rows], dtype=np.intp),
            numbers={
                name: np.array([[float(getattr(row, name))] for row in rows], dtype=float) for name in NUMBERS
            },
            features={name: np.array([features.get(name, 0.0)], dtype=float) for name in FEATURES},
        )

    @classmethod
    def side_by_side(cls, tables: Sequence[Operators]) -> Operators:
        """Different models as neighbouring candidates: one column each, short ones filled up with rows of count zero."""
        height = max(len(table.names) for table in tables)
        formats = tuple(dict.fromkeys(name for table in tables for name in table.formats))
        where = {name: index for index, name in enumerate(formats)}

        def columns(pick: Any, fill: float) -> Array:
            out = np.full((height, len(tables)), fill, dtype=float)
            for column, table in enumerate(tables):
                values = pick(table)
                out[: len(values), column] = values
            return out

        fills = {
            "window": inf,
            "chunk": inf,
            "stride": 1.0,
            "ranks": 1.0,
            "token_ranks": 1.0,
            "n_experts": 1.0,
            "top_k": 1.0,
        }
        return cls(
            names=tuple(f"row {index}" for index in range(height)),
            groups=("",) * height,
            formats=formats,
            kind_index=columns(lambda t: t.kind_index[:, 0], KINDS.index(Kind.ELEMENTWISE)).astype(np.intp),
            format_index=columns(lambda t: [where[t.formats[i]] for i in t.format_index[:, 0]], 0).astype(
                np.intp
            ),
            driver=columns(lambda t: t.driver[:, 0], 0).astype(np.intp),
            reads=columns(lambda t: t.reads[:, 0], 0).astype(np.intp),
            numbers={
                name: columns(lambda t, n=name: t.numbers[n][:, 0], fills.get(name, 0.0)) for name in NUMBERS
            },
            features={
                name: np.array([table.features[name][0] for table in tables], dtype=float)
                for name in FEATURES
            },
        )

    def merged(self) -> Operators:
        """The same pass in fewer rows: equal rows are counted together. Names and groups are lost."""
        kept: dict[tuple[float, ...], int] = {}
        order: list[int] = []
        counts: list[float] = []
        columns = [name for name in NUMBERS if name != "count"]
        for index in range(len(self.names)):
            key = (
                float(self.kind_index[index, 0]),
                float(self.format_index[index, 0]),
                float(self.driver[index, 0]),
                float(self.reads[index, 0]),
                *(float(self.numbers[name][index, 0]) for name in columns),
            )
            if key not in kept:
                kept[key] = len(order)
                order.append(index)
                counts.append(0.0)
            counts[kept[key]] += float(self.numbers["count"][index, 0])
        return replace(
            self,
            names=tuple(self.names[index] for index in order),
            groups=("",) * len(order),
            kind_index=self.kind_index[order],
            format_index=self.format_index[order],
            driver=self.driver[order],
            reads=self.reads[order],
            numbers={
                **{name: self.numbers[name][order] for name in columns},
                "count": np.array(counts)[:, None],
            },
        )

    def scaled(self, share: float, *, ends: float) -> Operators:
        """A part of the pass: the decoder's layers `share` times, everything before and behind them `ends` times."""
        factor = np.array([[share if group.startswith("decoder ") else ends] for group in self.groups])
        return replace(
            self,
            numbers={**self.numbers, "count": self.numbers["count"] * factor},
            features={name: values * share for name, values in self.features.items()},
        )

    def evaluate(
        self, step: ForwardPass, *, routing_factor: Any = 1.0, imbalance: Any = 1.0
    ) -> OperatorTable:
        """FLOP and bytes of every operator in a forward pass.

        routing_factor: share of the distinct experts expected under uniform routing that real traffic touches beyond the
        first token's. imbalance: load of the fullest expert rank over the mean.
        """
        n, sets = self.numbers, self.sets
        units = self._units(step)
        active = units > 0
        all_units = units * n["token_ranks"] if sets.gathers else units
        flop = n["flop_per_token"] * all_units
        weight_bytes = np.where(active, n["weight_bytes"], 0.0)
        activation_bytes = n["activation_bytes_per_token"] * all_units
        kv_bytes = n["kv_bytes_per_token"] * units
        message_bytes = np.zeros_like(units)
        rows = sets.experts
        if rows.size:
            touched = self._touched_share(all_units[rows], routing_factor)
            skew = np.where(n["n_experts"][rows] > 1, imbalance, 1.0)
            flop[rows] *= skew
            activation_bytes[rows] *= skew
            weight_bytes[rows] *= np.minimum(touched * skew, 1.0)
        if sets.states.size:
            kv_bytes[sets.states] += n["state_bytes_per_sequence"][sets.states] * step.sequences
        if sets.links.size:
            message_bytes[sets.links] = n["message_bytes_per_token"][sets.links] * all_units[sets.links]
        for readers in sets.readers:
            cached, pairs = readers.attended(step)
            flop[readers.rows] += n["flop_per_pair"][readers.rows] * pairs
            kv_bytes[readers.rows] += n["kv_bytes_per_cached_token"][readers.rows] * cached
        return OperatorTable(
            operators=self,
            units=units,
            flop=flop,
            weight_bytes=weight_bytes,
            activation_bytes=activation_bytes,
            quantised_bytes=n["quantised_bytes_per_token"] * all_units,
            kv_bytes=kv_bytes,
            message_bytes=message_bytes,
            kernels=np.where(active, n["kernels"], 0.0),
        )

    def _units(self, step: ForwardPass) -> Array:
        """What each operator counts in this pass, (operators, candidates)."""
        prefill = np.asarray(step.prefill_tokens, dtype=float)
        prompts = np.asarray(step.prefill_sequences, dtype=float)
        counts: tuple[Any, ...] = (
            step.tokens,
            step.decode_tokens,
            prefill,
            step.output_rows,
            step.encoder_tokens,
            np.where(prefill > 0, prefill + prompts * step.prefix_tokens, 0.0),
        )
        width = np.broadcast(*step.fields(), self.driver[0]).size
        drivers = np.empty((len(counts), width))
        for row, count in enumerate(counts):
            drivers[row] = count
        if self.driver.shape[1] == 1:
            return drivers[self.driver[:, 0]]
        index = np.broadcast_to(self.driver, (len(self.driver), width))
        return np.take_along_axis(drivers, index, axis=0)

    def _touched_share(self, tokens: Array, routing_factor: Any) -> Array:
        """Share of the experts that `tokens` tokens touch, for the rows that have experts; one where a candidate has none.

        Source: each token picks top_k of E experts uniformly: E(1 - (1 - top_k/E)^tokens); at one token exactly top_k,
        which a routing factor below one must not undercut.
        """
        rows = self.sets.experts
        experts, top_k = self.numbers["n_experts"][rows], self.numbers["top_k"][rows]
        share = top_k / experts
        uniform = -np.expm1(tokens * np.log1p(-np.minimum(share, 1 - 1e-12)))
        touched = np.minimum(tokens, 1.0) * share + routing_factor * np.maximum(uniform - share, 0.0)
        return np.where(experts > 1, np.minimum(touched, 1.0), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTable:
    """A forward pass, operator by operator: arrays of shape (operators, candidates), per GPU and per instance.

    Multiply with `count` for the whole pass. `units` is the driver's count (tokens, rows) that the operator saw; `quantised_bytes`
    are those of passes that quantise a product's inputs, which an engine can spare itself and no bound holds.
    """

    operators: Operators
    units: Array
    flop: Array
    weight_bytes: Array
    activation_bytes: Array
    quantised_bytes: Array
    kv_bytes: Array
    message_bytes: Array
    kernels: Array

    @property
    def count(self) -> Array:
        return self.operators.numbers["count"]

    @property
    def bytes(self) -> Array:
        """Bytes that the operator moves to or from the GPU's memory."""
        return self.weight_bytes + self.activation_bytes + self.kv_bytes

    @property
    def streamed_bytes(self) -> Array:
        """Activations that an operator reads and writes while it computes: those of matrix products."""
        return np.where(self.operators.kind_index == GEMM, self.activation_bytes, 0.0)

    @property
    def passed_bytes(self) -> Array:
        """Activations that are passed over before or behind the arithmetic: all but those of matrix products, and what quantises their inputs."""
        return np.where(self.operators.kind_index == GEMM, self.quantised_bytes, self.activation_bytes)

    def total(self, column: str) -> Array:
        """Sum over the pass of one of the array fields, per candidate."""
        return np.asarray((self.count * getattr(self, column)).sum(axis=0))

    def rows(self, candidate: int = 0) -> list[dict[str, object]]:
        """One candidate as plain records, for JSON, charts and tests."""
        ops = self.operators
        columns = ("flop", "weight_bytes", "activation_bytes", "kv_bytes", "message_bytes", "kernels")
        column_of = {name: np.broadcast_to(getattr(self, name), self.units.shape) for name in columns}
        return [
            {
                "name": ops.names[i],
                "group": ops.groups[i],
                "kind": str(KINDS[ops.kind_index[i, 0]]),
                "format": ops.formats[ops.format_index[i, 0]],
                "count": float(self.count[i, 0]),
                **{name: float(values[i, candidate]) for name, values in column_of.items()},
            }
            for i in range(len(ops.names))
        ]
