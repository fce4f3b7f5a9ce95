"""From a log in to the bill: a person orders a model on the portal's pages, calls it, and sees what that used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from benchmarks.browser import chromium, logged_in, order
from benchmarks.issuer import issuing
from floor.namespaces import GATEWAY
from lab.cluster import operator_database
from services.portal import variables
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat

pytestmark = [pytest.mark.row("000.01"), pytest.mark.row("000.37"), pytest.mark.row("000.38", "004.13")]

MODEL, ORDERABLE, TENANT = "qwen3-32b", "llama-3-1", "acme"
HOST, LOGIN = "portal.site.example", "portal-login"
PEOPLE = {"bob": ["chemists"], "ann": ["chemists-lead"], "zoe": ["others"]}
TOKENS = 5


class _ByAddress(httpx.HTTPTransport):
    """What DNS does: the portal's name leads to its load balancer."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != HOST:
            return super().handle_request(request)
        # Another request: cookies are of the name that this one is for.
        return super().handle_request(
            httpx.Request(
                request.method,
                request.url.copy_with(host=self._address),
                headers=request.headers,
                stream=request.stream,
                extensions=request.extensions,
            )
        )


class Person(httpx.Client):
    """A browser of one person, without a screen."""

    def __init__(self, address: str, name: str) -> None:
        transport = _ByAddress(address)
        super().__init__(base_url=f"http://{HOST}", transport=transport, follow_redirects=True, timeout=60)
        form = self.get("/login")
        assert form.url.path == "/oauth2/authorize", form.text
        self.landed = self.post(form.url, data={"sub": name})

    def send_order(self, model: str) -> httpx.Response:
        """For a key of the tenant."""
        order = {"csrf": self._csrf(), "tenant": TENANT, "model": model, "name": "laptop", "days": "90"}
        return self.post("/orders", data=order)

    def send_model_order(self, model: str) -> httpx.Response:
        """For the tenant; the page that it leads to."""
        return self.post(f"/models/{model}/order", data={"csrf": self._csrf(), "tenant": TENANT, "note": "agents"})

    def ask(self, model: str) -> str:
        """The page with the playground's answer, as a browser without a script gets it."""
        question = {"csrf": self._csrf(), "tenant": TENANT, "model": model, "prompt": "Where am I?"}
        return self.post("/playground", data=question).text

    def _csrf(self) -> str:
        token = re.search(r'name="csrf" value="([^"]+)"', self.get("/").text)
        assert token, "no form on the page"
        return token[1]


def opens(address: str) -> bool:
    """Whether a person gets in: a gateway that has just been made may answer nothing yet, or not lead there."""
    try:
        return Person(address, "bob").landed.status_code == 200
    except (AssertionError, httpx.TransportError):
        return False


