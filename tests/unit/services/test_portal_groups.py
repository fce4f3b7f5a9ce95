"""Where the portal finds a person's groups in the issuer's tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import oidc_provider_mock
import pytest

from services.portal.login import _person_of
from tests.unit.services import portal_rig
from tests.unit.services.portal_rig import Portal, token_of

pytestmark = pytest.mark.row("000.01")

ROLES = "realm_access.roles"


@pytest.mark.parametrize(
    ("claim", "claims", "groups"),
    [
        ("groups", {"groups": ["a", "b", 7]}, {"a", "b"}),
        ("roles", {"groups": ["a"], "roles": ["b"]}, {"b"}),
        (ROLES, {"realm_access": {"roles": ["a"]}, "roles": ["b"]}, {"a"}),
        ("https://site.example/groups", {"https://site.example/groups": ["a"]}, {"a"}),
        # The claim itself comes before one within another.
        (ROLES, {ROLES: ["a"], "realm_access": {"roles": ["b"]}}, {"a"}),
        # Without the claim, a person is in no group, whatever else their token has.
        (ROLES, {"groups": ["a"]}, set()),
        (ROLES, {"realm_access": ["roles"]}, set()),
        (ROLES, {"realm_access": {"roles": "a"}}, set()),
        ("groups", {"groups": {"a": 1}}, set()),
    ],
)
def test_groups_are_those_of_the_claim_that_the_site_names(
    claim: str, claims: dict[str, Any], groups: set[str]
) -> None:
    assert _person_of({"sub": "1", **claims}, claim).groups == groups


@pytest.mark.processes
def test_a_person_whose_roles_are_within_a_claim_is_in_their_tenant(tmp_path: Path) -> None:
    """On pages after a log in, and by a token of the issuer."""
    user = oidc_provider_mock.User(sub="kim", claims={"realm_access": {"roles": ["search-admins"]}})
    with portal_rig.running(tmp_path) as first, oidc_provider_mock.run_server_in_thread(user_claims=[user]) as issuer:
        portal = Portal(first.folder, first.directory, first.services, f"http://localhost:{issuer.server_port}")
        portal.start(**{"groups-claim": ROLES})
        try:
            assert portal.logged_in("kim").get("/keys", params={"tenant": "search"}).status_code == 200
            bearer = {"Authorization": f"Bearer {token_of(portal, 'kim')}"}
            tenants = httpx.get(f"{portal.url}/api/v1/tenants", headers=bearer).json()
        finally:
            portal.end()
    assert "search" in str(tenants)
