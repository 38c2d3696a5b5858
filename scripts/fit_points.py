"""Fit of families and engines that only single runs inform: consumer and workstation cards, Apple, DGX Spark, AMD, A100.

Per family: the share of bandwidth that 16-bit weights reach, and of compute. Per local engine: what its own kernels reach
of 8- and 4-bit weights (one number per format for each family), overhead per layer and per step. Priors and the way numbers
are picked (engine on a family, engine and version, engine, family, all) are those of fit_constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from fit_constants import US, Parameter, profile_of
from scipy.optimize import least_squares

from calc.operators import Operators, compile_operators
from calc.step.links import profile_links
from calc.step.rates import Rates, rate_table
from calc.step.seconds import pass_seconds
from presets import accelerators
from presets.measurements import NEVER_FITTED, PointMeasurement
from presets.profiles import family_of

FITTED_GROUPS = (
    "amd",
    "xdai",
    "spark",
    "gptfast",
    "mlc",
    "exl2",
    "apple",
    "lmsys",
    "accelmark A",
    "accelmark B",
    "accelmark D",
)
OLD_VLLM = "0.7"


def usable(point: PointMeasurement) -> bool:
    """Single runs with a stated batch; a short prompt's first token is mostly server overhead and is only reported."""
    short_first_token = point.metric == "ttft_s" and point.prompt_tokens < 1024
    known = point.group in FITTED_GROUPS and point.model not in NEVER_FITTED
    return known and point.batch is not None and not short_first_token


def version_of(point: PointMeasurement) -> str:
    return OLD_VLLM if point.engine == "vllm" and point.version.startswith(OLD_VLLM) else ""