@pytest.fixture(scope="module")
def portal(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """The site with portal, directory and ledger, and the portal's address."""
    address = str(site.lab.network.load_balancers[20])
    operator_database.ensure(site.lab)
    secrets = {
        name: f"url={operator_database.url(site.lab, name)}"
        for name in (operator_database.DIRECTORY, operator_database.USAGE)
    }
    for name, value in (secrets | {LOGIN: f"{variables.CLIENT_SECRET_KEY}=of-the-portal"}).items():
        # Earlier tests of the same lab may have left it.
        kubectl(site.lab, "delete", "secret", name, "-n", GATEWAY, "--ignore-not-found")
        kubectl(site.lab, "create", "secret", "generic", name, "-n", GATEWAY, f"--from-literal={value}")

    def ordered(document: Document) -> None:
        document["callers"] = {
            "decided_by": "gatekeeper",
            "database_secret": operator_database.DIRECTORY,
            "pepper": "disposable",
        }
        prices = {"input": 1000, "output": 2000}
        document["usage"] = {
            "database_secret": operator_database.USAGE,
            "prices": [{"since": "2026-01-01", "models": {MODEL: prices}}],
        }
        document["portal"] = {
            "hostname": HOST,
            "port": 80,
            "address": address,
            "issuer": issuer.url,
            "client_secret": LOGIN,
        }
        document["orderable"] = {ORDERABLE: {"catalogue": "llama-3.1-8b", "server": {"engine": "simulator"}}}
        document["tenants"][TENANT]["people"] = {"admins": PEOPLE["ann"], "users": PEOPLE["bob"]}

    with (
        issuing(str(site.lab.network.uplink[1]), PEOPLE) as issuer,
        edited_stack(site.lab, tmp_path_factory.mktemp("portal")) as stack,
    ):
        front = stack.up(ordered)
        until(lambda: opens(address), what="the portal")
        yield replace(site, front=front), address


def test_a_person_orders_in_a_browser_calls_and_sees_tokens_and_bill(portal: tuple[Site, str], tmp_path: Path) -> None:
    """Pictures of each step are kept beside the log of a failure."""
    site, address = portal
    with chromium({HOST: address}) as running:
        page = running.new_page()
        page.set_default_timeout(60_000)
        logged_in(page, f"http://{HOST}", "bob")
        page.screenshot(path=tmp_path / "models.png")
        key = order(page, f"http://{HOST}", MODEL, "laptop")
        page.screenshot(path=tmp_path / "made.png")
        # The address that the page shows is the one that a client takes.
        assert page.locator("#endpoint").inner_text() == site.front.endpoint
        with site.http(key=key) as client:
            until(
                lambda: client.post("/chat/completions", json=chat(MODEL, tokens=TOKENS)).is_success, what="an answer"
            )
            # The key opens what was ordered, and nothing else.
            assert client.post("/chat/completions", json=chat("glm-5-1")).status_code == 403

        def used() -> bool:
            page.goto(f"http://{HOST}/usage")
            row = page.get_by_role("table", name="By key").get_by_role("row", name="bob-laptop")
            return row.count() == 1 and row.get_by_role("cell").nth(3).inner_text() == str(TOKENS)

        until(used, what="its tokens, on the page")
        page.screenshot(path=tmp_path / "usage.png")
        page = running.new_page(accept_downloads=True)
        logged_in(page, f"http://{HOST}", "ann")
        page.goto(f"http://{HOST}/usage")
        with page.expect_download() as bill:
            page.get_by_role("link", name="JSON").click()
        lines = json.loads(bill.value.path().read_text())["lines"]
    (line,) = (line for line in lines if line["kind"] == "output" and line["key"].startswith("bob-laptop"))
    assert (line["quantity"], line["unit_price"]) == (TOKENS, "2000.00")


@pytest.mark.row("003.02")
def test_the_playground_asks_the_gateway(portal: tuple[Site, str]) -> None:
    _, address = portal
    answer = re.search(r'role="log"[^>]*>([^<]+)<', Person(address, "bob").ask(MODEL))
    assert answer
    assert answer[1].strip()


@pytest.mark.row("opening 11")
def test_a_model_that_is_not_served_has_its_verdict_and_is_ordered(portal: tuple[Site, str]) -> None:
    _, address = portal
    person = Person(address, "bob")
    assert "It fits on this site beside what is served" in person.get(f"/models/{ORDERABLE}").text
    page = person.send_model_order(ORDERABLE)
    assert page.url.path == "/orders"
    assert "asked" in page.text
    # One that is open is enough.
    assert person.send_model_order(ORDERABLE).status_code == 422
    assert Person(address, "zoe").send_model_order(ORDERABLE).status_code == 404


def test_a_stranger_orders_nothing_and_measures_nothing(portal: tuple[Site, str]) -> None:
    _, address = portal
    stranger = Person(address, "zoe")
    assert stranger.send_order(MODEL).status_code == 404
    assert TENANT not in stranger.get("/keys").text
    assert "portal_requests_total" not in stranger.get("/metrics").text
