"""Batching, queueing, speculation, quantisation error: the cases and what solves them."""

import numpy as np
from solved_cases import MS, picked, solves

from calc import batching, goodput, quantization_error, speculative
from calc.queueing import closed_forms


@solves("static-slots-1", "static-slots-2")
def static_slots(i):
    use = batching.static_slot_use(i["outputs"])
    return {"slot_steps": use.slot_steps, "useful": use.useful, "share": use.share}


@solves("paged-sharing")
def paged_sharing(i):
    shared = batching.prompt_sharing(**i)
    return {
        "blocks": shared.prompt_blocks,
        "last_block_tokens": shared.last_block_tokens,
        "unshared": shared.unshared_blocks,
        "shared": shared.shared_blocks,
        "refcount": shared.reference_count,
        "after_first_write": shared.blocks_after_first_write,
    }


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
    seen = {"values": i["values_s"], "counts": i["counts"]}
    return {
        "mean_s": goodput.mean_of_counts(**seen),
        "p50_s": goodput.percentile_of_counts(**seen, percentile=50),
        "p99_s": goodput.percentile_of_counts(**seen, percentile=99),
    }


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
