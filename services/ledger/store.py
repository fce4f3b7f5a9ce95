"""What is written: rows and their sums, in one transaction, once for each request."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.database import Database
from services.ledger.lines import UsageRow
from services.ledger.months import Month
from services.ledger.prices import UNPRICED, PriceBook
from services.ledger.tables import PRICE_VERSIONS, RECOUNTS, REQUESTS, REVISIONS, SPENT, USAGE
from services.ledger.variables import KEEP_TRACES_DAYS
from services.ledger.watched import COUNT_RECENT, see_networks
from services.ledger.writing import Added

AHEAD_US = 24 * 3600 * 1_000_000
"""How far the clock of a node may be ahead."""
_AHEAD = 2
"""Months that have a partition before they begin."""
# Any number, the same in every process: two that make or drop partitions do it one after the other.
_PARTITIONS_LOCK = 4_113_207_982
_NO_PARTITION = "23514"
_DROP_WAITS_MS = 200
_PREFIX = f"{REQUESTS.name}_"
_NO_COLUMN = {"started_us", "id", "network"}
_OF_ROW = tuple(column.name for column in fields(UsageRow) if column.name not in _NO_COLUMN)
_GIVEN = ("started_us", "id", *_OF_ROW, "failed", "price_version", "cost_pico")
_TYPES = {"started_us": "bigint", "cost_pico": "numeric"}
_SUMMED = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "cost_pico")
COUNTED = ("requests", "failed", *_SUMMED)
"""What tables of sums by hour have of their requests."""
_OF_KEYS = ("tenant", "key", "tier", "price_version", "started", "duration_ms", "status", "details", "flags", "failed")
_READ = (*_OF_KEYS, *_SUMMED)
"""Of a row that was added, by its sums and by what keys are watched by."""


def _type(name: str) -> str:
    return (
        _TYPES.get(name)
        or {
            sa.Text: "text",
            sa.Integer: "integer",
            sa.BigInteger: "bigint",
            sa.Double: "double precision",
            sa.Boolean: "boolean",
        }[type(REQUESTS.c[name].type)]
    )


def _or_none(name: str) -> str:
    """A model's name for the sums, which are kept for good: none where a client made it up."""
    made_up = f"${len(_GIVEN) + 1}::text[]"
    return f"CASE WHEN input_tokens + output_tokens = 0 AND model = ANY ({made_up}) THEN '' ELSE {name} END"


def _statement(*more: str) -> str:
    """One statement, so that what is summed is what was added. Both writers of two processes take rows in one order,
    table by table, so that none waits for the other in a circle. more: further statements WITH what was added.
    """
    # Costs have more digits than a bigint; as text they need no object each.
    given = ", ".join(
        f"${place}::{'text' if name == 'cost_pico' else _type(name)}[]" for place, name in enumerate(_GIVEN, 1)
    )
    columns = ", ".join(_GIVEN[1:])
    values = columns.replace("cost_pico", "cost_pico::numeric")
    return f"""
    WITH added AS (
        INSERT INTO {REQUESTS.name} (started, {columns})
        SELECT timestamptz 'epoch' + started_us * interval '1 microsecond', {values}
        FROM unnest({given}) AS given ({", ".join(_GIVEN)})
        ORDER BY started_us, id
        ON CONFLICT (started, id) DO NOTHING
        RETURNING date_trunc('hour', started, 'UTC') AS hour, {", ".join(_READ)},
        {_or_none("model")} AS model, {_or_none("revision")} AS revision
    ), summed AS ({summed(USAGE)}), others AS ({summed(REVISIONS, "WHERE revision <> model")}), spent AS (
        INSERT INTO {SPENT.name} (month, tenant, price_version, tokens, cost_pico)
        SELECT date_trunc('month', hour, 'UTC'), tenant, price_version,
        sum(input_tokens + output_tokens), sum(cost_pico) FROM added GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        ON CONFLICT (month, tenant, price_version) DO UPDATE SET
        tokens = {SPENT.name}.tokens + excluded.tokens, cost_pico = {SPENT.name}.cost_pico + excluded.cost_pico
    ){"".join(f", {statement}" for statement in more)}
    SELECT model, revision, count(*) AS rows, sum(input_tokens) AS input, sum(output_tokens) AS output
    FROM added GROUP BY model, revision
    """  # noqa: S608 - names of columns


