"""SGLang: a prefill batch goes first (or takes the decodes along), admission by expected memory, retraction.

Source: sgl-project/sglang, srt/managers/schedule_policy.py (PrefillAdder) and schedule_batch.py (retract_decode).
A prompt is admitted if it and its longest answer fit beside what the running requests are expected to need still:
new_token_ratio times their remaining answers. The ratio falls with every decode step and jumps after a retraction.
A failed admission is not tried again before a request has finished (batch_is_full).

A prompt that finds more of its text in a tier than on the card takes all its pages, and waits for the text to come up; then it
computes the rest, ahead of those that wait. SGLang's own hierarchical cache loads layer by layer beside the prefill, whatever
that costs; here the text is there first, and only if that is faster.
"""

from __future__ import annotations

from calc.simulation.kernels.admission import fits_whole
from calc.simulation.kernels.blocks import ceil_div, claim_hits, count_hits, give_back, take_blocks
from calc.simulation.kernels.chunks import add_chunk
from calc.simulation.kernels.layout import (
    DECODE,
    NEVER,
    NONE,
    PREFILLING,
    SGLANG_CLIP_TOKENS,
    SGLANG_RETRACT_STEPS,
    Record,
    Replica,
    Requests,
    Run,
)
from calc.simulation.kernels.leaving import preempt
from calc.simulation.kernels.passes import crossing_need, end_pass, give_crossing_blocks, leap
from calc.simulation.kernels.sequences import leave_waiting, start_running, wait_last, waiting_first
from calc.simulation.kernels.tiers import plan_load
from calc.simulation.kernels.transfer import load, next_ready


def generated_tokens(requests: Requests, replica: Replica, request: int) -> int:
    """Tokens that a request has generated so far."""
    if requests[request]["state"] == DECODE:
        return int(requests[request]["output"] - (requests[request]["due"] - replica.state[0]["tick"]))
    return int(requests[request]["target"] - requests[request]["input"])


def clipped_rest(requests: Requests, replica: Replica, request: int) -> int:
    """Tokens that a request may still generate, as far as the admission looks ahead."""
    rest = int(requests[request]["limit"]) - generated_tokens(requests, replica, request)
    return min(rest, SGLANG_CLIP_TOKENS)


def new_token_ratio(replica: Replica, settings: Record) -> float:
    """Share of the running requests' remaining answers that is set aside."""
    state = replica.state[0]
    fallen = float(state["ratio_base"]) - float(settings["ratio_decay"]) * int(state["ratio_steps"])
    return max(fallen, float(settings["ratio_least"]))


def free_tokens(requests: Requests, replica: Replica, settings: Record) -> float:
    """Tokens of the pool that are neither used nor expected to be needed by running requests."""
    state = replica.state[0]
    expected = 0
    request = int(state["run_head"])
    while request != NONE:
        if requests[request]["state"] == DECODE:
            expected += clipped_rest(requests, replica, request)
        request = int(requests[request]["next"])
    tokens = int(state["free"]) * int(settings["block_size"]) - expected * new_token_ratio(replica, settings)
    return float(tokens - (int(state["decoding"]) if settings["mixed"] else 0))


def continue_chunk(
    requests: Requests, replica: Replica, settings: Record, most: int
) -> tuple[int, int, bool]:
    """Plan the next chunk of the prompt that was cut: (tokens, expected answer, it is still cut)."""
    size = int(settings["block_size"])
    request = int(replica.lists[PREFILLING, 0])
    rest = int(requests[request]["target"] - requests[request]["computed"])
    chunk = min(rest, most)
    free = int(replica.state[0]["free"]) + int(requests[request]["held"])
    if chunk <= 0 or ceil_div(int(requests[request]["computed"]) + chunk, size) > free:
        return 0, 0, True
    after = int(requests[request]["computed"]) + chunk
    more = ceil_div(after, size) - int(requests[request]["held"])
    if more > 0:
        take_blocks(requests, replica, settings, request, more)
    return chunk, clipped_rest(requests, replica, request) if chunk == rest else 0, chunk < rest


def place_prompt(
    requests: Requests,
    replica: Replica,
    settings: Record,
    chunks: int,
    most_input: int,
    most_chunk: int,
    room: float,
) -> tuple[int, int, bool]:
    """Decide on the waiting head: (tokens to compute now, tokens to set aside, memory was what it lacked)."""
    size = int(settings["block_size"])
    request = waiting_first(replica, settings)
    hits, revived = count_hits(requests, replica, settings, request)
    tokens = int(requests[request]["target"]) - hits * size
    answer = clipped_rest(requests, replica, request)
    if ceil_div(tokens, size) * size + answer >= room - revived * size:
        return 0, 0, True
    if tokens >= most_input and chunks > 0:
        return 0, 0, False
    chunk = tokens if tokens <= most_chunk else most_chunk // size * size
    new = ceil_div(hits * size + chunk, size) - hits
    if chunk <= 0 or new + revived + crossing_need(requests, replica, settings, 1) > replica.state[0]["free"]:
        return 0, 0, False
    leave_waiting(requests, replica, settings, request)
    start_running(requests, replica, request, float(replica.state[0]["now"]))
    claim_hits(requests, replica, settings, request, hits)
    take_blocks(requests, replica, settings, request, new)
    requests[request]["computed"] = hits * size
    return chunk, ceil_div(chunk, size) * size + (answer if chunk == tokens else 0) + revived * size, False


