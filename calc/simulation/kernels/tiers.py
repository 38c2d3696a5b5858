"""KV tiers behind the card: text whose block is reused goes to host memory, and from there to an SSD, each by LRU.

A prompt may find the blocks after its cached ones in a tier. They are loaded if that, with what is left to compute, ends
before computing everything would, as far as the engine can see; else they are computed as if no tier were there.
"""

from __future__ import annotations

from calc.simulation.kernels.blocks import block_name, find_block
from calc.simulation.kernels.layout import MAX_TIERS, NONE, Record, Replica, Requests, Run
from calc.simulation.kernels.speculation import pass_seconds
from calc.simulation.kernels.tier_store import find_stored, use_last


def stored_at(
    requests: Requests, replica: Replica, settings: Record, request: int, block: int
) -> tuple[int, int]:
    """(tier, entry) that holds block `block` of a request's text; (NONE, NONE) if none does, or the card has it."""
    name = block_name(requests, replica, settings, request, block)
    if find_block(replica, name) == NONE:
        for tier in range(settings["tiers"]):
            entry = find_stored(replica, settings, tier, name, float(replica.state[0]["now"]))
            if entry != NONE:
                return tier, entry
    return NONE, NONE


def prefill_alone_s(requests: Requests, replica: Replica, run: Run, request: int, computed: int) -> float:
    """Seconds to compute a prompt from `computed` tokens on, beside the requests that decode now if the engine mixes them."""
    settings = run.settings
    state = replica.state[0]
    decoding, kv_tokens = int(state["decoding"]), int(state["kv_tokens"])
    window_tokens = int(state["window_tokens"])
    if settings["prefills_alone"]:
        decoding = kv_tokens = window_tokens = 0
    most = int(settings["budget"]) - decoding * (1 + int(settings["drafts"]))
    if settings["threshold"]:
        most = min(most, int(settings["threshold"]))
    seconds = 0.0
    while computed < requests[request]["target"] and most > 0:
        chunk = min(most, int(requests[request]["target"]) - computed)
        seconds += pass_seconds(
            run,
            chunk,
            chunk * (computed + 0.5 * chunk),
            decoding,
            kv_tokens,
            window_tokens,
        )
        computed += chunk
    return seconds


def loaded_s(replica: Replica, run: Run, on_host: int, on_disk: int) -> tuple[float, float]:
    """(when the way up would be free again, when the last block would be there) if these blocks were loaded now."""
    settings = run.settings
    size = int(settings["block_size"])
    free_s = max(float(replica.state[0]["now"]), float(replica.state[0]["tier_free_s"]))
    latency_s = 0.0
    counts = (on_host, on_disk)
    for tier in range(MAX_TIERS):
        free_s += counts[tier] * size * float(settings["tier_token_s"][tier])
        if counts[tier] > 0:
            latency_s += float(settings["tier_latency_s"][tier])
    return free_s, free_s + latency_s


def plan_load(requests: Requests, replica: Replica, run: Run, request: int, hits: int) -> tuple[int, int]:
    """(blocks from host, blocks from SSD) to load behind `hits` cached ones: none, the host's first ones, or all found."""
    settings = run.settings
    size = int(settings["block_size"])
    most = (int(requests[request]["target"]) - 1) // size
    on_host = on_disk = first = 0
    for block in range(hits, most):
        tier, _ = stored_at(requests, replica, settings, request, block)
        if tier == NONE:
            break
        if tier == 0:
            on_host += 1
        else:
            on_disk += 1
        if on_disk == 0:
            first = on_host
    if on_host + on_disk == 0:
        return 0, 0
    state = replica.state[0]
    now = float(state["now"])
    # with others decoding, a text that lands within a pass waits for its end
    boundary_s = 0.0
    if state["decoding"] > 0:
        boundary_s = pass_seconds(
            run, 0, 0.0, int(state["decoding"]), int(state["kv_tokens"]), int(state["window_tokens"])
        )
    best_s = prefill_alone_s(requests, replica, run, request, hits * size)
    best_host = best_disk = 0
    for host, disk in ((first, 0), (on_host, on_disk)):
        if host + disk > 0:
            _, landed_s = loaded_s(replica, run, host, disk)
            rest_s = prefill_alone_s(requests, replica, run, request, (hits + host + disk) * size)
            if landed_s - now + boundary_s + rest_s < best_s:
                best_s = landed_s - now + boundary_s + rest_s
                best_host, best_disk = host, disk
    return best_host, best_disk


def touch_stored(
    requests: Requests, replica: Replica, settings: Record, request: int, begin: int, end: int
) -> None:
    """Blocks `begin` to `end` of a request are being loaded: their entries are the last to be reused."""
    for block in range(begin, end):
        tier, entry = stored_at(requests, replica, settings, request, block)
        if tier != NONE:
            replica.blocks[entry]["freed"] = replica.state[0]["now"]
            use_last(replica, tier, entry)
