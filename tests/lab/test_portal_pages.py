"""The portal in Chromium: order a key, see it once, ask a model, revoke; every page for eyes, keyboard and readers.

UPDATE_PICTURES=1 writes the pictures of docs/how-to/portal.md again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from benchmarks import browser
from tests.lab.waiting import PATIENCE_S, eventually
from tests.unit.services import portal_rig
from tests.unit.services.portal_rig import Portal
from tests.unit.services.postgres_rig import ROOT

pytestmark = pytest.mark.row("000.01")

PAGES = (
    "/",
    "/models/qwen3-32b",
    "/models/qwen3-embedding-8b",
    "/models/glm-5-1",
    "/models/kimi-k2-5",
    "/orders",
    "/keys",
    "/prompts",
    "/prompts/greeting?version=1",
    "/usage",
    "/playground",
    "/nothing",
    "/goodbye",
)
LOOKS = {"light": ("light", 1200), "dark": ("dark", 1200), "narrow": ("light", 360), "narrow-dark": ("dark", 360)}
OPERATORS = ("/platform", "/platform/suspend?key=search.ci", "/")
PICTURES = {
    "/": "models",
    "/models/qwen3-32b": "model",
    "/models/glm-5-1": "order",
    "/keys": "keys",
    "/orders": "orders",
    "/prompts/greeting?version=1": "prompt",
    "/usage": "usage",
    "/platform": "platform",
}
PROMPT = "You answer customers of {{company}} in {{language}}.\nKeep to the facts of the ticket.\n"


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    with portal_rig.running(tmp_path_factory.mktemp("portal")) as portal:
        yield portal


@pytest.fixture(scope="module")
def filled(portal: Portal) -> Portal:
    """With prompts, an order, a suspended key and signals, as pages show them."""
    fill(portal)
    return portal


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    # Its own patience is 5 s, which is little on a busy machine.
    expect.set_options(timeout=PATIENCE_S * 1000)
    with browser.chromium() as running:
        yield running


def opened(chromium: Browser, portal: Portal, person: str, **more: Any) -> Page:
    """A page of a person who is logged in. It fails for what the page's own policy refuses."""
    context = chromium.new_context(**more)
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    browser.logged_in(page, portal.url, person)
    page.on("console", lambda message: pytest.fail(message.text) if "Security" in message.text else None)
    return page


def check_looks(page: Page, name: str) -> None:
    """No finding of axe, and nothing wider than the window."""
    findings = Axe().run(page).response["violations"]
    assert [(name, rule["id"], [node["html"] for node in rule["nodes"]]) for rule in findings] == []
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], name


@pytest.mark.row("000.37")
@pytest.mark.row("000.38")
def test_a_person_orders_a_key_sees_it_once_and_revokes_it(portal: Portal, chromium: Browser) -> None:
    page = opened(chromium, portal, "bob", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_label("Team").select_option("search")
    expect(page.get_by_text("ready", exact=True)).to_have_count(2)
    page.get_by_role("link", name="Qwen3 32B").click()
    page.get_by_label("Name of the key").fill("laptop")
    page.get_by_role("button", name="Order").click()
    key = page.locator("#key").inner_text()
    assert key.startswith("sk-")
    page.get_by_role("button", name="Copy Key").click()
    # Copying goes on behind the click.
    eventually(lambda: page.evaluate("navigator.clipboard.readText()") == key)
    check_looks(page, "made")
    # Loading it again orders nothing and shows nothing.
    page.reload()
    assert page.url == f"{portal.url}/keys"
    assert key not in page.content()
    row = page.get_by_role("row", name="bob-laptop")
    expect(row.get_by_text("works")).to_be_visible()
    row.get_by_role("link", name="Revoke").click()
    check_looks(page, "revoke")
    page.get_by_role("button", name="Revoke").click()
    page.get_by_text("1 ended").click()
    expect(page.get_by_role("row", name="bob-laptop").get_by_text("revoked")).to_be_visible()


@pytest.mark.row("000.37")
def test_a_person_orders_a_model_and_an_admin_declines_it(portal: Portal, chromium: Browser) -> None:
    page = opened(chromium, portal, "bob")
    page.get_by_label("Team").select_option("search")
    page.get_by_role("link", name="GLM 5.1").click()
    page.get_by_label("What it is for").fill("agents")
    page.get_by_role("button", name="Order for search").click()
    row = page.get_by_role("row", name="GLM 5.1")
    expect(row.get_by_text("asked", exact=True)).to_be_visible()
    expect(row.get_by_role("link", name="Decline")).to_have_count(0)
    check_looks(page, "orders")
    page = opened(chromium, portal, "ann")
    page.goto(f"{portal.url}/orders")
    page.get_by_role("row", name="GLM 5.1").get_by_role("link", name="Decline").click()
    check_looks(page, "decline")
    page.get_by_label("Reason").fill("qwen3-32b has room")
    page.get_by_role("button", name="Decline").click()
    expect(page.get_by_role("row", name="GLM 5.1").get_by_text("qwen3-32b has room")).to_be_visible()


def test_an_answer_comes_in_pieces_and_is_text(portal: Portal, chromium: Browser) -> None:
    page = opened(chromium, portal, "ann")
    page.goto(f"{portal.url}/playground")
    page.get_by_label("Prompt").fill("Who lives in Berlin?")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("log")).to_have_text("Berlin <b>has</b> 3.9 million people.")
    portal.services.broken = True
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("log")).to_contain_text("the replica ended")
    portal.services.broken = False
    assert page.url == f"{portal.url}/playground"


