"""What a model's replicas can do beside its declared load, by the hours of a day, and whether jobs fit into it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from floor.counts import listed
from stacks.plan.guarantees import gives_way, most_of, request_tokens
from stacks.plan.models import ModelPlan, RevisionPlan, declared_loads
from stacks.proof.figures import Span, shown
from stacks.proof.proof import Proof
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
        return self._tokens(lambda hours: hours.left_nominal)

    @property
    def tokens_span(self) -> Span:
        """The same at both ends of the band."""
        return Span(fast=self._tokens(lambda hours: hours.left.fast), slow=self._tokens(lambda hours: hours.left.slow))

    def _tokens(self, left: Callable[[Hours], float | None]) -> float:
        requests = sum((left(hours) or 0.0) * hours.count * _HOUR_S for hours in self.hours)
        return requests * request_tokens(self.revision.proof)


def windows(models: Mapping[str, ModelPlan]) -> list[BatchWindow]:
    """Of the models and dedicated replicas that state quiet hours."""
    return [
        BatchWindow(revision=revision, hours=_hours(revision.proof, load.requests_per_s, quiet))
        for revision, load in declared_loads(models)
        if (quiet := revision.spec.load.quiet_hours if revision.spec.load else {})
    ]


def _hours(proof: Proof, rate: float, quiet: Mapping[str, float]) -> list[Hours]:
    parts = [(text, len(hours_of(text)), share) for text, share in quiet.items()]
    if rest := _DAY_H - sum(count for _, count, _ in parts):
        parts.append(("other hours", rest, 1.0))
    return [_left(proof, text, count, share, share * rate) for text, count, share in parts]


def _left(proof: Proof, text: str, count: int, share: float, used: float) -> Hours:
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
    revision, limits = window.revision, site.limits
    wanted = {
        tenant: most_of(limits.get(tenant, {}), revision.model, _PER_DAY)
        for tenant in site.answered_by(revision.id)
        if gives_way(site, site.tenants[tenant].tier)
    }
    if not wanted:
        return ""
    if any_number := [tenant for tenant, most in wanted.items() if math.isinf(most)]:
        return f"; whether jobs FIT is not known: {listed(any_number)} may use any {_PER_DAY}"
    total, span = sum(wanted.values()), window.tokens_span
    verdict = "FIT" if total <= (span.slow or 0) else "MAY NOT FIT" if total <= (span.fast or 0) else "DO NOT FIT"
    return f"; the {_millions(total)} M of jobs {verdict}, by the plans of {listed(wanted)}"


def _millions(tokens: float) -> str:
    return shown(tokens / 1e6)
