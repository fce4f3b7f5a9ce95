"""What the portal's pages show of a site: models that it serves or could, with proofs, and who may use which tenant."""

from __future__ import annotations

import json
from typing import Any

import yaml

from components.specs.portal import PeopleSpec
from components.specs.usage import UsageSpec
from stacks.plan.guarantees import carried
from stacks.plan.hub_revisions import served_revision
from stacks.plan.models import RevisionPlan
from stacks.plan.orderable import ModelOffer, offers
from stacks.plan.site_plan import SitePlan
from stacks.proof.proof import Proof

_NO_PEOPLE = PeopleSpec()


def portal_catalogue(plan: SitePlan) -> str:
    """JSON for `services/portal/catalogue.py`, the same text for the same site."""
    site = plan.site
    content = {
        "site": site.name,
        "models": {name: _model(model.stable, site.usage) for name, model in plan.models.items()},
        "orderable": {name: _orderable(offer, site.usage) for name, offer in offers(plan).items()},
        "tenants": {name: _tenant(plan, name) for name in sorted(site.tenants)},
        **(
            {key: getattr(site.portal, key) for key in ("operators", "orders_by", "notice_days")} if site.portal else {}
        ),
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
        "prices": _prices(revision.model, usage),
        "served_until": revision.spec.served_until,
    }


def _prices(model: str, usage: UsageSpec) -> list[dict[str, Any]]:
    return [
        {
            "since": version.begins,
            "currency": usage.currency,
            "input": price.input,
            "cached_input": price.input if price.cached_input is None else price.cached_input,
            "output": price.output,
        }
        for version in usage.prices
        if (price := version.models.get(model))
    ]


def _orderable(offer: ModelOffer, usage: UsageSpec) -> dict[str, Any]:
    """Of one that does not fit, what the catalogue has of it, and why."""
    entry, revision, ready = offer.spec.entry, offer.revision, offer.ready
    shared = {"reasons": list(offer.reasons), "change": _change(offer)}
    if revision is None or ready is None:
        known = {"title": entry.repository, "task": entry.task, "context_tokens": entry.max_context_tokens}
        return {**known, "prices": _prices(offer.name, usage), "verdict": "fails", **shared}
    proof = revision.proof
    return {
        **_model(revision, usage),
        "verdict": proof.verdict,
        "weights_gb": round(proof.weights["weight_files"].value, 1),
        "ready_s": ready.expected_s,
        "latest_s": ready.latest_s,
        "cost_per_hour": round(proof.cost["hour"].value, 2) if proof.cost else None,
        "currency": proof.order.prices.currency if proof.order.prices else None,
        **shared,
    }


def _change(offer: ModelOffer) -> str:
    """What an order adds to the site's file."""
    model = offer.spec.model_dump(mode="json", exclude_unset=True)
    return yaml.safe_dump({"models": {offer.name: model}}, sort_keys=False)


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
        "fidelity": "measured" if proof.order.measured else figures["ttft_p95"].fidelity,
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
