"""The bill of a tenant for a month: what was used by model, tier, key and kind of token, times its price; and its part
of what stood idle of models' GPUs, where the site bills that.

Every line is a quantity times a unit price, exactly; only the total is rounded, once, half up, to the smallest unit of
its currency.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from services.failure import ServiceError
from services.ledger.currencies import rounded
from services.ledger.months import Month
from services.ledger.prices import KINDS, UNPRICED, PriceVersion, quantities
from services.ledger.usage import amount_text

_MICRO_IN_PICO = 10**6
IDLE_KIND, GPU_KIND = "idle", "gpu"
BY_TIME = (IDLE_KIND, GPU_KIND)
"""Kinds of lines that are of seconds."""
_FORMULAS = frozenset("=+-@\t\r")
_COLUMNS = ("model", "tier", "key", "kind", "quantity", "unit_price", "currency", "cost", "price_version")


@dataclass(frozen=True, kw_only=True)
class UsedInDay:
    """Sums of a tenant's rows of a day that are alike."""

    day: datetime
    key: str
    model: str
    tier: str
    price_version: str
    requests: int
    failed: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_pico: int


@dataclass(frozen=True, kw_only=True)
class GpuDay:
    """A tenant's part of a revision's GPUs that are billed for a day."""

    day: datetime
    revision: str
    carried: int
    """As BilledGpus has it; 0 where the whole day is billed."""
    seconds: int
    """Of all these GPUs."""
    price: int
    """Pico-units of the currency for each."""
    currency: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """Tokens of one kind, or seconds of GPUs, that had one price."""

    model: str
    """Of GPUs their revision."""
    tier: str
    key: str
    kind: str
    quantity: int
    unit_price: int | None
    """Micro-units of the currency per million tokens or seconds, with the tier's factor; None where the model had no
    price."""
    currency: str
    price_version: str

    @property
    def cost_pico(self) -> int:
        """Exact."""
        return self.quantity * (self.unit_price or 0)

    def shown(self) -> dict[str, Any]:
        """As a bill has it: amounts in the currency, prices per million tokens."""
        price = None if self.unit_price is None else amount_text(self.unit_price * _MICRO_IN_PICO)
        amounts = {"unit_price": price, "cost": amount_text(self.cost_pico)}
        return {name: amounts[name] if name in amounts else getattr(self, name) for name in _COLUMNS}


@dataclass(frozen=True, kw_only=True)
class Bill:
    """Of a month, which is over or not."""

    tenant: str
    month: Month
    currency: str
    """Of what has no price."""
    final: bool
    """Whether the month is over and its days of idle GPUs are closed. Rows of its end may still be on their way for a
    while."""
    requests: int
    failed: int
    lines: Sequence[Line]

    def totals(self) -> dict[str, int]:
        """The exact sum of the lines in pico-units, by currency."""
        sums: dict[str, int] = defaultdict(int, {} if self.lines else {self.currency: 0})
        for line in self.lines:
            sums[line.currency] += line.cost_pico
        return dict(sums)

    def as_json(self) -> dict[str, Any]:
        """The whole bill."""
        return {
            "tenant": self.tenant,
            "month": str(self.month),
            "start": self.month.start.isoformat(),
            "end": (self.month + 1).start.isoformat(),
            "final": self.final,
            "requests": self.requests,
            "failed_requests": self.failed,
            "lines": [line.shown() for line in self.lines],
            "totals": [
                {"currency": currency, "exact": amount_text(pico), "total": rounded(pico, currency)}
                for currency, pico in self.totals().items()
            ],
        }

    def as_csv(self) -> str:
        """A row for each line, and one for the total of each currency."""
        totals = [
            {"kind": "total", "currency": currency, "cost": rounded(pico, currency)}
            for currency, pico in self.totals().items()
        ]
        return csv_of(_COLUMNS, [*(line.shown() for line in self.lines), *totals])


def bill_of(
    tenant: str,
    month: Month,
    used: Iterable[UsedInDay],
    versions: Mapping[str, PriceVersion],
    idle: Iterable[GpuDay] = (),
    *,
    currency: str,
    final: bool,
) -> Bill:
    """Lines in the order of their columns, those of GPUs last. Raises ServiceError where those of tokens do not come to
    what the rows cost.

    versions: every version of the usage, by its digest; currency: of lines without a price.
    """
    used = list(used)
    amounts: dict[tuple[str, ...], int] = defaultdict(int)
    for day in used:
        for kind, quantity in quantities(day.input_tokens, day.cached_input_tokens, day.output_tokens).items():
            amounts[day.model, day.tier, day.key, kind, day.price_version] += quantity
    lines = [
        _line(tenant, place, quantity, versions, currency)
        for place, quantity in sorted(amounts.items(), key=lambda item: _order(item[0]))
        if quantity
    ]
    costs, sums = sum(day.cost_pico for day in used), sum(line.cost_pico for line in lines)
    if costs != sums:
        raise does_not_add_up(tenant, month, costs, sums)
    lines += _gpu_lines(idle)
    requests, failed = sum(day.requests for day in used), sum(day.failed for day in used)
    return Bill(
        tenant=tenant, month=month, currency=currency, final=final, requests=requests, failed=failed, lines=lines
    )


def does_not_add_up(tenant: str, month: Month, costs: int, sums: int) -> ServiceError:
    """The answer in the place of a bill that is not what the rows cost."""
    return ServiceError(
        500,
        "does_not_add_up",
        f"the bill of {tenant} for {month} comes to {amount_text(sums)}, and its rows cost {amount_text(costs)}",
        fix="compare usage_by_hour and price_versions with a backup: something else than the ledger has changed them",
    )


def csv_of(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as RFC 4180 has them. No cell is a formula: a model's name is a text that a client has sent."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        cells = map(row.get, columns)
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell[:1] in _FORMULAS else cell for cell in cells])
    return text.getvalue()


def _line(
    tenant: str, place: tuple[str, ...], quantity: int, versions: Mapping[str, PriceVersion], currency: str
) -> Line:
    model, tier, key, kind, name = place
    version = None if name == UNPRICED else versions[name]
    return Line(
        model=model,
        tier=tier,
        key=key,
        kind=kind,
        quantity=quantity,
        unit_price=version.unit_price(tenant, model, tier, kind) if version else None,
        currency=version.currency if version else currency,
        price_version=name,
    )


def _gpu_lines(days: Iterable[GpuDay]) -> list[Line]:
    seconds: dict[tuple[str, str, int, str], int] = defaultdict(int)
    for day in days:
        kind = IDLE_KIND if day.carried else GPU_KIND
        seconds[kind, day.revision, day.price, day.currency] += day.seconds
    return [
        Line(
            model=revision,
            tier="",
            key="",
            kind=kind,
            quantity=quantity,
            unit_price=price,
            currency=currency,
            price_version="",
        )
        for (kind, revision, price, currency), quantity in sorted(seconds.items())
    ]


def _order(place: tuple[str, ...]) -> tuple[object, ...]:
    model, tier, key, kind, version = place
    return (model, tier, key, KINDS.index(kind), version)
