"""The CLI's JSON, as plain dictionaries: a stable contract that scripts rely on (fields may come, none may go).

Every predicted time is {"low", "best", "high"} in seconds; bytes and tokens are integers.
"""

from __future__ import annotations

from dataclasses import replace
from math import expm1, isfinite
from typing import Any

from calc.arrays import first
from calc.engine import engine_named
from calc.errors import InputError
from calc.format_support import check_engine, not_served
from calc.handover import commands_of
from calc.layout import Layout
from calc.levers import LeverEffect
from calc.operators import ForwardPass
from calc.proof import Proof
from calc.provenance import Estimate, Provenance
from calc.queueing import closed_forms
from calc.replica_model import replica_model
from calc.result import Answer, Inputs
from calc.scenario import Fidelity
from calc.sized import replica_weight_bytes, timing_of
from calc.sizing import DecodeStep, FleetStep, PrefillStep, SequencesStep

Json = dict[str, Any]


def step_json(inputs: Inputs, *, batch: int, context: int, prefill: int | None) -> Json:
    """Verb `step`: one decode step, and one prefill where asked."""
    scenario = inputs.scenario
    layout = replace(scenario.layout, tp=scenario.tp or 1)
    inputs.spec.check_length(float(context), field="context")
    inputs.spec.check_length(float(prefill or 0), field="prefill")
    if scenario.fidelity != Fidelity.TEXTBOOK:
        return _operator_step_json(inputs, layout, batch=batch, context=context, prefill=prefill)
    timing = timing_of(inputs, layout, replica_weight_bytes(inputs))
    step = timing.decode_step(batch=batch, context_tokens=float(context))
    record: Json = {
        "decode": {
            "s": step.step_s.as_json(),
            "tokens_per_s": batch / float(step.step_s.best),
            "bound": step.bound,
            "terms": step.terms_s,
        },
        "prefill": None,
        "operators": [],
    }
    if prefill is not None:
        time = timing.prefill_s(tokens=float(prefill), cached_tokens=0.0)
        record["prefill"] = {"s": time.as_json(), "tokens_per_s": prefill / float(time.best)}
    return record


def _operator_step_json(
    inputs: Inputs, layout: Layout, *, batch: int, context: int, prefill: int | None
) -> Json:
    """Verb `step` at roofline and expected fidelity: from the operator table, its rows included."""
    scenario = inputs.scenario
    if scenario.fidelity == Fidelity.EXPECTED:
        check_engine(scenario.engine, inputs.offer.accelerator)
    model = replica_model(inputs, layout)
    one_pass = ForwardPass.decode(float(batch), float(context))
    if inputs.spec.decoder is None:
        if prefill is None:
            raise InputError(
                "model",
                inputs.spec.id,
                "it generates no tokens, so it has no decode step",
                next_step="Time a text through it: --prefill 512.",
            )
        one_pass = ForwardPass.prefill(float(prefill))
    found = model.step(one_pass)
    decode = found.as_json() | {"tokens_per_s": batch / first(found.total.best)}
    record: Json = {
        "decode": None if inputs.spec.decoder is None else decode,
        "prefill": None,
        "operators": found.rows(),
        "evidence": str(found.evidence),
        "warnings": list(
            not_served(
                inputs.spec,
                scenario.quantization,
                scenario.kv_dtype,
                scenario.engine,
                inputs.offer.accelerator,
            )
        ),
    }
    if prefill is not None:
        prompt = model.step(ForwardPass.prefill(float(prefill)))
        record["prefill"] = prompt.as_json() | {
            "tokens_per_s": prefill / first(prompt.total.best),
            "operators": prompt.rows(),
        }
    return record


def lever_json(effect: LeverEffect) -> Json:
    """One lever of verb `plan`: what it sets, its kind, and the row after it."""
    return {
        "change": effect.lever.change.text,
        "settings": dict(effect.lever.change.settings),
        "kind": str(effect.lever.kind),
        "gpus_saved": effect.gpus_saved,
        "after": plan_json(effect.after),
    }


def plan_json(result: Answer) -> Json:
    """One row of verb `plan`."""
    layout, scenario = result.layout, result.inputs.scenario
    row: Json = {
        "gpu": result.inputs.offer.accelerator.id,
        "gpus": result.gpus,
        "whole_nodes": result.nodes,
        "layout": {
            "label": layout.label,
            "tp": layout.tp,
            "pp": layout.pp,
            "dp": layout.dp,
            "ep": layout.ep,
            "attention_dp": layout.attention_dp,
            "nodes": layout.nodes,
        },
        "quantization": scenario.quantization,
        "kv_dtype": scenario.kv_dtype,
        "engine": scenario.engine,
        "max_batched_tokens": scenario.max_batched_tokens,
        "max_seqs": scenario.max_seqs,
        "chunked_prefill": scenario.chunked_prefill,
        "prefix_caching": scenario.prefix_caching,
        "draft_tokens": scenario.draft_tokens,
        "kv_offload": scenario.kv_offload,
        "fidelity": scenario.fidelity,
        "verdict": result.verdict.as_json(),
        "usd_per_hour": result.cost.usd_per_hour,
        "usd_per_mtok_out": result.cost.usd_per_million_output,
        "price_note": result.cost.note,
        "launch": [command.text for command in commands_of(result, engine_named(scenario.engine))],
        "assumptions": list(result.assumptions),
        "memory": {
            "weights_bytes_per_gpu": round(result.memory.weight_bytes_per_gpu),
            "kv_bytes_per_gpu": round(result.memory.kv_bytes_per_gpu),
            "kv_bytes_per_token": result.memory.kv_bytes_per_token,
            "tokens": result.memory.tokens,
        },
    }
    if result.sequences and result.decode and result.prefill and result.fleet:
        row |= _served_json(result, result.sequences, result.decode, result.prefill, result.fleet)
    return row


