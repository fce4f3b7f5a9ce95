"""Whether a site's models are proven to carry what its tenants are guaranteed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from components.specs.limits import limit_of
from floor.counts import counted, listed
from floor.problems import Path, Problem, shown
from floor.revision_ids import RevisionId
from stacks.plan.models import ModelPlan
from stacks.plan.scaling import at_least
from stacks.proof.fixes import carrying
from stacks.proof.proof import Proof
from stacks.site.model import Guarantee, SiteConfig


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The guarantees that one model's replicas have to keep: each in full, as a tenant uses its models in any shares.

    The shared ones keep those of all tenants without dedicated ones.
    """

    revision: RevisionId
    guarantees: Mapping[str, Guarantee]
    """By tenant."""
    proof: Proof
    """Of the replicas that there always are."""

    @property
    def model(self) -> str:
        """Name of the replicas: dedicated ones have their own."""
        return self.revision.name

    @property
    def carried(self) -> int | None:
        """Tokens per minute that it is proven to carry; None without a load, by which it would be proven."""
        return carried(self.proof)

    @property
    def total(self) -> int:
        """Tokens per minute of all of them."""
        return sum(guarantee.tokens_per_minute for guarantee in self.guarantees.values())

    @property
    def named(self) -> str:
        """Each tenant with its guarantee, the largest first."""
        ordered = sorted(self.guarantees.items(), key=lambda item: (-item[1].tokens_per_minute, item[0]))
        return listed(f"{tenant} {guarantee.tokens_per_minute:,}" for tenant, guarantee in ordered)


def draws(site: SiteConfig, models: Mapping[str, ModelPlan]) -> list[Draw]:
    """Of each of these models that a tenant with a guarantee may use."""
    given = site.guarantees
    drawn = []
    for model in models.values():
        for revision in model.revisions.values():
            if revision is model.canary:
                continue
            here = {tenant: given[tenant] for tenant in site.answered_by(revision.id) if tenant in given}
            if here:
                proof = at_least(revision.proof, revision.spec)
                drawn.append(Draw(revision=revision.id, guarantees=here, proof=proof))
    return drawn


def carried(proof: Proof) -> int | None:
    """Tokens per minute of requests as declared, within the targets, at the slow end of the band; None without a load.

    A prompt counts as a whole, cached or not, as in an answer's `usage`.
    """
    if proof.order.load is None:
        return None
    return math.floor(60 * proof.ends.slow.capacity_requests_per_s * request_tokens(proof))


def request_tokens(proof: Proof) -> float:
    """Tokens of a mean request, its prompt as a whole; those of the prompt alone where no text is written."""
    load = proof.order.load
    if load is None:
        return proof.order.request_tokens
    return load.request_tokens if proof.order.model.task == "generate" else load.prompt_tokens.mean


def unproven(
    site: SiteConfig, models: Mapping[str, ModelPlan], has_room: Callable[[str, Proof], bool]
) -> Iterator[Problem]:
    """Guarantees beyond what a model is proven to carry. has_room: whether the nodes have it for a fix."""
    for draw in draws(site, models):
        if draw.proof.case.replicas == 0:
            yield Problem(
                path=_largest(draw)[0],
                what=f"guarantees tokens of {draw.model}, which may have no replica: {draw.named}",
                got=f"{'.'.join(draw.revision.path)}.server.scaling.least 0",
                allowed="guarantees of models that always have a replica",
                fix=f"set {'.'.join(draw.revision.path)}.server.scaling.least to 1 or more, or take the key out",
            )
        elif draw.carried is None:
            yield Problem(
                path=_largest(draw)[0],
                what=f"guarantees tokens of {draw.model}, which is proven to carry none: it declares no load",
                fix=f"add {'.'.join(draw.revision.path)}.load, or take the key out",
            )
        elif draw.total > draw.carried:
            proof = draw.proof
            yield Problem(
                path=_largest(draw)[0],
                what=f"{draw.total:,} tokens per minute are guaranteed on {draw.model}: {draw.named}; its "
                f"{counted(proof.case.replicas, 'replica')} are proven to carry "
                f"{draw.carried:,}, at the slow end of their band",
                fix="; or ".join(filter(None, [_lower(draw), _more(draw, proof, has_room)])),
            )