class PointFit:
    """Points of the same (engine, version, accelerator) share a profile; every pass is evaluated once."""

    def __init__(
        self,
        points: Sequence[PointMeasurement],
        spec_of: Callable[[str], object],
        values: dict[tuple[str, str], float],
        links: dict[str, tuple],
    ) -> None:
        self.points = points
        self.base = values
        self.links = links
        self.observed = np.array([point.observed_s for point in points])
        self.params: list[Parameter] = []
        self.terms = []
        for point in points:
            operators = compile_operators(
                spec_of(point.model), point.layout, quantization=point.quantization, kv_dtype=point.kv_dtype
            ).merged()
            device = accelerators.load(point.accelerator)
            routing = values["experts.routing", ""]
            tables = [
                (operators.evaluate(step, routing_factor=routing), step, times)
                for step, times in point.passes()
            ]
            self.terms.append((point, device, family_of(device), operators, tables))
        self._declare()

    def _declare(self) -> None:
        """Which constants the points can inform."""
        known = {family for _, family in [k for k in self.base if k[0] == "bandwidth.16bit"]}
        seen: dict[tuple[str, str], Parameter] = {}

        def want(name: str, scope: str, prior: float, width: float, limit: float = np.inf) -> None:
            if (name, scope) not in self.base:
                seen.setdefault((name, scope), Parameter(name, scope, prior, width, limit))

        for point, _, family, _, _ in self.terms:
            local = point.engine not in ("vllm", "sglang", "tensorrt-llm")
            prompt = point.metric in ("prefill_tokens_per_s", "ttft_s")
            scope = f"{point.engine}/{family}" if local else family
            bits = _bits(point)
            if family in known and not local:
                continue
            if not prompt:
                want(f"bandwidth.{bits}bit", scope, {16: 0.82, 8: 0.75, 4: 0.62}[bits], 0.25, 1.0)
            elif bits == 16:
                want("compute.16bit", scope, 0.55, 0.5, 1.0)
                if point.prompt_tokens > 4096 or local:
                    want("prefill_attention.compute", scope, 0.35, 0.5, 1.0)
            elif point.quantization == "fp8":
                want("compute.fp8", scope, 0.5, 0.3, 1.0)
            else:
                want("compute.weight_only", scope, 0.4, 0.5, 1.0)
                want("prefill_attention.compute", scope, 0.35, 0.5, 1.0)
            if local:
                want("layer_s", point.engine, 10 * US, 0.7)
                want("step_s", point.engine, 300 * US, 0.7)
                if point.depth_tokens + point.prompt_tokens + point.output_tokens > 4000 and not prompt:
                    want("attention.bandwidth", scope, 0.6, 0.4, 1.0)
                if point.layout.tp > 1 or point.layout.pp > 1:
                    want("collectives.factor", point.engine, 2.0, 0.7)
            if version_of(point):
                want("layer_s", f"vllm@{OLD_VLLM}", 40 * US, 0.4)
            if family == "cdna":
                want("layer_s", f"{point.engine}/cdna", 50 * US, 0.5)
                want("collectives.factor", f"{point.engine}/cdna", 1.5, 0.5)
        self.params = list(seen.values())

    def values(self, vector: np.ndarray) -> dict[tuple[str, str], float]:
        fitted = {(p.name, p.scope): float(v) for p, v in zip(self.params, vector, strict=True)}
        return {**self.base, **fitted}

    def predict(self, vector: np.ndarray) -> np.ndarray:
        values = self.values(vector)
        profiles: dict[tuple, object] = {}
        out = np.zeros(len(self.points))
        for index, (point, device, family, operators, passes) in enumerate(self.terms):
            key = (device.id, point.engine, version_of(point))
            if key not in profiles:
                profiles[key] = profile_of(
                    values, family, point.engine, version=version_of(point), links=self.links
                )
            out[index] = point_seconds(operators, passes, device, profiles[key])
        return out

    def solve(
        self, keep: np.ndarray | None = None, start: np.ndarray | None = None, nfev: int = 12
    ) -> np.ndarray:
        keep = np.ones(len(self.points), bool) if keep is None else keep
        prior = np.log([p.prior for p in self.params])
        width = np.array([p.width for p in self.params])
        limit = np.log([min(p.limit, 1e9) for p in self.params])
        affects = self._affected()

        def residual(v: np.ndarray) -> np.ndarray:
            data = np.log(self.predict(np.exp(v)) / self.observed)[keep] / 0.1
            robust = np.sign(data) * np.sqrt(2) * np.sqrt(2 * (np.sqrt(1 + data**2 / 4) - 1))
            return np.concatenate([robust, (v - prior) / width])

        x = np.log(start) if start is not None else prior
        found = least_squares(
            residual,
            np.minimum(x, limit - 1e-6),
            bounds=(np.full(len(x), -40.0), limit),
            x_scale="jac",
            max_nfev=nfev,
            ftol=1e-3,
            jac=lambda v: self._jacobian(v, keep, width, affects),
        )
        return np.exp(found.x)

    def _affected(self) -> list[np.ndarray]:
        """For each constant the points that it can change: those of its scope."""
        out = []
        for parameter in self.params:
            engine, _, rest = parameter.scope.partition("/")
            name, _, version = parameter.scope.partition("@")
            mask = [
                (rest and point.engine == engine and family == rest)
                or (version and point.engine == name and version_of(point) == version)
                or (not rest and not version and parameter.scope in (point.engine, family, ""))
                for point, _, family, _, _ in self.terms
            ]
            out.append(np.flatnonzero(mask))
        return out

    def _jacobian(self, v: np.ndarray, keep: np.ndarray, width: np.ndarray, affects: list) -> np.ndarray:
        """Backward differences over the points that a constant touches only."""
        step = -1e-4  # backwards: a share at its limit of one cannot grow
        base = np.log(self.predict(np.exp(v)) / self.observed) / 0.1
        slope = np.where(np.abs(base) < 1e-9, 1.0, 0.0)
        root = np.sqrt(1 + base**2 / 4)
        slope = np.where(
            np.abs(base) < 1e-6,
            np.sqrt(2) / 2,
            np.abs(base) / (4 * root) / np.sqrt(np.maximum(2 * (root - 1), 1e-18)) * np.sqrt(2),
        )
        jacobian = np.zeros((len(base), len(v)))
        for column, touched in enumerate(affects):
            moved = v.copy()
            moved[column] += step
            values = self.values(np.exp(moved))
            for index in touched:
                point, device, family, operators, passes = self.terms[index]
                profile = profile_of(
                    values, family, point.engine, version=version_of(point), links=self.links
                )
                seconds = point_seconds(operators, passes, device, profile)
                jacobian[index, column] = (np.log(seconds / self.observed[index]) / 0.1 - base[index]) / step
        return np.vstack([(jacobian * slope[:, None])[keep], np.diag(1 / width)])


def _bits(point: PointMeasurement) -> int:
    if not point.quantization:
        return 8 if "FP8" in point.model else 16
    if point.quantization in ("fp8", "q8_0", "int8-weight"):
        return 8
    return 4


def point_seconds(operators: Operators, passes: Sequence[tuple], device: object, profile: object) -> float:
    """Seconds of a figure: each evaluated pass as often as it runs."""
    rates = Rates.of(rate_table(operators.formats, device, profile), operators)
    links = profile_links(device, profile)
    total = 0.0
    for table, step, times in passes:
        eager = bool(np.any(np.asarray(step.prefill_tokens) > 0))
        total += times * float(pass_seconds(table, rates, step, links, eager=eager).total[0])
    return total
