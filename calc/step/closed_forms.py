"""The step model term by term, as formulas that can be printed: one operator, one collective, one pass, one serving point.

`calc.step.seconds`, `calc.collectives` and `calc.step.serving` evaluate the same equations for whole tables at once; tests
hold the two together number by number.
"""

from __future__ import annotations

import numpy as np

from calc.arrays import Numbers, scalar
from calc.step.seconds import BATCHED_SEQUENCES, soft_maximum
from calc.step.serving import MOST_BUSY


def operator_memory_s(
    *, moved_bytes: Numbers, bandwidth_share: Numbers, bandwidth_bytes_per_s: Numbers
) -> Numbers:
    """Seconds to move what goes on beside an operator's arithmetic: bytes over the share of the bandwidth that its kernels reach.

    Source: roofline model (Williams et al. 2009) with a reached share; shares are fitted per accelerator family and engine.
    Ignores: caches on the chip, and that short reads reach less (the kernel floor stands for that).
    """
    return moved_bytes / (bandwidth_share * bandwidth_bytes_per_s)


def operator_compute_s(
    *, flop: Numbers, compute_share: Numbers, peak_flop_per_s: Numbers, slowdown: Numbers
) -> Numbers:
    """Seconds of an operator's arithmetic: FLOP over the share of the peak that its kernels reach, times a slow-down.

    Source: roofline model with a reached share; the slow-down is that of short prompts in attention, or of an indexer.
    Ignores: wave quantisation of single shapes, and power limits (they are in the fitted share).
    """
    return slowdown * flop / (compute_share * peak_flop_per_s)


def prompt_slowdown(*, half_tokens: Numbers, prompt_tokens: Numbers) -> Numbers:
    """How much slower prefill attention runs on a short prompt: at the half length it reaches half of its rate.

    Source: measured prefill attention of public kernel tables; 1 + T_half/T fits them within a few per cent.
    Ignores: that several short prompts in one step help each other.
    """
    return 1.0 + half_tokens / np.maximum(prompt_tokens, 1.0)


def operator_floor_s(
    *, kernels: Numbers, kernel_s: Numbers, sequences: Numbers, sequence_s: Numbers
) -> Numbers:
    """Seconds that an operator takes however little it moves: its kernels' start, and decode attention's work per sequence.

    That work goes with the key-value heads that this GPU holds. Source: intercepts of measured kernel times. Ignores: overlap of one kernel's start with the end of another.
    """
    return kernels * kernel_s + sequences * sequence_s


def operator_activation_s(
    *, activation_bytes: Numbers, activation_share: Numbers, bandwidth_bytes_per_s: Numbers
) -> Numbers:
    """Seconds to write and read the activations that an operator does not stream beside its arithmetic.

    Source: counted traffic over a fitted share, which also holds how often engines pass over the same data.
    Ignores: activations that stay in the chip's caches, beyond what the fitted share says.
    """
    return activation_bytes / (activation_share * bandwidth_bytes_per_s)


def operator_s(
    *,
    repeats: Numbers,
    floor_s: Numbers,
    activation_s: Numbers,
    memory_s: Numbers,
    compute_s: Numbers,
    exponent: float,
    work_factor: Numbers,
) -> Numbers:
    """Seconds of an operator over all layers that repeat it: floor, activations, and a soft maximum of memory and compute.

    Source: measured GEMM times bend softly at the ridge, up to a third slower there than the hard maximum; exponent 3.
    Ignores: overlap with other operators. The factor is a measured endpoint's calibration, else 1.
    """
    both = soft_maximum(np.asarray(memory_s, dtype=float), np.asarray(compute_s, dtype=float), exponent)
    return scalar(work_factor * repeats * (floor_s + activation_s + both))


def roofline_operator_s(
    *,
    repeats: Numbers,
    moved_bytes: Numbers,
    flop: Numbers,
    bandwidth_bytes_per_s: Numbers,
    peak_flop_per_s: Numbers,
) -> Numbers:
    """Seconds of an operator with every peak reached: the larger of all its bytes over bandwidth and its FLOP over the rate.

    Source: roofline model, Williams et al. 2009. Ignores: everything that keeps kernels below the datasheet.
    """
    return repeats * np.maximum(moved_bytes / bandwidth_bytes_per_s, flop / peak_flop_per_s)


