"""`SimulationResult`: what users felt and what the engine did, with the state of the system decided by rule.

TTFT = first token - arrival. TPOT = (last - first) / (output - 1), of requests with two tokens or more. End to end =
last - arrival. ITL: gaps between consecutive tokens of a request; its percentiles are read from bins half a percent
wide, all others are exact. Percentiles interpolate linearly between order statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calc.errors import InputError
from calc.simulation.kernels import layout
from calc.simulation.state import LoadState, load_state, warm_up_end
from calc.slo import Slo

if TYPE_CHECKING:
    from calc.simulation.run import Simulation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64] | npt.NDArray[np.int32]

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Mean and percentiles of one latency, in seconds; None where no request has it."""

    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Floats) -> Quantiles:
        """From the values themselves."""
        if len(values) == 0:
            return cls(mean=None, p50=None, p90=None, p95=None, p99=None)
        p50, p90, p95, p99 = (float(v) for v in np.percentile(values, PERCENTILES))
        return cls(mean=float(values.mean()), p50=p50, p90=p90, p95=p95, p99=p99)

    def as_json(self) -> dict[str, float | None]:
        return {"mean": self.mean, "p50": self.p50, "p90": self.p90, "p95": self.p95, "p99": self.p99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Means over bins of time: `edges_s` has one more entry than the others.

    running, waiting, used_blocks: per replica sums; prefill_tokens_per_s, decode_tokens_per_s: the cluster's rates.
    """

    edges_s: Floats
    running: Floats
    waiting: Floats
    used_blocks: Floats
    prefill_tokens_per_s: Floats
    decode_tokens_per_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """One pass of one replica, or a leap over `steps` equal ones; running, waiting and blocks as it left them.

    chunks: (request, prompt tokens) of the pass; decoded: (request, tokens) of those that decoded in it (both only if
    members were asked for). A static batch is one record for its last decode passes.
    """

    replica: int
    start_s: float
    end_s: float
    steps: int
    prefill_tokens: int
    decoding: int
    running: int
    waiting: int
    used_blocks: int
    chunks: tuple[tuple[int, int], ...] = ()
    decoded: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class SimulationResult:
    """Arrays with one entry a request in the order of the table, and totals over the run.

    replica: where it decoded. prefill_replica, sent_s, landed_s: of requests whose text travelled from a prefill pool:
    where it was computed, when its first byte went and its last one came; -1 and nan for others.
    """

    arrival_s: Floats
    scheduled_s: Floats
    first_s: Floats
    last_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    samples: Ints
    cached_tokens: Ints
    loaded_tokens: Ints
    preempted: Ints
    replica: Ints
    prefill_replica: Ints
    sent_s: Floats
    landed_s: Floats
    preemptions: int
    steps: int
    passes: int
    busy_s: float
    prefill_tokens: int
    decode_tokens: int
    mixed_steps: int
    slot_steps: int
    useful_slots: int
    hit_blocks: int
    loaded_blocks: int
    swap_outs: int
    beams_dropped: int
    beam_copies: int
    looked_up_blocks: int
    drafted_passes: int
    drafted_tokens: int
    peak_running: int
    peak_blocks: int
    num_blocks: int
    closed_loop: bool
    gap_counts: Ints
    gap_sum_s: float
    longest_gap_s: float
    series: Series
    replicas: int
    log: tuple[PassRecord, ...]

    @classmethod
    def read(cls, run: Simulation) -> SimulationResult:
        """Copy the outcome out of a finished run."""
        records, replicas = run._requests, run._replicas  # noqa: SLF001 - the run's own reader
        state = replicas.state

        def total(name: str) -> int:
            return int(state[name].sum())

        def of(name: str) -> Any:
            return records[name].copy()

        moves = run._runs.moves  # noqa: SLF001 - the same
        moved = np.broadcast_to((moves["landed"] >= 0) & (moves["source"] >= 0), len(records))

        return cls(
            arrival_s=run.arrival_s(records),
            scheduled_s=records["scheduled"].copy(),
            first_s=records["first"].copy(),
            last_s=records["last"].copy(),
            input_tokens=of("input"),
            output_tokens=of("output"),
            samples=of("width"),
            cached_tokens=of("cached"),
            loaded_tokens=np.broadcast_to(moves["loaded"], len(records)).copy(),
            preempted=of("preemptions"),
            replica=of("replica"),
            prefill_replica=np.where(moved, moves["source"], -1),
            sent_s=np.where(moved, moves["sent"], np.nan),
            landed_s=np.where(moved, moves["landed"], np.nan),
            preemptions=total("preemptions"),
            steps=total("steps"),
            passes=total("passes"),
            busy_s=float(state["busy_s"].sum()),
            prefill_tokens=total("prefill_tokens"),
            decode_tokens=total("decode_tokens"),
            mixed_steps=total("mixed_steps"),
            slot_steps=total("slot_steps"),
            useful_slots=total("useful_slots"),
            hit_blocks=total("hit_blocks"),
            loaded_blocks=total("loaded_blocks"),
            swap_outs=total("swap_outs"),
            beams_dropped=total("beams_dropped"),
            beam_copies=total("beam_copies"),
            looked_up_blocks=total("looked_up_blocks"),
            drafted_passes=total("drafted_passes"),
            drafted_tokens=total("drafted_tokens"),
            peak_running=int(state["peak_running"].max()),
            peak_blocks=int(state["peak_blocks"].max()),
            num_blocks=run.rules.num_blocks,
            closed_loop=run.table.predecessor is not None,
            gap_counts=state["gaps"].sum(axis=0),
            gap_sum_s=float(state["gap_sum_s"].sum()),
            longest_gap_s=float(state["longest_gap_s"].max()),
            series=_series(state),
            replicas=len(state),
            log=tuple(run._log),  # noqa: SLF001 - the same
        )

    def __len__(self) -> int:
        return len(self.arrival_s)

    # ---- latencies

    @property
    def ttft_s(self) -> Floats:
        return self.first_s - self.arrival_s

    @property
    def e2e_s(self) -> Floats:
        return self.last_s - self.arrival_s

    @property
    def transfer_s(self) -> Floats:
        """From the first token to the arrival of the cached text, waiting included; nan where nothing travelled."""
        return np.asarray(self.landed_s - self.first_s)

    @property
    def tpot_s(self) -> Floats:
        """Of each request; nan where it has only one token."""
        gaps = self.output_tokens - 1
        return np.where(gaps > 0, (self.last_s - self.first_s) / np.maximum(gaps, 1), np.nan)

    @property
    def measured(self) -> npt.NDArray[np.bool_]:
        """The requests after warm-up (`state.warm_up_end`)."""
        order = np.argsort(self.arrival_s, kind="stable")
        chosen = np.ones(len(self), bool)
        chosen[order[: warm_up_end(self.e2e_s[order])]] = False
        return chosen

    def spread(self, latency: str, chosen: npt.NDArray[np.bool_] | None = None) -> Quantiles:
        """Mean and exact percentiles of "ttft_s", "tpot_s" or "e2e_s"; of all requests, or of the chosen ones."""
        if latency not in ("ttft_s", "tpot_s", "e2e_s"):
            raise InputError("latency", latency, "choose ttft_s, tpot_s or e2e_s")
        values: Floats = getattr(self, latency)
        if chosen is not None:
            values = values[chosen]
        return Quantiles.of(values[~np.isnan(values)])

    def itl(self) -> Quantiles:
        """Gaps between tokens; the mean is exact, percentiles are within a quarter of a percent."""
        total = int(self.gap_counts.sum())
        if total == 0:
            return Quantiles.of(np.empty(0))
        ranks = np.cumsum(self.gap_counts)
        places = [int(np.searchsorted(ranks, p / 100 * total)) for p in PERCENTILES]
        p50, p90, p95, p99 = (
            float(layout.GAP_FLOOR_S * np.exp((place + 0.5) * layout.GAP_BIN_LOG)) for place in places
        )
        return Quantiles(mean=self.gap_sum_s / total, p50=p50, p90=p90, p95=p95, p99=p99)

    # ---- targets

    def good(self, slo: Slo) -> npt.NDArray[np.bool_]:
        """Which requests met every target, each by itself."""
        met = np.ones(len(self), bool)
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            limit = getattr(slo, name)
            if limit is not None:
                met &= ~(getattr(self, name) > limit)
        return met

    def attainment(self, slo: Slo, chosen: npt.NDArray[np.bool_] | None = None) -> float:
        """Share of the requests that met every target."""
        met = self.good(slo)
        return float(met.mean() if chosen is None else met[chosen].mean())

    def goodput_per_s(self, slo: Slo) -> float:
        """Requests a second that met every target, from the first arrival to the last token."""
        return float(self.good(slo).sum()) / self.makespan_s

    def holds(self, slo: Slo, chosen: npt.NDArray[np.bool_] | None = None) -> bool:
        """Whether the targets hold at the SLO's percentile, or as means, over the chosen requests."""
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            limit = getattr(slo, name)
            if limit is None:
                continue
            values = getattr(self, name)
            values = values[~np.isnan(values)] if chosen is None else values[chosen & ~np.isnan(values)]
            if len(values) == 0:
                continue
            reached = values.mean() if slo.percentile is None else np.percentile(values, slo.percentile)
            if reached > limit:
                return False
        return True

    # ---- the system

    @property
    def makespan_s(self) -> float:
        return float(self.last_s.max() - self.arrival_s.min())

    @property
    def output_tokens_per_s(self) -> float:
        return float((self.output_tokens * self.samples).sum()) / self.makespan_s

    @property
    def requests_per_s(self) -> float:
        return len(self) / self.makespan_s

    @property
    def arrivals_per_s(self) -> float:
        """Requests a second that came, from the first to the last; what was served where all came at once."""
        spread_s = float(self.arrival_s.max() - self.arrival_s.min())
        return (len(self) - 1) / spread_s if spread_s > 0 else self.requests_per_s

    @property
    def prefix_hit_rate(self) -> float:
        """Share of the prompts' blocks that the prefix cache held."""
        return self.hit_blocks / self.looked_up_blocks if self.looked_up_blocks else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens that a sequence got from a pass that checked its draft, before its end cut them off; 1 without drafts."""
        return self.drafted_tokens / self.drafted_passes if self.drafted_passes else 1.0

    @property
    def utilization(self) -> float:
        """Share of the time in which the mean replica was computing."""
        return self.busy_s / (self.makespan_s * self.replicas)

    @property
    def state(self) -> LoadState:
        """Stable, near saturation or saturated, by the rule of `state.load_state`."""
        return load_state(
            arrival_s=self.arrival_s,
            scheduled_s=self.scheduled_s,
            last_s=self.last_s,
            closed_loop=self.closed_loop,
        )

    def outstanding(self, times_s: Floats) -> Ints:
        """Requests in the system at each time: arrived and not finished."""
        came = np.searchsorted(np.sort(self.arrival_s), times_s, side="right")
        left = np.searchsorted(np.sort(self.last_s), times_s, side="right")
        return np.asarray(came - left, dtype=np.int64)


def _series(state: Any) -> Series:
    """One series over all replicas, at the coarsest of their resolutions."""
    width = float(state["series_width_s"].max())
    rows = np.zeros((layout.SERIES_ROWS, layout.SERIES_BINS))
    for one in state:
        fold = min(round(width / float(one["series_width_s"])), layout.SERIES_BINS)
        lines = one["series"]
        rows[:, : layout.SERIES_BINS // fold] += lines.reshape(layout.SERIES_ROWS, -1, fold).sum(axis=2)
    filled = np.flatnonzero(rows[layout.SERIES_SECONDS] > 0)
    end = int(filled[-1]) + 1 if len(filled) else 1
    rows = rows[:, :end] / width
    return Series(
        edges_s=np.arange(end + 1, dtype=np.float64) * width,
        running=rows[layout.SERIES_RUNNING],
        waiting=rows[layout.SERIES_WAITING],
        used_blocks=rows[layout.SERIES_BLOCKS],
        prefill_tokens_per_s=rows[layout.SERIES_PREFILL],
        decode_tokens_per_s=rows[layout.SERIES_DECODE],
    )
