"""Log in at a real Keycloak in Chromium: roles by its groups, tokens for programs, log out, keys that it withdraws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from playwright.sync_api import Page, expect

from benchmarks.browser import chromium
from lab.paths import Lab
from tests.lab import keycloak_server
from tests.lab.keycloak_server import Keycloak
from tests.lab.waiting import PATIENCE_S, eventually
from tests.unit.services import portal_rig
from tests.unit.services.portal_rig import CHAT, Portal

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.01", "000.38")]

PEOPLE = {"ann": ["search-admins"], "bob": ["search-people"], "opal": ["platform"], "zoe": ["others"]}


@pytest.fixture(scope="module")
def both(module_lab_of_tools: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Portal, Keycloak]]:
    folder = tmp_path_factory.mktemp("portal")
    with portal_rig.running(folder) as portal, ExitStack() as stack:
        keycloak = stack.enter_context(keycloak_server.running(module_lab_of_tools, folder, PEOPLE, portal.url))
        portal.end()
        portal.issuer = keycloak.issuer
        portal.start()
        yield portal, keycloak


@pytest.fixture
def page() -> Iterator[Page]:
    expect.set_options(timeout=PATIENCE_S * 1000)
    with chromium() as running:
        page = running.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda message: pytest.fail(message.text) if "Security" in message.text else None)
        yield page


@pytest.mark.parametrize(
    ("person", "role", "pages"),
    [("ann", "ann · admin", 6), ("bob", "bob", 6), ("opal", "opal · operator", 7)],
)
def test_a_role_is_that_of_keycloaks_groups(
    both: tuple[Portal, Keycloak], page: Page, person: str, role: str, pages: int
) -> None:
    portal, _ = both
    page.goto(f"{portal.url}/keys")
    keycloak_server.log_in(page, person)
    expect(page.get_by_role("heading", name="Keys", exact=True)).to_be_visible()
    expect(page.get_by_text(role, exact=True)).to_be_visible()
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(pages)


def test_a_log_out_ends_the_session_at_keycloak_too(both: tuple[Portal, Keycloak], page: Page) -> None:
    portal, keycloak = both
    before = keycloak.sessions("zoe")
    page.goto(f"{portal.url}/")
    keycloak_server.log_in(page, "zoe")
    expect(page.get_by_text("You are in no team of this site yet.")).to_be_visible()
    assert keycloak.sessions("zoe") == before + 1
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{keycloak.address}/**")
    # It has no token of the session to know it by, so it asks.
    page.get_by_role("button", name="Logout").click()
    eventually(lambda: keycloak.sessions("zoe") == before)
    page.goto(f"{portal.url}/keys")
    expect(page.get_by_role("button", name="Sign In")).to_be_visible()


def test_a_program_orders_with_keycloaks_token(both: tuple[Portal, Keycloak]) -> None:
    portal, keycloak = both
    with httpx.Client(base_url=f"{portal.url}/api/v1", timeout=60) as client:
        client.headers["authorization"] = f"Bearer {keycloak.token('bob', 'another')}"
        assert client.get("/models").status_code == 401
        client.headers["authorization"] = f"Bearer {keycloak.token('bob')}"
        order = {"tenant": "search", "model": CHAT, "name": "ci", "expires_in_days": 30}
        assert client.post("/keys", json=order).status_code == 201


def test_a_key_that_keycloak_withdrew_signs_no_more_tokens(both: tuple[Portal, Keycloak]) -> None:
    portal, keycloak = both
    old = {"authorization": f"Bearer {keycloak.token('bob')}"}
    address = f"{portal.url}/api/v1/models"
    assert httpx.get(address, headers=old).status_code == 200
    keycloak.replace_keys()
    new = {"authorization": f"Bearer {keycloak.token('bob')}"}
    # It is signed with a key that the portal has not read yet, which it then reads; so the old one is none.
    assert httpx.get(address, headers=new).status_code == 200
    assert httpx.get(address, headers=old).status_code == 401
