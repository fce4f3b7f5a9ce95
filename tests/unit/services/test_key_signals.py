"""When a key may be abused: by the figures alone, and as the ledger sees it in what Envoy pods ship."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from services.database import Database
from services.ledger.signals import KeyUse, Thresholds, signals_of
from services.ledger.tables import KEPT
from services.ledger.variables import SIGNALS_PATH
from services.ledger.watched import KeyWatch, Signal, measured
from tests.unit.services import ledger_rig
from tests.unit.services.ledger_rig import WRITER, Ledger, line
from tests.unit.services.postgres_rig import Server

pytestmark = pytest.mark.row("004.04", "004.11")

MOST = Thresholds(burst_requests=10, burst_factor=4, refused_requests=5, refused_percent=50, networks=3)
HOUR_S = 3600
DAY_BEFORE = range(26, 39)
"""Hours ago that may be usual."""


@pytest.mark.parametrize(
    ("seen", "signals"),
    [
        (KeyUse(), set()),
        (KeyUse(requests=40, usual=10.0), set()),
        (KeyUse(requests=41, usual=10.0), {"burst"}),
        # The floor, of a key that hardly works.
        (KeyUse(requests=10, usual=0.2), set()),
        (KeyUse(requests=11, usual=0.2), {"burst"}),
        # Too little is known of what is usual.
        (KeyUse(requests=9_000), set()),
        (KeyUse(requests=10, refused={"429": 3, "404": 2}), {"refusals"}),
        (KeyUse(requests=11, refused={"429": 3, "404": 2}), set()),
        (KeyUse(requests=4, refused={"429": 4}), set()),
        (KeyUse(networks=3), set()),
        (KeyUse(networks=4), {"networks"}),
    ],
)
def test_a_signal_is_more_than_usual_and_more_than_little(seen: KeyUse, signals: set[str]) -> None:
    assert set(signals_of(seen, MOST)) == signals


def test_a_tenant_with_many_keys_floods_no_alerts() -> None:
    """Another tenant's have theirs."""
    keys = [("acme", f"k{number:03}") for number in range(300)] + [("globex", "ci")]
    signals = [Signal(tenant=tenant, key=key, signal="refusals", figures={}) for tenant, key in keys]
    assert [(signal.tenant, signal.key) for signal in measured(signals)] == [*keys[:20], keys[-1]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Ledger]]:
    with ledger_rig.running(tmp_path_factory.mktemp("ledger"), "--watch-keys", MOST.model_dump_json()) as running:
        yield running


def look(server: Server, most: Thresholds | None = MOST) -> list[Signal]:
    """As the process does each minute."""

    async def once() -> list[Signal]:
        database = Database(lambda: server.url, KEPT)
        try:
            return await KeyWatch(database, most).look()
        finally:
            await database.close()

    return asyncio.run(once())


def lines(count: int, key: str, *, ago_s: float = 5, **fields: Any) -> list[dict[str, Any]]:
    """Requests of a key of one tenant."""
    return [line(client=f"acme.{key}", started=f"{time.time() - ago_s:.6f}", **fields) for _ in range(count)]


def network(number: int) -> str:
    return f"{number:016x}"


@pytest.mark.processes
def test_a_ledger_sees_each_signal_in_the_rows_that_arrive(both: tuple[Server, Ledger]) -> None:
    """A model that is full refuses everyone, which is no one's fault; nor is a row that arrives twice two."""
    server, ledger = both
    usual = [row for hour in DAY_BEFORE for row in lines(6, "bursts", ago_s=hour * HOUR_S)]
    limited: dict[str, Any] = {"status": 429, "flags": "RL", "details": "request_rate_limited"}
    spent: dict[str, Any] = {"status": 429, "details": "gatekeeper_insufficient_quota.spend_per_month"}
    full: dict[str, Any] = {"status": 429, "details": "via_upstream"}
    many = lines(11, "bursts")
    ledger.send(*usual, *many)
    ledger.send(*many)
    ledger.send(*lines(4, "refused", **limited), *lines(2, "refused", **spent), *lines(9, "unlucky", **full))
    ledger.send(*(row for number in range(4) for row in lines(2, "roams", network=network(number))))
    ledger.send(*(row for number in range(3) for row in lines(2, "at-home", network=network(number))))
    assert {(signal.key, signal.signal): dict(signal.figures) for signal in look(server)} == {
        ("bursts", "burst"): {"requests": 11, "usual": 1.0},
        ("refused", "refusals"): {
            "requests": 6,
            "refused": 6,
            "why": {"429": 4, "insufficient_quota.spend_per_month": 2},
        },
        ("roams", "networks"): {"networks": 4},
    }
    with ledger.client() as client:
        answer = client.get(SIGNALS_PATH).json()
    assert answer["thresholds"] == MOST.model_dump()
    assert {(row["key"], row["on"]) for row in answer["signals"]} == {
        ("bursts", True),
        ("refused", True),
        ("roams", True),
    }
    with ledger.client(WRITER) as client:
        assert client.get(SIGNALS_PATH).status_code == 403


