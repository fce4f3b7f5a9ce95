"""A bill as rows of FOCUS 1.2 (FinOps Open Cost and Usage Specification): one for each day and line.

1.2 is the newest version that a validator of the FinOps Foundation on PyPI has (focus-validator 2.2.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from services.ledger.bills import UsedInDay, bill_of, csv_of
from services.ledger.months import Month
from services.ledger.prices import PriceVersion
from services.ledger.usage import amount_text

_MILLION = 1_000_000
_KINDS = {"input": "Input tokens", "cached_input": "Cached input tokens", "output": "Output tokens"}
COLUMNS = (
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceId",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "x_ApiKeyId",
    "x_PriceVersion",
    "x_Tier",
)


def rows_of(
    tenant: str,
    month: Month,
    used: Iterable[UsedInDay],
    versions: Mapping[str, PriceVersion],
    *,
    currency: str,
    issuer: str,
) -> list[dict[str, Any]]:
    """Rows in the order of their days. Raises ServiceError where they do not come to what was recorded."""
    by_day: dict[datetime, list[UsedInDay]] = defaultdict(list)
    for usage in used:
        by_day[usage.day].append(usage)
    rows = []
    for day in sorted(by_day):
        bill = bill_of(tenant, month, by_day[day], versions, currency=currency, final=True)
        for line in bill.lines:
            cost, price = amount_text(line.cost_pico), amount_text((line.unit_price or 0) * _MILLION)
            rows.append(
                {
                    **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), cost),
                    **dict.fromkeys(("ContractedUnitPrice", "ListUnitPrice"), price),
                    **dict.fromkeys(
                        ("BillingAccountId", "BillingAccountName", "InvoiceIssuerName", "ProviderName"), issuer
                    ),
                    "PublisherName": issuer,
                    "BillingCurrency": line.currency,
                    "BillingPeriodStart": _moment(month.start),
                    "BillingPeriodEnd": _moment((month + 1).start),
                    "ChargeCategory": "Usage",
                    "ChargeClass": None,
                    "ChargeDescription": f"{_KINDS[line.kind]} of {line.model or 'no model'}",
                    "ChargeFrequency": "Usage-Based",
                    "ChargePeriodStart": _moment(day),
                    "ChargePeriodEnd": _moment(day + timedelta(days=1)),
                    "ConsumedQuantity": str(line.quantity),
                    "ConsumedUnit": "Tokens",
                    "InvoiceId": None,
                    "PricingCategory": "Standard",
                    "PricingQuantity": amount_text(line.quantity * _MILLION),
                    "PricingUnit": f"{_MILLION} Tokens",
                    "ServiceCategory": "AI and Machine Learning",
                    "ServiceName": "LLM inference",
                    "ServiceSubcategory": "Generative AI",
                    "SkuId": line.model or "no model",
                    "SkuMeter": _KINDS[line.kind],
                    "SkuPriceDetails": None,
                    "SkuPriceId": "/".join((line.price_version, line.model, line.tier, line.kind)),
                    "SubAccountId": tenant,
                    "SubAccountName": tenant,
                    "x_ApiKeyId": line.key,
                    "x_PriceVersion": line.price_version,
                    "x_Tier": line.tier,
                }
            )
    return rows


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """With every column, also for no rows."""
    return csv_of(COLUMNS, rows)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
