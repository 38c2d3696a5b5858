"""Beam search: the beams of a request share the blocks of the text they have in common, and fork and are dropped as they go.

After each token every beam of the new generation continues a beam of the old one: its own, or, with a chance, one drawn
from all of them. A beam that nobody continues is dropped, and the blocks that only it held are free at once; one that
several continue is forked: they share its blocks, and those who write to a shared last block copy it first.

The tables are a tree: a block knows the block before it (`previous`; NONE: the full blocks of the prompt, which every beam
shares) and how many beams end in it or blocks follow it (`holders`). A beam is its last block. So a token costs as many
operations as there are beams, however long they are, and the blocks held are those of the tree.

Draws are by (seed, request, token, beam), so that they are the same whatever else runs. Source: vLLM 0.2, engine/llm_engine.py
(_process_sequence_group_outputs: children of a parent are forked, parents without children freed; as many beams go on as
before) and core/block_manager.py (append_slot: copy-on-write of a last block with several references). Ignores: the scores
(who continues whom is drawn), and beams that end at different lengths.
"""

from __future__ import annotations

from calc.simulation.kernels.draws import BEAM_DROPPED, BEAM_PARENT, uniform
from calc.simulation.kernels.layout import DECODE, FREE_SLOTS, NONE, Record, Replica, Requests


def take_node(replica: Replica, previous: int) -> int:
    """A block of the tree behind `previous`, held by the one who asks."""
    state = replica.state[0]
    node = int(state["free_head"])
    state["free_head"] = replica.blocks[node]["next"]
    replica.blocks[node]["previous"] = previous
    replica.blocks[node]["holders"] = 1
    return node


def let_node_go(replica: Replica, node: int) -> int:
    """A holder of `node` less; returns how many blocks of the tree that frees, it and those before it."""
    state = replica.state[0]
    freed = 0
    while node != NONE:
        replica.blocks[node]["holders"] -= 1
        if replica.blocks[node]["holders"] > 0:
            break
        before = int(replica.blocks[node]["previous"])
        replica.blocks[node]["next"] = state["free_head"]
        state["free_head"] = node
        freed += 1
        node = before
    return freed


def plant_beams(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """The prompt is computed: all beams begin with it, each with a copy of its last block if that is not full.

    One that was computed anew has blocks of its own behind those of its prompt.
    """
    state = replica.state[0]
    state["free_slots"] -= 1
    slot = int(replica.lists[FREE_SLOTS, state["free_slots"]])
    requests[request]["slot"] = slot
    first = slot * int(settings["table_width"])
    size = int(settings["block_size"])
    own = -(-int(requests[request]["target"]) // size) - int(requests[request]["input"]) // size
    for beam in range(requests[request]["width"]):
        last = NONE
        for _ in range(own):
            last = take_node(replica, last)
        replica.texts[first + beam] = last


def cut_beams(requests: Requests, replica: Replica, settings: Record, request: int) -> None:
    """All beams of a request end; the caller counts its blocks."""
    slot = int(requests[request]["slot"])
    if slot == NONE:
        return
    first = slot * int(settings["table_width"])
    for beam in range(requests[request]["width"]):
        let_node_go(replica, int(replica.texts[first + beam]))
    state = replica.state[0]
    replica.lists[FREE_SLOTS, state["free_slots"]] = slot
    state["free_slots"] += 1


def write_beams(requests: Requests, replica: Replica, settings: Record, request: int, tokens: int) -> None:
    """Each beam of `tokens` tokens has written the next one: to its last block, to a copy of it, or to a new one."""
    first = int(requests[request]["slot"]) * int(settings["table_width"])
    full = tokens % settings["block_size"] == 0
    for beam in range(requests[request]["width"]):
        last = int(replica.texts[first + beam])
        if full:
            replica.texts[first + beam] = take_node(replica, last)
            requests[request]["held"] += 1
        elif replica.blocks[last]["holders"] > 1:
            before = int(replica.blocks[last]["previous"])
            replica.blocks[last]["holders"] -= 1
            if before != NONE:
                replica.blocks[before]["holders"] += 1
            replica.texts[first + beam] = take_node(replica, before)
            requests[request]["held"] += 1
            replica.state[0]["beam_copies"] += 1


def continued(settings: Record, request: int, token: int, beam: int, width: int) -> int:
    """The beam that `beam` of the next generation continues, when each has `token` tokens."""
    counter = token * width + beam
    seed = int(settings["seed"])
    if uniform(seed, BEAM_DROPPED, request, counter) < settings["beam_drop"]:
        return int(uniform(seed, BEAM_PARENT, request, counter) * width)
    return beam


def choose_beams(requests: Requests, replica: Replica, settings: Record, request: int, token: int) -> int:
    """The next generation takes over from that of `token` tokens, whose last blocks are its own; returns those dropped."""
    state = replica.state[0]
    width = int(requests[request]["width"])
    first = int(requests[request]["slot"]) * int(settings["table_width"])
    for beam in range(width):
        last = int(replica.texts[first + continued(settings, request, token, beam, width)])
        replica.texts[first + width + beam] = last
        replica.blocks[last]["holders"] += 1
    dropped = 0
    for beam in range(width):
        freed = let_node_go(replica, int(replica.texts[first + beam]))
        replica.texts[first + beam] = replica.texts[first + width + beam]
        requests[request]["held"] -= freed
        state["free"] += freed
        dropped += 1 if freed > 0 else 0
    state["beams_dropped"] += dropped
    return dropped


def advance_beams(requests: Requests, replica: Replica, settings: Record) -> None:
    """After a pass in which every decoding request took a token: book the blocks written, and let the beams compete.

    Not after the last token: all end then. What the next pass must copy is noted: a copy for each beam dropped, unless the
    last blocks are full.
    """
    state = replica.state[0]
    request = int(state["run_head"])
    while request != NONE:
        if requests[request]["state"] == DECODE and requests[request]["late"] < 0:
            rest = int(requests[request]["due"] - state["tick"])
            tokens = int(requests[request]["input"]) + int(requests[request]["output"]) - 1 - rest
            write_beams(requests, replica, settings, request, tokens - 1)
            state["copies"] -= requests[request]["copies"]
            requests[request]["copies"] = 0
            if rest > 0:
                token = int(requests[request]["output"]) - rest
                dropped = choose_beams(requests, replica, settings, request, token)
                if tokens % settings["block_size"] != 0:
                    requests[request]["copies"] = dropped
                    state["copies"] += dropped
        request = int(requests[request]["next"])
