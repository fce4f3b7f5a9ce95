"""Models that may be ordered: what the site's proof says of each, and what the portal reads of it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from services.portal.catalogue import Catalogue
from stacks.plan.orderable import ModelOffer, offers, ordered, takes
from stacks.plan.portal import portal_catalogue
from stacks.plan.site_plan import SitePlan, plan_values
from stacks.site.demand import OrderedModelSpec
from tests.unit.stacks.site_examples import prod

pytestmark = [pytest.mark.row("000.01"), pytest.mark.row("000.37", "opening 11"), pytest.mark.row("003.01")]

ORDERABLE: dict[str, Any] = {
    "llama-3-3": {"catalogue": "llama-3.3-70b-fp8", "load": {"requests_per_s": 0.5}, "slo": {"ttft_p95_ms": 5000}},
    "glm-large": {"catalogue": "glm-5.1-fp8", "server": {"replicas": 3}},
    "kimi": {"catalogue": "kimi-k2.5", "load": {"requests_per_s": 50}, "slo": {"ttft_p95_ms": 900}},
}


def values() -> dict[str, Any]:
    """The annotated site with a portal."""
    return prod() | {
        "callers": {"decided_by": "gatekeeper", "database_secret": "directory-database"},
        "portal": {
            "hostname": "portal.site.example",
            "certificate_secret": "portal-tls",
            "issuer": "https://login.site.example",
            "client_secret": "portal-login",
        },
        "usage": {
            "database_secret": "usage",
            "prices": [{"since": "2026-01-01", "models": {"llama-3-3": {"input": 0.1, "output": 0.4}}}],
        },
        "orderable": ORDERABLE,
    }


@cache
def plan() -> SitePlan:
    return plan_values(values(), "Pulumi.prod.yaml")


@cache
def proven() -> dict[str, ModelOffer]:
    return offers(plan())


@pytest.mark.slow
def test_what_fits_has_the_proof_of_the_site_that_serves_it() -> None:
    offer = proven()["llama-3-3"]
    assert offer.revision and not offer.reasons
    later = plan_values(ordered(values(), "llama-3-3", "search"), "Pulumi.prod.yaml")
    served = later.models["llama-3-3"].stable
    assert "llama-3-3" in later.site.tenants["search"].models
    assert (offer.revision.proof.figures(), offer.revision.settings) == (served.proof.figures(), served.settings)
    assert offer.revision.text() == served.text()
    # It takes nothing of what is served: that is as it was.
    assert {name: later.proofs[name].case for name in plan().proofs} == {
        name: proof.case for name, proof in plan().proofs.items()
    }


def test_what_does_not_fit_has_the_reason() -> None:
    large, kimi = proven()["glm-large"], proven()["kimi"]
    assert large.revision is kimi.revision is None
    assert large.reasons == (
        "1 of 3 replicas find no room: each takes 8 GPUs of one node; 0 GPUs left beside the others on 4 nodes of 8 "
        "h200-sxm, at most 0 on one",
    )
    assert "does not keep its targets" in kimi.reasons[0]


def test_time_is_that_of_the_proof_and_of_what_is_given_up() -> None:
    offer = proven()["llama-3-3"]
    assert offer.revision and offer.ready
    start, settings = offer.revision.proof.cold_start, offer.revision.settings
    assert offer.ready.expected_s == round(start["first_start"].value)
    # One download into the shared volume, and then a start.
    assert offer.ready.latest_s == settings["download_budget_s"].whole + settings["start_budget_s"].whole
    assert offer.ready.expected_s < offer.ready.latest_s
    cost = offer.revision.proof.cost["hour"]
    assert takes(offer.revision) == f"4 GPUs, 96 GPU hours a day, {cost}"


def test_the_portal_reads_verdict_time_cost_and_change() -> None:
    offered = Catalogue.model_validate_json(portal_catalogue(plan())).orderable
    assert {name: model.fits for name, model in offered.items()} == {
        "llama-3-3": True,
        "glm-large": False,
        "kimi": False,
    }
    llama, revision, ready = offered["llama-3-3"], proven()["llama-3-3"].revision, proven()["llama-3-3"].ready
    assert revision and ready and llama.proof and llama.price
    assert (llama.gpus, llama.replicas, llama.cost_per_hour, llama.currency) == (
        4,
        2,
        round(revision.proof.cost["hour"].value, 2),
        "EUR",
    )
    assert (llama.ready_s, llama.price.output) == (ready.expected_s, 0.4)
    assert offered["glm-large"].reasons == list(proven()["glm-large"].reasons)
    assert offered["glm-large"].gpus == 0
    # The change is what a site's file takes.
    assert "catalogue: llama-3.3-70b-fp8" in llama.change
    spec = proven()["llama-3-3"].spec
    assert OrderedModelSpec.model_validate(ORDERABLE["llama-3-3"]) == spec


def test_a_model_that_is_ordered_is_not_served_and_changes_nothing() -> None:
    without = values()
    del without["orderable"]
    alone = plan_values(without | {"usage": {"database_secret": "usage"}}, "Pulumi.prod.yaml")
    assert plan().models.keys() == alone.models.keys() == {"glm-5-1", "qwen3-32b"}
    assert plan().tenants.names == alone.tenants.names
    assert plan().images == alone.images