@pytest.mark.processes
def test_what_a_key_does_each_night_is_no_burst_and_what_takes_long_is_counted(both: tuple[Server, Ledger]) -> None:
    """A job is as usual as its own last run, not as the quiet hours; abuse of today makes nothing usual. Of a key that
    worked in 11 hours, too little is known.
    """
    server, ledger = both
    keys = ("nightly", "slow")
    quiet = [row for key in keys for hour in DAY_BEFORE for row in lines(1, key, ago_s=hour * HOUR_S)]
    young = [row for hour in DAY_BEFORE[:11] for row in lines(1, "young", ago_s=hour * HOUR_S)]
    slow = lines(11, "slow", ago_s=1200, duration_ms=1_195_000)
    ledger.send(*quiet, *lines(20, "nightly", ago_s=30 * HOUR_S), *lines(90, "slow", ago_s=3 * HOUR_S))
    ledger.send(*lines(11, "nightly"), *slow, *young, *lines(11, "young"))
    assert {signal.key for signal in look(server) if signal.key in {*keys, "young"}} == {"slow"}


@pytest.mark.processes
def test_networks_are_in_no_log_of_writes(both: tuple[Server, Ledger]) -> None:
    """So they are in no copy and no backup that is made of one."""
    kept = "SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relpersistence = 'u' ORDER BY 1"
    assert [row["name"] for row in both[0].rows(kept)] == ["recent_networks", "recent_requests"]


@pytest.mark.processes
def test_no_address_is_kept_and_a_network_for_an_hour_alone(both: tuple[Server, Ledger]) -> None:
    """Only what has the form of a digest; what arrives late is not kept at all, and no row has any."""
    server, ledger = both
    ledger.send(*lines(1, "late", ago_s=HOUR_S + 60, network=network(77)), *lines(1, "now", network=network(78)))
    ledger.send(*lines(1, "odd", network="192.0.2.77"), *lines(1, "odd", network=["192.0.2.77"]))
    kept = "SELECT key, network FROM recent_networks WHERE key IN ('late', 'now', 'odd')"
    assert server.rows(kept) == [{"key": "now", "network": network(78)}]
    server.sql("UPDATE recent_networks SET seen = seen - interval '1 hour' WHERE key = 'now'")
    look(server)
    assert server.rows(kept) == []
    dump = server.dump()
    assert "192.0.2.77" not in dump
    assert network(77) not in dump
    assert network(78) not in dump


@pytest.mark.processes
def test_a_site_that_stops_watching_keeps_nothing_of_it(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    ledger.send(*(row for number in range(9) for row in lines(1, "roams", network=network(number))))
    assert look(server)
    assert look(server, None) == []
    tables = ("recent_requests", "recent_networks", "key_signals")
    assert [server.rows(f"SELECT * FROM {table}") for table in tables] == [[], [], []]  # noqa: S608 - of the test
    with ledger.client() as client:
        assert client.get(SIGNALS_PATH).json()["signals"] == []


@pytest.mark.processes
def test_a_signal_goes_on_or_begins_again_after_a_pause(both: tuple[Server, Ledger]) -> None:
    server, ledger = both
    ledger.send(*(row for number in range(9) for row in lines(1, "again", network=network(number))))
    began = "SELECT extract(epoch FROM now() - began) AS age FROM key_signals WHERE key = 'again'"
    look(server)
    server.sql("UPDATE key_signals SET began = began - interval '2 hours', seen = seen - interval '14 minutes'")
    look(server)
    assert server.rows(began)[0]["age"] > 2 * HOUR_S
    server.sql("UPDATE key_signals SET seen = seen - interval '16 minutes'")
    look(server)
    assert server.rows(began)[0]["age"] < HOUR_S
