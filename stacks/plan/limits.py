"""By how much a tenant can exceed its token limits, which count an answer when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from components.specs.limits import LIMITS, scope_of
from floor.counts import counted, listed
from floor.problems import Path, Problem
from stacks.plan.models import ModelPlan, RevisionPlan
from stacks.site.model import SiteConfig

_OF_TOKENS = {limit.key for limit in LIMITS if limit.counts_tokens}
# Lines that people read; the rest is a number, and in the data.
_MOST_LINES = 5


@dataclass(frozen=True, kw_only=True)
class UnderWay:
    """Answers that the engines of one revision take at once, and requests that wait in its pickers."""

    answers: int
    most_tokens: int
    """Of one of them with its prompt."""
    usual_tokens: float
    """Of a mean one of the declared load."""
    of_a_request: int
    """Answers that one request gets at most: a replica takes it as a whole or not."""
    generates: bool = True
    """Whether it writes answers; a query that ranks documents is a part of each of its prompts."""


def under_way(revision: RevisionPlan) -> UnderWay:
    """Of a revision whose replicas all serve.

    Its engines' own bound, not the gateway's: that one is of requests in each Envoy pod, and a request may ask for
    several answers, each of which an engine counts (vLLM 0.32, v1/engine/async_llm.py, check_admission). Envoy has
    asked the limit service before a request waits in a picker, where it is one answer.
    """
    waiting = revision.spec.pool.pickers * sum(band.requests for band in revision.picker.bands)
    return UnderWay(
        answers=revision.proof.case.replicas * revision.server.engine_limit + waiting,
        most_tokens=revision.server.max_model_len,
        usual_tokens=revision.proof.order.request_tokens,
        of_a_request=revision.server.engine_limit,
        generates=revision.proof.order.model.task == "generate",
    )


def exceeded_by(held: Sequence[UnderWay], bounds: Mapping[str, int] = MappingProxyType({})) -> int:
    """The most tokens by which a limit of any window is exceeded: answers under way x tokens of the largest.

    bounds: of the tenant, which a gatekeeper holds. With parallel requests it is these x the largest request, if less.

    A request begins unless its window's count is above the limit (envoyproxy/ratelimit 3fb702589d36,
    src/limiter/base_limiter.go, IsOverLimitThresholdReached), and adds its tokens when it ends, to the window of that
    moment (Envoy Gateway v1.9.1, internal/xds/translator/ratelimit.go, ApplyOnStreamDone). So the count is at most the
    limit before the answer that passes it, and of this window no more are charged than were under way then.
    """
    most, parallel = sum(model.answers * model.most_tokens for model in held), bounds.get("parallel_requests")
    if parallel is None:
        return most
    return min(most, parallel * max(largest_request(model, bounds) for model in held))


def largest_request(model: UnderWay, bounds: Mapping[str, int]) -> int:
    """Tokens of a request: of as many answers as an engine takes, unless both its prompts and answers are bounded.

    A gatekeeper takes a prompt's tokens as a quarter of the body's bytes. A list of prompts has at most a token per
    byte, and the prompt of a chat, which may have pictures, fits the context.
    """
    whole = model.of_a_request * model.most_tokens
    prompt, answers = bounds.get("max_prompt_tokens"), bounds.get("max_answer_tokens")
    if prompt is None or answers is None or not model.generates:
        return whole
    return min(whole, max(model.most_tokens, 4 * prompt + 3) + answers)


@dataclass(frozen=True, kw_only=True)
class Exceeding:
    """What one tenant's token limits let through beyond them."""

    limits: Mapping[str, int]
    """Its token limits, those of its keys and of its models too."""
    under_way: str
    """What is under way at most, in words."""
    most_tokens: int
    usual_tokens: int
    """The same if each answer is as a mean one of the declared load."""


def exceedings(site: SiteConfig, models: Mapping[str, ModelPlan]) -> dict[str, Exceeding]:
    """By tenant, of those with token limits."""
    held_by = {revision.name: under_way(revision) for model in models.values() for revision in model.revisions.values()}
    by_tenant, bounds_of = dict[str, Exceeding](), site.bounds
    for tenant, limits in site.limits.items():
        tokens = {limit: most for limit, most in limits.items() if scope_of(limit)[2] in _OF_TOKENS}
        served = [revision for model in site.tenants[tenant].models for revision in models[model].serving(tenant)]
        held = [held_by[revision.name] for revision in served]
        if tokens:
            by_tenant[tenant] = _exceeding(tokens, held, bounds_of.get(tenant, {}))
    return by_tenant


def _exceeding(tokens: Mapping[str, int], held: Sequence[UnderWay], bounds: Mapping[str, int]) -> Exceeding:
    most, usual = exceeded_by(held, bounds), sum(bound.answers * bound.usual_tokens for bound in held)
    words, parallel = f"{counted(sum(bound.answers for bound in held), 'answer')} of the whole context", None
    if most < exceeded_by(held):
        parallel = bounds["parallel_requests"]
        words = f"{counted(parallel, 'request')} of at most {most // parallel:,}"
    if parallel is not None:
        usual = min(usual, parallel * max(bound.usual_tokens for bound in held))
    return Exceeding(limits=tokens, under_way=words, most_tokens=most, usual_tokens=round(usual))


def describe_limits(by_tenant: Mapping[str, Exceeding]) -> list[str]:
    """The lines of a text for people, the tenants that exceed their limits by most first; none without token limits."""
    if not by_tenant:
        return []
    alike: dict[tuple[int, int, str], list[str]] = {}
    for tenant, exceeding in by_tenant.items():
        alike.setdefault((exceeding.most_tokens, exceeding.usual_tokens, exceeding.under_way), []).append(tenant)
    return [
        f"limits: of tokens, for {counted(len(by_tenant), 'tenant')}. An answer counts when it ends, so those under "
        "way go beyond",
        *_lines(sorted(alike.items(), reverse=True)),
    ]


def _lines(groups: list[tuple[tuple[int, int, str], list[str]]]) -> Iterator[str]:
    for (most, usual, words), tenants in groups[:_MOST_LINES]:
        yield (
            f"  exceeded    {listed(tenants)}: by up to {most:,} tokens, {words}; by {usual:,} if they are as the "
            "declared load has them  [estimated]"
        )
    if rest := len(groups[_MOST_LINES:]):
        yield f"  exceeded    {rest:,} more: by no more than these"


def past_context(site: SiteConfig, models: Mapping[str, ModelPlan]) -> Iterator[Problem]:
    """Longest answers that an engine refuses: a gatekeeper asks for as much where a request gives no length."""
    for tenant, bounds in site.bounds.items():
        most = bounds.get("max_answer_tokens", 0)
        spec = site.tenants[tenant]
        own = spec.limits is not None and spec.limits.max_answer_tokens is not None
        path: Path = ("tenants", tenant, "limits") if own else ("plans", str(spec.plan))
        # A model that does not fit is reported as such.
        contexts = [
            (revision.server.max_model_len, name)
            for name in spec.models
            if name in models
            for revision in models[name].serving(tenant)
        ]
        context, model = min(contexts, default=(most, ""))
        if most > context:
            yield Problem(
                path=(*path, "max_answer_tokens"),
                what=f"is above the context of {model}, which {tenant} may call: its engine would refuse each request "
                "that gives no length",
                got=f"{most:,}",
                allowed=f"at most {context:,}, max_model_len of {model}",
                fix=f"lower it to {context}, or take it out: no answer is longer than the context",
            )
