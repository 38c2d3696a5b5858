"""Text that comes back after a while: what of it a cache still holds, and the way back from memory behind the card.

A prompt's share of repeated text is a hit only while it is still there. A cache that drops what was used least recently
keeps a text for its characteristic time; host memory or an SSD behind the card prolongs that, for the price of a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calc.accelerator import Accelerator
from calc.errors import InputError
from calc.layout import Layout
from calc.memory.kv import kv_copies, sequence_bytes
from calc.model import ModelSpec
from calc.queueing.closed_forms import md1_mean_wait_s
from calc.scenario import Behind, Scenario
from calc.step.rates import bus_bytes_per_s
from calc.units import GB, GIB

Array = NDArray[np.float64]

ROOM_BYTES_PER_GPU: Final = {Behind.HOST: 128.0 * GIB, Behind.SSD: 3840.0 * GB}
"""Room for text behind each GPU: half of a DGX H100's 2 TB of memory, and one of its eight 3.84 TB drives (its user guide)."""
COPY_SHARE: Final = 0.85
"""Share of the bus that copies of whole blocks reach (assumed): vLLM moves blocks of 0.5 to 2 MB since 0.12, and pinned
copies of that size come to 50 to 57 of the 63 GB/s of a PCIe 5.0 slot."""
SSD_BYTES_PER_S: Final = 6.8 * GB
"""Sequential reads of one data-centre NVMe drive on PCIe 4.0 x4 (Samsung PM9A3 data sheet)."""
BUSIEST_BUS: Final = 0.95
"""Beyond this share of its time a bus takes no more: what it cannot bring is computed again."""
NEWTON_STEPS: Final = 20
"""Enough for the last digit: over rates, rooms, lengths and times that span decades the share stands to 1e-11 after 12."""
ROUNDS: Final = 12
"""Of bringing hits and speed together, each of which takes half of the difference."""
SMALLEST: Final = 1e-9
"""In place of a zero that would divide: far below any rate, share of time or number of tokens that matters."""