def summed(table: sa.Table, where: str = "") -> str:
    """The statement that adds the rows of `added`, which have their `hour`, to a table of sums by hour."""
    group = ", ".join(column.name for column in table.primary_key.columns)
    sums = ", ".join(f"sum({name})" for name in _SUMMED)
    added = ", ".join(f"{name} = {table.name}.{name} + excluded.{name}" for name in COUNTED)
    return f"""
        INSERT INTO {table.name} ({group}, {", ".join(COUNTED)})
        SELECT {group}, count(*), count(*) FILTER (WHERE failed), {sums}
        FROM added {where} GROUP BY {group} ORDER BY {group}
        ON CONFLICT ({group}) DO UPDATE SET {added}
    """  # noqa: S608 - names of columns


_ADD, _ADD_AND_WATCH = _statement(), _statement(COUNT_RECENT)
_ADD_VERSIONS = f"""
    INSERT INTO {PRICE_VERSIONS.name} (version, content)
    SELECT version, content::jsonb FROM unnest($1::text[], $2::text[]) AS given (version, content) ORDER BY version
    ON CONFLICT (version) DO NOTHING
    """  # noqa: S608 - names of columns
_PARTITIONS = sa.text(
    "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'requests'::regclass"
)

_DUE = sa.text(f"DELETE FROM {RECOUNTS.name} WHERE due <= now()")  # noqa: S608 - names of tables
# What is missing is added: both sums are of one moment, and what writers add meanwhile is in neither.
_RECOUNT = sa.text(
    f"""
    INSERT INTO {SPENT.name} (month, tenant, price_version, tokens, cost_pico)
    SELECT month, tenant, price_version, sum(tokens), sum(cost_pico) FROM (
        SELECT date_trunc('month', hour, 'UTC') AS month, tenant, price_version, input_tokens + output_tokens AS tokens,
        cost_pico FROM {USAGE.name} WHERE hour >= :month AND hour < :month + interval '1 month'
        UNION ALL
        SELECT month, tenant, price_version, -tokens, -cost_pico FROM {SPENT.name} WHERE month = :month
    ) AS missing GROUP BY 1, 2, 3 HAVING sum(tokens) <> 0 OR sum(cost_pico) <> 0 ORDER BY 1, 2, 3
    ON CONFLICT (month, tenant, price_version) DO UPDATE SET
    tokens = {SPENT.name}.tokens + excluded.tokens, cost_pico = {SPENT.name}.cost_pico + excluded.cost_pico
    """  # noqa: S608 - names of tables
)
_RECOUNT_S = 600.0
"""For the hours of a month, which may be many millions of sums."""

log = logging.getLogger(__name__)


