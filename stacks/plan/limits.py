"""By how much a tenant can exceed its token limits, which count an answer when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from components.specs.limits import LIMITS, scope_of
from floor.counts import counted, listed
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.site.model import SiteConfig

_OF_TOKENS = {limit.key for limit in LIMITS if limit.counts_tokens}
# Lines that people read; the rest is a number, and in the data.
_MOST_LINES = 5


@dataclass(frozen=True, kw_only=True)
class UnderWay:
    """Answers that the engines of one revision take at once."""

    answers: int
    most_tokens: int
    """Of one of them with its prompt."""
    usual_tokens: float
    """Of a mean one of the declared load."""


def under_way(revision: RevisionPlan) -> UnderWay:
    """Of a revision whose replicas all serve.

    Its engines' own bound, not the gateway's: that one is of requests in each Envoy pod, and a request may ask for
    several answers, each of which an engine counts (vLLM 0.32, v1/engine/async_llm.py, check_admission).
    """
    return UnderWay(
        answers=revision.proof.case.replicas * revision.server.engine_limit,
        most_tokens=revision.server.max_model_len,
        usual_tokens=revision.proof.order.request_tokens,
    )


def exceeded_by(held: Iterable[UnderWay]) -> int:
    """The most tokens by which a limit of any window is exceeded: answers under way x tokens of the largest.

    A request begins unless its window's count is above the limit (envoyproxy/ratelimit 3fb702589d36,
    src/limiter/base_limiter.go, IsOverLimitThresholdReached), and adds its tokens when it ends, to the window of that
    moment (Envoy Gateway v1.9.1, internal/xds/translator/ratelimit.go, ApplyOnStreamDone). So the count is at most the
    limit before the answer that passes it, and of this window no more are charged than were under way then.
    """
    return sum(model.answers * model.most_tokens for model in held)


@dataclass(frozen=True, kw_only=True)
class Exceeding:
    """What one tenant's token limits let through beyond them."""

    limits: Mapping[str, int]
    """Its token limits, those of its keys and of its models too."""
    answers: int
    most_tokens: int
    usual_tokens: int
    """The same if each answer is as a mean one of the declared load."""


def exceedings(site: SiteConfig, models: Mapping[str, ModelPlan]) -> dict[str, Exceeding]:
    """By tenant, of those with token limits."""
    bounds = {name: [under_way(revision) for revision in model.revisions.values()] for name, model in models.items()}
    by_tenant = {}
    for tenant, limits in site.limits.items():
        tokens = {limit: most for limit, most in limits.items() if scope_of(limit)[2] in _OF_TOKENS}
        held = [bound for model in site.tenants[tenant].models for bound in bounds[model]]
        if tokens:
            by_tenant[tenant] = Exceeding(
                limits=tokens,
                answers=sum(bound.answers for bound in held),
                most_tokens=exceeded_by(held),
                usual_tokens=round(sum(bound.answers * bound.usual_tokens for bound in held)),
            )
    return by_tenant


def describe_limits(by_tenant: Mapping[str, Exceeding]) -> list[str]:
    """The lines of a text for people, the tenants that exceed their limits by most first; none without token limits."""
    if not by_tenant:
        return []
    alike: dict[tuple[int, ...], list[str]] = {}
    for tenant, exceeding in by_tenant.items():
        alike.setdefault((exceeding.most_tokens, exceeding.usual_tokens, exceeding.answers), []).append(tenant)
    return [
        f"limits: of tokens, for {counted(len(by_tenant), 'tenant')}. An answer counts when it ends, so those under "
        "way go beyond",
        *_lines(sorted(alike.items(), reverse=True)),
    ]


def _lines(groups: list[tuple[tuple[int, ...], list[str]]]) -> Iterator[str]:
    for (most, usual, answers), tenants in groups[:_MOST_LINES]:
        yield (
            f"  exceeded    {listed(tenants)}: by up to {most:,} tokens, {counted(answers, 'answer')} of the whole "
            f"context; by {usual:,} if they are as the declared load has them  [estimated]"
        )
    if rest := len(groups[_MOST_LINES:]):
        yield f"  exceeded    {rest:,} more: by no more than these"
