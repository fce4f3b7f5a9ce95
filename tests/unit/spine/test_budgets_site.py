"""A site with budgets, under the SDK's mocks: what the gatekeeper is given, and what is there for them alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from services.ledger import variables
from stacks.plan.site_plan import plan_values
from tests.unit.spine.test_platform import declare
from tests.unit.stacks.site_examples import prod
from tests.unit.stacks.test_wrong_usage import FIRST, usage
from tests.unit.stacks.wrong_sites import changed

pytestmark = pytest.mark.row("000.32", "001.40")

BUDGETS = {"spend_per_month": 7.5, "tokens_per_month": 5 * 10**9}
ALERTS = {"BudgetNearlySpent", "BudgetSpent", "BudgetsNotHeld"}
PORTAL = {
    "hostname": "portal.site.example",
    "certificate_secret": "portal-tls",
    "issuer": "https://login.site.example",
    "client_secret": "login",
}


def declared(folder: Path, limits: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The inputs of each resource. limits: of a tenant."""
    callers = {"decided_by": "gatekeeper", "database_secret": "directory-database"}
    change = {**usage(FIRST), "callers": callers, "portal": PORTAL, **limits}
    folder.mkdir()
    site = plan_values(changed(prod(), change), "site.yaml").site
    return {name: made.inputs for name, made in declare(site, folder)[0].resources.items()}


@pytest.mark.slow
def test_the_portal_trusts_the_sites_own_authority_unless_it_names_another(tmp_path: Path) -> None:
    def trust(name: str, **more: Any) -> dict[str, Any] | None:
        pod = declared(tmp_path / name, more)["portal-pods"]["spec"]["template"]["spec"]
        assert ("--ca-file=/etc/trust/ca.crt" in pod["containers"][0]["args"]) == (
            "trust" in {volume["name"] for volume in pod["volumes"]}
        )
        return next((volume for volume in pod["volumes"] if volume["name"] == "trust"), None)

    items = [{"key": "ca.crt", "path": "ca.crt"}]
    own, named = trust("own"), trust("named", **{"portal.ca": "PEM"})
    assert own and own["secret"] == {"secretName": "inference-tls", "items": items}
    assert named and named["configMap"] == {"name": "portal", "items": items}
    acme = {"certificates.ca_secret": None, "certificates.cluster_issuer": "letsencrypt"}
    assert trust("public", **acme) is None


@pytest.mark.slow
def test_budgets_reach_what_holds_them_and_nothing_is_there_for_none(tmp_path: Path) -> None:
    """On a site whose budgets go, what is declared is what a site without any has."""
    made, plain = declared(tmp_path / "with", {"tenants.search.limits": BUDGETS}), declared(tmp_path / "without", {})
    assert json.loads(made["callers-tenants"]["data"]["tenants.json"])["tenants"]["search"]["budgets"] == BUDGETS
    assert json.loads(made["portal-catalogue"]["data"]["catalogue.json"])["tenants"]["search"]["budgets"] == BUDGETS
    pod = made["gatekeeper-pods"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (ledger,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "ledger"]
    assert "--ledger=http://ledger.inference-gateway.svc:8080" in container["args"]
    assert (ledger["secretName"], [item["key"] for item in ledger["items"]]) == (
        variables.TOKENS_SECRET,
        [variables.OPERATOR_KEY],
    )
    differing = {name for name in {*made, *plain} if made.get(name) != plain.get(name)}
    # Its folder is that of the test.
    assert differing - {"crds-things"} == {
        *("callers-tenants", "portal-catalogue", "gatekeeper-pods", "directory-pods", "portal-pods"),
        *("gateway-errors", "monitoring-rules"),
    }
    reason = "gatekeeper_insufficient_quota"
    assert [reason in json.dumps(site["gateway-errors"]) for site in (made, plain)] == [True, False]
    alerts = [
        {rule.get("alert") for group in site["monitoring-rules"]["spec"]["groups"] for rule in group["rules"]} & ALERTS
        for site in (made, plain)
    ]
    assert alerts == [ALERTS, set()]
