"""The portal with an issuer, a real directory and PostgreSQL: log in, order, keys, usage, who may do what."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from services.directory.keys import digest_of
from services.portal.desk import MOST_KEYS
from tests.unit.services import portal_rig
from tests.unit.services.directory_rig import OPERATOR, PEPPER, READER, chain
from tests.unit.services.portal_rig import (
    CHAT,
    CLIENT_SECRET,
    EMBED,
    LEDGER_TOKEN,
    ORDERABLE,
    SESSION_SECRET,
    Browser,
    Portal,
    token_of,
)
from tests.unit.services.postgres_rig import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.row("000.01")]

KEY = re.compile(r"sk-[a-z2-7]{10}-[a-z2-7]{52}")
NO_KEY = "aaaaaaaaaa"


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    with portal_rig.running(tmp_path_factory.mktemp("portal")) as portal:
        yield portal


def ordered(browser: Browser, label: str = "laptop", **more: str) -> str:
    """A key of the chat model."""
    answer = browser.send_form("/orders", model=CHAT, name=label, days="30", **more)
    assert answer.status_code == 201, answer.text
    key: str = KEY.findall(answer.text)[0]
    return key


def id_of(key: str) -> str:
    return key.split("-")[1]


def state_of(portal: Portal, key: str) -> dict[str, object]:
    with portal.directory.client(OPERATOR) as client:
        keys = {row["id"]: row for row in client.get("/v1/keys").json()["keys"]}
    row: dict[str, object] = keys[id_of(key)]
    return row


@pytest.mark.row("000.37")
@pytest.mark.row("000.38")
def test_a_person_logs_in_chooses_orders_and_has_a_key_that_works(portal: Portal) -> None:
    browser = portal.logged_in("bob", then="/models/qwen3-32b?tenant=search")
    assert browser.landed == f"{portal.url}/models/qwen3-32b?tenant=search"
    page = browser.get("/models/qwen3-32b").text
    assert "0.8 s" in page
    assert "estimated" in page
    answer = browser.send_form("/orders", model=CHAT, name="laptop", days="30")
    (key,) = set(KEY.findall(answer.text))
    assert f"export OPENAI_API_KEY={key}" in answer.text
    assert f"{portal_rig.ENDPOINT}/v1" in answer.text
    with portal.directory.client(READER) as reader:
        known = {row["id"]: row for row in reader.get("/v1/changes").json()["keys"]}[id_of(key)]
    assert known["digest"] == digest_of(key, PEPPER.encode())
    assert (known["tenant"], known["models"]) == ("search", [CHAT])
    assert known["name"].startswith("bob-laptop-")
    # Shown once.
    listed = browser.get("/keys").text
    assert "bob-laptop" in listed
    assert not KEY.search(listed)


@pytest.mark.parametrize(("model", "path"), [(CHAT, "/v1/chat/completions"), (EMBED, "/v1/embeddings")])
def test_the_lines_of_the_page_work(portal: Portal, model: str, path: str) -> None:
    page = portal.logged_in("ann").send_form("/orders", model=model, name="lines", days="7").text
    lines = {
        name: html.unescape(text) for name, text in re.findall(r'<pre id="(\w+)"[^>]*>(.*?)</pre>', page, re.DOTALL)
    }
    environment = lines["environment"].replace(portal_rig.ENDPOINT, portal.services.url)
    for text, printed in ((lines["curl"], f'"path": "{path}"'), (f"{sys.executable} - <<E\n{lines['python']}E", "")):
        done = subprocess.run(["bash", "-c", environment + text], capture_output=True, text=True, check=True)
        assert printed in done.stdout
    assert done.stdout == {CHAT: "Hello you\n", EMBED: "4096\n"}[model]
    assert portal.services.keys[-1] == lines["key"]


def test_a_key_is_rotated_with_an_overlap_and_revoked_after_a_question(portal: Portal) -> None:
    browser = portal.logged_in("bob")
    old = ordered(browser)
    place = f"/keys/{id_of(old)}"
    answer = browser.send_form(f"{place}/rotate", at=f"{place}/rotate?tenant=search", hours="1")
    (new,) = set(KEY.findall(answer.text))
    assert state_of(portal, old)["state"] == state_of(portal, new)["state"] == "works"
    place = f"/keys/{id_of(new)}"
    assert "There is no way back" in browser.get(f"{place}/revoke?tenant=search").text
    assert state_of(portal, new)["state"] == "works"
    browser.send_form(f"{place}/revoke")
    assert state_of(portal, new)["state"] == "revoked"
    assert browser.get(f"{place}/revoke?tenant=search").status_code == 404


def test_a_person_has_a_bounded_number_of_keys(portal: Portal) -> None:
    opal = portal.logged_in("opal")
    for number in range(MOST_KEYS):
        last = ordered(opal, f"k{number}")
    fields = {"model": CHAT, "name": "more", "days": "7"}
    assert opal.send_form("/orders", **fields).status_code == 422
    assert opal.send_form(f"/keys/{id_of(last)}/rotate", hours="0").status_code == 422
    opal.send_form(f"/keys/{id_of(last)}/revoke")
    assert opal.send_form("/orders", **fields).status_code == 201


@pytest.mark.row("000.05")
def test_the_directorys_audit_names_the_person(portal: Portal) -> None:
    key = ordered(portal.logged_in("ann"))
    with portal.directory.client(OPERATOR) as client:
        (act,) = (act for act in chain(client) if act["subject"] == id_of(key))
    assert (act["actor"].split()[0], act["source"], act["action"]) == ("portal:ann", "portal", "create")
    assert re.search(
        rf"portal:ann [a-z2-7]{{8}} created {id_of(key)} of search/ann-laptop-", portal.directory.log.read_text()
    )


def test_what_others_have_is_not_there(portal: Portal) -> None:
    own = id_of(ordered(portal.logged_in("bob")))
    eve = portal.logged_in("eve")
    for tenant in ("search", "nothing"):
        for path in ("/", "/keys", "/usage", "/playground", f"/keys/{own}/revoke", "/usage/bill"):
            answer = eve.get(path, params={"tenant": tenant, "format": "csv"})
            assert (answer.status_code, "There is no such page for you." in answer.text) == (404, True), path
        for path in ("/orders", f"/keys/{own}/rotate", f"/keys/{own}/revoke", "/playground", "/playground/stream"):
            fields = {"model": CHAT, "name": "x", "days": "30", "hours": "1", "prompt": "hello"}
            assert eve.send_form(path, **fields | {"tenant": tenant}).status_code == 404, path
    # In a tenant of both, too: by the key's id, and a model that the tenant has not.
    assert eve.send_form(f"/keys/{own}/revoke", tenant="sales").status_code == 404
    assert eve.send_form("/orders", tenant="sales", model=EMBED, name="x", days="30").status_code == 404
    assert portal.logged_in("zoe").get("/keys").status_code == 404


def test_users_see_their_keys_and_admins_all_of_the_tenant(portal: Portal) -> None:
    with portal.directory.client(OPERATOR) as client:
        by_hand = client.post("/v1/keys", json={"tenant": "search", "name": "of-sitectl"}).json()["id"]
    of_ann = id_of(ordered(portal.logged_in("ann")))
    bob = portal.logged_in("bob")
    page = bob.get("/keys?tenant=search").text
    assert of_ann not in page
    assert by_hand not in page
    assert bob.send_form(f"/keys/{of_ann}/revoke").status_code == 404
    for name in ("ann", "opal"):
        assert by_hand in portal.logged_in(name).get("/keys?tenant=search").text
    assert portal.logged_in("opal").send_form(f"/keys/{by_hand}/revoke").status_code == 200


@pytest.mark.row("004.13")
def test_tokens_are_for_users_and_spend_and_bills_for_admins(portal: Portal) -> None:
    bob, ann = portal.logged_in("bob"), portal.logged_in("ann")
    page = bob.get("/usage?tenant=search").text
    assert "3,120" in page
    assert "Spend" not in page
    assert "Budget of" not in page
    # Of 20 million, with a fifth of the input's tokens as output.
    assert "7.22 M <small>left of 20 M" in page
    assert "ann-ci" not in page
    assert bob.get("/usage/bill?tenant=search&format=csv").status_code == 404
    page = ann.get("/usage").text
    assert "4.26 <small>EUR" in page
    assert "0.24 <small>left of 4.50 EUR" in page
    assert "left of" not in ann.get("/usage?month=2026-01").text
    assert "ann-ci" in page
    bill = ann.get(f"/usage/bill?tenant=search&month={portal_rig.this_month()}&format=focus")
    assert bill.text == "line,cost\n1,2.50\n"
    assert bill.headers["content-disposition"].endswith('-focus.csv"')
    assert portal.services.bills == [f"/v1/bills/search/{portal_rig.this_month()}?format=focus"]


def test_every_form_needs_the_sessions_token(portal: Portal) -> None:
    bob, other = portal.logged_in("bob"), portal.logged_in("bob")
    before = bob.get("/keys?tenant=search").text.count("<tr>")
    foreign = re.search(r'name="csrf" value="([^"]+)"', other.get("/").text)
    assert foreign
    fields = {"tenant": "search", "model": CHAT, "name": "x", "days": "30", "prompt": "hello", "hours": "1"}
    for path in (
        "/orders",
        f"/keys/{NO_KEY}/rotate",
        f"/keys/{NO_KEY}/revoke",
        f"/models/{ORDERABLE}/order",
        f"/orders/{NO_KEY}/decline",
        "/playground",
        "/playground/stream",
        "/logout",
    ):
        for token in ({}, {"csrf": ""}, {"csrf": foreign[1]}):
            assert bob.post(path, data=fields | token).status_code == 403, path
        with portal.client() as stranger:
            stranger.follow_redirects = False
            answer = stranger.post(path, data=fields)
            assert answer.status_code == 401 or answer.headers["location"] == "/login", path
    assert bob.get("/keys?tenant=search").text.count("<tr>") == before


@pytest.mark.parametrize("then", ["//evil.example", "/\\evil.example", "https://evil.example", "/%0d%0aX: y\r\n", "x"])
def test_a_log_in_leads_to_no_other_host(portal: Portal, then: str) -> None:
    assert portal.logged_in("bob", then=then).landed == f"{portal.url}/"


def test_an_answer_to_another_log_in_is_refused(portal: Portal) -> None:
    with portal.client() as browser:
        browser.get("/login")
        for query in ("code=x&state=y", "error=access_denied", ""):
            assert browser.get(f"/callback?{query}").status_code == 400
        assert browser.get("/keys").url.host == "localhost"


def test_a_session_that_is_changed_is_none(portal: Portal) -> None:
    browser = portal.logged_in("bob")
    data, _, signature = browser.cookies["portal"].partition(".")
    with portal.client() as thief:
        thief.cookies.set("portal", f"{data[:-4]}AAAA.{signature}")
        thief.follow_redirects = False
        assert thief.get("/keys").headers["location"].startswith("/login")


def test_the_log_in_uses_a_code_challenge(portal: Portal) -> None:
    with portal.client() as browser:
        browser.follow_redirects = False
        asked = httpx.URL(browser.get("/login").headers["location"]).params
    assert asked["code_challenge_method"] == "S256"
    assert asked["response_type"] == "code"
    assert asked["nonce"]


def test_the_playground_streams_by_a_key_that_is_never_shown(portal: Portal) -> None:
    browser, services = portal.logged_in("bob"), portal.services
    services.keys.clear()
    services.refusals = 2
    asked = {"model": CHAT, "prompt": "hello"}
    answer = browser.send_form("/playground/stream", **asked)
    texts = [json.loads(line)["text"] for line in answer.text.splitlines()]
    assert "".join(texts) == "Berlin <b>has</b> 3.9 million people."
    page = browser.send_form("/playground", **asked)
    assert "Berlin &lt;b&gt;has&lt;/b&gt; 3.9 million people." in page.text
    (key,) = set(services.keys)
    row = state_of(portal, key)
    assert row["expires"] == row["created"] + 3600  # type: ignore[operator]
    for text in (answer.text, page.text, browser.get("/keys?tenant=search").text, str(browser.cookies)):
        assert key not in text
    services.broken = True
    assert json.loads(browser.send_form("/playground/stream", **asked).text.splitlines()[-1]).keys() == {"error"}
    services.broken = False
    browser.send_form("/logout")
    assert state_of(portal, key)["state"] == "revoked"


def test_a_program_does_the_same_with_a_token_of_the_issuer(portal: Portal) -> None:
    with httpx.Client(base_url=f"{portal.url}/api/v1", timeout=40) as client:
        assert client.get("/keys").status_code == 401
        for wrong in (token_of(portal, "bob", client="another"), token_of(portal, "bob")[:-8] + "AAAAAAAA", "x"):
            assert client.get("/models", headers={"authorization": f"Bearer {wrong}"}).status_code == 401
        client.headers["authorization"] = f"Bearer {token_of(portal, 'bob')}"
        assert set(client.get("/models").json()["models"]) == {CHAT, EMBED}
        assert set(client.get("/tenants").json()["tenants"]) == {"sales", "search"}
        order = {"tenant": "search", "model": CHAT, "name": "ci", "expires_in_days": 30}
        made = client.post("/keys", json=order)
        assert (made.status_code, made.json()["endpoint"]) == (201, portal_rig.ENDPOINT)
        key_id = made.json()["id"]
        assert key_id in {key["id"] for key in client.get("/keys", params={"tenant": "search"}).json()["keys"]}
        rotated = client.post(f"/keys/{key_id}/rotate", json={"tenant": "search", "overlap_hours": 0})
        assert rotated.status_code == 201
        ended = client.delete(f"/keys/{rotated.json()['id']}", params={"tenant": "search"})
        assert ended.json()["state"] == "revoked"
        assert client.get("/usage", params={"tenant": "search"}).json()["total"]["requests"] == 3600
        assert client.get("/bills/search/2026-11").status_code == 404
        assert client.post("/keys", json=order | {"days": 1}).json()["error"]["code"] == "invalid_request"


def test_answers_are_not_kept_and_pages_load_nothing_of_others(portal: Portal) -> None:
    browser = portal.logged_in("ann")
    for path in ("/", "/models/qwen3-32b", "/models/glm-5-1", "/keys", "/orders", "/usage", "/playground", "/nothing"):
        answer = browser.get(path)
        assert answer.headers["cache-control"] == "no-store"
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "frame-ancestors 'none'; base-uri 'none'" in policy
        assert not re.search(r"<script(?! src)|<style|\sstyle=|\son[a-z]+=", answer.text), path
        assert set(re.findall(r'(?:src|href|action)="([^"/]|//)', answer.text)) <= {"#"}, path
    cookie = portal.client().get("/keys").history[1].headers["set-cookie"]
    assert "httponly; samesite=lax" in cookie
    (style,) = re.findall(r'"(/static/portal.css[^"]+)"', browser.get("/").text)
    for address, kept in ((style, "public, max-age=31536000, immutable"), (style[:-1], "no-store")):
        answer = browser.get(address)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, kept)


def test_over_https_cookie_and_host_are_bound_to_it(portal: Portal) -> None:
    secure = Portal(portal.folder, portal.directory, portal.services, portal.issuer)
    secure.start(**{"public-url": "https://portal.example.com/"})
    try:
        answer = httpx.get(f"{secure.url}/login")
        assert answer.headers["set-cookie"].startswith("__Host-portal=")
        assert answer.headers["set-cookie"].endswith("path=/; Max-Age=3600; httponly; samesite=lax; secure")
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
        assert "redirect_uri=https%3A%2F%2Fportal.example.com%2Fcallback" in answer.headers["location"]
    finally:
        secure.end()


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("client-secret-file", "/nothing", "/nothing cannot be used: got No such file or directory"),
        ("ca-file", __file__, "allowed: certificates in PEM"),
        ("gateway", "gateway:8080", "address gateway:8080 cannot be used"),
    ],
)
def test_an_option_that_cannot_be_is_named(portal: Portal, option: str, value: str, problem: str) -> None:
    command = [sys.executable, "-m", "services.portal", *portal.options(**{option: value})]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_of_a_secret_is_in_logs_or_cookies(portal: Portal) -> None:
    browser = portal.logged_in("bob")
    key = ordered(browser)
    browser.send_form("/playground", model=CHAT, prompt="a-prompt-that-no-log-has")
    browser.get(f"/keys/{key}/revoke?tenant=search")
    written = portal.log.read_text() + str(browser.cookies)
    assert "portal:bob@example.com" in written
    secrets = (CLIENT_SECRET, SESSION_SECRET, LEDGER_TOKEN, OPERATOR, "a-prompt-that-no-log-has")
    assert [secret for secret in secrets if secret in written] == []
    assert not KEY.search(written)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("option", "path", "part"),
    [("directory", "/keys", "directory of keys"), ("ledger", "/usage", "ledger of usage")],
)
def test_a_part_that_is_away_takes_its_pages_alone(portal: Portal, option: str, path: str, part: str) -> None:
    partly = Portal(portal.folder, portal.directory, portal.services, portal.issuer)
    partly.start(**{option: "http://127.0.0.1:9"})
    try:
        browser = partly.logged_in("ann")
        answer = browser.get(path)
        assert answer.status_code == 503
        assert f"The {part} does not answer now." in answer.text
        assert [browser.get(other).status_code for other in {"/", "/keys", "/usage", "/playground"} - {path}] == [
            200
        ] * 3
        metrics = httpx.get(f"{partly.url}/metrics").text
        assert f'portal_upstream_failures_total{{part="{part}"}}' in metrics
    finally:
        partly.end()


@pytest.mark.exhaustive
def test_without_the_issuer_people_who_are_in_go_on(portal: Portal) -> None:
    browser = portal.logged_in("ann")
    alone = Portal(portal.folder, portal.directory, portal.services, portal.issuer)
    alone.start(issuer="http://127.0.0.1:9")
    try:
        with alone.client() as stranger:
            answer = stranger.get("/")
        assert answer.status_code == 503
        assert "The log in service does not answer now." in answer.text
        cookie = {"portal": browser.cookies["portal"]}
        assert httpx.get(f"{alone.url}/keys", cookies=cookie).status_code == 200
    finally:
        alone.end()
