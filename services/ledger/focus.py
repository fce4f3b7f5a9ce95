"""A bill as rows of FOCUS 1.2 (FinOps Open Cost and Usage Specification): one for each day and line.

1.2 is the newest version that a validator of the FinOps Foundation on PyPI has (focus-validator 2.2.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from services.ledger.bills import BY_TIME, GPU_KIND, IDLE_KIND, GpuDay, Line, UsedInDay, bill_of, csv_of
from services.ledger.months import Month
from services.ledger.prices import PriceVersion
from services.ledger.usage import amount_text

_MILLION = 1_000_000
_KINDS = {"input": "Input tokens", "cached_input": "Cached input tokens", "output": "Output tokens"}
_KINDS[IDLE_KIND] = "Seconds of idle GPUs"
_KINDS[GPU_KIND] = "Seconds of dedicated GPUs"
# The site's own price list has one price, currency and cost for each row, which FOCUS has several columns for.
_COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "PricingCurrencyEffectiveCost")
_PRICES = (
    "ContractedUnitPrice",
    "ListUnitPrice",
    "PricingCurrencyContractedUnitPrice",
    "PricingCurrencyListUnitPrice",
)
_CURRENCIES = ("BillingCurrency", "PricingCurrency")
_ISSUERS = ("BillingAccountId", "BillingAccountName", "InvoiceIssuerName", "ProviderName", "PublisherName")
_TENANTS = ("SubAccountId", "SubAccountName")


def rows_of(
    tenant: str,
    month: Month,
    used: Iterable[UsedInDay],
    versions: Mapping[str, PriceVersion],
    idle: Iterable[GpuDay] = (),
    *,
    currency: str,
    issuer: str,
) -> list[dict[str, Any]]:
    """Rows in the order of their days. Raises ServiceError where they do not come to what was recorded."""
    by_day: dict[datetime, list[UsedInDay]] = defaultdict(list)
    for usage in used:
        by_day[usage.day].append(usage)
    idle_by_day: dict[datetime, list[GpuDay]] = defaultdict(list)
    for part in idle:
        idle_by_day[part.day].append(part)
    return [
        _row(line, day, month, tenant, issuer)
        for day in sorted({*by_day, *idle_by_day})
        for line in bill_of(tenant, month, by_day[day], versions, idle_by_day[day], currency=currency, final=True).lines
    ]


def _row(line: Line, day: datetime, month: Month, tenant: str, issuer: str) -> dict[str, Any]:
    price = amount_text((line.unit_price or 0) * _MILLION)
    unit = "Seconds" if line.kind in BY_TIME else "Tokens"
    return {
        **dict.fromkeys(_COSTS, amount_text(line.cost_pico)),
        **dict.fromkeys(_PRICES, price),
        **dict.fromkeys(_CURRENCIES, line.currency),
        **dict.fromkeys(_ISSUERS, issuer),
        **dict.fromkeys(_TENANTS, tenant),
        "BillingPeriodStart": _moment(month.start),
        "BillingPeriodEnd": _moment((month + 1).start),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"{_KINDS[line.kind]} of {line.model or 'no model'}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _moment(day),
        "ChargePeriodEnd": _moment(day + timedelta(days=1)),
        # A number with a point is a decimal for every reader of the file.
        "ConsumedQuantity": f"{line.quantity}.0",
        "ConsumedUnit": unit,
        # The rules of the quantity read it.
        "CommitmentDiscountStatus": None,
        "InvoiceId": f"{tenant}-{month}",
        "PricingCategory": "Standard",
        "PricingQuantity": amount_text(line.quantity * _MILLION),
        "PricingUnit": f"{_MILLION} {unit}",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "LLM inference",
        "ServiceSubcategory": "Generative AI",
        "SkuId": line.model or "no model",
        "SkuMeter": _KINDS[line.kind],
        "SkuPriceDetails": None,
        # A price of idle GPUs has no version but itself.
        "SkuPriceId": "/".join((line.price_version or price, line.model, line.tier, line.kind)),
        "x_ApiKeyId": line.key,
        "x_PriceVersion": line.price_version,
        "x_Tier": line.tier,
    }


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """With every column, also for no rows."""
    return csv_of(COLUMNS, rows)


# A month of rows has few moments.
@lru_cache(maxsize=128)
def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_NO_LINE = Line(model="", tier="", key="", kind="input", quantity=0, unit_price=None, currency="", price_version="")
COLUMNS = tuple(sorted(_row(_NO_LINE, Month(24_000).start, Month(24_000), "", "")))