def collective_s(
    *,
    repeats: Numbers,
    endpoint_factor: Numbers,
    alpha_s: Numbers,
    message_bytes: Numbers,
    half_bytes: Numbers,
    link_share: Numbers,
    link_bytes_per_s: Numbers,
) -> Numbers:
    """Seconds of a collective over all layers: a start-up time, and the message with a square-root term over the link.

    Source: measured all-reduce times of four engines on nine systems; the root is what small and middle sizes lose.
    Ignores: other traffic on the link, and overlap with computation.
    """
    travelled = message_bytes + np.sqrt(message_bytes * half_bytes)
    return repeats * endpoint_factor * (alpha_s + travelled / (link_share * link_bytes_per_s))


def engine_s(
    *,
    n_layers: Numbers,
    layer_s: Numbers,
    eager_layer_s: Numbers,
    special_layers_s: Numbers,
    per_step_s: Numbers,
    sequences: Numbers,
    per_sequence_s: Numbers,
    work_factor: Numbers,
    calibration_s: Numbers,
) -> Numbers:
    """Seconds that an engine spends beside the kernels: per layer, per step, per sequence (fading beyond 512).

    Source: fitted to public serving measurements per engine and version; host work per sequence is batched.
    Ignores: the tokenizer and the network, which are in the time to first token.
    """
    handled = BATCHED_SEQUENCES * -np.expm1(-np.asarray(sequences) / BATCHED_SEQUENCES)
    own = n_layers * (layer_s + eager_layer_s) + special_layers_s + per_step_s + per_sequence_s * handled
    return scalar(work_factor * own + calibration_s)


def pass_s(*, kernels_s: Numbers, links_s: Numbers, engine_overhead_s: Numbers) -> Numbers:
    """Seconds of one forward pass: all operators, all collectives, and the engine around them.

    Source: sum over the operator table. Ignores: overlap between the three.
    """
    return kernels_s + links_s + engine_overhead_s


def experts_read(*, n_experts: Numbers, top_k: Numbers, tokens: Numbers, routing: Numbers) -> Numbers:
    """Distinct experts that a step reads: all tokens' choices under uniform routing, times a routing factor beyond the first.

    Source: each token picks k of E experts: E(1 - (1 - k/E)^T); the factor is fitted, as real traffic repeats its choices.
    Ignores: skew between the ranks that hold the experts.
    """
    share = top_k / n_experts
    uniform = 1.0 - (1.0 - share) ** np.asarray(tokens, dtype=float)
    touched = np.minimum(tokens, 1.0) * share + routing * np.maximum(uniform - share, 0.0)
    return scalar(n_experts * np.minimum(touched, 1.0))


# ---- a serving point at fixed concurrency -------------------------------------------------------------------------


def request_decode_s(
    *,
    output_tokens: Numbers,
    step_s: Numbers,
    prefill_seen: Numbers,
    users: Numbers,
    decoding_share: Numbers,
    extra_s: Numbers,
) -> Numbers:
    """Seconds that a request decodes: its own steps, and what the other users' prompts add to them.

    Source: every other slot brings one prompt per request cycle, of which a decoding request sees the share of its life that
    it decodes. Ignores: how prompts bunch; the simulator does not.
    """
    others = np.maximum(np.asarray(users) - 1.0, 0.0)
    return scalar(output_tokens * step_s + prefill_seen * others * decoding_share * extra_s)


def decoding_sequences(*, users: Numbers, decode_s: Numbers, ttft_s: Numbers) -> Numbers:
    """Sequences that decode at a time: the users, less those who wait for their first token; at least one.

    Source: Little's law within a replica. Ignores: think time between requests.
    """
    return scalar(np.maximum(users * np.asarray(decode_s / (decode_s + ttft_s)), 1.0))


def tpot_under_load_s(*, decode_s: Numbers, output_tokens: Numbers) -> Numbers:
    """Time per output token that a user sees: the time a request decodes over its tokens.

    Source: definition. Ignores: how uneven the gaps are; a prompt stalls single tokens by more.
    """
    return decode_s / output_tokens


def prefill_busy_share(*, decode_s: Numbers, output_tokens: Numbers, step_s: Numbers) -> Numbers:
    """Share of a request's decoding that goes to the prompts of others.

    Source: what is left of its decode time beside its own steps. Ignores: prompts that run on other GPUs.
    """
    return 1.0 - output_tokens * step_s / decode_s


