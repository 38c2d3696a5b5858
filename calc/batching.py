"""Slots and blocks as closed forms: what a fixed batch wastes, what a paged sequence leaves empty at most."""

from __future__ import annotations

from calc.arrays import Numbers, not_negative, positive_finite


def static_slot_share(*, useful_tokens: Numbers, slots: Numbers, longest_tokens: Numbers) -> Numbers:
    """The share of a static batch's slot-steps that make a wanted token: useful / (slots · longest).

    Source: Yu et al. 2022 (Orca, OSDI'22), section 2. Ignores: padding of the prompts, the wait until a batch is full.
    """
    positive_finite(useful_tokens=useful_tokens, slots=slots, longest_tokens=longest_tokens)
    return useful_tokens / (slots * longest_tokens)


def slot_use(*, useful_slot_steps: Numbers, slots: Numbers, passes: Numbers) -> Numbers:
    """The share of any scheduler's slot-steps that did useful work: useful / (slots · passes).

    Source: Yu et al. 2022 (Orca, OSDI'22), section 2. Ignores: how long each pass takes.
    """
    not_negative(useful_slot_steps=useful_slot_steps)
    positive_finite(slots=slots, passes=passes)
    return useful_slot_steps / (slots * passes)


def largest_paged_waste(*, block_size: int) -> int:
    """Most token slots that one paged sequence leaves empty, whatever its length: block_size - 1.

    Source: Kwon et al. 2023 (arXiv 2309.06180), section 4.3: only the last block is partly filled. Ignores: blocks
    kept ahead for speculation.
    """
    positive_finite(block_size=block_size)
    return block_size - 1
