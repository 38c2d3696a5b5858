"""The roofline of a scenario: every operator of a decode step and of a prefill as a point, and where a pass crosses over.

At datasheet rates, per GPU: the same operator table that step time sums, with nothing but bytes and FLOP.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calc.accelerator import Accelerator
from calc.layout import Layout
from calc.model import ModelSpec
from calc.operators import ForwardPass, Operators, compile_operators
from calc.result import Answer
from calc.roofline import Bound, ridge_flop_per_byte
from calc.scenario import stated
from calc.sizing import mean_context
from calc.step.links import datasheet_links
from calc.step.rates import Rates, datasheet_rates
from calc.step.seconds import PassSeconds, link_rows, pass_seconds
from calc.worked.formula import Worked

LARGEST_BATCH = 4096
LARGEST_PROMPT = 65_536
TRAIL_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A compute roof: the format that it is of, its FLOP/s, and the intensity at which bandwidth reaches it."""

    format: str
    flop_per_s: float
    ridge_flop_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPoint:
    """One operator of a pass, all repetitions together, on one GPU.

    `share`: of the pass's time. `peak_flop_per_s`: of the roof over it.
    """

    name: str
    group: str
    kind: str
    count: float
    flop: float
    bytes: float
    seconds: float
    share: float
    bound: str
    peak_flop_per_s: float

    @property
    def intensity(self) -> float:
        return self.flop / self.bytes

    @property
    def flop_per_s(self) -> float:
        return self.flop / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPoint:
    """A whole pass: its size (batch or prompt tokens), FLOP and bytes, FLOP/s reached, and what binds it."""

    size: int
    flop: float
    bytes: float
    flop_per_s: float
    seconds: float
    bound: str

    @property
    def intensity(self) -> float:
        return self.flop / self.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineModel:
    """A model on one GPU of a layout, compiled once and asked for decode steps and prefills."""

    accelerator: Accelerator
    operators: Operators

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        accelerator: Accelerator,
        layout: Layout,
        *,
        quantization: str | None,
        kv_dtype: str,
    ) -> RooflineModel:
        """Compile; raises as `compile_operators` for what has no operator table."""
        table = compile_operators(spec, layout, quantization=quantization, kv_dtype=kv_dtype)
        return cls(accelerator=accelerator, operators=table)

    def seconds(self, step: ForwardPass) -> PassSeconds:
        """The pass at datasheet rates."""
        table = self.operators.evaluate(step)
        return pass_seconds(table, self._rates, step, datasheet_links(self.accelerator), eager=False)

    @property
    def _rates(self) -> Rates:
        return Rates.of(datasheet_rates(self.operators.formats, self.accelerator), self.operators)

    def roofs(self) -> tuple[Roof, ...]:
        """Every compute roof of the accelerator, lowest first."""
        bandwidth = self.accelerator.bandwidth_bytes_per_s
        found = [
            Roof(
                format=name,
                flop_per_s=rate.flop_per_s,
                ridge_flop_per_byte=float(
                    ridge_flop_per_byte(peak_flop_per_s=rate.flop_per_s, bandwidth_bytes_per_s=bandwidth)
                ),
            )
            for name, rate in self.accelerator.rates.items()
        ]
        return tuple(sorted(found, key=lambda roof: roof.flop_per_s))

    def points(self, step: ForwardPass) -> tuple[OperatorPoint, ...]:
        """Operators that compute something, slowest first; collectives have no intensity and are left out."""
        passed, rates = self.seconds(step), self._rates
        ops, table = self.operators, passed.table
        links = set(link_rows(ops).tolist())
        count = np.broadcast_to(table.count, passed.operators.shape)
        whole = float(passed.total[0])
        found = [
            OperatorPoint(
                name=str(record["name"]),
                group=str(record["group"]),
                kind=str(record["kind"]),
                count=float(count[i, 0]),
                flop=float(count[i, 0] * table.flop[i, 0]),
                bytes=float(count[i, 0] * table.bytes[i, 0]),
                seconds=float(passed.operators[i, 0]),
                share=float(passed.operators[i, 0]) / whole,
                bound=str(Bound.COMPUTE if passed.compute_s[i, 0] > _memory(passed)[i, 0] else Bound.MEMORY),
                peak_flop_per_s=float(rates.flop_per_s[i, 0]),
            )
            for i, record in enumerate(table.rows())
            if i not in links and table.flop[i, 0] > 0 and table.bytes[i, 0] > 0
        ]
        return tuple(sorted(found, key=lambda point: -point.seconds))

    def decode_trail(self, context: float, batches: tuple[int, ...] = TRAIL_BATCHES) -> tuple[PassPoint, ...]:
        """Whole decode steps as the batch grows."""
        return self._passes(batches, ForwardPass.decode(np.array(batches, dtype=float), context))

    def prefill_trail(self, prompts: tuple[int, ...] = TRAIL_BATCHES) -> tuple[PassPoint, ...]:
        """Whole prefills as the prompt grows."""
        return self._passes(prompts, ForwardPass.prefill(np.array(prompts, dtype=float)))

    def decode_crossover(self, context: float) -> int | None:
        """The batch from which arithmetic takes longer than memory over a decode step; None: not up to 4,096."""
        return _crossing(
            lambda sizes: self._passes(sizes, ForwardPass.decode(np.array(sizes, dtype=float), context)),
            LARGEST_BATCH,
        )

    def prefill_crossover(self) -> int | None:
        """The prompt length from which a prefill is bound by arithmetic; None: not up to 65,536 tokens."""
        return _crossing(
            lambda sizes: self._passes(sizes, ForwardPass.prefill(np.array(sizes, dtype=float))),
            LARGEST_PROMPT,
        )

    def _passes(self, sizes: tuple[int, ...], step: ForwardPass) -> tuple[PassPoint, ...]:
        passed = self.seconds(step)
        flop, moved = passed.table.total("flop"), passed.table.total("bytes")
        count = passed.table.count
        compute = (count * passed.compute_s).sum(axis=0)
        memory = (count * _memory(passed)).sum(axis=0)
        total = passed.total
        return tuple(
            PassPoint(
                size=size,
                flop=float(flop[i]),
                bytes=float(moved[i]),
                flop_per_s=float(flop[i] / total[i]),
                seconds=float(total[i]),
                bound=str(Bound.COMPUTE if compute[i] > memory[i] else Bound.MEMORY),
            )
            for i, size in enumerate(sizes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """The roofline of an answer: at its batch, its context and its prompt.

    `weights_crossover`: where a step with empty caches turns compute-bound.
    """

    result: Answer
    context: float
    roofs: tuple[Roof, ...]
    decode: tuple[OperatorPoint, ...]
    prefill: tuple[OperatorPoint, ...]
    decode_trail: tuple[PassPoint, ...]
    prefill_trail: tuple[PassPoint, ...]
    decode_crossover: int | None
    weights_crossover: int | None
    prefill_crossover: int | None
    batch: int

    @property
    def decode_shown(self) -> PassPoint:
        """The decode step of the trail that stands for the answer's batch."""
        return next((p for p in self.decode_trail if p.size >= self.batch), self.decode_trail[-1])

    @property
    def alone_share(self) -> float:
        """Share of the 16-bit peak that a decode step of one sequence reaches."""
        return (
            self.decode_trail[0].flop_per_s / self.result.inputs.offer.accelerator.flop_per_s_16bit.flop_per_s
        )


def worked_point(point: OperatorPoint, accelerator: Accelerator) -> tuple[Worked, ...]:
    """A dot's intensity and its time at the datasheet's peaks, as worked formulas."""
    return (
        Worked(
            formula="intensity_flop_per_byte",
            inputs={"flop": point.flop, "all_bytes": point.bytes},
            result=point.intensity,
        ),
        Worked(
            formula="roofline_operator_s",
            inputs={
                "repeats": point.count,
                "moved_bytes": point.bytes / point.count,
                "flop": point.flop / point.count,
                "bandwidth_bytes_per_s": accelerator.bandwidth_bytes_per_s,
                "peak_flop_per_s": point.peak_flop_per_s,
            },
            result=point.seconds,
        ),
    )


def worked_crossings(found: Roofline) -> tuple[Worked, ...]:
    """Each crossing as the intensity of the first pass there whose arithmetic takes longer than its memory."""
    model = _model_of(found.result)
    said = "where memory stops being the limit"
    lines = []
    for batch, context, cache in (
        (found.weights_crossover, 0.0, "empty caches"),
        (found.decode_crossover, found.context, "the scenario's cache"),
    ):
        if batch is not None:
            (point,) = model.decode_trail(context, (batch,))
            lines.append(worked_intensity(point, f"{said}: a decode step of {batch:,} with {cache}"))
    if found.prefill_crossover is not None:
        (point,) = model.prefill_trail((found.prefill_crossover,))
        lines.append(worked_intensity(point, f"{said}: a prefill of {found.prefill_crossover:,} tokens"))
    return tuple(lines)


def worked_ridge(roof: Roof, accelerator: Accelerator) -> Worked:
    """A compute roof over the bandwidth."""
    return Worked(
        formula="ridge_flop_per_byte",
        inputs={
            "peak_flop_per_s": roof.flop_per_s,
            "bandwidth_bytes_per_s": accelerator.bandwidth_bytes_per_s,
        },
        result=roof.ridge_flop_per_byte,
    )


def worked_intensity(point: PassPoint, about: str) -> Worked:
    """A pass's FLOP over its bytes."""
    return Worked(
        formula="intensity_flop_per_byte",
        inputs={"flop": point.flop, "all_bytes": point.bytes},
        result=point.intensity,
        about=about,
    )


def _model_of(result: Answer) -> RooflineModel:
    scenario = result.inputs.scenario
    return RooflineModel.of(
        result.inputs.spec,
        result.inputs.offer.accelerator,
        result.layout,
        quantization=stated(scenario.quantization),
        kv_dtype=scenario.kv_format,
    )


def roofline_of(result: Answer) -> Roofline:
    """Everything that the roofline page shows of one answer."""
    scenario = result.inputs.scenario
    model = _model_of(result)
    context = mean_context(scenario.workload)
    batch = result.decode.batch if result.decode else 1
    return Roofline(
        result=result,
        context=context,
        roofs=model.roofs(),
        decode=model.points(ForwardPass.decode(float(batch), context)),
        prefill=model.points(ForwardPass.prefill(scenario.input_tokens)),
        decode_trail=model.decode_trail(context),
        prefill_trail=model.prefill_trail(),
        decode_crossover=model.decode_crossover(context),
        weights_crossover=model.decode_crossover(0.0),
        prefill_crossover=model.prefill_crossover(),
        batch=batch,
    )


def _memory(passed: PassSeconds) -> np.ndarray:
    return np.broadcast_to(passed.memory_s, passed.operators.shape)


def _crossing(passes: Callable[[tuple[int, ...]], tuple[PassPoint, ...]], largest: int) -> int | None:
    """The first size that is bound by arithmetic: found on a coarse grid, then exactly between two of its points."""
    coarse = tuple(np.unique(np.rint(np.geomspace(1, largest, 96))).astype(int).tolist())
    first = _first_compute(passes(coarse))
    if first is None or first == 1:
        return first
    below = coarse[coarse.index(first) - 1]
    return _first_compute(passes(tuple(range(below, first + 1))))


def _first_compute(passes: tuple[PassPoint, ...]) -> int | None:
    return next((point.size for point in passes if point.bound == Bound.COMPUTE), None)