def _largest(draw: Draw) -> tuple[Path, list[Guarantee]]:
    """The key by which most is guaranteed on this model, and what it gives to each tenant."""
    by_key: dict[Path, list[Guarantee]] = {}
    for guarantee in draw.guarantees.values():
        by_key.setdefault(guarantee.path, []).append(guarantee)
    return max(by_key.items(), key=lambda item: (sum(given.tokens_per_minute for given in item[1]), item[0]))


def _lower(draw: Draw) -> str:
    key, given = _largest(draw)
    tokens = given[0].tokens_per_minute - math.ceil((draw.total - (draw.carried or 0)) / len(given))
    if tokens > 0:
        return f"lower {'.'.join(key)} to {tokens}"
    return f"lower these to {draw.carried:,} together" if draw.carried else "take these out"


def _more(draw: Draw, proof: Proof, has_room: Callable[[str, Proof], bool]) -> str:
    fix = carrying(proof, draw.total / 60 / request_tokens(proof))
    if fix is None:
        return ""
    return fix.text if has_room(draw.model, fix.proof) else f"{fix.text}, with more nodes for them"


def describe_guarantees(drawn: list[Draw]) -> list[str]:
    """A line for each model with guarantees."""
    return [
        f"  guaranteed  {draw.model}: {draw.named}; {draw.total:,} of {draw.carried or 0:,} tokens per minute that it "
        "carries at the slow end of its band  [estimated]"
        for draw in drawn
    ]


def crowded_out(site: SiteConfig, models: Mapping[str, ModelPlan]) -> Iterator[Problem]:
    """Guarantees whose room other tenants may take, as the gateway keeps none free.

    A tenant whose tier is below 0 gives way: while a model is full it is refused, or waits in a queue that others pass.
    """
    limits, guaranteed = site.limits, site.guarantees.keys()
    for draw in draws(site, models):
        takes = {
            tenant: most_of(limits.get(tenant, {}), draw.revision.model, "tokens_per_minute")
            for tenant in sorted(site.answered_by(draw.revision))
            if tenant in guaranteed or not gives_way(site, site.tenants[tenant].tier)
        }
        carried_at_most = draw.carried or 0
        free = {tenant for tenant, most in takes.items() if math.isinf(most)}
        limited = sum(most for most in takes.values() if not math.isinf(most))
        uncertain = [
            tenant
            for tenant, guarantee in draw.guarantees.items()
            if len(free) > (tenant in free)
            or limited - (0 if tenant in free else takes[tenant]) + guarantee.tokens_per_minute > carried_at_most
        ]
        if not uncertain:
            continue
        # Of one alone, it is no rival itself.
        rivals = takes.keys() - (uncertain if len(uncertain) == 1 else [])
        ordered = sorted(rivals, key=lambda tenant: (-takes[tenant], tenant))
        used = f"all may use {limited:,.0f}"
        if unlimited := [tenant for tenant in ordered if tenant in free]:
            used = f"{listed(unlimited)} may use any number"
        yield Problem(
            path=("tenants", ordered[0]),
            what=f"what {listed(uncertain)} is guaranteed on {draw.model} is kept only while others use less than they "
            f"may: {used} of the {carried_at_most:,} tokens per minute that it carries",
            fix=f"let tokens_per_minute of the tenants of {draw.model} be no more than that together, or give those "
            "without a guarantee a tier with a priority below 0",
        )


def given_way(site: SiteConfig) -> Iterator[Problem]:
    """Tenants with a guarantee whose tier is below 0, so that they wait when it would matter."""
    for tenant in site.guarantees:
        tier = site.tenants[tenant].tier
        if gives_way(site, tier):
            yield Problem(
                path=("tenants", tenant, "tier"),
                what=f"is below 0, so what {tenant} is guaranteed is refused, or waits, while a model is full",
                got=shown(tier),
                fix="write a tier with a priority of 0 or more, or take the guarantee out",
            )


def most_of(limits: Mapping[str, int], model: str, key: str) -> float:
    """Tokens of a model that a tenant with these limits may use in the window of this one; infinite for any number."""
    return min(limits.get(key, math.inf), limits.get(limit_of("models", model, key), math.inf))


def gives_way(site: SiteConfig, tier: str | None) -> bool:
    """Whether requests of a tier are refused, or wait, while a model is full."""
    return tier in site.tiers and site.tiers[str(tier)].priority < 0
