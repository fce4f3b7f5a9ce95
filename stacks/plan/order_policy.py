"""Whether a site's policy approves an order, or a person has to."""

from __future__ import annotations

from collections import Counter

from floor.counts import counted
from floor.problems import Problem
from stacks.plan.idle import gpus_of
from stacks.plan.site_plan import SitePlan


def why_a_person(plan: SitePlan, before: SitePlan, model: str, tenant: str) -> str:
    """Why the policy does not decide an order, in words; empty where it approves.

    plan: of the site with the order's change. before: without it.
    """
    policy = plan.site.order_policy
    if policy is None:
        return "the site has no order_policy"
    if policy.tenants and tenant not in policy.tenants:
        return f"order_policy is not for {tenant}"
    if warning := _new_warning(plan, before):
        return f"it adds a warning: {warning.key} {warning.what}"
    if model in before.models:
        return ""
    gpus, free = _gpus(plan, model), _free(plan)
    if gpus > policy.most_gpus:
        return f"it takes {counted(round(gpus), 'GPU')}, and order_policy.most_gpus is {policy.most_gpus}"
    if free is None:
        return "the site does not list its nodes, so how many GPUs stay free is unknown"
    if free < policy.keep_free_gpus:
        return f"{free:g} GPUs would stay free, and order_policy.keep_free_gpus is {policy.keep_free_gpus}"
    return ""


def _new_warning(plan: SitePlan, before: SitePlan) -> Problem | None:
    """By how many a key has: the words of one that is there already may name the model too."""
    new = Counter(warning.path for warning in plan.warnings) - Counter(warning.path for warning in before.warnings)
    known = {warning.what for warning in before.warnings}
    return next((warning for warning in plan.warnings if warning.path in new and warning.what not in known), None)


def _gpus(plan: SitePlan, model: str) -> float:
    """Of all its revisions and replicas, in whole ones; a slice is its part."""
    proofs = [plan.placed[revision.name] for revision in plan.models[model].revisions.values()]
    return sum(proof.case.gpus * proof.order.hardware.share for proof in proofs)


def _free(plan: SitePlan) -> float | None:
    there = gpus_of(plan)
    return None if there is None else there - sum(_gpus(plan, name) for name in plan.models)
