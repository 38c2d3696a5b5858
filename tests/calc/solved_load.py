"""Batching, queueing, speculation, quantisation error: the cases and what solves them."""

import numpy as np
from solved_cases import MS, picked, solves

from calc import batching, goodput, quantization_error, speculative
from calc.paging import PagedKvCache
from calc.queueing import closed_forms
from calc.schedule import Scheduling, schedule
from calc.schedule_examples import lesson_requests
from calc.simulation.results import Quantiles
from calc.simulation.step_table import StepTable

STEP = StepTable.affine(fixed_s=0.02, prefill_s=2e-4, decode_s=1e-3, kv_s=2e-7)


@solves("static-slots-1", "static-slots-2")
def static_slots(i):
    requests = lesson_requests(tuple(i["outputs"]), rounds=1)
    ran = schedule(Scheduling.STATIC, requests, STEP, slots=4, token_budget=512)
    return {"slot_steps": ran.slot_steps, "useful": ran.useful_slot_steps, "share": ran.slot_use}


@solves("paged-sharing")
def paged_sharing(i):
    cache = PagedKvCache(num_blocks=300, block_size=i["block_size"])
    table = cache.add(0, range(i["prompt_tokens"])).block_table
    samples = range(i["samples"])
    for sample in samples[1:]:
        cache.fork(0, sample)
    found = {
        "blocks": len(table),
        "last_block_tokens": i["block_size"] - cache.wasted_slots(0),
        "unshared": sum(len(cache.block_table(sample)) for sample in samples),
        "shared": cache.num_used_blocks,
        "refcount": sum(table[-1] in cache.block_table(sample) for sample in samples),
    }
    for sample in samples:
        cache.append(sample, 7)
    return found | {"after_first_write": cache.num_used_blocks}


@solves("paged-waste-bound")
def paged_waste(i):
    return batching.largest_paged_waste(**i)


# ---- queueing -------------------------------------------------------------------------------------------------


def mm1(i):
    service_s = 1.0 / i["services_per_s"]
    rho = closed_forms.utilisation(arrivals_per_s=i["arrivals_per_s"], service_s=service_s)
    mean = closed_forms.mm1_mean_time_s(utilisation=rho, service_s=service_s)
    return {
        "utilisation": rho,
        "mean_ms": mean / MS,
        "p95_ms": closed_forms.mm1_time_quantile_s(percentile=95, utilisation=rho, service_s=service_s) / MS,
        "in_system": closed_forms.requests_in_system(
            arrivals_per_s=i["arrivals_per_s"], time_in_system_s=mean
        ),
    }


@solves("mm1-40-50")
def mm1_alone(i):
    return mm1(i)


@solves("mm1-two-replicas")
def mm1_split(i):
    return {k: v for k, v in mm1(i).items() if k in {"mean_ms", "p95_ms"}}


@solves("mm1-int8")
def mm1_faster(i):
    before = mm1({**i, "services_per_s": i["services_per_s_before"]})
    after = mm1(i)
    return {**after, "times_lower": before["mean_ms"] / after["mean_ms"]}


@solves("mm1-80-percent")
def mm1_loaded(i):
    return closed_forms.mm1_mean_time_s(**i) / MS


@solves("mm1-blow-up")
def mm1_blow_up(i):
    return closed_forms.mm1_mean_time_s(utilisation=np.array(i["utilisation"]), service_s=1.0)


@solves("replicas-p95-150")
def replicas(i):
    return closed_forms.mm1_replicas_for(
        **picked(i, "arrivals_per_s", "service_s"), percentile=95, limit_s=i["p95_limit_s"]
    )


@solves("md1-half-wait")
def half_wait(i):
    at = {"utilisation": closed_forms.utilisation(**i), "service_s": i["service_s"]}
    random, even = closed_forms.mm1_mean_wait_s(**at), closed_forms.md1_mean_wait_s(**at)
    return {"mm1_wait_ms": random / MS, "md1_wait_ms": even / MS, "ratio": even / random}


@solves("little-chat")
def little(i):
    return closed_forms.requests_in_system(**i)


@solves("p99-hides-in-mean")
def hidden_in_mean(i):
    spread = Quantiles.of(np.repeat(i["values_s"], i["counts"]))
    return {"mean_s": spread.mean, "p50_s": spread.p50, "p99_s": spread.p99}


@solves("goodput")
def good(i):
    return goodput.goodput_per_s(**i)


# ---- speculative decoding, quantisation error -----------------------------------------------------------------


@solves("spec-tokens")
def speculative_tokens(i):
    return speculative.tokens_per_pass(**i)


@solves("spec-tokens-limit")
def speculative_limit(i):
    return speculative.tokens_per_pass_limit(**picked(i, "acceptance"))


@solves("spec-speedup")
def speculative_speedup(i):
    return speculative.speedup(**i)


@solves("spec-one-pass")
def one_pass(i):
    return [speculative.tokens_of_pass(drafts=i["drafts"], accepted=n) for n in i["accepted"]]


@solves("quant-error")
def quantised(i):
    weights = np.random.default_rng(i["seed"]).normal(size=i["shape"])
    weights[i["outlier_row"]] *= i["outlier_factor"]
    grains = {
        "per_tensor": quantization_error.Grain.TENSOR,
        "per_channel": quantization_error.Grain.CHANNEL,
    }
    found, within = {}, True
    for name, grain in grains.items():
        rounded = quantization_error.round_integer(weights, bits=i["bits"], grain=grain)
        counted = slice(i["first_row_counted"], None)
        found[name] = quantization_error.rounding_error(
            weights[counted], rounded.values[counted]
        ).mean_absolute
        within &= bool(np.all(np.abs(weights - rounded.values) <= rounded.step / 2 * (1 + 1e-12)))
    return {**found, "within_half_step": within}


@solves("bf16-spacing")
def spacing(i):
    return quantization_error.float_spacing(at=np.array(i["at"]), significand_bits=i["significand_bits"])
