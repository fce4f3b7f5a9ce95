"""Watches keys: counts their last requests as rows arrive, and looks every minute which of them may be abused.

Each look reads sums, never rows: its work grows with the keys in use, and not with their requests.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.database import Database
from services.ledger.lines import UsageRow
from services.ledger.signals import LEAST_HOURS, USUAL_DAYS, WINDOW_MINUTES, KeyUse, Thresholds, signals_of
from services.ledger.tables import NETWORKS, RECENT, SIGNALS, USAGE

LOOK_EVERY_S = 60.0
_NETWORKS_HOURS = 1
_SIGNALS_DAYS = 7
# Keys whose usual use a look reads, those with the most requests: so that it ends in time.
_MOST_ASKED = 500
# Without one for so long, the next signal is another.
_PAUSE_MINUTES = 15
_MOST_MEASURED = 20
# Two ledgers look once a minute each.
_ON_S = 150

# What the client itself can end. Of 429, only limits of its own: a model that is full refuses everyone.
_REFUSAL = """
    CASE WHEN status BETWEEN 400 AND 499 AND starts_with(details, 'gatekeeper_') THEN substr(details, 12, 60)
    WHEN status IN (400, 401, 403, 404, 405, 413, 422, 431) OR (status = 429 AND strpos(flags, 'RL') > 0)
    THEN status::text ELSE '' END
    """
# A row comes when its request has ended: counted by its start, one that took long would be too late.
_ENDED = "started + coalesce(duration_ms, 0) * interval '1 millisecond'"
COUNT_RECENT = f"""
    recent AS (
        INSERT INTO {RECENT.name} (minute, tenant, key, refusal, requests)
        SELECT date_trunc('minute', least({_ENDED}, now()), 'UTC'), tenant, key, {_REFUSAL}, count(*) FROM added
        WHERE {_ENDED} > now() - interval '{WINDOW_MINUTES} minutes' GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
        ON CONFLICT (minute, tenant, key, refusal) DO UPDATE
        SET requests = {RECENT.name}.requests + excluded.requests
    )
    """  # noqa: S608 - names of tables
"""Beside the statement that adds rows, of those that were added."""
_SEE = f"""
    INSERT INTO {NETWORKS.name} (tenant, key, network, seen)
    SELECT tenant, key, network, least(timestamptz 'epoch' + started_us * interval '1 microsecond', now())
    FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS given (tenant, key, network, started_us)
    WHERE timestamptz 'epoch' + started_us * interval '1 microsecond' > now() - interval '{_NETWORKS_HOURS} hour'
    ORDER BY tenant, key, network
    ON CONFLICT (tenant, key, network) DO UPDATE SET seen = greatest({NETWORKS.name}.seen, excluded.seen)
    """  # noqa: S608 - names of tables
_RECENT = sa.text(
    f"SELECT tenant, key, refusal, sum(requests)::bigint AS requests FROM {RECENT.name} "  # noqa: S608 - as above
    f"WHERE minute > now() - interval '{WINDOW_MINUTES} minutes' AND minute <= now() GROUP BY 1, 2, 3"
)
_CAME_FROM = sa.text(
    f"SELECT tenant, key, count(*) AS networks FROM {NETWORKS.name} "  # noqa: S608 - as above
    f"WHERE seen > now() - interval '{_NETWORKS_HOURS} hour' GROUP BY 1, 2"
)
# Of few keys, by the primary key of each hour: over all keys, a site with many would read longer than it may.
_USUAL = f"""
    SELECT tenant, key, max(requests)::float * {WINDOW_MINUTES} / 60 AS usual FROM (
        SELECT tenant, key, hour, sum(requests) AS requests
        FROM unnest($1::text[], $2::text[]) AS asked (tenant, key)
        CROSS JOIN generate_series(
            date_trunc('hour', now(), 'UTC') - interval '{USUAL_DAYS + 1} days',
            date_trunc('hour', now(), 'UTC') - interval '25 hours', interval '1 hour'
        ) AS hours (hour)
        JOIN {USAGE.name} USING (hour, tenant, key) GROUP BY 1, 2, 3
    ) AS by_hour GROUP BY 1, 2 HAVING count(*) >= {LEAST_HOURS}
    """  # noqa: S608 - as above
_KEEP = f"""
    INSERT INTO {SIGNALS.name} (tenant, key, signal, began, seen, figures)
    SELECT tenant, key, signal, now(), now(), figures::jsonb
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS given (tenant, key, signal, figures)
    ORDER BY tenant, key, signal
    ON CONFLICT (tenant, key, signal) DO UPDATE SET seen = now(), figures = excluded.figures,
    began = CASE WHEN {SIGNALS.name}.seen < now() - interval '{_PAUSE_MINUTES} minutes' THEN now()
    ELSE {SIGNALS.name}.began END
    """  # noqa: S608 - names of tables


def _dropped(table: sa.Table, column: str, age: str) -> sa.TextClause:
    """What is too old, but for rows that a writer has: two would wait for each other in a circle."""
    old = f"SELECT ctid FROM {table.name} WHERE {column} < now() - interval '{age}' FOR UPDATE SKIP LOCKED"  # noqa: S608
    return sa.text(f"DELETE FROM {table.name} WHERE ctid = ANY (ARRAY({old}))")  # noqa: S608 - names of tables


_DROP = (
    _dropped(RECENT, "minute", f"{WINDOW_MINUTES + 1} minutes"),
    _dropped(NETWORKS, "seen", f"{_NETWORKS_HOURS} hour"),
    _dropped(SIGNALS, "seen", f"{_SIGNALS_DAYS} days"),
)


@dataclass(frozen=True, kw_only=True)
class Signal:
    """One that a look has."""

    tenant: str
    key: str
    signal: str
    figures: Mapping[str, Any]


def measured(signals: Sequence[Signal]) -> list[Signal]:
    """Those that are series of Prometheus and alerts: of each signal of a tenant a few keys, however many it makes."""
    by_tenant = defaultdict[tuple[str, str], list[Signal]](list)
    for signal in signals:
        by_tenant[signal.tenant, signal.signal].append(signal)
    return [signal for of_tenant in by_tenant.values() for signal in of_tenant[:_MOST_MEASURED]]


async def see_networks(connection: AsyncConnection, rows: Sequence[UsageRow]) -> None:
    """Note which networks these rows' keys came from."""
    last: dict[tuple[str, str, str], int] = {}
    for row in rows:
        if row.network:
            place = (row.tenant, row.key, row.network)
            last[place] = max(last.get(place, 0), row.started_us)
    if last:
        columns = (*(list(column) for column in zip(*last, strict=True)), list(last.values()))
        await connection.exec_driver_sql(_SEE, columns)


