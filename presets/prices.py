"""What an accelerator costs by the hour: a dated snapshot of public prices, by cloud and kind, under the user's own.

Prices move by tens of percent within weeks, so each one carries its date and its age is always to be shown. On-demand
list prices, spot prices and what hosts of a marketplace ask are three different things and are never mixed: `price_of`
looks at on-demand list prices unless asked for another kind. An accelerator without a price has none; it is shown,
and never ranked by cost.
"""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from calc.errors import InputError
from calc.typed_fields import check_value, is_number
from presets import accelerators

SNAPSHOT_FILE = Path(__file__).parent / "price_snapshot.toml"

# After so many days a price is called old: in the snapshot's own year the same offer moved by 15% within two weeks.
OLD_AFTER_DAYS = 60

# Bounds of a believable price, USD per accelerator and hour.
LOWEST_USD = 0.001
HIGHEST_USD = 1000.0


class PriceKind(StrEnum):
    """What kind of offer a price is."""

    ON_DEMAND = "on demand"
    SPOT = "spot"
    MARKETPLACE = "marketplace"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """One offer: USD per hour of an instance with `gpus_per_instance` devices, as `source_url` showed it on `date`.

    `date` is None for the user's own price. `doubtful` says why a price is shown but never chosen by itself.
    """

    gpu_id: str
    cloud: str
    kind: PriceKind
    usd_per_hour: float
    gpus_per_instance: int = 1
    instance: str = ""
    date: dt.date | None = None
    source_url: str = ""
    note: str = ""
    doubtful: str = ""

    def __post_init__(self) -> None:
        per_instance = self.gpus_per_instance
        check_value("gpus_per_instance", per_instance, "int")
        if per_instance < 1:
            raise InputError("gpus_per_instance", per_instance, "it must be a positive whole number")
        if (
            not is_number(self.usd_per_hour)
            or not LOWEST_USD <= self.usd_per_hour / per_instance <= HIGHEST_USD
        ):
            raise InputError(
                "usd_per_hour",
                self.usd_per_hour,
                f"per GPU it must be from {LOWEST_USD:g} to {HIGHEST_USD:g} USD per hour",
            )

    @property
    def usd_per_gpu_hour(self) -> float:
        return self.usd_per_hour / self.gpus_per_instance

    def age_days(self, today: dt.date) -> int | None:
        """Days since the price was read; None for the user's own price."""
        return None if self.date is None else (today - self.date).days

    def words(self, today: dt.date) -> str:
        """Where the price is from, for small print: "crusoe, on demand, 2026-09-20 (70 days old: check it)"."""
        age = self.age_days(today)
        if self.date is None or age is None:
            return "your own price"
        old = ": check it" if age > OLD_AFTER_DAYS else ""
        return f"{self.cloud}, {self.kind}, {self.date.isoformat()} ({age} days old{old})"


@cache
def snapshot() -> tuple[Price, ...]:
    """Every price of the bundled snapshot, in file order."""
    return read_snapshot(SNAPSHOT_FILE.read_text(encoding="utf-8"))


def read_snapshot(text: str) -> tuple[Price, ...]:
    """The prices in a snapshot file's text.

    Raises `InputError` naming the reading and the entry ("reading 3, price 2") for a malformed one.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError("price snapshot", str(error), "it must be TOML") from error
    prices: list[Price] = []
    for number, reading in enumerate(content.get("reading", ()), start=1):
        for position, entry in enumerate(reading.get("prices", ()), start=1):
            prices.append(_price(reading, entry, f"reading {number}, price {position}"))
    return tuple(prices)


_ENTRY_FIELDS = {"gpu", "cloud", "instance", "gpus", "usd_per_hour", "kind", "note", "doubtful"}


def _price(reading: Mapping[str, Any], entry: Mapping[str, Any], where: str) -> Price:
    unknown = sorted(set(entry) - _ENTRY_FIELDS)
    if unknown:
        raise InputError(where, unknown[0], f"the fields of a price are {', '.join(sorted(_ENTRY_FIELDS))}")
    date = reading.get("date")
    if not isinstance(date, dt.date) or isinstance(date, dt.datetime):
        raise InputError(where, date, "its reading needs a date")
    for name in ("gpu", "cloud", "usd_per_hour"):
        if name not in entry:
            raise InputError(where, None, f"it needs {name}")
    if entry["gpu"] not in accelerators.all_ids():
        raise InputError(where, entry["gpu"], "it must be an id of the catalogue")
    if entry.get("kind", PriceKind.ON_DEMAND) not in set(PriceKind) - {PriceKind.OWN}:
        raise InputError(where, entry["kind"], "the kind is on demand, spot or marketplace")
    try:
        return Price(
            gpu_id=entry["gpu"],
            cloud=entry["cloud"],
            kind=PriceKind(entry.get("kind", PriceKind.ON_DEMAND)),
            usd_per_hour=entry["usd_per_hour"],
            gpus_per_instance=entry.get("gpus", 1),
            instance=entry.get("instance", ""),
            date=date,
            source_url=reading.get("source", ""),
            note=entry.get("note", ""),
            doubtful=entry.get("doubtful", ""),
        )
    except InputError as error:
        raise InputError(f"{where}, {error.field}", error.got, error.allowed) from error


def prices_of(
    gpu_id: str, *, kind: PriceKind | None = PriceKind.ON_DEMAND, cloud: str | None = None
) -> tuple[Price, ...]:
    """All prices of one accelerator, cheapest per GPU first; `kind=None` gives every kind."""
    part_id = accelerators.load(gpu_id).id
    found = [
        price
        for price in snapshot()
        if price.gpu_id == part_id
        and kind in (None, price.kind)
        and (cloud is None or price.cloud.casefold() == cloud.casefold())
    ]
    return tuple(sorted(found, key=lambda price: price.usd_per_gpu_hour))


def current(prices: Iterable[Price]) -> tuple[Price, ...]:
    """The prices of each cloud's newest reading, by accelerator and kind: an older reading of the same cloud is history."""
    prices = tuple(prices)
    newest: dict[tuple[str, str, PriceKind], dt.date] = {}
    for price in prices:
        key = (price.gpu_id, price.cloud, price.kind)
        if price.date is not None:
            newest[key] = max(price.date, newest.get(key, price.date))
    return tuple(p for p in prices if p.date == newest.get((p.gpu_id, p.cloud, p.kind)))


def price_of(
    gpu_id: str,
    *,
    cloud: str | None = None,
    kind: PriceKind = PriceKind.ON_DEMAND,
    own_usd_per_gpu_hour: float | None = None,
) -> Price | None:
    """The price to plan with: the user's own; else the cheapest current one of that kind (and cloud); else None.

    Doubtful prices are never chosen. A MIG slice and a typed accelerator have only the user's own price.
    """
    if own_usd_per_gpu_hour is not None:
        return Price(gpu_id=gpu_id, cloud="own", kind=PriceKind.OWN, usd_per_hour=float(own_usd_per_gpu_hour))
    if ":" in gpu_id:
        return None
    found = [price for price in current(prices_of(gpu_id, kind=kind, cloud=cloud)) if not price.doubtful]
    return found[0] if found else None


def spread_of(gpu_id: str, *, kind: PriceKind = PriceKind.ON_DEMAND) -> tuple[float, float] | None:
    """The cheapest and the dearest current price per GPU hour of that kind; None where there is none."""
    found = [p.usd_per_gpu_hour for p in current(prices_of(gpu_id, kind=kind)) if not p.doubtful]
    return (min(found), max(found)) if found else None
