"""Whose a key is: how many one person has, who rotates it, what a suspension keeps them from; and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from services.directory.acts import MOST_ACTS
from services.portal.desk import MOST_KEYS
from tests.unit.services import portal_rig
from tests.unit.services.directory_rig import OPERATOR, chain
from tests.unit.services.portal_rig import CHAT, Portal, api

pytestmark = [pytest.mark.processes, pytest.mark.row("000.01", "000.38")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Portal]:
    with portal_rig.running(tmp_path_factory.mktemp("portal")) as portal:
        yield portal


@pytest.fixture
def portal(running: Portal) -> Portal:
    """Without a key or a suspension."""
    assert running.server
    running.server.sql("DELETE FROM keys; DELETE FROM suspensions")
    return running


def order(client: httpx.Client, name: str, tenant: str = "search") -> httpx.Response:
    return client.post("/keys", json={"tenant": tenant, "model": CHAT, "name": name, "expires_in_days": 30})


def rotate(client: httpx.Client, key_id: str) -> httpx.Response:
    return client.post(f"/keys/{key_id}/rotate", json={"tenant": "search", "overlap_hours": 24})


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def age_acts(portal: Portal) -> None:
    """As if all that people did was long ago: the audit itself is never changed."""
    assert portal.server
    portal.server.sql("ALTER TABLE audit DISABLE TRIGGER USER; UPDATE audit SET at = at - 3600")
    portal.server.sql("ALTER TABLE audit ENABLE TRIGGER USER")


def test_a_suspended_person_gets_no_other_key_of_that_team(portal: Portal) -> None:
    with api(portal, "bob") as bob, portal.directory.client(OPERATOR) as operator:
        made = order(bob, "abuse").json()
        spare = order(bob, "spare").json()
        operator.post("/v1/suspensions", json={"tenant": "search", "name": made["name"], "why": "seen in public"})
        assert (order(bob, "abuse2").status_code, code(order(bob, "abuse2"))) == (403, "owner_suspended")
        assert code(rotate(bob, spare["id"])) == "owner_suspended"
        page = portal.logged_in("bob").send_form("/playground", model=CHAT, prompt="hello")
        assert "A key of yours in this team is suspended" in page.text
        assert "seen in public" not in page.text
        # Another team, and other people of this one, go on.
        assert order(bob, "other", "sales").status_code == 201
        with api(portal, "ann") as ann:
            assert order(ann, "ci").status_code == 201
        operator.delete(f"/v1/suspensions/search/{made['name']}")
        assert order(bob, "abuse2").status_code == 201


def test_orders_at_once_make_no_more_keys_than_one_may_have(portal: Portal) -> None:
    age_acts(portal)
    with api(portal, "bob") as bob, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: order(bob, f"k{number}"), range(MOST_KEYS + 5)))
        assert sorted(answer.status_code for answer in answers) == [201] * MOST_KEYS + [422] * 5
        assert {code(answer) for answer in answers if answer.is_error} == {"too_many_keys"}


def test_a_key_has_one_successor_which_lives_as_long(portal: Portal) -> None:
    age_acts(portal)
    with api(portal, "bob") as bob, ThreadPoolExecutor(4) as pool:
        old = order(bob, "ci").json()
        answers = list(pool.map(lambda _: rotate(bob, old["id"]), range(4)))
        (new,) = (answer.json() for answer in answers if answer.status_code == 201)
        assert {code(answer) for answer in answers if answer.is_error} == {"rotated_already"}
        assert new["expires"] - new["created"] == old["expires"] - old["created"]
        page = portal.logged_in("bob").get("/keys?tenant=search").text
        assert "replaced" in page
        assert page.count(">Rotate<") == 1
        # The successor has its own, and an admin makes none of another person's key.
        assert rotate(bob, new["id"]).status_code == 201
        with api(portal, "ann") as ann:
            last = next(key for key in ann.get("/keys?tenant=search").json()["keys"] if key["id"] != old["id"])
            assert rotate(ann, last["id"]).status_code == 422
            assert ann.delete(f"/keys/{last['id']}?tenant=search").status_code == 200
        with portal.directory.client(OPERATOR) as operator:
            wrong = {"overlap_s": 0, "owner": {"mark": "aaaaaaaa", "most": 20}}
            assert operator.post(f"/v1/keys/{last['id']}/rotate", json=wrong).status_code == 404
            other = {"tenant": "search", "name": "ci", "owner": wrong["owner"]}
            assert "a name that ends in -aaaaaaaa" in operator.post("/v1/keys", json=other).text


def test_an_admin_finds_keys_by_a_part_of_their_name_or_id(portal: Portal) -> None:
    age_acts(portal)
    with api(portal, "bob") as bob, api(portal, "ann") as ann:
        made = [order(bob, name).json() for name in ("ci-nightly", "laptop")]

        def ids_with(client: httpx.Client, part: str) -> list[str]:
            asked = {"tenant": "search", "find": part}
            return [key["id"] for key in client.get("/keys", params=asked).json()["keys"]]

        assert (
            ids_with(ann, "nightly") == ids_with(bob, "nightly") == ids_with(ann, made[0]["id"][2:]) == [made[0]["id"]]
        )
        assert ids_with(ann, "%") == []
        page = portal.logged_in("ann").get("/keys", params={"find": "laptop"}).text
        assert made[1]["id"] in page
        assert made[0]["id"] not in page
        order(ann, "own")
        assert len(ids_with(bob, "")) == 2


def test_a_playground_key_is_shown_to_none_and_ends_with_the_session(portal: Portal) -> None:
    age_acts(portal)
    ann = portal.logged_in("ann")
    ann.send_form("/playground", model=CHAT, prompt="hello")
    with api(portal, "ann") as client:
        (key,) = client.get("/keys?tenant=search").json()["keys"]
        assert ">Rotate<" not in ann.get("/keys").text
        assert rotate(client, key["id"]).status_code == 422
        # Another process may have made it.
        portal.end()
        portal.start()
        ann.send_form("/logout")
        assert client.get("/keys?tenant=search").json()["keys"][0]["state"] == "revoked"


@pytest.mark.row("000.05")
def test_a_person_changes_so_much_in_a_minute_and_the_audit_has_their_address(portal: Portal) -> None:
    age_acts(portal)
    # What a client claims stands before what the portal's Envoy adds.
    with api(portal, "bob", "10.9.9.9, 2001:db8::7") as bob:
        for number in range(MOST_ACTS // 2):
            bob.delete(f"/keys/{order(bob, f'k{number}').json()['id']}?tenant=search")
        refused = order(bob, "more")
        assert (refused.status_code, code(refused)) == (429, "too_many_acts")
    with api(portal, "ann") as ann:
        assert order(ann, "ci").status_code == 201
    with portal.directory.client(OPERATOR) as operator:
        assert {act["source"] for act in chain(operator)[-3:-1]} == {"portal 2001:db8::7"}
    age_acts(portal)
    with api(portal, "bob") as bob:
        assert order(bob, "more").status_code == 201


def test_a_log_in_that_is_not_ended_ends_no_session_and_a_form_without_one_is_kept_from_the_issuer(
    portal: Portal,
) -> None:
    bob = portal.logged_in("bob")
    bob.get("/login", follow_redirects=False)
    assert bob.get("/keys", follow_redirects=False).status_code == 200
    loop = bob.get("/login?next=/login", follow_redirects=False).headers["location"]
    assert httpx.URL(loop).path == "/oauth2/authorize"
    bob.cookies.clear()
    answer = bob.post("/orders", data={"csrf": "x"}, follow_redirects=False)
    assert (answer.status_code, 'href="/login"' in answer.text) == (401, True)
