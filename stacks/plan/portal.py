"""What the portal's pages show of a site: its models with their proofs, and who may use which tenant."""

from __future__ import annotations

import json
from typing import Any

from components.specs.portal import PeopleSpec
from components.specs.usage import UsageSpec
from stacks.plan.guarantees import carried
from stacks.plan.hub_revisions import served_revision
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import SitePlan
from stacks.proof.proof import Proof

_NO_PEOPLE = PeopleSpec()


def portal_catalogue(plan: SitePlan) -> str:
    """JSON for `services/portal/catalogue.py`, the same text for the same site."""
    site = plan.site
    content = {
        "site": site.name,
        "models": {name: _model(model.stable, site.usage) for name, model in plan.models.items()},
        "tenants": {name: _tenant(plan, name) for name in sorted(site.tenants)},
        "operators": list(site.portal.operators) if site.portal else [],
    }
    return json.dumps(content, sort_keys=True)


def _model(revision: RevisionPlan, usage: UsageSpec) -> dict[str, Any]:
    proof = revision.proof
    return {
        "title": proof.order.model.repository,
        "task": proof.order.model.task,
        "context_tokens": revision.server.max_model_len,
        "revision": served_revision(revision.spec),
        "replicas": proof.case.replicas,
        "gpus": proof.case.gpus,
        "proof": _shown(proof),
        "prices": [
            {
                "since": version.begins,
                "currency": usage.currency,
                "input": price.input,
                "cached_input": price.input if price.cached_input is None else price.cached_input,
                "output": price.output,
            }
            for version in usage.prices
            if (price := version.models.get(revision.model))
        ],
    }


def _shown(proof: Proof) -> dict[str, Any] | None:
    """What a model holds under its declared load; without one nothing is promised."""
    figures = proof.serving
    if not figures:
        return None
    itl = figures.get("itl_p95")
    return {
        "ttft_p95_s": round(figures["ttft_p95"].value / 1000, 2),
        "itl_p95_ms": itl and round(itl.value, 1),
        "parallel": int(proof.memory["parallel_requests"].value * proof.case.replicas),
        "tokens_per_minute": carried(proof),
        "fidelity": "estimated",
    }


def _tenant(plan: SitePlan, name: str) -> dict[str, Any]:
    spec = plan.site.tenants[name]
    people, budgets = spec.people or _NO_PEOPLE, plan.tenants.budgets.get(name)
    return {
        "models": sorted(spec.models),
        "admins": list(people.admins),
        "users": list(people.users),
        "limits": {**plan.tenants.limits.get(name, {}), **plan.tenants.bounds.get(name, {})},
        **({"budgets": dict(budgets)} if budgets else {}),
    }
