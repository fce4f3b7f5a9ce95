"""What a model's replicas can do beside its declared load, by the hours of a day, and whether jobs fit into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.specs.limits import limit_of
from floor.counts import listed
from stacks.plan.guarantees import request_tokens
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.proof.figures import Span, shown
from stacks.site.model import SiteConfig
from stacks.site.quiet_hours import hours_of

_HOUR_S = 3600
_DAY_H = 24
_PER_DAY = "tokens_per_day"


@dataclass(frozen=True, kw_only=True)
class Hours:
    """Hours of a day in which the same share of the declared load comes."""

    text: str
    """As the site's file has them."""
    count: int
    share: float
    left: Span
    """Requests per second, as the declared ones, that the replicas carry beside it within the targets."""
    left_nominal: float


@dataclass(frozen=True, kw_only=True)
class BatchWindow:
    """Of one revision's replicas, over a day."""

    revision: RevisionPlan
    hours: Sequence[Hours]

    @property
    def tokens(self) -> float:
        """Of a day, prompts as a whole, by the computed figures."""
        return self._tokens([(hours.left_nominal, hours.count) for hours in self.hours])

    @property
    def tokens_span(self) -> Span:
        """The same at both ends of the band."""
        fast, slow = (
            self._tokens([(left or 0.0, count) for left, count in pairs])
            for pairs in (
                [(hours.left.fast, hours.count) for hours in self.hours],
                [(hours.left.slow, hours.count) for hours in self.hours],
            )
        )
        return Span(fast=fast, slow=slow)

    def _tokens(self, rates: Sequence[tuple[float, int]]) -> float:
        return sum(rate * count * _HOUR_S for rate, count in rates) * request_tokens(self.revision.proof)


def windows(models: Mapping[str, ModelPlan]) -> list[BatchWindow]:
    """Of the models and dedicated replicas that state quiet hours."""
    return [
        BatchWindow(revision=revision, hours=_hours(revision))
        for model in models.values()
        for revision in model.revisions.values()
        # A canary's requests are some of the stable revision's, whose load is of all.
        if not revision.id.digest and revision.spec.load and revision.spec.load.quiet_hours
    ]


def _hours(revision: RevisionPlan) -> list[Hours]:
    load = revision.spec.load
    quiet = [(text, len(hours_of(text)), share) for text, share in load.quiet_hours.items()] if load else []
    rest = _DAY_H - sum(count for _, count, _ in quiet)
    return [_left(revision, *part) for part in (*quiet, *([("other hours", rest, 1.0)] if rest else []))]


def _left(revision: RevisionPlan, text: str, count: int, share: float) -> Hours:
    proof = revision.proof
    used = share * (proof.order.load.requests_per_s if proof.order.load else 0.0)
    left = proof.ends.span(lambda end: max(0.0, end.capacity_requests_per_s - used))
    nominal = max(0.0, proof.capacity_requests_per_s - used)
    return Hours(text=text, count=count, share=share, left=left, left_nominal=nominal)


def describe_windows(site: SiteConfig, models: Mapping[str, ModelPlan]) -> str:
    """As text for people; empty where no model states quiet hours."""
    known = windows(models)
    if not known:
        return ""
    lines = ["batch: what replicas carry within the targets beside the declared load, of requests like its own"]
    for window in known:
        in_millions = window.tokens_span.mapped(lambda tokens: tokens / 1e6)
        day = f"{_millions(window.tokens)} M tokens per day ({in_millions}){_jobs(site, window)}"
        lines.append(f"  {window.revision.name}: {day}  [estimated]")
        lines += [
            f"    {hours.text:<12}{shown(hours.left_nominal)} requests/s ({hours.left}) beside "
            f"{shown(100 * hours.share)} % of the load  [estimated]"
            for hours in window.hours
        ]
    return "\n".join(lines)


def _jobs(site: SiteConfig, window: BatchWindow) -> str:
    """Whether that is what tenants of tiers below 0 may use in a day: all, whatever other models they may call."""
    revision = window.revision
    wanted = {
        tenant: _most(site, tenant, revision.model)
        for tenant in site.answered_by(revision.id)
        if _below_others(site, tenant)
    }
    limited = {tenant: most for tenant, most in wanted.items() if most is not None}
    if not wanted:
        return ""
    if len(limited) < len(wanted):
        return f"; whether jobs FIT is not known: {listed(wanted.keys() - limited.keys())} may use any {_PER_DAY}"
    total, span = sum(limited.values()), window.tokens_span
    verdict = "FIT" if total <= (span.slow or 0) else "MAY NOT FIT" if total <= (span.fast or 0) else "DO NOT FIT"
    return f"; the {_millions(total)} M of jobs {verdict}, by the plans of {listed(limited)}"


def _most(site: SiteConfig, tenant: str, model: str) -> int | None:
    """Tokens of this model that it may use in a day; None for any number."""
    limits = site.limits.get(tenant, {})
    given = [limits.get(_PER_DAY), limits.get(limit_of("models", model, _PER_DAY))]
    return min((most for most in given if most is not None), default=None)


def _below_others(site: SiteConfig, tenant: str) -> bool:
    tier = site.tenants[tenant].tier
    return tier is not None and site.tiers[tier].priority < 0


def _millions(tokens: float) -> str:
    return shown(tokens / 1e6)
