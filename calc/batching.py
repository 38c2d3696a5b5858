"""Static batches and paged blocks as closed forms: what a fixed batch wastes, what a shared prompt saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calc.arrays import Numbers, not_negative, positive_finite
from calc.errors import InputError
from calc.paging import blocks_for


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """Slot-steps of a batch and how many of them made a token that somebody asked for."""

    slot_steps: int
    useful: int

    @property
    def share(self) -> float:
        return self.useful / self.slot_steps


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


def static_slot_use(outputs: Sequence[int]) -> SlotUse:
    """Slot use of a static batch: every slot is held until the longest output ends, n·max(outputs) slot-steps.

    Source: Yu et al. 2022 (Orca, OSDI'22), section 2. Ignores: padding of the prompts, the wait until a batch is full.
    """
    if not outputs:
        raise InputError("outputs", outputs, "name at least one output length")
    positive_finite(outputs=outputs)
    return SlotUse(slot_steps=len(outputs) * max(outputs), useful=sum(outputs))


def continuous_slot_use(outputs: Sequence[int], *, slots: int) -> SlotUse:
    """Slot use when a freed slot takes the next waiting request at once, in the order given.

    Source: iteration-level scheduling, Yu et al. 2022 (Orca, OSDI'22), section 3. Ignores: prefill, and memory.
    """
    if not outputs:
        raise InputError("outputs", outputs, "name at least one output length")
    positive_finite(outputs=outputs, slots=slots)
    ends = [0] * min(slots, len(outputs))
    for tokens in outputs:
        soonest = min(range(len(ends)), key=ends.__getitem__)
        ends[soonest] += tokens
    return SlotUse(slot_steps=len(ends) * max(ends), useful=sum(outputs))


def largest_paged_waste(*, block_size: int) -> int:
    """Most token slots that one paged sequence leaves empty, whatever its length: block_size - 1.

    Source: Kwon et al. 2023 (arXiv 2309.06180), section 4.3: only the last block is partly filled. Ignores: blocks
    kept ahead for speculation.
    """
    positive_finite(block_size=block_size)
    return block_size - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSharing:
    """Blocks of one prompt from which several samples are drawn, before and after each wrote its first token."""

    prompt_blocks: int
    last_block_tokens: int
    samples: int
    unshared_blocks: int
    blocks_after_first_write: int

    @property
    def shared_blocks(self) -> int:
        return self.prompt_blocks

    @property
    def reference_count(self) -> int:
        """References to each block of the prompt before anything is written."""
        return self.samples


def prompt_sharing(*, samples: int, prompt_tokens: int, block_size: int) -> PromptSharing:
    """Blocks when `samples` outputs share one prompt copy-on-write.

    A partly filled last block is copied by all but the last writer; after a full one every sample opens its own.

    Source: Kwon et al. 2023 (arXiv 2309.06180), section 4.4. Ignores: beam search, which shares more.
    """
    positive_finite(samples=samples, prompt_tokens=prompt_tokens, block_size=block_size)
    blocks = blocks_for(prompt_tokens, block_size)
    last = prompt_tokens - (blocks - 1) * block_size
    new_blocks = samples if last == block_size else samples - 1
    return PromptSharing(
        prompt_blocks=blocks,
        last_block_tokens=last,
        samples=samples,
        unshared_blocks=samples * blocks,
        blocks_after_first_write=blocks + new_blocks,
    )
