"""By how much a tenant can exceed its budget of money: the ledger counts a request some seconds after it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.specs.limits import SPEND
from components.specs.usage import MILLION, UsageSpec
from floor.counts import counted
from stacks.plan.limits import UnderWay, largest_request, under_way
from stacks.plan.models import ModelPlan
from stacks.site.model import SiteConfig

LAG_S = 10.0
"""From a request's end until each gatekeeper has heard of it: its row needs some 5 s, and gatekeepers ask every 5 s."""
_MINUTE_S = 60
# Lines that people read; the rest is a number.
_MOST_LINES = 5


@dataclass(frozen=True, kw_only=True)
class Overspending:
    """What a tenant may use beyond its budget, in the currency of the site's prices."""

    budget: float
    currency: str
    most: float
    """Requests under way and those that begin within LAG_S, each the largest."""
    usual: float
    """The same if each is as a mean one of the declared load."""
    under_way: int
    """Requests at once; answers that engines take, where the tenant has no bound of its own."""
    requests_per_s: float
    """That begin: those of the declared load, or as many as its limit of requests allows."""
    price: float
    """The highest of a million tokens of its models, with the factor of its tier."""


@dataclass(frozen=True, kw_only=True)
class _Used:
    """A revision that may answer a tenant."""

    held: UnderWay
    largest: int
    """Tokens of a request."""
    requests_per_s: float
    price: float


def overspendings(site: SiteConfig, models: Mapping[str, ModelPlan]) -> dict[str, Overspending]:
    """By tenant, of those with a budget of money."""
    return {
        tenant: _of(budgets[SPEND], site.usage.currency, site.bounds.get(tenant, {}), _used(site, models, tenant))
        for tenant, budgets in site.budgets.items()
        if SPEND in budgets
    }


def highest_price(usage: UsageSpec, model: str, tier: str) -> float:
    """Of a million tokens of a prompt or an answer, of all versions of the prices."""
    return max(
        (
            max(prices.input, prices.output) * version.tiers.get(tier, 1.0)
            for version in usage.prices
            if (prices := version.models.get(model))
        ),
        default=0.0,
    )


def _used(site: SiteConfig, models: Mapping[str, ModelPlan], tenant: str) -> list[_Used]:
    """With the rates of the declared load, lowered to the tenant's limit of requests."""
    spec, bounds = site.tenants[tenant], site.bounds.get(tenant, {})
    served = [revision for model in spec.models for revision in models[model].serving(tenant)]
    rates = [revision.proof.order.load.requests_per_s if revision.proof.order.load else 0.0 for revision in served]
    limit = site.limits.get(tenant, {}).get("requests_per_minute")
    share = min(1.0, limit / _MINUTE_S / sum(rates)) if limit and sum(rates) else 1.0
    used = []
    for revision, rate in zip(served, rates, strict=True):
        held = under_way(revision)
        used.append(
            _Used(
                held=held,
                largest=largest_request(held, bounds) if "parallel_requests" in bounds else held.most_tokens,
                requests_per_s=share * rate,
                price=highest_price(site.usage, revision.id.model, spec.tier or ""),
            )
        )
    return used


def _of(budget: float, currency: str, bounds: Mapping[str, int], used: list[_Used]) -> Overspending:
    parallel = bounds.get("parallel_requests")
    answers = sum(own.held.answers for own in used)
    most = sum(own.held.answers * own.held.most_tokens * own.price for own in used)
    usual = sum(own.held.answers * own.held.usual_tokens * own.price for own in used)
    if parallel is not None:
        most = min(most, parallel * max(own.largest * own.price for own in used))
        usual = min(usual, parallel * max(own.held.usual_tokens * own.price for own in used))
    most += LAG_S * sum(own.requests_per_s * own.largest * own.price for own in used)
    usual += LAG_S * sum(own.requests_per_s * own.held.usual_tokens * own.price for own in used)
    return Overspending(
        budget=budget,
        currency=currency,
        most=most / MILLION,
        usual=usual / MILLION,
        under_way=answers if parallel is None else min(answers, parallel),
        requests_per_s=sum(own.requests_per_s for own in used),
        price=max(own.price for own in used),
    )


def describe_overspending(by_tenant: Mapping[str, Overspending]) -> list[str]:
    """The lines of a text for people, the tenants that exceed their budgets by most first; none without budgets."""
    if not by_tenant:
        return []
    return [
        f"budgets: of money, for {counted(len(by_tenant), 'tenant')}. A request counts some {LAG_S:g} s after it ends, "
        "so those under way and those that begin meanwhile go beyond",
        *_lines(sorted(by_tenant.items(), key=lambda item: (-item[1].most, item[0]))),
    ]


def _lines(tenants: list[tuple[str, Overspending]]) -> Iterator[str]:
    for tenant, over in tenants[:_MOST_LINES]:
        yield (
            f"  exceeded    {tenant}: {over.budget:,.2f} {over.currency} by up to {over.most:,.2f}, "
            f"({over.under_way:,} under way + {LAG_S:g} s x {over.requests_per_s:,.3g} requests/s) x the largest "
            f"request x up to {over.price:,.2f} per million tokens; by {over.usual:,.2f} if they are as the declared "
            "load has them  [estimated]"
        )
    if rest := len(tenants[_MOST_LINES:]):
        yield f"  exceeded    {rest:,} more: by no more than these"