class Writer:
    """Adds rows to one database. Every method raises ServiceError while it is away."""

    def __init__(
        self,
        database: Database,
        keep_months: int,
        *,
        keep_traces_days: int = KEEP_TRACES_DAYS,
        watches: bool = False,
    ) -> None:
        self._database, self._keep_months, self._keep_traces_days = database, keep_months, keep_traces_days
        self._watches = watches
        self._has_partition: set[Month] = set()

    def earliest(self) -> Month:
        """The first month whose rows are kept."""
        return Month.of(time.time()) + -self._keep_months

    def traces_from_us(self) -> int:
        """The moment from which on rows keep their prompt and trace ids, in microseconds of Unix time."""
        return round((time.time() - self._keep_traces_days * 86_400) * 1_000_000)

    def bounds_us(self, now: float) -> dict[str, int]:
        """Between which moments a request may have begun, whose row comes now."""
        earliest = int(self.earliest().start.timestamp()) * 1_000_000
        return {"earliest_us": earliest, "latest_us": round(now * 1_000_000) + AHEAD_US}

    async def add(self, rows: Sequence[UsageRow], book: PriceBook) -> Added:
        """Add the rows that are not there yet; they are committed once this returns."""
        if not rows:
            return Added(0, 0, 0, {})
        oldest_us = self.traces_from_us()
        if any(row.started_us < oldest_us for row in rows):
            rows = [replace(row, prompt_id="", trace_id="") if row.started_us < oldest_us else row for row in rows]
        prices = [book.price(row) for row in rows]
        columns: list[list[object]] = [
            *([getattr(row, name) for row in rows] for name in (*_GIVEN[:2], *_OF_ROW, "failed")),
            [price.version for price in prices],
            [str(price.cost_pico) for price in prices],
            list({row.model for row in rows if book.made_up(row)}),
        ]
        contents = book.contents()
        used = {price.version: contents[price.version] for price in prices if price.version != UNPRICED}
        versions = (list(used), [json.dumps(version.content()) for version in used.values()])
        months = {Month.of(row.started_us // 1_000_000) for row in rows}
        try:
            sums = await self._insert(months, columns, versions, rows)
        except _NoPartitionError:
            # Another process has dropped it, or the database is another one.
            self._has_partition.clear()
            sums = await self._insert(months, columns, versions, rows)
        unpriced = sum(
            price.version == UNPRICED and row.input_tokens + row.output_tokens > 0
            for row, price in zip(rows, prices, strict=True)
        )
        count = sum(alike.rows for alike in sums)
        tokens = {
            (alike.model, alike.revision, kind): int(getattr(alike, kind))
            for alike in sums
            for kind in ("input", "output")
        }
        return Added(count, len(rows) - count, unpriced, {place: used for place, used in tokens.items() if used})

    async def keep_partitions(self) -> None:
        """Make those of this month and the next ones, and drop those with rows that are not kept any longer."""
        now = Month.of(time.time())
        async with self._database.transaction() as connection:
            await self._make(connection, {now + ahead for ahead in range(_AHEAD + 1)})
            there = await _partitions(connection)
        for month in sorted(month for month in there if month < self.earliest()):
            async with self._database.transaction() as connection:
                # It waits for who reads the rows, and writers wait for it: not for long, and again later.
                await connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_DROP_WAITS_MS}ms'")
                await connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_table(month)}")
            log.info("rows of %s are older than %d months: dropped", month, self._keep_months)
            self._has_partition.discard(month)

    async def recount(self) -> None:
        """Where it is due, make the sums of the running month those of its hours, to which alone an earlier program
        adds; writers go on meanwhile.
        """
        async with self._database.transaction(answer_s=_RECOUNT_S) as connection:
            # Of two processes the second waits, and finds nothing due.
            if (await connection.execute(_DUE)).rowcount:
                await connection.execute(_RECOUNT, {"month": Month.of(time.time()).start})

    async def _insert(
        self,
        months: Iterable[Month],
        columns: Sequence[object],
        versions: tuple[list[str], list[str]],
        rows: Sequence[UsageRow],
    ) -> Sequence[Any]:
        """Of the rows that were added, sums by revision."""
        if missing := set(months) - self._has_partition:
            async with self._database.transaction() as connection:
                await self._make(connection, missing)
        async with self._database.transaction() as connection:
            if versions[0]:
                await connection.exec_driver_sql(_ADD_VERSIONS, versions)
            try:
                answer = await connection.exec_driver_sql(_ADD_AND_WATCH if self._watches else _ADD, tuple(columns))
            except IntegrityError as error:
                if getattr(error.orig, "sqlstate", None) == _NO_PARTITION:
                    raise _NoPartitionError from None
                raise
            if self._watches:
                await see_networks(connection, rows)
            return answer.all()

    async def _make(self, connection: AsyncConnection, months: Iterable[Month]) -> None:
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_PARTITIONS_LOCK)))
        there = await _partitions(connection)
        for month in sorted(set(months) - there):
            # Made as a partition, it would wait for who reads the rows, and writers for it.
            await connection.exec_driver_sql(f"CREATE TABLE {_table(month)} (LIKE {REQUESTS.name} INCLUDING DEFAULTS)")
            await connection.exec_driver_sql(
                f"ALTER TABLE {REQUESTS.name} ATTACH PARTITION {_table(month)} "
                f"FOR VALUES FROM ('{month.start.isoformat()}') TO ('{(month + 1).start.isoformat()}')"
            )
        self._has_partition |= there | set(months)


class _NoPartitionError(Exception):
    """A row's month has no partition."""


def _table(month: Month) -> str:
    return f"{_PREFIX}{str(month).replace('-', '_')}"


async def _partitions(connection: AsyncConnection) -> set[Month]:
    names = (await connection.execute(_PARTITIONS)).scalars()
    months = (Month.named(name.removeprefix(_PREFIX).replace("_", "-")) for name in names)
    return {month for month in months if month is not None}