def _served_json(
    result: Answer, sequences: SequencesStep, decode: DecodeStep, prefill: PrefillStep, fleet: FleetStep
) -> Json:
    """What a plan that serves has beyond its memory.

    Three rates that are easily taken for each other (docs/plan-record.md): `output_tokens_per_s` of the whole plan at its
    traffic, `decode_tokens_per_s` of one replica's decode step with no prompt between (`tokens_per_s` is the same
    number), `capacity_tokens_per_s_per_gpu` of one GPU that has all the work that it can take.
    """
    return {
        "replicas": fleet.replicas,
        "prefill_replicas": fleet.prefill_replicas,
        "batch": decode.batch,
        "sequences": {
            "paged": sequences.paged,
            "reserved": sequences.reserved,
            "by_tpot": sequences.by_tpot,
        },
        "binding_limit": str(sequences.binding),
        "ttft_s": (result.ttft_s or prefill.prefill_s).as_json(),
        "prefill_s": prefill.prefill_s.as_json(),
        "cached_tokens": prefill.cached_tokens,
        "loaded_tokens": prefill.loaded_tokens,
        "tpot_s": None if result.tpot_s is None else result.tpot_s.as_json(),
        "step_s": decode.time.step_s.as_json(),
        "e2e_s": fleet.e2e_s.as_json(),
        "decode_tokens_per_s": decode.tokens_per_s,
        "tokens_per_s": decode.tokens_per_s,  # the name of before: it reads like the plan's throughput
        "output_tokens_per_s": result.output_tokens_per_s,
        "capacity_tokens_per_s_per_gpu": result.tokens_per_s_per_gpu,
        "rate_per_s": fleet.rate_per_s,
        "active": fleet.active,
        "prefill_busy": fleet.prefill_busy,
        "decode_busy": fleet.decode_busy,
        "busy": fleet.busy,
        "utilization": fleet.utilization,
    }


MEAN_AS_PERCENTILE = 100.0 * -expm1(-1.0)
"""The percentile at which an exponential time equals its mean: 1 - 1/e."""


def endpoint_json(*, rate_per_s: float, service_s: float, limit_s: float, percentile: float | None) -> Json:
    """Verb `plan --service-s`: replicas of an endpoint that serves one request at a time (M/M/1, random routing)."""
    measure = MEAN_AS_PERCENTILE if percentile is None else percentile
    name = "mean" if percentile is None else f"p{percentile:g}"
    replicas = float(
        closed_forms.mm1_replicas_for(
            arrivals_per_s=rate_per_s, service_s=service_s, percentile=measure, limit_s=limit_s
        )
    )
    if not isfinite(replicas):
        why = f"even an idle replica of {service_s:g} s misses {name} {limit_s:g} s"
        return {"plans": [], "levers": [], "rejected": [{"why": why, "count": 1}]}
    busy = float(closed_forms.utilisation(arrivals_per_s=rate_per_s, service_s=service_s, servers=replicas))
    mean_s = float(closed_forms.mm1_mean_time_s(utilisation=busy, service_s=service_s))
    reached_s = float(
        closed_forms.mm1_time_quantile_s(percentile=measure, utilisation=busy, service_s=service_s)
    )
    plan: Json = {
        "replicas": round(replicas),
        "utilization": busy,
        "mean_s": mean_s,
        "measure": name,
        "e2e_s": Estimate.exactly(reached_s, Provenance.ASSUMED).as_json(),
        "binding_limit": "end to end",
    }
    return {"plans": [plan], "levers": [], "rejected": []}


def proof_json(proof: Proof) -> Json:
    """What `plan --verify` adds to the first plan."""
    shown = proof.proven or proof.planned
    return {
        "holds": proof.holds,
        "planned_replicas": proof.planned_replicas,
        "replicas": proof.replicas,
        "rate_per_s": proof.rate_per_s,
        "breaks_at_per_s": proof.breaks_at_per_s,
        "headroom": proof.headroom,
        "requests": proof.requests,
        "state": str(shown.state),
        "ttft_s": shown.spread("ttft_s").as_json(),
        "tpot_s": shown.spread("tpot_s").as_json(),
        "e2e_s": shown.spread("e2e_s").as_json(),
        "attainment": shown.attainment(proof.slo),
        "notes": list(proof.notes),
    }