def ttft_under_load_s(
    *,
    server_s: Numbers,
    steps_waited: Numbers,
    tpot_s: Numbers,
    prefill_times: Numbers,
    prefill_s: Numbers,
    prefill_busy: Numbers,
    turn_s: Numbers = 0.0,
    text_arrives_s: Numbers = 0.0,
) -> Numbers:
    """Time to first token: server, decode steps waited, and the prefill behind the residual work of other prompts.

    `turn_s`: how much longer a prompt waits where answers are shorter than the users are many, so that prompts fill the steps:
    until the work of all of them is done. `text_arrives_s`: how long cached text takes up from memory behind the card.

    Source: residual work of a queue with even service that is busy that share (Pollaczek and Khinchine), capped at 95%.
    Ignores: bursts of arrivals; the simulator gives percentiles.
    """
    busy = np.minimum(prefill_busy, MOST_BUSY)
    prompt_s = prefill_times * prefill_s * (1.0 + busy / (2.0 * (1.0 - busy)))
    return scalar(server_s + steps_waited * tpot_s + prompt_s + turn_s + text_arrives_s)


def replica_tokens_per_s(*, users: Numbers, output_tokens: Numbers, e2e_s: Numbers) -> Numbers:
    """Output tokens per second of a replica whose users ask again at once.

    Source: Little's law: users over the time of a request, times its tokens. Ignores: think time.
    """
    return users * output_tokens / e2e_s


def busy_replicas(*, rate_per_s: Numbers, output_tokens: Numbers, tokens_per_s: Numbers) -> Numbers:
    """Replicas' worth of work that arrives: output tokens asked for per second over those of one full replica.

    Source: Little's law. Ignores: bursts, for which headroom is bought.
    """
    return rate_per_s * output_tokens / tokens_per_s


def fleet_utilisation(*, busy_gpus: Numbers, replicas: Numbers) -> Numbers:
    """Share of time that the replicas are busy at the stated rate.

    Source: work that arrives over what was bought. Ignores: bursts within the hour.
    """
    return busy_gpus / replicas


def user_tokens_per_s(*, step_s: Numbers) -> Numbers:
    """Tokens per second that each user of a full batch sees.

    Source: definition (interactivity). Ignores: prompts between the steps; the simulator has them.
    """
    return 1.0 / np.asarray(step_s, dtype=float)[()]


def gpu_tokens_per_s(
    *, gpus: Numbers, prefill_s: Numbers, output_tokens: Numbers, step_s: Numbers, batch: Numbers
) -> Numbers:
    """Output tokens per second and GPU of a full batch, with the prefill work of the same requests counted.

    Source: the work of one output token: its share of a prefill and of a step. Ignores: queues, and empty slots.
    """
    return 1.0 / (gpus * (prefill_s / output_tokens + step_s / batch))


def clock_pass_s(
    *,
    base_s: Numbers,
    attended_slope_s: Numbers,
    attended_tokens: Numbers,
    window_slope_s: Numbers,
    window_tokens: Numbers,
    pair_slope_s: Numbers,
    prompt_pairs: Numbers,
) -> Numbers:
    """Seconds of a pass by the simulator's clock: a table over prompt tokens and sequences, and slopes for what is attended.

    Source: the step model between knots; its error against the model itself stays within a per cent.
    Ignores: what the step model ignores, and spread between equal passes.
    """
    slopes = attended_slope_s * attended_tokens + window_slope_s * window_tokens
    return base_s + slopes + pair_slope_s * prompt_pairs


# ---- the range -----------------------------------------------------------------------------------------------------


def range_low_s(*, best_s: Numbers, spread: Numbers, floor_s: Numbers) -> Numbers:
    """Low end of the 80% range of a time: the best estimate over the spread, never under what the datasheet allows.

    Source: held-out errors by class of model and closeness of the evidence. Ignores: nothing that those errors hold.
    """
    return scalar(np.maximum(best_s / spread, floor_s))


def range_high_s(*, best_s: Numbers, spread: Numbers) -> Numbers:
    """High end of the 80% range of a time: the best estimate times the spread.

    Source: held-out errors by class of model and closeness of the evidence. Ignores: a server that misbehaves.
    """
    return best_s * spread
