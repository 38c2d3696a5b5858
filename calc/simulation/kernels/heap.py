"""A binary heap of request numbers by a key of theirs, which knows where each of them stands.

Of equal keys the smaller number comes first. Who finishes in the same pass then gives blocks back in order of arrival, as
engines that walk their running list do, and the order of the free list (what is hit, what is overwritten) is theirs.
"""

from __future__ import annotations

from calc.simulation.kernels.layout import NONE, Array, inlined


@inlined
def first_of(key: Array, one: int, other: int) -> bool:
    """Whether `one` comes before `other`."""
    return bool(key[one] < key[other] or (key[one] == key[other] and one < other))


def heap_up(heap: Array, place: int, key: Array, position: Array) -> None:
    """Move the entry at `place` towards the root until its parent is not larger."""
    request = int(heap[place])
    while place > 0:
        parent = (place - 1) >> 1
        above = int(heap[parent])
        if first_of(key, above, request):
            break
        heap[place] = above
        position[above] = place
        place = parent
    heap[place] = request
    position[request] = place


def heap_down(heap: Array, size: int, place: int, key: Array, position: Array) -> None:
    """Move the entry at `place` away from the root until no child is smaller."""
    request = int(heap[place])
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and first_of(key, int(heap[child + 1]), int(heap[child])):
            child += 1
        below = int(heap[child])
        if first_of(key, request, below):
            break
        heap[place] = below
        position[below] = place
        place = child
    heap[place] = request
    position[request] = place


@inlined
def heap_push(heap: Array, size: int, request: int, key: Array, position: Array) -> None:
    """Add `request` to a heap of `size` entries."""
    heap[size] = request
    heap_up(heap, size, key, position)


def heap_remove(heap: Array, size: int, place: int, key: Array, position: Array) -> None:
    """Take the entry at `place` out of a heap of `size` entries."""
    position[heap[place]] = NONE
    last = size - 1
    if place != last:
        moved = int(heap[last])
        heap[place] = moved
        position[moved] = place
        heap_up(heap, place, key, position)
        heap_down(heap, last, int(position[moved]), key, position)
