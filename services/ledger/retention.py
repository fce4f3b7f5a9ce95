"""What is kept for a time, by class: traces and prompt ids of rows for days, keys of sums for as long as rows.

A key's name may be a person's. To forget one, it is replaced everywhere, and sums that are alike then are one: what a
tenant used and owes stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.database import Database
from services.ledger.store import COUNTED, Writer
from services.ledger.tables import (
    KEPT_UNTIL,
    NETWORKS,
    RECENT,
    REQUESTS,
    REVISIONS,
    SIGNALS,
    UNREADABLE,
    USAGE,
)

FORGOTTEN = "forgotten"
"""The key of a person who is forgotten; the directory has this name for keys, too."""
NO_KEY = ""
"""Of sums that are older than rows."""
_HOUR, _DAY, _WEEK = timedelta(hours=1), timedelta(days=1), timedelta(weeks=1)
_ANSWER_S = 600.0
_TRACES = ("prompt_id", "trace_id")
_BLANK = sa.text(
    f"UPDATE {REQUESTS.name} SET prompt_id = '', trace_id = '' "  # noqa: S608 - names of tables
    "WHERE started >= :begin AND started < :end AND (prompt_id <> '' OR trace_id <> '')"
)
_BLANK_LINES = sa.text(
    f"UPDATE {UNREADABLE.name} SET line = regexp_replace(line, :traces, '\\1', 'g') "  # noqa: S608 - names of tables
    "WHERE came < :end AND line ~ :traces"
)
_OF_LINE = f'("(?:{"|".join(_TRACES)})": ?")[^"]+'
_OLDEST = {
    "traces": sa.select(sa.func.min(REQUESTS.c.started)),
    "keys": sa.select(sa.func.min(USAGE.c.hour)),
}


def _merge(table: sa.Table, where: str) -> sa.TextClause:
    """Sums by hour where this holds, under another key: those that are alike then are one."""
    own = [column.name for column in table.primary_key.columns]
    group = ", ".join(name for name in own if name != "key")
    counted = ", ".join(COUNTED)
    sums = ", ".join(f"sum({name})" for name in COUNTED)
    added = ", ".join(f"{name} = {table.name}.{name} + excluded.{name}" for name in COUNTED)
    return sa.text(
        f"""
        WITH gone AS (DELETE FROM {table.name} WHERE {where} AND key <> :name RETURNING *)
        INSERT INTO {table.name} ({group}, key, {counted})
        SELECT {group}, :name, {sums} FROM gone GROUP BY {group} ORDER BY {group}
        ON CONFLICT ({", ".join(own)}) DO UPDATE SET {added}
        """  # noqa: S608 - names of tables
    )


_SUMS = (USAGE, REVISIONS)
_MERGE_OLD = tuple(_merge(table, "hour >= :begin AND hour < :end") for table in _SUMS)
_MERGE_KEY = tuple(_merge(table, "tenant = :tenant AND key = :key") for table in _SUMS)


class Retention:
    """Of one database. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database, self._writer = database, writer

    async def keep(self) -> None:
        """Forget what is older than it is kept, since the last time."""
        end = datetime.fromtimestamp(self._writer.traces_from_us() // 1_000_000, UTC)
        await self._forget("traces", end, _HOUR, [(_BLANK, {})])
        merges = [(statement, {"name": NO_KEY}) for statement in _MERGE_OLD]
        await self._forget("keys", self._writer.earliest().start, _DAY, merges)
        async with self._database.transaction(answer_s=_ANSWER_S) as connection:
            await connection.execute(_BLANK_LINES, {"end": end, "traces": _OF_LINE})

    async def _forget(
        self, what: str, end: datetime, step: timedelta, statements: Sequence[tuple[sa.TextClause, dict[str, Any]]]
    ) -> None:
        """Step by step, each committed by itself: rows and sums of many months may be due at first."""
        mark = sa.select(KEPT_UNTIL.c.until).where(KEPT_UNTIL.c.what == what)
        begin = datetime.min.replace(tzinfo=UTC)
        while begin < end:
            async with self._database.transaction(answer_s=_ANSWER_S) as connection:
                # Another process that is at it goes on.
                marked = (await connection.execute(mark.with_for_update(skip_locked=True))).first()
                if marked is None:
                    return
                begin = marked.until or (await connection.execute(_OLDEST[what])).scalar() or end
                if begin >= end:
                    return
                until = min(begin + step, end)
                for statement, given in statements:
                    await connection.execute(statement, {"begin": begin, "end": until, **given})
                done = sa.update(KEPT_UNTIL).where(KEPT_UNTIL.c.what == what).values(until=until)
                await connection.execute(done)
                begin = until


async def forget_key(database: Database, tenant: str, key: str) -> int:
    """How many rows had this key, of which no table has its name any more. Raises ServiceError."""
    async with database.transaction(answer_s=_ANSWER_S) as connection:
        for statement in _MERGE_KEY:
            await connection.execute(statement, {"tenant": tenant, "key": key, "name": FORGOTTEN})
        for table in (RECENT, NETWORKS, SIGNALS):
            await connection.execute(sa.delete(table).where(table.c.tenant == tenant, table.c.key == key))
        await _forget_in_lines(connection, tenant, key)
    rows = 0
    for begin, end in await _weeks(database):
        async with database.transaction(answer_s=_ANSWER_S) as connection:
            started = (REQUESTS.c.started >= begin, REQUESTS.c.started < end)
            own = sa.update(REQUESTS).where(REQUESTS.c.tenant == tenant, REQUESTS.c.key == key, *started)
            rows += (await connection.execute(own.values(key=FORGOTTEN))).rowcount
    return rows


async def _forget_in_lines(connection: AsyncConnection, tenant: str, key: str) -> None:
    """A name goes on with letters, digits and dashes."""
    given = {"name": f"{re.escape(f'{tenant}.{key}')}(?![a-z0-9-])", "other": f"{tenant}.{FORGOTTEN}"}
    await connection.execute(
        sa.text(
            f"UPDATE {UNREADABLE.name} SET line = regexp_replace(line, :name, :other, 'g') "  # noqa: S608 - as above
            "WHERE line ~ :name"
        ),
        given,
    )


async def _weeks(database: Database) -> list[tuple[datetime, datetime]]:
    """From the first row to the last: a statement for all of them would take longer than it may."""
    first_and_last = sa.select(sa.func.min(REQUESTS.c.started), sa.func.max(REQUESTS.c.started))
    async with database.transaction(answer_s=_ANSWER_S) as connection:
        first, last = (await connection.execute(first_and_last)).one()
    if first is None:
        return []
    begins = [first + week * _WEEK for week in range((last - first) // _WEEK + 1)]
    return [(begin, begin + _WEEK) for begin in begins]