def surviving_share(
    *,
    room_tokens: Any,
    requests_per_s: Any,
    reuse_after_s: float,
    shared_tokens: float,
    own_tokens: float,
) -> Array:
    """Chance that a text is still in a cache of `room_tokens` when it is asked for again; least recently used goes first.

    Texts of `shared_tokens` come back after exponential times of mean `reuse_after_s`; every request also leaves
    `own_tokens` behind that nobody asks for again. A text stays for the characteristic time T that fills the room,

        room = rate (reuse shared (1 - exp(-T/reuse)) + own T),

    and survives with chance 1 - exp(-T/reuse). Arrays broadcast.
    Source: Che, Tung and Wang 2002, "Hierarchical Web Caching Systems" (the approximation for least recently used).
    Ignores: that blocks of one text can be dropped one by one, and texts that are asked for more often than others.
    """
    own = max(own_tokens, SMALLEST)
    filled = np.maximum(np.asarray(requests_per_s, dtype=float) * reuse_after_s, SMALLEST)
    room = np.maximum(np.asarray(room_tokens, dtype=float), 0.0) / filled
    times = room / (shared_tokens + own)  # below the root of a concave function: Newton's steps rise to it
    for _ in range(NEWTON_STEPS):
        kept = np.exp(-np.minimum(times, 700.0))
        rise = (room - shared_tokens * (1.0 - kept) - own * times) / (shared_tokens * kept + own)
        times = np.maximum(times + rise, 0.0)
    return np.asarray(-np.expm1(-np.minimum(times, 700.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Shares of all prompt tokens that need no computing: on the card, and brought up from behind it in `load_s` seconds."""

    card: Array
    behind: Array
    load_s: Array

    @property
    def share(self) -> Array:
        return self.card + self.behind

    @classmethod
    def all_of(cls, share: float) -> Held:
        """Everything that repeats is on the card."""
        return cls(card=np.asarray(share), behind=np.zeros(1), load_s=np.zeros(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """What repeats in the prompts of one replica, and where it may wait.

    `share` of every prompt repeats earlier text, `after_s` later in the mean (None: it is always on the card).
    `behind_tokens`: room behind the card, of the whole replica; `token_s`: seconds that one token takes up to the ranks that
    need it; `ranks`: how many caches the replica has, each filled over a bus of its own. `compute_s`: seconds of computing
    that text again, which is done where a copy would take longer.
    """

    share: float
    after_s: float | None
    prompt_tokens: float
    output_tokens: float
    behind_tokens: float = 0.0
    token_s: float = 0.0
    ranks: int = 1
    compute_s: float = 0.0

    @property
    def copy_s(self) -> float:
        """Seconds that the text of one prompt takes up on a bus that is free."""
        return self.share * self.prompt_tokens * self.token_s

    def held(self, *, room_tokens: Array, requests_per_s: Array) -> Held:
        """What is there when text comes back, with `room_tokens` on the card beside what runs.

        Engines write everything through to the memory behind (vLLM's offloading connector, SGLang's write_through), so that
        it holds the card's text too.
        """
        if self.after_s is None or self.share <= 0:
            return Held.all_of(self.share)
        after_s, shared = self.after_s, self.share * self.prompt_tokens

        def survives(room: Any) -> Array:
            return surviving_share(
                room_tokens=room,
                requests_per_s=requests_per_s,
                reuse_after_s=after_s,
                shared_tokens=shared,
                own_tokens=self.prompt_tokens - shared + self.output_tokens,
            )

        card = survives(room_tokens)
        behind = np.zeros_like(card)
        load_s = np.zeros_like(card)
        if self.behind_tokens > 0 and self.copy_s < self.compute_s:
            behind = np.maximum(survives(self.behind_tokens) - card, 0.0)
            busy = requests_per_s / self.ranks * behind * self.copy_s
            behind = behind * np.minimum(1.0, BUSIEST_BUS / np.maximum(busy, SMALLEST))
            wait_s = md1_mean_wait_s(utilisation=np.minimum(busy, BUSIEST_BUS), service_s=self.copy_s)
            load_s = behind * (self.copy_s + np.asarray(wait_s))
        return Held(card=card * self.share, behind=behind * self.share, load_s=load_s)

    def settled(self, room_tokens: Array, rate_of: Callable[[Held], Array]) -> Held:
        """The shares at which hits and speed agree: `rate_of` gives the requests per second that a replica finishes with them.

        More hits make it faster, and a faster one forgets sooner; half of each correction is taken, so that it settles.
        """
        found = Held.all_of(self.share)
        if self.after_s is None or self.share <= 0:
            return found
        for _ in range(ROUNDS):
            other = self.held(room_tokens=room_tokens, requests_per_s=rate_of(found))
            found = Held(
                card=(found.card + other.card) / 2.0,
                behind=(found.behind + other.behind) / 2.0,
                load_s=(found.load_s + other.load_s) / 2.0,
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """Memory behind one cache of a replica: bytes that a token takes there, its room, and bytes/s of the way up."""

    bytes_per_token: float
    room_bytes: float
    bytes_per_s: float

    @property
    def tokens(self) -> float:
        return self.room_bytes / self.bytes_per_token

    @property
    def token_s(self) -> float:
        return self.bytes_per_token / self.bytes_per_s


def way_back(
    spec: ModelSpec,
    accelerator: Accelerator,
    layout: Layout,
    behind: Behind,
    *,
    kv_dtype: str,
    tokens: int,
    room_bytes_per_gpu: float,
) -> WayBack | None:
    """The memory behind one attention rank of a layout; None where there is none. Every GPU has its own bus or drive.

    Where GPUs hold copies of the same cache, each of them brings its own up. Ignores: NVLink between Grace and its GPUs,
    which is faster than the slot, and that two GPUs may share a slot's lanes. Raises `InputError` for host memory behind a
    device that has no memory but the host's.
    """
    if behind is Behind.NONE:
        return None
    shared = accelerator.unified_shares is not None or accelerator.memory_type.startswith("LPDDR")
    if behind is Behind.HOST and shared:
        raise InputError(
            "kv_offload",
            str(behind),
            f"{accelerator.name} has no memory but the host's",
            next_step="Choose ssd, or none.",
        )
    copies = kv_copies(spec, layout.attention_tp)
    gpus = layout.attention_tp * layout.pp
    rate = COPY_SHARE * bus_bytes_per_s(accelerator) if behind is Behind.HOST else SSD_BYTES_PER_S
    return WayBack(
        bytes_per_token=copies * sequence_bytes(spec, tokens, kv_dtype) / tokens,
        room_bytes=gpus * room_bytes_per_gpu,
        bytes_per_s=gpus * rate,
    )


def room_behind(scenario: Scenario) -> float:
    """Bytes for text behind each GPU: as given, else a usual server's; 0 where nothing is behind."""
    behind = Behind(scenario.kv_offload)
    if behind is Behind.NONE:
        return 0.0
    return ROOM_BYTES_PER_GPU[behind] if scenario.kv_offload_bytes is None else scenario.kv_offload_bytes


def reuse_of(scenario: Scenario, layout: Layout, behind: WayBack | None, *, compute_s: float) -> Reuse:
    """What repeats in a scenario's prompts, with the memory behind each rank of a replica."""
    ranks = layout.attention_ranks
    return Reuse(
        share=scenario.workload.prefix_share,
        after_s=scenario.reuse_after_s,
        prompt_tokens=scenario.input_tokens,
        output_tokens=scenario.output_tokens,
        behind_tokens=0.0 if behind is None else behind.tokens * ranks,
        token_s=0.0 if behind is None else behind.token_s,
        ranks=ranks,
        compute_s=compute_s,
    )
