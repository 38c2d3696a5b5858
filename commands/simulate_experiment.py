"""From the arguments of `ridgebeam simulate` to the run that they describe: traffic, step time, blocks, rules."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from calc.errors import InputError
from commands.arguments import inputs
from commands.simulate_features import features_of

if TYPE_CHECKING:
    from calc.simulation.replicated import Experiment
    from calc.simulation.requests import RequestTable
    from calc.simulation.rules import EngineRules
    from calc.simulation.step_table import StepTable
    from calc.workload import Workload

AMPLE_BLOCKS = 1_000_000  # where nothing says how large the pool is: more than any engine has
DEFAULT_REQUESTS = 10_000
LONGEST_STEP_S = 1e4  # beyond, the clock is so far on that a double no longer resolves single steps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traffic:
    """Requests as they are, or the description of made-up ones; one of the two."""

    requests: RequestTable | None = None
    workload: Workload | None = None

    def means(self) -> dict[str, float | None]:
        """Prompt and answer tokens and requests per second, as the arguments would state them."""
        if self.requests is not None:
            return {
                "input": float(self.requests.input_tokens.mean()),
                "output": float(self.requests.output_tokens.mean()),
                "rate": self.requests.rate_per_s,
            }
        if self.workload is None:
            return {}
        return {
            "input": self.workload.input.mean_tokens,
            "output": self.workload.output.mean_tokens,
            "rate": self.workload.rate_per_s,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """What one replica is to the simulator: its clock without and with drafts, its blocks, the bytes of a token, and its server's time."""

    step: StepTable
    verifying: StepTable
    blocks: int
    kv_bytes_per_token: float = 0.0
    server_s: float = 0.0


def experiment_of(arguments: argparse.Namespace) -> Experiment:
    """The run to make; raises `InputError` where arguments are missing or do not go together."""
    from calc.simulation.replicated import Experiment
    from calc.slo import Slo

    traffic = _traffic(arguments)
    if arguments.step_ms:
        if arguments.source:
            raise InputError("step time", "--step-ms and SOURCE", "give one of the two")
        step = _step(arguments.step_ms)
        served = _Served(step=step, verifying=step, blocks=AMPLE_BLOCKS)
    else:
        served = _served(arguments, traffic)
    features = features_of(arguments, served.kv_bytes_per_token)
    return Experiment(
        rules=features.rules(_rules(arguments, served.blocks), served.step),
        step=served.verifying,
        requests=traffic.requests,
        workload=traffic.workload,
        cluster=features.cluster(arguments.replicas, arguments.seed, server_s=served.server_s),
        samples=arguments.beams or arguments.samples or 1,
        slo=Slo(
            ttft_s=arguments.ttft, tpot_s=arguments.tpot, e2e_s=arguments.e2e, percentile=arguments.percentile
        ),
        seed=arguments.seed,
        think_s=arguments.think,
        count=arguments.requests or DEFAULT_REQUESTS,
    )


def _traffic(arguments: argparse.Namespace) -> _Traffic:
    """The requests of a trace, traffic like a public one, or made-up traffic."""
    from calc.workload import Lengths, LengthShape, Workload

    if arguments.trace:
        from presets.traces import open_trace

        if arguments.concurrency or arguments.input or arguments.output:
            raise InputError("traffic", "--trace and lengths or users", "a trace brings its own")
        table = open_trace(arguments.trace, seed=arguments.seed).requests
        if arguments.requests:
            table = table.first(arguments.requests)
        return _Traffic(requests=table.at_rate(arguments.rate) if arguments.rate else table)
    if arguments.traffic:
        return _Traffic(workload=_published(arguments))
    if not (arguments.input and arguments.output):
        raise InputError(
            "traffic",
            "no lengths",
            "give --trace, --traffic, or --rate (or --users) with --input and --output",
        )
    shape = LengthShape.LOGNORMAL if arguments.length_cv else LengthShape.FIXED
    prompt, answer = (
        Lengths(mean_tokens=mean, shape=shape, cv=arguments.length_cv)
        for mean in (arguments.input, arguments.output)
    )
    workload = Workload(
        input=prompt,
        output=answer,
        rate_per_s=arguments.rate,
        concurrency=arguments.concurrency,
        arrival_cv=arguments.arrival_cv,
        prefix_share=arguments.prefix_share,
        peak_factor=arguments.peak_factor,
    )
    return _Traffic(workload=workload)


