"""Several models on one pool of GPUs: every row is a question of its own, and all of them share the stock and the budget.

`plan_fleet` answers each row on every kind of GPU that it may use and picks the cheapest combination that the stock
holds: exactly, by branch and bound, for the sizes that people plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from calc import format as fmt
from calc.errors import InputError, MissingSpec
from calc.result import Answer
from calc.scenario import Scenario

MOST_ROWS = 500
MOST_STEPS = 200_000
"""Branches looked at before the best combination so far is taken; about a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One deployment: a name, a region, its scenario, and the kinds of GPU that it may run on (none: every kind given)."""

    name: str
    scenario: Scenario
    region: str = ""
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """At most so many GPUs of a kind, in one region or (region "") over all of them."""

    gpu: str
    most: int
    region: str = ""

    def __post_init__(self) -> None:
        if self.most < 0:
            raise InputError("stock", self.most, "it must be a whole number from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What all rows share. No stock of a kind: as many as wanted."""

    stocks: tuple[Stock, ...] = ()
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A row and what it runs on; `answer` None: it does not run, for the reason in `why`."""

    row: FleetRow
    answer: Answer | None
    why: str = ""

    @property
    def gpus(self) -> int:
        return 0 if self.answer is None else self.answer.gpus

    @property
    def usd_per_hour(self) -> float | None:
        return None if self.answer is None else self.answer.cost.usd_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The combination. `short`: what the stock or the budget lacks for all rows, in words; `exact`: proven cheapest."""

    placed: tuple[Placed, ...]
    short: tuple[str, ...]
    exact: bool

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs in use by kind."""
        counts: dict[str, int] = {}
        for place in self.placed:
            if place.answer is not None:
                kind = place.answer.inputs.offer.accelerator.id
                counts[kind] = counts.get(kind, 0) + place.gpus
        return counts

    @property
    def usd_per_hour(self) -> float | None:
        """Of all rows that run; None where one of them has no price."""
        costs = [place.usd_per_hour for place in self.placed if place.answer is not None]
        return None if any(cost is None for cost in costs) else float(sum(c for c in costs if c is not None))

    @property
    def rate_per_s(self) -> float:
        """Requests per second at peak of all rows that run."""
        return sum(p.answer.fleet.rate_per_s for p in self.placed if p.answer is not None and p.answer.fleet)


def plan_fleet(
    rows: Sequence[FleetRow], ask: Callable[[FleetRow, str], Answer], kinds: Sequence[str], budget: Budget
) -> Fleet:
    """Place every row. `ask` answers a row on a kind of GPU; `kinds` are those of rows that name none.

    A row that works on no kind is left out and says why; when the stock or the budget does not hold all the others,
    `short` says what is missing at the least, and the rows that do not fit are left out, dearest first.
    """
    if not 1 <= len(rows) <= MOST_ROWS:
        raise InputError("rows", len(rows), f"a fleet has from 1 to {MOST_ROWS} rows")
    options = [_options(row, ask, row.gpus or tuple(kinds)) for row in rows]
    dead = {i: why for i, (found, why) in enumerate(options) if not found}
    alive = [i for i in range(len(rows)) if i not in dead]
    search = _Search(rows=rows, options=[found for found, _ in options], budget=budget)
    chosen = search.best(alive)
    short: tuple[str, ...] = ()
    while chosen is None and alive:
        short = short or search.shortages(alive)
        dropped = max(alive, key=lambda i: min(_price(a) for a in options[i][0]))
        dead[dropped] = "the stock or the budget does not hold it beside the others"
        alive.remove(dropped)
        chosen = search.best(alive)
    placed = tuple(
        Placed(row=row, answer=None, why=dead[i])
        if i in dead
        else Placed(row=row, answer=(chosen or {}).get(i))
        for i, row in enumerate(rows)
    )
    return Fleet(placed=placed, short=short, exact=search.exact)


def _options(
    row: FleetRow, ask: Callable[[FleetRow, str], Answer], kinds: tuple[str, ...]
) -> tuple[list[Answer], str]:
    """What works for a row, cheapest first; where nothing does, the reason of the nearest."""
    works, reasons = [], []
    for kind in kinds:
        try:
            found = ask(row, kind)
        except MissingSpec as error:
            reasons.append(str(error))
            continue
        if found.verdict.fits:
            works.append(found)
        else:
            reasons.append(f"{found.inputs.offer.accelerator.name}: {found.verdict.reason}")
    return sorted(works, key=_order), "; ".join(reasons)


def _price(answer: Answer) -> float:
    return inf if answer.cost.usd_per_hour is None else answer.cost.usd_per_hour


def _order(answer: Answer) -> tuple[float, int]:
    return _price(answer), answer.gpus


class _Search:
    """Branch and bound over one option per row; unpriced options cost nothing but come after every priced one."""

    def __init__(self, *, rows: Sequence[FleetRow], options: list[list[Answer]], budget: Budget) -> None:
        self.rows, self.options, self.budget = rows, options, budget
        self.exact = True

    def best(self, alive: list[int]) -> dict[int, Answer] | None:
        """The cheapest combination within stock and budget; None where there is none."""
        order = sorted(
            alive, key=lambda i: -min(a.gpus for a in self.options[i])
        )  # large rows first: they clash soonest
        floors = [min(_cost(a) for a in self.options[i]) for i in order]
        rest = [_total(floors[position:]) for position in range(len(order) + 1)]
        found: dict[int, Answer] | None = None
        lowest: tuple[int, float, int] = (len(self.rows) + 1, inf, 0)
        steps = 0
        stack: list[tuple[int, tuple[int, float, int], dict[int, int], dict[int, Answer]]] = [
            (0, (0, 0.0, 0), {}, {})
        ]
        while stack:
            position, cost, used, chosen = stack.pop()
            steps += 1
            if steps > MOST_STEPS:
                self.exact = False
                break
            if _total([cost, rest[position]]) >= lowest:
                continue
            if position == len(order):
                found, lowest = chosen, cost
                continue
            row = order[position]
            for option in reversed(self.options[row]):  # the cheapest is looked at first
                after = self._with(used, row, option)
                now = _total([cost, _cost(option)])
                if after is not None and self._affordable(now, rest[position + 1]):
                    stack.append((position + 1, now, after, {**chosen, row: option}))
        return found

    def _affordable(self, cost: tuple[int, float, int], rest: tuple[int, float, int]) -> bool:
        limit = self.budget.usd_per_hour
        return limit is None or cost[1] + rest[1] <= limit * (1 + 1e-12)

    def _with(self, used: Mapping[int, int], row: int, option: Answer) -> dict[int, int] | None:
        """GPUs taken from each stock after this option; None where one runs out."""
        after = dict(used)
        for number, stock in enumerate(self.budget.stocks):
            if not self._draws(stock, row, option):
                continue
            after[number] = after.get(number, 0) + option.gpus
            if after[number] > stock.most:
                return None
        return after

    def _draws(self, stock: Stock, row: int, option: Answer) -> bool:
        here = not stock.region or stock.region == self.rows[row].region
        return here and stock.gpu == option.inputs.offer.accelerator.id

    def shortages(self, alive: list[int]) -> tuple[str, ...]:
        """What every row's cheapest option asks for beyond stock and budget."""
        wanted = {i: self.options[i][0] for i in alive}
        words = []
        for stock in self.budget.stocks:
            asked = sum(a.gpus for i, a in wanted.items() if self._draws(stock, i, a))
            if asked > stock.most:
                where = f" in {stock.region}" if stock.region else ""
                words.append(
                    f"{fmt.plural(asked - stock.most, 'GPU')} of {stock.gpu}{where}: {asked} are asked for, {stock.most} "
                    "are there"
                )
        limit = self.budget.usd_per_hour
        total = sum(a.cost.usd_per_hour or 0.0 for a in wanted.values())
        if limit is not None and total > limit:
            words.append(f"{fmt.usd(total - limit)} an hour: the cheapest plans cost {fmt.usd(total)}")
        return tuple(words) or ("no combination of the options fits the stock and the budget together",)


def _cost(option: Answer) -> tuple[int, float, int]:
    """Ordered cost: first how many have no price, then USD per hour, then GPUs."""
    known = option.cost.usd_per_hour
    return (0, known, option.gpus) if known is not None else (1, 0.0, option.gpus)


def _total(costs: Sequence[tuple[int, float, int]]) -> tuple[int, float, int]:
    return sum(c[0] for c in costs), sum(c[1] for c in costs), sum(c[2] for c in costs)