def load_prompt(requests: Requests, replica: Replica, run: Run, room: float) -> int:
    """Put the text of the waiting head that a tier holds on its way up, if it is faster and all of it fits; tokens to set aside."""
    settings = run.settings
    size = int(settings["block_size"])
    request = waiting_first(replica, settings)
    hits, revived = count_hits(requests, replica, settings, request)
    pages = ceil_div(int(requests[request]["target"]), size) - hits + revived
    aside = pages * size + clipped_rest(requests, replica, request)
    if aside >= room or not fits_whole(requests, replica, settings, request, hits):
        return 0
    host, disk = plan_load(requests, replica, run, request, hits)
    if host + disk == 0:
        return 0
    leave_waiting(requests, replica, settings, request)
    load(requests, replica, run, request, hits, host, disk)
    return aside


def send_back(requests: Requests, replica: Replica, settings: Record) -> None:
    """A prompt whose text has come up gives its pages to those that run, and waits anew."""
    request = next_ready(requests, replica)
    give_back(requests, replica, settings, request)
    requests[request]["computed"] = 0
    requests[request]["preemptions"] += 1
    replica.state[0]["preemptions"] += 1
    wait_last(requests, replica, settings, request)


def join_loaded(
    requests: Requests, replica: Replica, settings: Record, chunks: int, most_chunk: int
) -> tuple[int, float, int, int]:
    """Let prompts whose text has come up compute the rest: (chunks of the batch, attention, tokens, answers to expect).

    The pages are theirs already. The last one may be cut, and then takes the whole budget.
    """
    state = replica.state[0]
    size = int(settings["block_size"])
    attention = 0.0
    tokens = answers = 0
    while state["ready"] > 0 and tokens < most_chunk and state["decoding"] + chunks < settings["max_seqs"]:
        request = int(state["ready_head"])
        rest = int(requests[request]["target"] - requests[request]["computed"])
        left = most_chunk - tokens
        chunk = rest if rest <= left else left // size * size
        if chunk == 0:
            break
        next_ready(requests, replica)
        start_running(requests, replica, request, float(state["now"]))
        attention += add_chunk(requests, replica, chunks, request, chunk)
        chunks += 1
        if chunk < rest:
            return chunks, attention, most_chunk, answers
        tokens += chunk
        answers += clipped_rest(requests, replica, request)
    return chunks, attention, tokens, answers


def admit_waiting(
    requests: Requests,
    replica: Replica,
    run: Run,
    chunks: int,
    most_input: int,
    most_chunk: int,
    room: float,
) -> tuple[int, float]:
    """Admit waiting prompts while they fit; returns the number of chunks of the batch, and the attention of those added."""
    settings = run.settings
    state = replica.state[0]
    attention = 0.0
    while state["waiting"] > 0 and not state["blocked"] and most_input > 0 and most_chunk > 0:
        request = waiting_first(replica, settings)
        full = state["decoding"] + chunks >= settings["max_seqs"]
        if settings["tiers"] and not full:
            aside = load_prompt(requests, replica, run, room)
            if aside > 0:
                room -= aside
                continue
        chunk, aside = 0, 0
        if not full:
            chunk, aside, full = place_prompt(
                requests, replica, settings, chunks, most_input, most_chunk, room
            )
        if full:
            state["blocked"] = 1
        if chunk == 0:
            break
        attention += add_chunk(requests, replica, chunks, request, chunk)
        chunks += 1
        most_input, most_chunk, room = most_input - chunk, most_chunk - chunk, room - aside
    return chunks, attention


def plan_batch(requests: Requests, replica: Replica, run: Run) -> tuple[int, float]:
    """Plan a prefill batch; returns the number of chunks (0: none can be made) and their attention."""
    settings = run.settings
    state = replica.state[0]
    beside = int(state["decoding"]) if settings["mixed"] else 0
    most_input = int(settings["prefill_limit"]) - beside
    most_chunk = int(settings["budget"]) - beside
    room = free_tokens(requests, replica, settings)
    chunks = 0
    attention = 0.0
    if state["prefilling"] > 0:
        chunk, answer, cut = continue_chunk(requests, replica, settings, most_chunk)
        if cut and chunk == 0:
            return 0, 0.0
        attention += add_chunk(requests, replica, 0, int(replica.lists[PREFILLING, 0]), chunk)
        if cut:
            return 1, attention
        chunks = 1
        most_input, most_chunk, room = most_input - chunk, most_chunk - chunk, room - chunk - answer
    if state["ready"] > 0:
        chunks, more, tokens, answers = join_loaded(requests, replica, settings, chunks, most_chunk)
        attention += more
        most_input, most_chunk, room = most_input - tokens, most_chunk - tokens, room - answers
    chunks, more = admit_waiting(requests, replica, run, chunks, most_input, most_chunk, room)
    return chunks, attention + more


