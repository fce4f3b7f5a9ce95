"""A tenant that left the site leaves nothing but the audit; keys that ended long ago go; tables go back and forth."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from services.database import Database
from services.directory.departures import Departures
from services.directory.settings import Settings
from services.directory.tables import KEPT
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import TENANTS, Directory, chain, created
from tests.unit.services.postgres_rig import ROOT, Server, setting

pytestmark = [pytest.mark.processes, pytest.mark.row("000.05", "004.13")]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as both:
        yield both


@pytest.fixture
def operator(both: tuple[Server, Directory]) -> Iterator[httpx.Client]:
    with both[1].client() as client:
        yield client


def purge(directory: Directory, tenants: list[str]) -> int:
    """What the directory does every hour."""
    url = setting(directory.folder, "--database-url-file")
    unused = {"tenants": url, "pepper": url, "operator_token": url, "reader_token": url}

    async def once() -> int:
        database = Database(url.read_text, KEPT)
        try:
            return await Departures(database, Settings(database_url=url, **unused)).purge(tenants)
        finally:
            await database.close()

    return asyncio.run(once())


def ended_before(server: Server, key_id: str, days: float) -> None:
    past = f"extract(epoch FROM now()) - {days} * 86400"
    server.sql(f"UPDATE keys SET revoked = {past} WHERE id = '{key_id}'")  # noqa: S608 - of this test


def test_keys_that_ended_long_ago_go_and_others_stay(both: tuple[Server, Directory], operator: httpx.Client) -> None:
    server, directory = both
    keys = {name: created(operator, name=name)["id"] for name in ("works", "lately", "long-ago")}
    keys |= {name: created(operator, name=name, expires_in_s=3600)["id"] for name in ("short", "short-lately")}
    for name, days in (("lately", 29), ("long-ago", 31), ("short", 1.1), ("short-lately", 0.9)):
        ended_before(server, keys[name], days)
    assert purge(directory, list(TENANTS)) == 2
    assert {key["name"] for key in operator.get("/v1/keys").json()["keys"]} == {"works", "lately", "short-lately"}
    listed = operator.get("/v1/keys", params={"state": "ended", "most": 1}).json()["keys"]
    assert len(listed) == 1
    assert listed[0]["state"] == "revoked"
    assert [key["name"] for key in operator.get("/v1/keys?state=works").json()["keys"]] == ["works"]
    assert operator.get("/v1/keys?state=x").status_code == 422
    assert not operator.get("/v1/keys?owner=%25").json()["keys"]


def test_a_tenant_that_left_is_forgotten(both: tuple[Server, Directory], operator: httpx.Client) -> None:
    server, directory = both
    key = created(operator, tenant="sales", name="ann-laptop-abcdefgh")
    operator.post("/v1/prompts", json={"tenant": "sales", "id": "greeting", "text": "Dear {{name}}"})
    operator.post("/v1/orders", json={"tenant": "sales", "model": "glm-5-1", "note": "for ann"})
    operator.post("/v1/suspensions", json={"tenant": "sales", "name": "ann-laptop-abcdefgh", "why": "seen"})
    refused = operator.delete("/v1/tenants/sales")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "tenant_is_there")
    file = setting(directory.folder, "--tenants-file")
    before = file.read_text()
    file.write_text(json.dumps({"tenants": {"search": {"models": TENANTS["search"]}}}))
    cursor = operator.get("/v1/changes").json()["cursor"]
    forgotten = operator.delete("/v1/tenants/sales").json()["forgotten"]
    assert forgotten == {"keys": 1, "prompts": 1, "suspensions": 1, "orders": 1}
    # Gatekeepers hear of it at once, also if the tenant's name comes back.
    changes = operator.get("/v1/changes", params={"after": cursor}).json()
    assert [(changed["id"], changed["revoked"]) for changed in changes["keys"]] == [(key["id"], True)]
    assert [prompt["text"] for prompt in changes["prompts"]] == [None]
    assert [held["lifted"] for held in changes["suspensions"]] == [True]
    assert chain(operator)[-1]["action"] == "forget tenant"
    tables = ("keys", "prompts", "suspensions", "model_orders")
    assert [row["name"] for row in server.rows("SELECT name FROM keys WHERE tenant = 'sales'")] == ["forgotten"]
    # Then the rows go, too.
    ended_before(server, key["id"], 0.1)
    server.sql("UPDATE suspensions SET lifted = lifted - 7200")
    purge(directory, ["search"])
    left = [row for table in tables for row in server.rows(f"TABLE {table}") if row["tenant"] == "sales"]
    assert left == []
    assert operator.delete("/v1/tenants/sales").json()["forgotten"] == dict.fromkeys(forgotten, 0)
    file.write_text(before)


@pytest.mark.parametrize("revision", ["0005", "0004", "0003", "0002"])
def test_tables_go_back_a_version_and_forward_again(both: tuple[Server, Directory], revision: str) -> None:
    server, directory = both
    directory.end()
    url = setting(directory.folder, "--database-url-file")
    back = [sys.executable, "-m", "services.directory.back", revision, "--database-url-file", str(url)]
    answer = subprocess.run(back, cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert version(server) == revision
    directory.start()
    directory.wait_ready()
    assert version(server) == max(file.name[:4] for file in KEPT.migrations.glob("0*.py"))
    with directory.client() as client:
        assert created(client, name=f"after-{revision}")["id"]


def version(server: Server) -> str:
    """Of the tables."""
    return str(server.rows("TABLE alembic_version")[0]["version_num"])
