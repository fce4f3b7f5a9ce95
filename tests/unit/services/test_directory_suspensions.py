"""Keys that are suspended by a person or by a signal, and how that is lifted; never many of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from prometheus_client import REGISTRY

from services.database import Database
from services.directory.audit import chained
from services.directory.orders import AskedBy
from services.directory.signal_watch import SignalWatch, SuspendOptions
from services.directory.suspensions import SIGNALS, Acted, Suspensions, Suspicion
from services.directory.tables import KEPT
from tests.unit.services import directory_rig
from tests.unit.services.directory_rig import READER, Directory, chain, created
from tests.unit.services.postgres_rig import Server
from tests.unit.services.test_directory_life import changes
from tests.unit.services.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.row("004.04", "004.11")]

SEARCH_CI = {"tenant": "search", "name": "ci", "why": "its owner asked for it"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Directory]]:
    with directory_rig.running(tmp_path_factory.mktemp("directory")) as running:
        yield running


@pytest.fixture
def server(both: tuple[Server, Directory]) -> Server:
    """Without suspensions."""
    both[0].sql("DELETE FROM suspensions")
    return both[0]


@pytest.fixture
def operator(both: tuple[Server, Directory]) -> Iterator[httpx.Client]:
    with both[1].client() as client:
        yield client


def in_force(server: Server) -> set[str]:
    rows = server.rows("SELECT tenant || '.' || name AS client FROM suspensions WHERE lifted IS NULL")
    return {row["client"] for row in rows}


def test_gatekeepers_hear_of_a_suspension_and_of_its_end(
    server: Server, both: tuple[Server, Directory], operator: httpx.Client
) -> None:
    """Each is an act of the audit, and the key is the same one as before."""
    key = created(operator)
    with both[1].client(READER) as reader, ThreadPoolExecutor(1) as pool:
        cursor = changes(reader)["cursor"]
        waiting = pool.submit(changes, reader, cursor, 20)
        made = operator.post("/v1/suspensions", json=SEARCH_CI)
        assert made.status_code == 201, made.text
        heard = waiting.result()
        of_client = {"tenant": "search", "name": "ci", "since": made.json()["since"]}
        assert (heard["keys"], heard["suspensions"]) == ([], [of_client | {"lifted": False}])
        # As a gatekeeper that starts, and for people.
        assert changes(reader)["suspensions"] == [of_client | {"lifted": False}]
        assert {row["suspended"] for row in operator.get("/v1/keys").json()["keys"]} == {made.json()["since"]}
        # Nothing changes, but a reader is not held up by it.
        assert operator.post("/v1/suspensions", json=SEARCH_CI | {"why": "again"}).json() == made.json()
        cursor = changes(reader)["cursor"]
        waiting = pool.submit(changes, reader, cursor, 20)
        lifted = operator.delete("/v1/suspensions/search/ci")
        assert lifted.status_code == 200, lifted.text
        assert waiting.result()["suspensions"] == [of_client | {"lifted": True}]
        assert changes(reader)["suspensions"] == []
    assert operator.delete("/v1/suspensions/search/ci").json()["error"]["code"] == "not_suspended"
    assert {row["suspended"] for row in operator.get("/v1/keys").json()["keys"]} == {None}
    acts = chain(operator)
    assert chained(acts)[1] == ""
    assert [(act["action"], act["subject"], act["actor"]) for act in acts[-2:]] == [
        ("suspend", "search.ci", "a-test"),
        ("lift", "search.ci", "a-test"),
    ]
    assert acts[-2]["after"] == {"since": made.json()["since"], "why": SEARCH_CI["why"]}
    assert key["id"] in {row["id"] for row in operator.get("/v1/keys").json()["keys"] if row["state"] == "works"}


@pytest.mark.parametrize(
    ("order", "named"),
    [
        ({"tenant": "unknown"}, "tenant: no tenant of the site's file"),
        ({"name": "No Name"}, "name: not a name"),
        ({"why": "two\nlines"}, "why: not one line"),
        # The audit is never changed.
        ({"why": f"saw sk-{'a' * 10}-{'b' * 52} in a repository"}, "why: has a key in it, got 'sk-(hidden)'"),
        ({"why": f"saw sk-{'A_' * 20}"}, "why: has a key in it, got 'sk-(hidden)'"),
        ({"why": ""}, "why: "),
    ],
)
def test_a_wrong_order_suspends_nothing(
    server: Server, operator: httpx.Client, order: dict[str, str], named: str
) -> None:
    refused = operator.post("/v1/suspensions", json=SEARCH_CI | order)
    assert refused.status_code == 422
    assert named in refused.json()["error"]["message"]
    assert in_force(server) == set()


def test_a_reader_neither_suspends_nor_lifts(server: Server, both: tuple[Server, Directory]) -> None:
    with both[1].client(READER) as reader:
        statuses = [
            reader.post("/v1/suspensions", json=SEARCH_CI).status_code,
            reader.delete("/v1/suspensions/search/ci").status_code,
            reader.get("/v1/suspensions").status_code,
        ]
    assert statuses == [403, 403, 403]
    assert in_force(server) == set()


def of_names(*names: str) -> list[Suspicion]:
    return [Suspicion(tenant="search", name=name, why="networks: networks 41") for name in names]


def suspend(server: Server, *batches: list[Suspicion], most: int = 2) -> list[Acted]:
    """As many directories as there are batches, at once."""

    async def all_at_once() -> list[Acted]:
        databases = [Database(lambda: server.url, KEPT) for _ in batches]
        try:
            acts = [
                Suspensions(database).suspend_all(suspects, most, AskedBy(SIGNALS, ""))
                for database, suspects in zip(databases, batches, strict=True)
            ]
            return list(await asyncio.gather(*acts))
        finally:
            for database in databases:
                await database.close()

    return asyncio.run(all_at_once())


def test_signals_suspend_no_more_keys_in_an_hour_than_they_may(server: Server) -> None:
    """However many look at once, and whatever is lifted meanwhile; those that are held back come later."""
    (first,) = suspend(server, of_names("a", "b", "b", "c", "d"))
    assert ([suspect.name for suspect in first.suspended], first.held) == (["a", "b"], 2)
    server.sql("UPDATE suspensions SET lifted = since WHERE name = 'a'")
    (second,) = suspend(server, of_names("b", "c", "d"))
    assert (second.suspended, second.held, in_force(server)) == ([], 2, {"search.b"})
    server.sql("UPDATE suspensions SET since = since - 3601")
    many = [of_names("b", "c", "d"), of_names("c", "d", "e"), of_names("d", "e", "f"), of_names("f", "g")]
    acted = suspend(server, *many)
    assert len([suspect for act in acted for suspect in act.suspended]) == 2
    assert len(in_force(server)) == 3


def test_a_person_takes_over_what_a_signal_has_suspended(
    server: Server, both: tuple[Server, Directory], operator: httpx.Client
) -> None:
    """Its alert ends, by the measure of each key, and no signal suspends another one in its place."""

    def measured(keys: dict[str, str]) -> bool:
        rows = httpx.get(f"{both[1].url}/metrics").text.splitlines()
        series = {f'directory_suspensions{{by="{by}",key="{key}",tenant="search"}} 1.0' for key, by in keys.items()}
        return {row for row in rows if row.startswith("directory_suspensions{")} == series

    suspend(server, of_names("ci", "app"))
    operator.post("/v1/suspensions", json=SEARCH_CI | {"name": "other"})
    keys = {"app": "signal", "ci": "signal", "other": "person"}
    # It hears of a change after the answer.
    until(lambda: measured(keys))
    taken = operator.post("/v1/suspensions", json=SEARCH_CI).json()
    assert (taken["actor"], taken["why"]) == ("a-test", SEARCH_CI["why"])
    until(lambda: measured(keys | {"ci": "person"}))
    (acted,) = suspend(server, of_names("c"))
    assert (list(acted.suspended), acted.held) == ([], 1)
    acts = chain(operator)
    assert chained(acts)[1] == ""
    assert acts[-1]["before"]["why"] == "networks: networks 41"


def test_what_a_person_has_lifted_is_not_suspended_by_the_same_signal(server: Server, operator: httpx.Client) -> None:
    """For a day. A person may suspend it meanwhile."""
    suspend(server, of_names("ci"))
    assert operator.delete("/v1/suspensions/search/ci").status_code == 200
    (acted,) = suspend(server, of_names("ci"))
    assert (list(acted.suspended), acted.held) == ([], 0)
    assert operator.post("/v1/suspensions", json=SEARCH_CI).status_code == 201
    operator.delete("/v1/suspensions/search/ci")
    server.sql("UPDATE suspensions SET lifted = lifted - 86401")
    (acted,) = suspend(server, of_names("ci"))
    assert [suspect.name for suspect in acted.suspended] == ["ci"]


def test_only_signals_of_now_that_the_site_names_suspend(server: Server, tmp_path: Path) -> None:
    """The most telling one first, and no key that is spared. Without the ledger's answer nothing changes,
    and no one is paged for an earlier one.
    """
    (tmp_path / "token").write_text("token-of-the-operator\n")
    options = SuspendOptions(
        ledger_url="http://ledger",
        ledger_token=tmp_path / "token",
        signals=["networks", "refusals"],
        most_per_hour=2,
        never=["search.spared"],
    )

    def row(key: str, signal: str, *, on: bool = True) -> dict[str, Any]:
        return {"tenant": "search", "key": key, "signal": signal, "on": on, "began": 1, "figures": {"networks": 41}}

    rows = [row("a", "burst"), row("b", "refusals"), row("c", "networks", on=False), row("d", "networks")]
    rows += [row("spared", "networks"), row("e", "refusals")]
    tokens = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        tokens.append(request.headers["x-ledger-token"])
        return httpx2.Response(200, json={"signals": rows})

    def look(handler: Any) -> None:
        async def once() -> None:
            database = Database(lambda: server.url, KEPT)
            try:
                async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as client:
                    await SignalWatch(database, options).look(client)
            finally:
                await database.close()

        asyncio.run(once())

    look(answer)
    assert in_force(server) == {"search.b", "search.d"}
    assert tokens == ["token-of-the-operator"]
    reasons = server.rows("SELECT why FROM suspensions ORDER BY name")
    assert [reason["why"] for reason in reasons] == ["refusals: networks 41", "networks: networks 41"]
    held = partial(REGISTRY.get_sample_value, "directory_suspensions_held")
    assert held() == 1
    with pytest.raises(httpx2.HTTPStatusError):
        look(lambda _: httpx2.Response(503))
    assert in_force(server) == {"search.b", "search.d"}

    async def without_a_ledger() -> None:
        nowhere = replace(options, ledger_url="http://127.0.0.1:1")
        looking = asyncio.create_task(SignalWatch(Database(lambda: server.url, KEPT), nowhere).run())
        await asyncio.to_thread(until, lambda: held() == 0)
        looking.cancel()

    asyncio.run(without_a_ledger())
    assert held() == 0
