"""Orders of models that are not served: asked at a page or by a program, proposed, declined, served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.services import portal_rig
from tests.unit.services.directory_rig import OPERATOR, READER
from tests.unit.services.portal_rig import CATALOGUE, EMBED, ORDERABLE, TOO_LARGE, Portal, api

pytestmark = [pytest.mark.processes, pytest.mark.row("000.01"), pytest.mark.row("000.37", "opening 11")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    with portal_rig.running(tmp_path_factory.mktemp("portal")) as portal:
        yield portal


@pytest.fixture
def portal(running: Portal) -> Portal:
    """Without an order, and as the site was at first."""
    assert running.server
    running.server.sql("DELETE FROM model_orders")
    running.offer(CATALOGUE)
    return running


def orders(portal: Portal, person: str, tenant: str = "search") -> list[dict[str, Any]]:
    with api(portal, person) as client:
        listed: list[dict[str, Any]] = client.get("/orders", params={"tenant": tenant}).json()["orders"]
    return listed


def serve(portal: Portal, model: str, tenant: str) -> None:
    """What `up` does with a merged change: both files have the model."""
    entry = {**CATALOGUE["orderable"][model], "revision": "1"}
    tenants = json.loads(json.dumps(CATALOGUE["tenants"]))
    tenants[tenant]["models"].append(model)
    changed = CATALOGUE | {"models": {**CATALOGUE["models"], model: entry}, "orderable": {}, "tenants": tenants}
    portal.offer(changed)


def test_an_order_goes_from_a_page_to_a_key(portal: Portal) -> None:
    bob = portal.logged_in("bob", then="/?tenant=search")
    page = bob.get("/").text
    assert "Models you can order" in page
    assert "36 minutes" in page
    page = bob.get(f"/models/{ORDERABLE}").text
    for shown in ("16 GPUs", "384 GPU hours a day", "61.12", "36 minutes", "5 hours", "catalogue: glm-5.1-fp8"):
        assert shown in page, shown
    page = bob.send_form(f"/models/{ORDERABLE}/order", note=" agents,\n in two teams ").text
    assert "asked" in page
    (order,) = orders(portal, "ann")
    assert {key: order[key] for key in ("tenant", "model", "note", "state")} == {
        "tenant": "search",
        "model": ORDERABLE,
        "note": "agents, in two teams",
        "state": "asked",
    }
    assert order["asked_by"].startswith("portal:bob@example.com ")
    again = bob.send_form(f"/models/{ORDERABLE}/order")
    assert (again.status_code, "has ordered it already" in again.text) == (422, True)
    # A person proposes it, with `sitectl order propose`.
    link = "https://forge.example/site/pull/7"
    with portal.directory.client(OPERATOR) as client:
        client.post(f"/v1/orders/{order['id']}", json={"state": "proposed", "why": link})
    page = bob.get("/orders").text
    assert f'<a href="{link}" rel="noreferrer">' in page
    assert "Make a key" not in page
    serve(portal, ORDERABLE, "search")
    page = bob.get("/orders").text
    assert re.search(rf'href="/models/{ORDERABLE}\?tenant=search">Make a key', page)
    made = bob.send_form("/orders", model=ORDERABLE, name="laptop", days="30")
    assert made.status_code == 201
    assert [row["state"] for row in portal_rows(portal)] == ["served"]


def portal_rows(portal: Portal) -> list[dict[str, Any]]:
    with portal.directory.client(OPERATOR) as client:
        rows: list[dict[str, Any]] = client.get("/v1/orders").json()["orders"]
    return rows


def test_what_does_not_fit_cannot_be_ordered_and_its_reason_is_shown(portal: Portal) -> None:
    bob = portal.logged_in("bob", then="/?tenant=search")
    page = bob.get(f"/models/{TOO_LARGE}").text
    assert "each takes 8 GPUs of one node" in page
    assert f"/models/{TOO_LARGE}/order" not in page
    answer = bob.send_form(f"/models/{TOO_LARGE}/order")
    assert (answer.status_code, "0 GPUs left beside the others" in answer.text) == (422, True)
    assert bob.send_form("/models/nothing/order").status_code == 404
    assert orders(portal, "bob") == []


def test_a_model_of_other_teams_is_ordered_without_a_gpu(portal: Portal) -> None:
    with api(portal, "eve") as client:
        made = client.post("/orders", json={"tenant": "sales", "model": EMBED})
        assert (made.status_code, made.json()["state"]) == (201, "asked")
        assert client.post("/orders", json={"tenant": "search", "model": ORDERABLE}).status_code == 404
    with api(portal, "ann") as client:
        refused = client.post("/orders", json={"tenant": "search", "model": EMBED}).json()
    assert "search has it already" in refused["error"]["message"]


def test_where_admins_order_a_user_does_not(portal: Portal) -> None:
    portal.offer(CATALOGUE | {"orders_by": "admins", "notice_days": 90})
    bob, ann = portal.logged_in("bob", then="/?tenant=search"), portal.logged_in("ann")
    assert "Admins of search order models." in bob.get(f"/models/{ORDERABLE}").text
    assert bob.send_form(f"/models/{ORDERABLE}/order").status_code == 404
    assert ann.send_form(f"/models/{ORDERABLE}/order").status_code == 200
    assert "90 days" in ann.get("/models/qwen3-32b").text


def test_people_see_the_orders_of_their_tenant_and_admins_decline(portal: Portal) -> None:
    bob, eve, ann = (portal.logged_in(name) for name in ("bob", "eve", "ann"))
    bob.send_form(f"/models/{ORDERABLE}/order", tenant="search")
    (order,) = orders(portal, "bob")
    place = f"/orders/{order['id']}/decline"
    assert order["id"] in bob.get("/orders?tenant=search").text
    assert place not in bob.get("/orders?tenant=search").text
    assert order["id"] not in eve.get("/orders?tenant=sales").text
    for browser in (eve, bob):
        assert browser.get("/orders?tenant=search").status_code == (200 if browser is bob else 404)
        assert browser.get(f"{place}?tenant=search").status_code == 404
        assert browser.send_form(place, reason="no").status_code == 404
    # An order of another tenant is none of this one.
    assert portal.logged_in("opal").send_form(place, tenant="sales", reason="no").status_code == 404
    assert "Decline GLM 5.1?" in ann.get(place).text
    assert ann.send_form(place, reason="  ").status_code == 422
    page = ann.send_form(place, reason="Use <qwen3-32b>: it has room").text
    assert "Use &lt;qwen3-32b&gt;: it has room" in page
    assert ann.send_form(place, reason="again").status_code == 404
    with api(portal, "bob") as client:
        again = client.post("/orders", json={"tenant": "search", "model": ORDERABLE}).json()
        refusal = {"tenant": "search", "reason": "no"}
        assert client.post(f"/orders/{again['id']}/decline", json=refusal).status_code == 404
    with api(portal, "opal") as client:
        assert client.post(f"/orders/{again['id']}/decline", json=refusal).json()["state"] == "declined"
    assert [order["state"] for order in orders(portal, "bob")] == ["declined", "declined"]


def test_the_directory_names_what_is_wrong_and_keeps_one_order(portal: Portal) -> None:
    order = {"tenant": "sales", "model": ORDERABLE}
    with portal.directory.client(READER) as reader:
        assert reader.get("/v1/orders").status_code == 403
    with portal.directory.client(OPERATOR) as client:
        for body, named in (
            (order | {"tenant": "nothing"}, "tenant: no tenant of the site's file"),
            (order | {"model": "GLM 5"}, "model: not a name"),
            (order | {"note": "a\nb"}, "note: not one line"),
            (order | {"note": "a\u202eb"}, "note: not one line"),
            (order | {"note": "a" * 301}, "note: string should have at most 300 characters"),
            (order | {"by": "me"}, "by: extra inputs are not permitted"),
        ):
            answer = client.post("/v1/orders", json=body)
            assert (answer.status_code, named in answer.json()["error"]["message"]) == (422, True), answer.text
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: client.post("/v1/orders", json=order).status_code, range(8)))
        assert sorted(answers) == [201, *[422] * 7]
        (made,) = portal_rows(portal)
        change = {"state": "declined", "why": "no room"}
        assert client.post("/v1/orders/nothing", json=change).status_code == 404
        assert client.post(f"/v1/orders/{made['id']}", json=change | {"state": "served"}).status_code == 422
        assert client.post(f"/v1/orders/{made['id']}", json=change).json()["why"] == "no room"
        ended = client.post(f"/v1/orders/{made['id']}", json=change | {"state": "proposed"})
        assert (ended.status_code, ended.json()["error"]["code"]) == (422, "order_ended")