def _published(arguments: argparse.Namespace) -> Workload:
    """Traffic like a public trace, at its own rate or the one given."""
    from presets.traces import published

    if arguments.concurrency or arguments.input or arguments.output:
        raise InputError("traffic", "--traffic and lengths or users", "it brings its own")
    workload = published(arguments.traffic).workload()
    return replace(workload, rate_per_s=arguments.rate or workload.rate_per_s)


def _served(arguments: argparse.Namespace, traffic: _Traffic) -> _Served:
    """A replica of SOURCE at the mean lengths of the traffic."""
    from calc.answer import answer
    from calc.proof import clock_of, server_s_of
    from calc.sizing import BLOCK_TOKENS
    from calc.verdict import Wall

    if not (arguments.source and arguments.gpu):
        raise InputError("step time", "none", "give --step-ms, or SOURCE with --gpu")
    asked = argparse.Namespace(**{**vars(arguments), **traffic.means()})
    result = answer(inputs(asked, gpu=arguments.gpu))
    if result.verdict.wall == Wall.CONTEXT:
        raise InputError(
            "input", asked.input, result.verdict.reason, next_step="Shorten it, or choose another model."
        )
    if result.memory.tokens < BLOCK_TOKENS:
        raise InputError(
            "gpu", arguments.gpu, f"the model leaves no room for a cache on it: {result.verdict.reason}"
        )
    step = clock_of(result)
    return _Served(
        step=step,
        verifying=clock_of(result, drafts=arguments.drafts) if arguments.drafts else step,
        blocks=max(1, result.memory.tokens // (arguments.block_size or BLOCK_TOKENS)),
        kv_bytes_per_token=float(result.memory.kv_bytes_per_token),
        server_s=server_s_of(result),
    )


def _rules(arguments: argparse.Namespace, blocks: int) -> EngineRules:
    from calc.simulation.rules import EngineFamily, engine_rules

    family = arguments.engine_rules
    if family is None:
        family = arguments.engine if arguments.engine in tuple(EngineFamily) else "vllm"
    return engine_rules(
        family,
        num_blocks=arguments.blocks or blocks,
        block_size=arguments.block_size,
        token_budget=arguments.token_budget,
        max_seqs=arguments.max_seqs,
        batch_size=arguments.batch_size,
        batch_timeout_s=arguments.batch_timeout,
        long_prefill_threshold=arguments.long_prefill_threshold,
        reserve_tokens=arguments.reserve_tokens,
        watermark=arguments.watermark,
        reserve_full_prompt=False if arguments.admit_first_chunk else None,
        prefix_cache=False if arguments.no_prefix_cache else None,
    )


def _step(text: str) -> StepTable:
    from calc.simulation.step_table import StepTable
    from calc.units import MS

    parts = text.split(",")
    try:
        fixed, prefill, decode, kv = (float(part) * MS for part in parts)
    except ValueError:
        raise InputError("step-ms", text, "give four numbers in ms: FIXED,PREFILL,DECODE,KV") from None
    longest = max(fixed, prefill, decode, kv)
    if longest > LONGEST_STEP_S:
        raise InputError(
            "step-ms", text, f"no part of a step may take more than {LONGEST_STEP_S / MS:,.0f} ms"
        )
    return StepTable.affine(fixed_s=fixed, prefill_s=prefill, decode_s=decode, kv_s=kv)
