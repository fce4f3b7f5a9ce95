"""A month of a tenant: sums by day, model and key out of the ledger's buckets, and their picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from services.ledger.months import Month
from services.portal.failure import refused

_SHOWN_MONTHS = 13


@dataclass
class Sums:
    """Of requests that have something in common."""

    name: str
    requests: int = 0
    input: int = 0
    cached_input: int = 0
    output: int = 0
    cost: Decimal = Decimal(0)

    @property
    def tokens(self) -> int:
        return self.input + self.output


@dataclass
class MonthOfUse:
    """All of one tenant and month. Costs are there where they were asked for."""

    month: str
    total: Sums = field(default_factory=lambda: Sums("total"))
    days: list[Sums] = field(default_factory=list)
    models: list[Sums] = field(default_factory=list)
    keys: list[Sums] = field(default_factory=list)
    currency: str = ""
    """Of the costs."""
    others: dict[str, Decimal] = field(default_factory=dict)
    """What was priced in other currencies, before the site took this one."""


def month_of(text: str, now: Month) -> Month:
    """The month that is asked for, or `now`. Raises PortalError."""
    if not text:
        return now
    if (month := Month.named(text)) is None:
        raise refused("A month is written as YYYY-MM.", "Choose one from the list.")
    return month


def last_months(now: Month) -> list[str]:
    """The newest first."""
    return [str(now + -back) for back in range(_SHOWN_MONTHS)]


def summed(
    month: Month,
    used: Iterable[dict[str, Any]],
    costs: Iterable[dict[str, Any]],
    key_of: Callable[[str], str],
) -> MonthOfUse:
    """The sums. key_of: how a key is called in the table."""
    length = ((month + 1).start - month.start).days
    days = {day: Sums(f"{month}-{day:02}") for day in range(1, length + 1)}
    models: dict[str, Sums] = {}
    keys: dict[str, Sums] = {}
    whole = MonthOfUse(str(month))
    results = [*_results([*used, *costs])]
    priced = [(start, result["amount"]) for start, result in results if result.get("amount")]
    # Of the last day's: budgets are in it, too.
    whole.currency = str(max(priced, key=lambda dated: dated[0])[1]["currency"]).upper() if priced else ""
    for start, result in results:
        model, key = str(result.get("model") or "unknown"), key_of(str(result.get("api_key_id") or "unknown"))
        day = days[datetime.fromtimestamp(start, UTC).day]
        for sums in (whole.total, day, models.setdefault(model, Sums(model)), keys.setdefault(key, Sums(key))):
            sums.requests += int(result.get("num_model_requests") or 0)
            sums.input += int(result.get("input_tokens") or 0)
            sums.cached_input += int(result.get("input_cached_tokens") or 0)
            sums.output += int(result.get("output_tokens") or 0)
            if (amount := result.get("amount")) and str(amount["currency"]).upper() == whole.currency:
                sums.cost += Decimal(str(amount.get("exact", amount["value"])))
    for _, amount in priced:
        if (currency := str(amount["currency"]).upper()) != whole.currency:
            cost = Decimal(str(amount.get("exact", amount["value"])))
            whole.others[currency] = whole.others.get(currency, Decimal(0)) + cost
    whole.days = list(days.values())
    whole.models, whole.keys = (sorted(some.values(), key=lambda sums: -sums.tokens) for some in (models, keys))
    return whole


def remainders(use: MonthOfUse, budgets: Mapping[str, float], *, is_admin: bool) -> dict[str, tuple[Decimal, Decimal]]:
    """What is left of each budget of the running month, and the budget. Money is for admins, as costs are."""
    used = {"tokens_per_month": Decimal(use.total.tokens)} | ({"spend_per_month": use.total.cost} if is_admin else {})
    most = {name: Decimal(str(budget)) for name, budget in budgets.items()}
    return {name: (max(Decimal(0), most[name] - used[name]), most[name]) for name in used if name in most}


def _results(buckets: Iterable[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    for bucket in buckets:
        for result in bucket.get("results", ()):
            yield bucket["start_time"], result


@dataclass(frozen=True)
class Bar:
    """A day of the plot, in units of its view box; the output lies on the input."""

    day: Sums
    x: float
    input_y: float
    input_height: float
    output_y: float
    output_height: float
    cost_y: float
    cost_height: float


PLOT_WIDTH, PLOT_HEIGHT = 620, 160
BAR_WIDTH = 14


def bars(use: MonthOfUse) -> list[Bar]:
    """One for each day."""
    highest = max((day.tokens for day in use.days), default=0) or 1
    dearest = max((day.cost for day in use.days), default=Decimal(0)) or Decimal(1)
    step = PLOT_WIDTH / len(use.days)

    def bar(place: int, day: Sums) -> Bar:
        below, above = (round(PLOT_HEIGHT * tokens / highest, 1) for tokens in (day.input, day.output))
        x = round(place * step + (step - BAR_WIDTH) / 2, 1)
        cost = round(float(PLOT_HEIGHT * day.cost / dearest), 1)
        tops = [round(PLOT_HEIGHT - height, 1) for height in (below, below + above, cost)]
        return Bar(day, x, tops[0], below, tops[1], above, tops[2], cost)

    return [bar(place, day) for place, day in enumerate(use.days)]
