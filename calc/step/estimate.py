"""The two questions of step time: how long is one forward pass, and what does a serving point at fixed concurrency give.

Both take arrays in place of numbers along one candidate axis. Fidelity "roofline" reaches every datasheet peak and pays
no overhead; "expected" applies a profile. (Textbook is a closed form of its own, `calc.textbook`.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calc.accelerator import Accelerator
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.kv import sequence_bytes
from calc.model import ModelSpec
from calc.operators import ForwardPass, Operators, OperatorTable, compile_operators
from calc.profile import Evidence, Profile, Schedule
from calc.provenance import Estimate, Provenance
from calc.step.links import (
    PCIE_SPREAD,
    across_hosts,
    crosses_bus,
    datasheet_links,
    node_bytes_per_s,
    profile_links,
)
from calc.step.rates import Rates, datasheet_rates, rate_table
from calc.step.results import ServingPoint, StepEstimate
from calc.step.seconds import TERMS, LinkSeconds, PassSeconds, pass_seconds
from calc.step.serving import FirstToken, Interleaved, interleave
from calc.step.spread import ranged, ranks_factor, spread_factor

Array = NDArray[np.float64]


class Fidelity(StrEnum):
    """How a step's time is computed from the operator table."""

    ROOFLINE = "roofline"
    EXPECTED = "expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """A model on a layout of one accelerator under a profile: compiled once, asked often."""

    spec: ModelSpec
    accelerator: Accelerator
    layout: Layout
    profile: Profile
    fidelity: Fidelity
    quantization: str | None
    kv_dtype: str
    operators: Operators
    factor: float
    peak_rates: Rates
    reached_rates: Rates
    links: LinkSeconds

    @classmethod
    def of(
        cls,
        spec: ModelSpec,
        accelerator: Accelerator,
        layout: Layout,
        profile: Profile,
        *,
        fidelity: Fidelity | str = Fidelity.EXPECTED,
        quantization: str | None = None,
        kv_dtype: str = "bf16",
        lora_rank: int = 0,
        lora_adapters: int = 1,
    ) -> StepModel:
        """Compile; raises `InputError` for a fidelity that has no operator table."""
        if fidelity not in tuple(Fidelity):
            raise InputError("fidelity", fidelity, "an operator table serves roofline and expected")
        layout = across_hosts(layout, accelerator)
        operators = compile_operators(
            spec,
            layout,
            quantization=quantization,
            kv_dtype=kv_dtype,
            lora_rank=lora_rank,
            lora_adapters=lora_adapters,
        )
        formats = operators.formats
        return cls(
            spec=spec,
            accelerator=accelerator,
            layout=layout,
            profile=profile,
            fidelity=Fidelity(fidelity),
            quantization=quantization,
            kv_dtype=kv_dtype,
            operators=operators,
            factor=spread_factor(spec, profile)
            * ranks_factor(layout, profile)
            * (PCIE_SPREAD if crosses_bus(accelerator, operators) else 1.0),
            peak_rates=Rates.of(datasheet_rates(formats, accelerator), operators),
            reached_rates=Rates.of(rate_table(formats, accelerator, profile), operators),
            links=profile_links(accelerator, profile, nodes=layout.nodes, gpus=layout.gpus_per_replica),
        )

    @property
    def routing(self) -> float:
        """Share of the distinct experts of uniform routing that traffic touches."""
        return self.profile.number("experts.routing")

    def _table(self, step: ForwardPass) -> OperatorTable:
        return self.operators.evaluate(step, routing_factor=self.routing)

    def _at_peak(self, table: OperatorTable, step: ForwardPass) -> PassSeconds:
        return pass_seconds(table, self.peak_rates, step, datasheet_links(self.accelerator), eager=False)

    def _reached(self, table: OperatorTable, step: ForwardPass, eager: Any) -> PassSeconds:
        """Seconds under the profile, calibration included."""
        seconds = pass_seconds(table, self.reached_rates, step, self.links, eager=eager)
        calibration = self.profile.calibration
        if not calibration.scalars:
            return seconds
        work = np.where(eager, calibration.get("prefill_factor"), calibration.get("decode_factor"))
        extra = calibration.get("step_s") + calibration.get("sequence_s") * np.asarray(step.sequences)
        return replace(seconds, operators=seconds.operators * work, fixed=seconds.fixed * work + extra)

    def roofline(self, step: ForwardPass) -> PassSeconds:
        """The pass with every peak reached."""
        return self._at_peak(self._table(step), step)

    def expected(self, step: ForwardPass, *, eager: Any) -> PassSeconds:
        """The pass under the profile, best estimate, calibration included. `eager`: one for all candidates, or one each."""
        return self._reached(self._table(step), step, eager)

    def step(self, step: ForwardPass, *, eager: Any = None) -> StepEstimate:
        """Time of one forward pass. `eager` None: a step that holds a prompt is not captured in a graph."""
        table = self._table(step)
        bound = self._at_peak(table, step)
        if self.fidelity is Fidelity.ROOFLINE:
            total = Estimate.exactly(bound.total, Provenance.DATASHEET)
            return StepEstimate(
                total=total, operators=bound, floor_s=bound.total, evidence=Evidence.DATASHEET
            )
        seconds = self._reached(table, step, holds_prompt(step) if eager is None else eager)
        return StepEstimate(
            total=ranged(seconds.total, factor=self.factor, floor=bound.total, profile=self.profile),
            operators=seconds,
            floor_s=bound.total,
            evidence=self.profile.evidence,
        )

    def _best(self, step: ForwardPass) -> Array:
        if self.fidelity is Fidelity.ROOFLINE:
            return self.roofline(step).total
        return self.expected(step, eager=holds_prompt(step)).total

    def _decode_and_mixed(
        self, decoding: Any, context: Any, *, riders: Any, chunk: Any, prefix: Any
    ) -> tuple[Array, Array]:
        """Seconds of a decode step, and of a step with a prompt and `riders` decoding beside it, evaluated as one table."""
        decoding, context, riders, chunk, prefix = np.broadcast_arrays(
            *(np.atleast_1d(np.asarray(v, dtype=float)) for v in (decoding, context, riders, chunk, prefix))
        )
        none = np.zeros(len(decoding))
        both = self._best(
            ForwardPass(
                decode_sequences=np.concatenate([decoding, riders]),
                decode_context=np.concatenate([context, context]),
                prefill_tokens=np.concatenate([none, chunk]),
                prefix_tokens=np.concatenate([none, prefix]),
            )
        )
        return both[: len(decoding)], both[len(decoding) :]

    def serving(
        self,
        *,
        input_tokens: Any,
        output_tokens: Any,
        concurrency: Any,
        prefix_tokens: Any = 0.0,
        disaggregated: bool = False,
        overlapped: bool = False,
        drafts: int = 0,
        tokens_per_pass: float = 1.0,
        load_s: Any = 0.0,
    ) -> ServingPoint:
        """A replica at `concurrency` users who each wait for their answer and ask again.

        prefix_tokens: part of every prompt that a prefix cache holds. disaggregated: prompts run on other GPUs, whose
        cache is sent over the network before the first token; overlapped: layer by layer, while the prompt is computed.
        drafts above zero: every decode step verifies so many proposals that cost nothing, and yields `tokens_per_pass` tokens.
        load_s: how long a prompt waits for the part of its prefix that comes from memory behind the card.
        """
        if self.spec.decoder is None:
            raise InputError(
                "model",
                self.spec.id,
                "it generates no tokens, so it has no serving point",
                next_step="Time its prefill instead.",
            )
        pipeline, ranks = self.layout.pp, self.layout.attention_ranks
        users = np.maximum(np.asarray(concurrency, dtype=float) / (ranks * pipeline), 1.0 / pipeline)
        context = np.asarray(input_tokens, dtype=float) + np.asarray(output_tokens, dtype=float) / 2.0
        found = self._interleaved(
            users,
            new=np.maximum(np.asarray(input_tokens, dtype=float) - prefix_tokens, 1.0),
            prefix_tokens=prefix_tokens,
            output_tokens=output_tokens,
            context=context,
            disaggregated=disaggregated,
            drafts=drafts,
            tokens_per_pass=tokens_per_pass,
        )
        transfer: Any = 0.0
        if disaggregated:
            transfer = self.kv_transfer_s(input_tokens, overlapped=overlapped, prefill_s=found.prefill_s)
        return self._point(
            found,
            context=context,
            output_tokens=np.asarray(output_tokens, dtype=float),
            users=np.asarray(concurrency, dtype=float),
            transfer_s=transfer + np.asarray(load_s, dtype=float),
        )

    def _interleaved(
        self,
        users: Array,
        *,
        new: Array,
        prefix_tokens: Any,
        output_tokens: Any,
        context: Array,
        disaggregated: bool,
        drafts: int,
        tokens_per_pass: float,
    ) -> Interleaved:
        """The fixed point of one rank: how many of its `users` decode at a time decides how long their steps are."""
        engine = self.profile.engine
        chunk = np.minimum(new, engine.chunk_tokens)
        chunks = np.maximum(new / engine.chunk_tokens, 1.0)
        prefix = prefix_tokens + (new - chunk) / 2.0
        alone = engine.schedule is not Schedule.MIXED or disaggregated
        later = np.maximum(np.asarray(output_tokens, dtype=float) - 1.0, 0.0)
        # 1: two prompts to every step and more; the fixed point has one at most
        crowded = np.clip(users / (later + 1.0) - 1.0, 0.0, 1.0) * (not disaggregated)
        cycle_s: Any = 0.0
        shared_s: Any = 0.0
        if np.any(crowded):
            cycle_s, shared_s = self._full_steps(
                users, new=new, prefix=prefix, later=later / tokens_per_pass, context=context, alone=alone
            )
        first_token = self.first_token
        decoding = users
        for _ in range(DECODING_ROUNDS):
            decode_s, mixed_s = self._decode_and_mixed(
                decoding, context, riders=0.0 if alone else decoding, chunk=chunk, prefix=prefix
            )
            token_s = decode_s
            if drafts:
                token_s = self._best(ForwardPass.verify(decoding, context, drafts=drafts)) / tokens_per_pass
            prefill_s = mixed_s * chunks
            extra_s = prefill_s if alone else (mixed_s - decode_s) * chunks
            extra_s = extra_s + crowded * np.maximum(shared_s - extra_s, 0.0)
            found = interleave(
                concurrency=users,
                output_tokens=output_tokens,
                decode_step_s=token_s,
                prefill_s=prefill_s,
                extra_s=0.0 if disaggregated else extra_s,
                share=self.profile.number("prefill.share"),
                first_token=first_token,
            )
            decoding = found.decoding
        return found.waiting(cycle_s - later * found.tpot_s, crowded) if np.any(crowded) else found

    def _full_steps(
        self, users: Array, *, new: Array, prefix: Any, later: Array, context: Array, alone: bool
    ) -> tuple[Array, Array]:
        """(seconds in which a rank does the work of one request of each of its users, what one prompt adds), full steps.

        Every step finishes users/steps requests: so many prompts, and `later` tokens of as many others, up to the token
        budget. Where the engine runs prompts alone, they fill passes of their own, and one adds what it takes alone.
        """
        budget = self.profile.engine.chunk_tokens
        steps = np.maximum(1.0 if alone else later + 1.0, users * (new if alone else new + later) / budget)
        prompts = users / steps
        riders = np.zeros(users.shape) if alone else prompts * later
        with_prompts_s = self._best(
            ForwardPass(
                decode_sequences=riders,
                decode_context=context,
                prefill_tokens=prompts * new,
                prefill_sequences=np.maximum(prompts, 1.0),
                prefix_tokens=prefix,
            )
        )
        without_s = self._best(ForwardPass.decode(users if alone else riders, context))
        if alone:
            return steps * with_prompts_s + later * without_s, np.zeros(users.shape)
        return steps * with_prompts_s, (with_prompts_s - without_s) / prompts

    @property
    def first_token(self) -> FirstToken:
        """How the first token comes about: as the profile says, or as soon as the prompt is computed."""
        if self.fidelity is Fidelity.ROOFLINE:
            return FirstToken(server_s=0.0, steps=0.0, prefill=1.0)
        return FirstToken(
            server_s=self.profile.number("ttft.server_s") + self.profile.calibration.get("ttft_s"),
            steps=self.profile.number("ttft.steps"),
            prefill=self.profile.number("ttft.prefill"),
        )

    def _point(
        self, found: Interleaved, *, context: Any, output_tokens: Array, users: Array, transfer_s: Any
    ) -> ServingPoint:
        """Ranges around a solved serving point."""
        last = ForwardPass.decode(found.decoding, context)
        decode = self.step(last)
        exact = self.fidelity is Fidelity.ROOFLINE
        floor = np.minimum(decode.floor_s, found.tpot_s)
        factor = 1.0 if exact else self.factor
        late = 1.0 if exact else spread_factor(self.spec, self.profile, first_token=True)
        tpot = ranged(found.tpot_s, factor=factor, floor=floor, profile=self.profile)
        ttft = ranged(found.ttft_s + transfer_s, factor=late, floor=0.0, profile=self.profile)
        tokens = output_tokens
        e2e = ttft.plus(tpot.scaled(np.maximum(tokens - 1.0, 0.0)))
        rate = Estimate(
            low=users * tokens / e2e.high,
            best=users * tokens / e2e.best,
            high=users * tokens / e2e.low,
            provenance=e2e.provenance,
        )
        busy = found.prefill_share
        return ServingPoint(
            ttft_s=ttft,
            tpot_s=tpot,
            tpot_with_first_s=e2e.scaled(1.0 / tokens),
            e2e_s=e2e,
            tokens_per_s=rate,
            tokens_per_s_per_gpu=rate.scaled(1.0 / self.layout.gpus_per_replica),
            decoding=found.decoding,
            prefill_s=found.prefill_s,
            prefill_share=busy,
            state=np.where(busy > SATURATED, "saturated", np.where(busy > NEAR, "near saturation", "stable")),
            decode=decode,
            evidence=decode.evidence,
            parts=found,
        )

    def kv_transfer_s(self, tokens: Any, *, overlapped: bool = False, prefill_s: Any = 0.0) -> Any:
        """Seconds that the first decode step waits for a prompt's cache from the prefill replica, after the prompt is done.

        Serial: the whole transfer. Overlapped layer by layer (Splitwise, Mooncake): what the prefill of `prefill_s` seconds
        does not hide, and the last layer, which only begins to travel when the prompt is done.
        """
        sizes = np.array([sequence_bytes(self.spec, round(float(t))) for t in np.atleast_1d(tokens)])
        serial = sizes / (self.layout.tp * node_bytes_per_s(self.accelerator))
        if not overlapped:
            return serial
        layers = float(self.operators.features["layers"][0]) or 1.0
        return np.maximum(serial - np.asarray(prefill_s), 0.0) + serial / layers


DECODING_ROUNDS = 3
NEAR, SATURATED = 0.75, 0.95  # share of a request's life that goes to others' prompts


def holds_prompt(step: ForwardPass) -> NDArray[np.bool_]:
    """Which candidates hold new prompt tokens."""
    return np.asarray(step.prefill_tokens) > 0


__all__ = ["TERMS", "Fidelity", "ServingPoint", "StepEstimate", "StepModel"]
