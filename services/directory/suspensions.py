"""Suspends keys, and lifts that again: a key is suspended by its name, TENANT.NAME, wherever it was made.

So the name of a key in the site's file can be suspended too, and a successor of a rotated key is as well. Nothing is
lost: the key works again once the suspension is lifted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from services.database import Database
from services.directory.acts import Act, next_version, record
from services.directory.orders import NAME, AskedBy, line_problems, problem, require, scope_problems
from services.directory.tables import CLOCK, SUSPENSIONS
from services.failure import ServiceError

SIGNALS = "key-signals"
"""Who suspends by these."""
HOUR_S = 3600
LIFTED_FOR_S = 24 * HOUR_S
"""For so long after a person has lifted it, no signal suspends a key again."""
_NAMES = ("tenant", "name", "since", "why", "actor", "by_signal", "lifted")


class SuspensionOrder(BaseModel):
    """A key that is to be suspended."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tenant: str
    name: str
    why: Annotated[str, Field(min_length=1, max_length=500)]

    def check(self, known: Mapping[str, list[str]]) -> None:
        """Raise ServiceError for a name that no key has, and for a reason that is no line."""
        allowed = "1 to 40 lower-case letters, digits and inner dashes"
        wrong = [] if NAME.fullmatch(self.name) else [problem("name", "not a name", self.name, allowed)]
        require([*wrong, *line_problems("why", self.why), *scope_problems(self.tenant, None, known)])


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """A key that a signal is about."""

    tenant: str
    name: str
    why: str


@dataclass(frozen=True)
class Acted:
    """What became of suspicions."""

    suspended: Sequence[Suspicion]
    held: int
    """Keys that would have been suspended as well, were it not for the most of an hour."""


class Suspensions:
    """Those of one database. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def listed(self) -> list[dict[str, Any]]:
        """Those in force."""
        query = sa.select(SUSPENSIONS).where(SUSPENSIONS.c.lifted.is_(None)).order_by(SUSPENSIONS.c.since.desc())
        async with self._database.transaction() as connection:
            return [_shown(row) for row in await connection.execute(query)]

    async def suspend(self, order: SuspensionOrder, by: AskedBy) -> dict[str, Any]:
        """The suspension, in force once this returns. One of a signal is the person's then, and its alert ends; one of
        a person stays as it is.
        """
        async with self._database.transaction() as connection:
            version, now = await next_version(connection)
            row = await _row(connection, order.tenant, order.name)
            if row is None or row.lifted is not None:
                suspect = Suspicion(tenant=order.tenant, name=order.name, why=order.why)
                await _suspend(connection, suspect, version, now, by, by_signal=False)
            elif row.actor == SIGNALS:
                # Still one of those that signals had in its hour.
                place = (SUSPENSIONS.c.tenant == order.tenant, SUSPENSIONS.c.name == order.name)
                values = {"actor": by.actor, "why": order.why, "version": version}
                await connection.execute(sa.update(SUSPENSIONS).where(*place).values(values))
                after = {"since": row.since, "why": order.why}
                act = Act("suspend", f"{order.tenant}.{order.name}", order.tenant, _kept(row), after)
                await record(connection, now, by, act)
            return _shown(await _row(connection, order.tenant, order.name))

    async def lift(self, tenant: str, name: str, by: AskedBy) -> dict[str, Any]:
        """The suspension, in force no more. Raises ServiceError where none was."""
        async with self._database.transaction() as connection:
            version, now = await next_version(connection)
            row = await _row(connection, tenant, name)
            if row is None or row.lifted is not None:
                raise ServiceError(
                    404, "not_suspended", "this key is not suspended", fix="GET /v1/suspensions lists those that are"
                )
            values = {"lifted": now, "version": version}
            place = (SUSPENSIONS.c.tenant == tenant, SUSPENSIONS.c.name == name)
            await connection.execute(sa.update(SUSPENSIONS).where(*place).values(values))
            await record(connection, now, by, Act("lift", f"{tenant}.{name}", tenant, _kept(row), {"lifted": now}))
            return _shown(await _row(connection, tenant, name))

    async def suspend_all(self, suspects: Sequence[Suspicion], most_per_hour: int, by: AskedBy) -> Acted:
        """Suspend those that may be, the first ones first, and no more than so many within an hour."""
        async with self._database.transaction() as connection:
            chosen, held = await _chosen(connection, suspects, most_per_hour)
            if chosen:
                version, now = await next_version(connection)
                # Another directory, or a person, may have acted while this one waited.
                chosen, held = await _chosen(connection, suspects, most_per_hour)
                for suspicion in chosen:
                    await _suspend(connection, suspicion, version, now, by, by_signal=True)
        return Acted(chosen, held)


async def _chosen(
    connection: AsyncConnection, suspects: Sequence[Suspicion], most_per_hour: int
) -> tuple[list[Suspicion], int]:
    """Whom to suspend, and how many more would be."""
    now = float(await connection.scalar(sa.select(CLOCK)) or 0)
    rows = (await connection.execute(sa.select(SUSPENSIONS))).all()
    spared = {(row.tenant, row.name) for row in rows if row.lifted is None or row.lifted > now - LIFTED_FOR_S}
    last = sum(row.by_signal and row.since > now - HOUR_S for row in rows)
    wanted = list({(suspect.tenant, suspect.name): suspect for suspect in reversed(suspects)}.values())[::-1]
    wanted = [suspect for suspect in wanted if (suspect.tenant, suspect.name) not in spared]
    room = max(0, most_per_hour - last)
    return wanted[:room], len(wanted[room:])


async def _suspend(
    connection: AsyncConnection, suspect: Suspicion, version: int, now: int, by: AskedBy, *, by_signal: bool
) -> None:
    row = {"since": now, "why": suspect.why, "actor": by.actor, "by_signal": by_signal, "lifted": None}
    new = insert(SUSPENSIONS).values(tenant=suspect.tenant, name=suspect.name, version=version, **row)
    again = {**row, "version": version}
    await connection.execute(new.on_conflict_do_update(index_elements=["tenant", "name"], set_=again))
    act = Act("suspend", f"{suspect.tenant}.{suspect.name}", suspect.tenant, after={"since": now, "why": suspect.why})
    await record(connection, now, by, act)


async def _row(connection: AsyncConnection, tenant: str, name: str) -> Any:
    query = sa.select(SUSPENSIONS).where(SUSPENSIONS.c.tenant == tenant, SUSPENSIONS.c.name == name)
    return (await connection.execute(query)).one_or_none()


def _kept(row: Any) -> dict[str, Any]:
    return {"since": row.since, "why": row.why}


def _shown(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _NAMES}
