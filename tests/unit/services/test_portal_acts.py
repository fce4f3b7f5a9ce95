"""Prompts of a team, what operators see and do, and a client that is made of the portal's description."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.services import portal_rig
from tests.unit.services.directory_rig import OPERATOR, chain
from tests.unit.services.portal_rig import CHAT, ORDERABLE, Portal, token_of

pytestmark = [pytest.mark.processes, pytest.mark.row("000.01")]

FIRST = "You answer customers of {{company}}.\nKeep to the facts.\n"
SECOND = FIRST.replace("Keep", "Be short, and keep")


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    with portal_rig.running(tmp_path_factory.mktemp("portal")) as portal:
        yield portal


def text_in_use(portal: Portal, prompt: str) -> str:
    """As gatekeepers get it."""
    with portal.directory.client(OPERATOR) as client:
        versions = client.get(f"/v1/prompts/search/{prompt}").json()["versions"]
    (text,) = (version["text"] for version in versions if version["in_use"])
    return str(text)


@pytest.mark.row("003.05", "003.13")
def test_an_admin_puts_a_prompt_compares_versions_and_goes_back(portal: Portal) -> None:
    ann, bob = portal.logged_in("ann"), portal.logged_in("bob", then="/?tenant=search")
    assert "has no prompt yet" in bob.get("/prompts").text
    for text in (FIRST, SECOND):
        # As browsers send it.
        answer = ann.send_form("/prompts", id="greeting", text=text.replace("\n", "\r\n"))
        assert answer.url.path == "/prompts/greeting", answer.text
    assert text_in_use(portal, "greeting") == SECOND
    page = bob.get("/prompts/greeting", params={"version": 1}).text
    assert "-Be short, and keep to the facts." in page
    assert "+Keep to the facts." in page
    assert "Use version" not in page
    assert ann.send_form("/prompts/greeting/use", version="1").status_code == 200
    assert text_in_use(portal, "greeting") == FIRST
    assert ann.send_form("/prompts/greeting/remove", version="1").status_code == 422
    assert ann.send_form("/prompts/greeting/remove", version="2").status_code == 200
    for number in ("2", "9", "x"):
        assert ann.get("/prompts/greeting", params={"version": number}).status_code == 404
    # What is refused names what is allowed, and members change nothing.
    assert "1 to 40 lower-case letters" in ann.send_form("/prompts", id="Greeting", text="x").text
    for path in ("/prompts", "/prompts/greeting/use", "/prompts/greeting/remove"):
        assert bob.send_form(path, id="greeting", text="mine", version="1").status_code == 404
    assert portal.logged_in("eve").get("/prompts/greeting").status_code == 404
    with portal.directory.client(OPERATOR) as client:
        acts = [(act["action"], act["actor"].split()[0]) for act in chain(client) if act["subject"] == "greeting"]
    assert acts == [(f"{act} prompt", "portal:ann") for act in ("put", "put", "use", "remove")]


@pytest.mark.row("000.05", "004.04")
def test_operators_see_orders_signals_and_the_audit_and_suspend(portal: Portal) -> None:
    now = int(time.time())
    portal.services.signals = [
        {"tenant": "search", "key": "ci", "signal": "networks", "figures": {"networks": 41}, "seen": now, "on": True}
    ]
    opal, ann = portal.logged_in("opal"), portal.logged_in("ann")
    ann.send_form(f"/models/{ORDERABLE}/order", note="agents")
    page = opal.get("/platform").text
    for shown in ("GLM 5.1", "agents", "networks 41", "order model", "No key is suspended"):
        assert shown in page, shown
    page = opal.send_form("/platform/suspend", key="search.ci", reason="in a public repository").text
    assert "why: in a public repository" in page
    with portal.directory.client(OPERATOR) as client:
        assert [held["name"] for held in client.get("/v1/suspensions").json()["suspensions"]] == ["ci"]
        newest = chain(client)[-1]
    assert (newest["action"], newest["actor"].split()[0], newest["source"]) == ("suspend", "portal:opal", "portal")
    assert opal.send_form("/platform/suspend", key="search.ci", reason=" ").status_code == 422
    assert opal.send_form("/platform/suspend", key="ci", reason="x").status_code == 422
    assert "No key is suspended" in opal.send_form("/platform/lift", key="search.ci").text
    # The oldest act has a page, too, and nothing before it.
    page = opal.get("/platform", params={"before": newest["number"]}).text
    assert "in a public repository" not in page
    assert "order model" in page
    assert opal.get("/platform", params={"before": 1}).status_code == 200
    for path in ("/platform", "/platform/suspend?key=search.ci"):
        assert ann.get(path).status_code == 404
    for path in ("/platform/suspend", "/platform/lift"):
        assert ann.send_form(path, key="search.ci", reason="x").status_code == 404
    assert ">Platform<" not in ann.get("/").text


_PROGRAM = f"""
from portal_client import AuthenticatedClient
from portal_client.api.keys import keys, order_key, revoke_key
from portal_client.models import ApiKeyOrder, MadeKey, ShownFailure, ShownKeys

client = AuthenticatedClient(base_url="URL", token="TOKEN")
order = ApiKeyOrder(tenant="search", model="{CHAT}", name="batch", expires_in_days=30)
made = order_key.sync(client=client, body=order)
assert isinstance(made, MadeKey), made
listed = keys.sync(client=client, tenant="search")
assert isinstance(listed, ShownKeys)
assert made.id in [key.id for key in listed.keys if key.state == "works"]
revoke_key.sync(client=client, key_id=made.id, tenant="search")
refused = order_key.sync(client=client, body=ApiKeyOrder(tenant="search", model="x", name="y", expires_in_days=30))
assert isinstance(refused, ShownFailure), refused
print(refused.error.message)
"""


def test_a_client_that_is_made_of_the_description_has_types_and_works(portal: Portal, tmp_path: Path) -> None:
    made = tmp_path / "portal-client"
    generator = str(Path(sys.executable).with_name("openapi-python-client"))
    generate = [generator, "generate", "--url", f"{portal.url}/openapi.json", "--meta", "setup"]
    answer = subprocess.run([*generate, "--output-path", str(made)], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM.replace("URL", portal.url).replace("TOKEN", token_of(portal, "bob")))
    run = [sys.executable, str(program)]
    check = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)]
    for words in (check, run):
        answer = subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=made, env={"PYTHONPATH": str(made), "PATH": ""}
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout == (
        "search has no such model. Choose from the lists of this page. If you expected it, ask who runs the platform "
        "about your groups.\n"
    )
