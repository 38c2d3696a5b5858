"""Paged KV: why blocks instead of reservations, played on the real allocator."""

from __future__ import annotations

from calc import format as fmt
from calc.engine import LLAMA_CPP_ENGINES
from calc.paging import blocks_for
from calc.paging_story import BLOCK_SIZE
from calc.result import Answer
from calc.textbook import sequences_paged, sequences_reserved
from pages._inputs import current_answer
from pages._levers import show_unheld
from pages._paging_parts import SAMPLES_ASKED, draw_pools
from pages._ui import (
    predict_first,
    show_ignored,
    show_maths,
    show_title,
)

RESERVED_DEFAULT = 4096


def main() -> None:
    """The scenario in one sentence, then a small pool to play with."""
    result = current_answer()
    values = _values(result)
    reserved, paged = (
        int(sequences_reserved(**_pick(values, "tokens", "reserved_tokens"))),
        int(sequences_paged(**_pick(values, "tokens", "sequence_tokens", "block_size"))),
    )
    show_title(
        f"Reserving {fmt.count(values['reserved_tokens'])} tokens fits {fmt.plural(reserved, 'request')}; paging fits {fmt.count(paged)}.",
        f"The scenario's cache of {fmt.count(values['tokens'])} tokens, requests that end with {fmt.count(values['sequence_tokens'])}."
        + _slots(result, paged),
    )
    show_unheld(result)
    _predict(round(result.inputs.scenario.input_tokens))
    draw_pools()
    show_maths(("sequences_reserved", "sequences_paged", "largest_paged_waste"), values, key="paged-maths")
    show_ignored(
        "What attention over scattered blocks costs in time.",
        "Engines that group layers by window (page Memory).",
    )


def _slots(result: Answer, paged: int) -> str:
    """What ends an engine's requests before the blocks do, in words; empty where blocks end them."""
    if result.ledger is None or result.sequences is None or result.sequences.fit >= paged:
        return ""
    slots = result.ledger.kv.most_requests is not None or result.ledger.engine in LLAMA_CPP_ENGINES
    return (
        f" This engine runs {fmt.count(result.sequences.fit)} of them: its slots end before." if slots else ""
    )


def _predict(prompt_tokens: int) -> None:
    blocks = blocks_for(prompt_tokens, BLOCK_SIZE)
    predict_first(
        key="paged",
        question=f"{SAMPLES_ASKED} samples of one prompt of {fmt.count(prompt_tokens)} tokens, in blocks of {BLOCK_SIZE}: how "
        "many blocks does sharing the prompt save, before anything is written?",
        unit="blocks",
        answer=(SAMPLES_ASKED - 1) * blocks,
        reading=fmt.plural((SAMPLES_ASKED - 1) * blocks, "block"),
        arithmetic=[
            (
                f"The prompt takes {fmt.count(prompt_tokens)} / {BLOCK_SIZE}, rounded up: {blocks} blocks, once instead of "
                f"{SAMPLES_ASKED} times."
            )
        ],
    )


def _values(result: Answer) -> dict[str, float]:
    scenario = result.inputs.scenario
    kept = scenario.input_tokens + scenario.output_tokens
    return {
        "tokens": float(max(0, result.memory.tokens)),
        "reserved_tokens": float(max(kept, scenario.max_model_len or RESERVED_DEFAULT)),
        "sequence_tokens": kept,
        "block_size": float(BLOCK_SIZE),
    }


def _pick(values: dict[str, float], *names: str) -> dict[str, float]:
    return {name: values[name] for name in names}


main()