def test_without_a_script_the_same_forms_work(portal: Portal, chromium: Browser) -> None:
    page = opened(chromium, portal, "bob", java_script_enabled=False)
    page.get_by_label("Team").select_option("search")
    page.get_by_role("button", name="Switch").click()
    page.goto(f"{portal.url}/playground")
    page.get_by_label("Prompt").fill("Who lives in Berlin?")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("log")).to_have_text("Berlin <b>has</b> 3.9 million people.")


def test_the_keyboard_reaches_everything_with_a_visible_focus(portal: Portal, chromium: Browser) -> None:
    page = opened(chromium, portal, "ann")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Qwen3 32B")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_label("Name of the key").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.type("desk")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Your key is ready")).to_be_visible()


@pytest.mark.parametrize(
    "look", ["light", "narrow-dark", *(pytest.param(look, marks=pytest.mark.exhaustive) for look in ("dark", "narrow"))]
)
def test_every_page_is_accessible(filled: Portal, chromium: Browser, look: str) -> None:
    scheme, width = LOOKS[look]
    screen: Any = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    page = opened(chromium, filled, "ann", **screen)
    browser.order(page, filled.url, "qwen3-32b", look)
    check_looks(page, "made")
    picture(page, look, "made")
    page.goto(f"{filled.url}/playground")
    page.get_by_label("Prompt").fill("Who lives in Berlin?")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_role("log")).to_contain_text("people")
    check_looks(page, "answer")
    picture(page, look, "playground")
    for path in PAGES:
        see(page, filled, path, look)
    page.goto(f"{filled.url}/keys")
    page.get_by_role("row", name=f"ann-{look}").first.get_by_role("link", name="Rotate").click()
    check_looks(page, "rotate")
    page.get_by_role("button", name="Rotate").click()
    see(page, filled, "/keys", look)
    page = opened(chromium, filled, "opal", **screen)
    for path in OPERATORS:
        see(page, filled, path, look)
    page = opened(chromium, filled, "zoe", **screen)
    for path in ("/", "/keys"):
        see(page, filled, path, "")


def see(page: Page, portal: Portal, path: str, look: str) -> None:
    page.goto(portal.url + path)
    check_looks(page, path)
    if path in PICTURES:
        picture(page, look, PICTURES[path])


def picture(page: Page, look: str, name: str) -> None:
    """For docs/how-to/portal.md, where it is asked for."""
    if look != "light" or "UPDATE_PICTURES" not in os.environ:
        return
    size = page.viewport_size
    page.set_viewport_size({"width": 1000, "height": 760})
    page.screenshot(path=ROOT / "docs" / "pictures" / f"portal-{name}.png")
    page.set_viewport_size(size or {"width": 1200, "height": 800})


def fill(portal: Portal) -> None:
    ann, opal = portal.logged_in("ann"), portal.logged_in("opal")
    for text in (PROMPT, PROMPT.replace("Keep", "Be short, and keep")):
        ann.send_form("/prompts", id="greeting", text=text)
    ann.send_form("/models/glm-5-1/order", note="agents of the search team")
    opal.send_form("/platform/suspend", key="search.ci-nightly", reason="seen in a public repository")
    now = int(time.time())
    roams = {"tenant": "search", "key": "ci-nightly", "signal": "networks", "figures": {"networks": 41}}
    refused = {"tenant": "sales", "key": "app", "signal": "refusals", "figures": {"refused": 812, "requests": 900}}
    portal.services.signals = [roams | {"seen": now, "on": True}, refused | {"seen": now - 80_000, "on": False}]