class KeyWatch:
    """Of one database. Every method raises ServiceError while it is away. most: None where keys are not watched."""

    def __init__(self, database: Database, most: Thresholds | None) -> None:
        self._database, self.most = database, most

    async def look(self) -> list[Signal]:
        """The signals of now, which are kept; what is too old is deleted. Without thresholds, all is."""
        async with self._database.transaction() as connection:
            if self.most is None:
                for table in (RECENT, NETWORKS, SIGNALS):
                    await connection.execute(sa.delete(table))
                return []
            for statement in _DROP:
                await connection.execute(statement)
            seen = await self._seen(connection, self.most.burst_requests)
            signals = [
                Signal(tenant=tenant, key=key, signal=signal, figures=figures)
                for (tenant, key), of_key in sorted(seen.items())
                for signal, figures in signals_of(of_key, self.most).items()
            ]
            if signals:
                columns = [[getattr(signal, name) for signal in signals] for name in ("tenant", "key", "signal")]
                figures = [json.dumps(signal.figures) for signal in signals]
                await connection.exec_driver_sql(_KEEP, (*columns, figures))
        return signals

    async def kept(self) -> list[dict[str, Any]]:
        """Signals of the last days, the newest first; `on` is whether the last look had it."""
        on = SIGNALS.c.seen > sa.func.now() - sa.text(f"interval '{_ON_S} seconds'")
        times = [
            sa.cast(sa.func.extract("epoch", SIGNALS.c[name]), sa.BigInteger).label(name) for name in ("began", "seen")
        ]
        named = [SIGNALS.c[name] for name in ("tenant", "key", "signal", "figures")]
        query = sa.select(*named, *times, on.label("on")).order_by(
            SIGNALS.c.seen.desc(), SIGNALS.c.tenant, SIGNALS.c.key, SIGNALS.c.signal
        )
        async with self._database.transaction() as connection:
            return [dict(row) for row in (await connection.execute(query)).mappings()]

    async def _seen(self, connection: AsyncConnection, burst: int) -> dict[tuple[str, str], KeyUse]:
        """By tenant and key; what is usual only of those with more requests than burst."""
        requests = defaultdict[tuple[str, str], dict[str, int]](dict)
        for row in (await connection.execute(_RECENT)).all():
            requests[row.tenant, row.key][row.refusal] = row.requests
        sums = {place: sum(of_key.values()) for place, of_key in requests.items()}
        many = sorted((place for place in sums if sums[place] > burst), key=lambda place: -sums[place])
        usual = await _usual_of(connection, many[:_MOST_ASKED])
        networks = {(row.tenant, row.key): row.networks for row in (await connection.execute(_CAME_FROM)).all()}
        return {
            place: KeyUse(
                requests=sums.get(place, 0),
                refused={why: count for why, count in requests[place].items() if why},
                networks=networks.get(place, 0),
                usual=usual.get(place),
            )
            for place in {*requests, *networks}
        }


async def _usual_of(connection: AsyncConnection, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], float]:
    if not keys:
        return {}
    rows = await connection.exec_driver_sql(_USUAL, tuple(list(column) for column in zip(*keys, strict=True)))
    return {(row.tenant, row.key): row.usual for row in rows.all()}
