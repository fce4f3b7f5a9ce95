"""Connections to a real PostgreSQL: days of UTC in whatever zone it is, and for how long they last."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from services.database import Database
from services.ledger.tables import KEPT
from tests.unit.services.postgres_rig import Server

pytestmark = [pytest.mark.processes, pytest.mark.row("000.32")]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server.made(tmp_path / "data")
    made.start()
    yield made
    made.kill()


def test_a_day_is_of_utc_where_the_database_has_another_zone(server: Server) -> None:
    """On the day on which Berlin's clocks go back."""
    server.sql("ALTER DATABASE directory SET timezone TO 'Europe/Berlin'")

    async def end_of_day() -> object:
        database = Database(lambda: server.url, KEPT)
        async with database.transaction() as connection:
            asked = sa.text("SELECT extract(epoch FROM timestamptz '2026-10-25T00:00Z' + interval '1 day')")
            seconds = (await connection.execute(asked)).scalar_one()
        await database.close()
        return seconds

    assert asyncio.run(end_of_day()) == 1_792_972_800


def test_a_connection_counts_from_where_it_broke_last(server: Server) -> None:
    async def lasting() -> tuple[float, float]:
        database = Database(lambda: server.url, KEPT)
        assert database.connected_s == 0
        running = asyncio.create_task(database.run())
        while not (connected_s := database.connected_s):
            await asyncio.sleep(0.05)
        server.kill()
        while database.connected_s:
            await asyncio.sleep(0.05)
        after = database.connected_s
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await database.close()
        return connected_s, after

    connected_s, after = asyncio.run(asyncio.wait_for(lasting(), 60))
    assert connected_s > 0 and after == 0
