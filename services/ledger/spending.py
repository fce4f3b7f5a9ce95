"""The running month as gauges: what each tenant used of each model, by tier, and what that costs.

From the sums by hour, a day at a time: days that are over for long are read now and then alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from prometheus_client import Gauge

from services.database import Database
from services.ledger.idle import DAY_S
from services.ledger.months import Month
from services.ledger.reader import UsageReader
from services.ledger.usage import COSTS, UsageQuery

LOOK_EVERY_S = 300.0
_ALL_EVERY = 12
"""Looks until all days are read: for rows that came days late."""
_LATE_DAYS = 2
MOST_PLACES = 1000
"""Of one measure; the rest, those with the fewest tokens, are of the tenant `OTHERS`."""
OTHERS = "(others)"
_GROUPS = ("project_id", "model", "tier")

_TOKENS = Gauge(
    "inference_usage_month_tokens",
    "Tokens of prompts and answers since the running month of UTC began.",
    ["tenant", "model", "tier"],
)
_COST = Gauge(
    "inference_usage_month_cost",
    "What these cost, in the currency.",
    ["tenant", "model", "tier", "currency"],
)

Place = tuple[str, str, str, str]
"""Tenant, model, tier and currency."""
Sums = Mapping[Place, tuple[int, int]]
"""Tokens, and pico-units of the currency."""


class MonthWatch:
    """Of one database. `look` raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._reader = UsageReader(database)
        self._days: dict[int, Sums] = {}
        self._looks = 0

    async def look(self, now: float, currency: str) -> Sums:
        """Read what may have changed of the month, and show it. currency: of what has no price."""
        if self._looks % _ALL_EVERY == 0:
            self._days = {}
        start, today = int(Month.of(now).start.timestamp()), int(now) - int(now) % DAY_S
        kept = {day: sums for day, sums in self._days.items() if start <= day < today - _LATE_DAYS * DAY_S}
        for day in range(start, today + DAY_S, DAY_S):
            if day not in kept:
                kept[day] = await self._day(day, currency)
        self._days = kept
        self._looks += 1
        sums = shown(kept.values())
        # Nothing is measured between these.
        _TOKENS.clear()
        _COST.clear()
        for (*place, own), (tokens, pico) in sums.items():
            _TOKENS.labels(*place).inc(tokens)
            _COST.labels(*place, own).set(pico / 10**12)
        return sums

    async def _day(self, start: int, currency: str) -> Sums:
        query = UsageQuery(
            kind=COSTS,
            start=start,
            end=start + DAY_S,
            width_s=DAY_S,
            last=start + DAY_S,
            groups=_GROUPS,
            filters={},
        )
        return {
            (row["tenant"], row["model"], row["tier"], row["currency"]): (
                row["input_tokens"] + row["output_tokens"],
                int(row["cost_pico"]),
            )
            for row in await self._reader.sums(query, currency)
        }


def shown(days: Iterable[Sums]) -> Sums:
    """Their sum; of more than MOST_PLACES those with the most tokens, and the others of each model as one tenant's."""
    whole = defaultdict[Place, tuple[int, int]](lambda: (0, 0))
    for day in days:
        for place, sums in day.items():
            whole[place] = _added(whole[place], sums)
    by_tokens = sorted(whole, key=lambda place: (-whole[place][0], place))
    for place in by_tokens[MOST_PLACES:]:
        others = (OTHERS, *place[1:])
        whole[others] = _added(whole[others], whole.pop(place))
    return dict(whole)


def _added(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return first[0] + second[0], first[1] + second[1]
