"""What the portal's pages show of a site: its models with their proofs, and who may use which tenant."""

from __future__ import annotations

import json
from typing import Any

from components.specs.portal import PeopleSpec
from stacks.plan.guarantees import carried
from stacks.plan.hub_revisions import served_revision
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import SitePlan

_NO_PEOPLE = PeopleSpec()


def portal_catalogue(plan: SitePlan) -> str:
    """JSON for `services/portal/catalogue.py`, the same text for the same site."""
    site = plan.site
    content = {
        "site": site.name,
        "models": {name: _model(model.stable) for name, model in plan.models.items()},
        "tenants": {name: _tenant(plan, name) for name in sorted(site.tenants)},
        "operators": list(site.portal.operators) if site.portal else [],
    }
    return json.dumps(content, sort_keys=True)


def _model(revision: RevisionPlan) -> dict[str, Any]:
    proof = revision.proof
    figures = proof.figures()
    # Of the declared load; a model without one has none of these.
    values = {
        name: round(figures[figure].value / scale, 3)
        for name, figure, scale in (
            ("ttft_p95_s", "ttft_p95", 1000),
            ("itl_p95_ms", "itl_p95", 1),
            ("parallel", "parallel_requests", 1),
        )
        if figure in figures
    }
    if "parallel" in values:
        values["parallel"] = int(values["parallel"] * proof.case.replicas)
    return {
        "title": proof.order.model.repository,
        "task": proof.order.model.task,
        "context_tokens": revision.server.max_model_len,
        "revision": served_revision(revision.spec),
        "replicas": proof.case.replicas,
        "gpus": proof.case.gpus,
        "proof": {**values, "tokens_per_minute": carried(proof), "fits": True, "fidelity": "estimated"},
    }


def _tenant(plan: SitePlan, name: str) -> dict[str, Any]:
    spec = plan.site.tenants[name]
    people = spec.people or _NO_PEOPLE
    return {
        "models": sorted(spec.models),
        "admins": list(people.admins),
        "users": list(people.users),
        "limits": {**plan.tenants.limits.get(name, {}), **plan.tenants.bounds.get(name, {})},
    }
