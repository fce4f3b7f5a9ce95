"""The directory beside a real PostgreSQL: keys that are made, seen, rotated and revoked, and who may do that."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from services.directory.keys import digest_of
from services.directory.tables import KEPT, METADATA
from services.directory.variables import ACTOR_HEADER, SOURCE_HEADER, TOKEN_HEADER
from tests.unit.services import directory_rig, postgres_rig
from tests.unit.services.directory_rig import OPERATOR, PEPPER, READER, Directory, created
from tests.unit.services.postgres_rig import Server, differences, setting

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as running:
        yield running


@pytest.fixture
def operator(both: tuple[Server, Directory]) -> Iterator[httpx.Client]:
    with both[1].client() as client:
        yield client


@pytest.fixture
def reader(both: tuple[Server, Directory]) -> Iterator[httpx.Client]:
    with both[1].client(READER) as client:
        yield client


def changes(client: httpx.Client, after: str = "", wait: int = 0) -> dict[str, Any]:
    answer = client.get("/v1/changes", params={"after": after, "wait": wait})
    assert answer.status_code == 200, answer.text
    answered: dict[str, Any] = answer.json()
    return answered


def test_a_reader_that_waits_sees_each_step_of_a_key(operator: httpx.Client, reader: httpx.Client) -> None:
    cursor = changes(reader)["cursor"]
    with ThreadPoolExecutor(1) as pool:
        # Changes that come with an answer ended its wait: one that has waited in vain has none.
        def seen_of(act: Any) -> tuple[Any, dict[str, dict[str, Any]]]:
            nonlocal cursor
            waiting = pool.submit(changes, reader, cursor, 20)
            done = act()
            answered = waiting.result()
            assert not answered["full"]
            cursor = answered["cursor"]
            return done, {key["id"]: key for key in answered["keys"]}

        first, seen = seen_of(lambda: created(operator, models=["qwen3-32b"], expires_in_s=5000))
        assert seen == {
            first["id"]: {
                "id": first["id"],
                "digest": digest_of(first["key"], PEPPER.encode()),
                "tenant": "search",
                "name": "ci",
                "models": ["qwen3-32b"],
                "expires": first["created"] + 5000,
                "revoked": False,
            }
        }
        answer, seen = seen_of(lambda: operator.post(f"/v1/keys/{first['id']}/rotate", json={"overlap_s": 60}))
        second = answer.json()
        assert answer.status_code == 201
        assert {name: second[name] for name in ("tenant", "name", "models")} == {
            "tenant": "search",
            "name": "ci",
            "models": ["qwen3-32b"],
        }
        assert second["key"] != first["key"]
        assert second["expires"] == second["created"] + 5000
        assert {key["id"]: key["expires"] for key in seen.values()} == {
            first["id"]: second["created"] + 60,
            second["id"]: second["expires"],
        }
        answer, seen = seen_of(lambda: operator.delete(f"/v1/keys/{second['id']}"))
        assert answer.status_code == 200
        assert [key["revoked"] for key in seen.values()] == [True]
    assert second["id"] not in {key["id"] for key in changes(reader)["keys"]}


def test_a_reader_without_news_gets_its_cursor_back(operator: httpx.Client, reader: httpx.Client) -> None:
    created(operator)
    cursor = changes(reader)["cursor"]
    nothing: dict[str, Any] = {"keys": [], "prompts": [], "suspensions": []}
    assert changes(reader, cursor, wait=1) == {"cursor": cursor, "full": False, **nothing}
    for strange in ("", "x", "0:1", f"{cursor}0", cursor.replace(":", ""), f"{cursor.partition(':')[0]}:-1"):
        assert changes(reader, strange)["full"], strange


def test_rotation_never_lengthens_a_life_and_an_ended_key_has_no_successor(operator: httpx.Client) -> None:
    short = created(operator, expires_in_s=100)
    assert operator.post(f"/v1/keys/{short['id']}/rotate", json={"overlap_s": 5000}).status_code == 201
    keys = {key["id"]: key for key in operator.get("/v1/keys", params={"tenant": "search"}).json()["keys"]}
    assert keys[short["id"]]["expires"] == short["expires"]
    operator.delete(f"/v1/keys/{short['id']}")
    refused = operator.post(f"/v1/keys/{short['id']}/rotate", json={"overlap_s": 0})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "key_ended")


def test_revoking_twice_changes_nothing(operator: httpx.Client, reader: httpx.Client) -> None:
    made = created(operator)
    first = operator.delete(f"/v1/keys/{made['id']}").json()
    cursor = changes(reader)["cursor"]
    assert operator.delete(f"/v1/keys/{made['id']}").json() == first
    assert changes(reader, cursor)["keys"] == []


def test_lists_have_states_and_no_digests(operator: httpx.Client) -> None:
    made = [created(operator, tenant="sales", name=name) for name in ("a", "b")]
    operator.delete(f"/v1/keys/{made[0]['id']}")
    listed = operator.get("/v1/keys", params={"tenant": "sales"}).json()["keys"]
    assert [(key["name"], key["state"]) for key in listed] == [("a", "revoked"), ("b", "works")]
    names = {"id", "tenant", "name", "models", "created", "expires", "revoked", "successor", "state", "suspended"}
    assert set(listed[0]) == names
    assert {key["tenant"] for key in operator.get("/v1/keys").json()["keys"]} >= {"sales"}


def test_each_token_opens_what_it_is_for(both: tuple[Server, Directory], operator: httpx.Client) -> None:
    made = created(operator)
    requests = (
        ("POST", "/v1/keys"),
        ("GET", "/v1/keys"),
        ("GET", "/v1/audit"),
        ("POST", f"/v1/keys/{made['id']}/rotate"),
        ("DELETE", f"/v1/keys/{made['id']}"),
        ("GET", "/v1/changes"),
    )
    answers: dict[str, list[int]] = {}
    for token in ("", "wrong", "t\u00f6ken", READER):
        # Its own encoding: no client would send the third.
        headers = [(TOKEN_HEADER.encode(), token.encode()), (ACTOR_HEADER.encode(), b"a-test")]
        with httpx.Client(base_url=operator.base_url, headers=headers) as client:
            answers[token] = [client.request(*request, json={}).status_code for request in requests]
    assert answers[""] == answers["wrong"] == answers["t\u00f6ken"] == [401] * 6
    assert answers[READER] == [403] * 5 + [200]
    with httpx.Client(base_url=operator.base_url, headers={TOKEN_HEADER: OPERATOR}) as unnamed:
        refused = unnamed.request("DELETE", f"/v1/keys/{made['id']}")
        assert (refused.status_code, "x-directory-actor" in refused.text) == (422, True)
    (kept,) = (key for key in operator.get("/v1/keys").json()["keys"] if key["id"] == made["id"])
    assert kept["state"] == "works"
    # A token is read from its file at each request, so that a new one works at once.
    file = setting(both[1].folder, "--reader-token-file")
    file.write_text("another")
    with both[1].client("another") as client:
        assert client.get("/v1/changes").status_code == 200
    file.write_text(READER)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/keys", b"{}", 422, "invalid_request"),
        ("POST", "/v1/keys", b"\xff", 422, "invalid_request"),
        ("POST", "/v1/keys", b" " * 70_000, 413, "too_large"),
        ("POST", "/v1/keys/aaaaaaaaaa/rotate", b'{"overlap_s": 1}', 404, "unknown_key"),
        ("DELETE", "/v1/keys/aaaaaaaaaa", b"", 404, "unknown_key"),
        ("DELETE", "/v1/keys/no-id", b"", 404, "unknown_key"),
        ("GET", "/v1/changes?wait=soon", b"", 422, "invalid_request"),
        ("GET", "/v1/audit?after=-1", b"", 422, "invalid_request"),
        ("GET", "/v1/audit?limit=1001", b"", 422, "invalid_request"),
        ("GET", "/nonesuch", b"", 404, "no_such_request"),
        ("PUT", "/v1/keys", b"", 405, "no_such_request"),
    ],
)
def test_errors_have_one_form(
    operator: httpx.Client, method: str, path: str, body: bytes, status: int, code: str
) -> None:
    answer = operator.request(method, path, content=body)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert answer.json()["error"]["code"] == code
    assert "fix: " in answer.json()["error"]["message"]


def test_the_audit_has_who_did_what_and_keeps_it(both: tuple[Server, Directory], operator: httpx.Client) -> None:
    server, _ = both
    made = created(operator, models=["qwen3-32b"])
    operator.headers[SOURCE_HEADER] = "a-program"
    successor = operator.post(f"/v1/keys/{made['id']}/rotate", json={"overlap_s": 0}).json()
    revoked = operator.delete(f"/v1/keys/{made['id']}").json()["revoked"]
    key = {"name": "ci", "models": ["qwen3-32b"], "expires": None, "revoked": None}
    rotated = key | {"expires": successor["created"]}
    rows = [row for row in server.rows("SELECT * FROM audit ORDER BY number") if row["subject"] == made["id"]]
    assert {(row["actor"], row["tenant"]) for row in rows} == {("a-test", "search")}
    assert [(row["source"], row["action"], row["before"], row["after"]) for row in rows] == [
        ("", "create", None, key),
        ("a-program", "rotate", key, rotated | {"successor": successor["id"]}),
        ("a-program", "revoke", rotated, rotated | {"revoked": revoked}),
    ]
    for change in ("UPDATE audit SET actor = 'x'", "DELETE FROM audit", "TRUNCATE audit"):
        assert "only added" in server.sql(change, check=False).stderr


def test_the_text_of_a_key_is_in_its_answer_and_nowhere_else(both: tuple[Server, Directory]) -> None:
    server, directory = both
    with directory.client() as client:
        made = created(client, expires_in_s=1000)
        rotated = client.post(f"/v1/keys/{made['id']}/rotate", json={"overlap_s": 5}).json()
        texts = (made["key"], rotated["key"])
        answers = [
            # What people do by mistake: a key where its id, a name, a model or the one who asks belongs.
            *(
                client.request(method, f"/v1/keys/{text}{rest}", json={"overlap_s": 1}).text
                for text in texts
                for method, rest in (("DELETE", ""), ("POST", "/rotate"), ("GET", ""))
            ),
            *(client.post("/v1/keys", json={"tenant": "search", "name": text}).text for text in texts),
            *(client.post("/v1/keys", json={"tenant": text, "name": "x", "models": [text]}).text for text in texts),
            *(client.get("/v1/keys", headers={ACTOR_HEADER: text}).text for text in texts),
            client.get("/v1/keys").text,
            client.get("/v1/changes").text,
            client.get("/metrics").text,
        ]
    everything = "\n".join([server.dump(), directory.log.read_text(), *answers])
    for text in texts:
        assert text[3:13] in everything
        secret = text[14:]
        assert [part for part in (secret, secret[:12], secret[-12:]) if part in everything] == []
    assert PEPPER not in everything
    assert postgres_rig.PASSWORD not in everything


def test_metrics_count_keys_requests_and_the_time_of_changes(operator: httpx.Client, reader: httpx.Client) -> None:
    cursor = changes(reader)["cursor"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(changes, reader, cursor, 20)
        # A reader that asks only behind the change does not wait, and is not counted.
        while not re.search(r"directory_waiting_readers [1-9]", operator.get("/metrics").text) and not waiting.done():
            time.sleep(0.05)
        created(operator)
        waiting.result()
    text = operator.get("/metrics").text
    assert re.search(r'directory_keys\{state="works"\} [1-9]', text)
    assert re.search(r'directory_requests_total\{method="POST",path="/v1/keys",status="201"\} [1-9]', text)
    assert re.search(r"directory_change_seconds_count [1-9]", text)


def test_migrations_make_the_tables_that_the_program_uses(both: tuple[Server, Directory]) -> None:
    assert asyncio.run(differences(both[0].url, KEPT, METADATA)) == []


def test_a_tenant_of_a_new_site_file_gets_keys_at_once(both: tuple[Server, Directory], operator: httpx.Client) -> None:
    file = setting(both[1].folder, "--tenants-file")
    before = file.read_text()
    assert operator.post("/v1/keys", json={"tenant": "new", "name": "ci"}).status_code == 422
    file.write_text(json.dumps({"tenants": {"new": {"models": []}}}))
    created(operator, tenant="new")
    file.write_text(before)
