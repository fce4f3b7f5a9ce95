"""What every change does in its transaction: it takes the next version, and adds a row to the audit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.directory.audit import Head
from services.directory.orders import AskedBy
from services.directory.tables import AUDIT, CLOCK, KEPT, LAST_CHANGE
from services.directory.variables import PORTAL
from services.failure import ServiceError

MOST_ACTS, PACE_S = 30, 60
"""Of one person of the portal, within so long: each act is a row that stays, under a lock that all writers share."""
_LAST_ACTS = 1000


@dataclass(frozen=True)
class Act:
    """What is done, and to what, for the audit."""

    action: str
    subject: str
    """The id of a key, or of a prompt."""
    tenant: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


async def next_version(connection: AsyncConnection) -> tuple[int, int]:
    """The version of this change, and the time. Waits until no other change is under way."""
    values = {"version": LAST_CHANGE.c.version + 1, "at": CLOCK}
    row = (await connection.execute(sa.update(LAST_CHANGE).values(values).returning(LAST_CHANGE))).one()
    await connection.execute(sa.select(sa.func.pg_notify(KEPT.channel, "")))
    return row.version, math.ceil(row.at)


async def record(connection: AsyncConnection, now: int, by: AskedBy, act: Act) -> None:
    """Add it to the chain. The row that next_version has locked keeps every other writer from the same place.

    Raises ServiceError for a person of the portal who does too much at once.
    """
    if by.source.partition(" ")[0] == PORTAL:
        await _require_pace(connection, now, by.actor)
    last = sa.select(AUDIT.c.number, AUDIT.c.hash).order_by(AUDIT.c.number.desc()).limit(1)
    number, previous = (await connection.execute(last)).tuples().one_or_none() or (0, Head().hash)
    row = {"number": number + 1, "at": now, **asdict(by), **asdict(act)}
    await connection.execute(sa.insert(AUDIT).values(hash=Head(number, previous).then(row).hash, **row))


async def _require_pace(connection: AsyncConnection, now: int, actor: str) -> None:
    last = sa.select(AUDIT.c.actor, AUDIT.c.at).order_by(AUDIT.c.number.desc()).limit(_LAST_ACTS).subquery()
    own = sa.select(sa.func.count()).where(last.c.actor == actor, last.c.at > now - PACE_S)
    if (count := await connection.scalar(own) or 0) >= MOST_ACTS:
        raise ServiceError(
            429,
            "too_many_acts",
            f"{actor} has changed too much at once",
            got=f"{count} changes within {PACE_S} s",
            allowed=f"{MOST_ACTS}",
            fix="wait a minute",
            retry_after_s=PACE_S,
        )