def retract(requests: Requests, replica: Replica, settings: Record) -> None:
    """Send requests back until the rest has room for some steps: the fewest tokens first, then the longest prompt."""
    state = replica.state[0]
    size = int(settings["block_size"])
    first = True
    while state["decoding"] > 1 and (
        first
        or int(state["free"]) * size < int(state["decoding"]) * SGLANG_RETRACT_STEPS
        or crossing_need(requests, replica, settings, 1) > state["free"]
    ):
        first = False
        loser = NONE
        least = longest = 0
        request = int(state["run_head"])
        while request != NONE:
            if requests[request]["state"] == DECODE:
                tokens = generated_tokens(requests, replica, request)
                prompt = int(requests[request]["input"])
                if loser == NONE or tokens < least or (tokens == least and prompt >= longest):
                    loser, least, longest = request, tokens, prompt
            request = int(requests[request]["next"])
        preempt(requests, replica, settings, loser)
        wait_last(requests, replica, settings, loser)
    if crossing_need(requests, replica, settings, 1) > state["free"] and state["prefilling"] > 0:
        # the engine would fail here; the prompt that was cut gives its pages back and waits anew
        cut = int(replica.lists[PREFILLING, 0])
        preempt(requests, replica, settings, cut)
        wait_last(requests, replica, settings, cut)
    while crossing_need(requests, replica, settings, 1) > state["free"] and state["ready"] > 0:
        send_back(requests, replica, settings)
    state["blocked"] = 0
    raise_ratio(requests, replica)


def raise_ratio(requests: Requests, replica: Replica) -> None:
    """After a retraction: expect the share of the answers that the remaining requests have got so far."""
    state = replica.state[0]
    decoded = allowed = 0
    request = int(state["run_head"])
    while request != NONE:
        if requests[request]["state"] == DECODE:
            decoded += generated_tokens(requests, replica, request)
            allowed += int(requests[request]["limit"])
        request = int(requests[request]["next"])
    state["ratio_base"] = min(1.0, (decoded + SGLANG_RETRACT_STEPS * int(state["decoding"])) / (allowed + 1))
    state["ratio_steps"] = 0


def decode_batch(requests: Requests, replica: Replica, run: Run, limit_s: float) -> None:
    """One token for every running request, or a leap over many; retracts if blocks are short."""
    settings = run.settings
    state = replica.state[0]
    moves = state["prefilling"] + state["ready"] + state["departing"] > 0
    quiet = not moves and (state["waiting"] == 0 or state["blocked"])
    if settings["skip"] and quiet:
        cut_s = limit_s if settings["feedback"] or not state["blocked"] else NEVER
        steps = leap(requests, replica, run, cut_s)
        if steps > 0:
            state["ratio_steps"] += steps
            return
    if crossing_need(requests, replica, settings, 1) > state["free"]:
        retract(requests, replica, settings)
        if state["arriving"] > 0 and crossing_need(requests, replica, settings, 1) > state["free"]:
            state["wake"] = NEVER  # what lacks is held by a text that is on its way
            return
    else:
        state["ratio_steps"] += 1
    give_crossing_blocks(requests, replica, settings, 1)
    end_pass(requests, replica, run, 0, 0.0, True, int(settings["max_seqs"]))


def sglang_pass(requests: Requests, replica: Replica, run: Run, limit_s: float) -> None:
    """The next pass: a prefill batch if one can be made, else decode."""
    settings = run.settings
    state = replica.state[0]
    if state["running"] == 0:
        state["blocked"] = 0
    chunks = 0
    attention = 0.0
    if state["prefilling"] + state["ready"] > 0 or (state["waiting"] > 0 and not state["blocked"]):
        chunks, attention = plan_batch(requests, replica, run)
        if chunks == 0 and state["decoding"] == 0 and state["ready"] > 0:
            while state["ready"] > 0:  # a prompt that was cut lacks their pages
                send_back(requests, replica, settings)
            chunks, attention = plan_batch(requests, replica, run)
    if chunks > 0:
        along = bool(settings["mixed"]) and crossing_need(requests, replica, settings, 1) <= state["free"]
        if along:
            give_crossing_blocks(requests, replica, settings, 1)
        end_pass(requests, replica, run, chunks, attention, along, int(settings["max_seqs"]))
    elif state["decoding"] == 0 and state["arriving"] > 0:
        state["wake"] = NEVER
    else:
        decode_batch(requests, replica, run, limit_s)
