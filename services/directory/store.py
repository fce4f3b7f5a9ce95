"""What is read and written: each change in one transaction, with its version and its row of the audit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from services.database import Database
from services.directory.acts import Act, next_version, record
from services.directory.audit import COLUMNS, Head
from services.directory.keys import NewKey
from services.directory.orders import AskedBy, KeyOrder, RotationOrder
from services.directory.owners import WORKS
from services.directory.tables import AUDIT, CLOCK, KEYS, LAST_CHANGE, PROMPTS, SUSPENSIONS
from services.failure import ServiceError

# Another one for another database, for a copy of it, after each restore, failover and restart of it.
_EPOCH = sa.text(
    """
    SELECT substr(encode(sha256(concat_ws('/',
        (SELECT system_identifier FROM pg_control_system()),
        (SELECT oid FROM pg_database WHERE datname = current_database()),
        left(pg_walfile_name(pg_current_wal_lsn()), 8),
        extract(epoch FROM pg_postmaster_start_time()),
        pg_relation_filenode('last_change')
    )::bytea), 'hex'), 1, 16)
    """
)


STATES = ("works", "ended")
"""By which keys are listed."""


@dataclass(frozen=True, kw_only=True)
class KeyChoice:
    """Which keys are asked for; without anything all that there are."""

    tenant: str = ""
    owner: str = ""
    """A person's mark."""
    part: str = ""
    """Of the name or the id."""
    state: str = ""
    """One of STATES."""
    most: int | None = None

    def query(self) -> sa.Select[Any]:
        """By tenant and name; of those that ended the newest first."""
        query = sa.select(KEYS).limit(self.most)
        if self.tenant:
            query = query.where(KEYS.c.tenant == self.tenant)
        if self.owner:
            query = query.where(KEYS.c.name.endswith(f"-{self.owner}", autoescape=True))
        if self.part:
            columns = (KEYS.c.name, KEYS.c.id)
            query = query.where(sa.or_(*(column.contains(self.part, autoescape=True) for column in columns)))
        if self.state:
            query = query.where(WORKS if self.state == "works" else sa.not_(WORKS))
        if self.state == "ended":
            return query.order_by(KEYS.c.created.desc(), KEYS.c.id)
        return query.order_by(KEYS.c.tenant, KEYS.c.name, KEYS.c.created, KEYS.c.id)


@dataclass(frozen=True)
class Changes:
    """What a reader has to learn."""

    cursor: str
    full: bool
    keys: Sequence[dict[str, Any]]
    prompts: Sequence[dict[str, Any]]
    """Versions of prompts; one without a text was removed."""
    suspensions: Sequence[dict[str, Any]]
    """Of keys, by the names that they have at the gateway; one that was lifted is so."""
    age_s: float
    """Since the last change of the directory."""


def state_of(row: Any, now: float) -> str:
    """works, expired or revoked."""
    if row.revoked is not None:
        return "revoked"
    return "works" if row.expires is None or row.expires > now else "expired"


class Store:
    """The keys of one database. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def changes(self, after: str) -> Changes:
        """What changed since the cursor; all keys that work where the cursor is not of this database."""
        async with self._database.transaction(snapshot=True) as connection:
            epoch = await connection.scalar(_EPOCH)
            last = (await connection.execute(sa.select(LAST_CHANGE, CLOCK.label("now")))).one()
            since = _version_of(after, str(epoch), last.version)
            chosen = sa.select(KEYS).order_by(KEYS.c.version)
            rows = (await connection.execute(chosen.where(KEYS.c.version > (since or 0)))).all()
            columns = (PROMPTS.c[name] for name in ("tenant", "id", "text", "in_use"))
            versions = sa.select(*columns, PROMPTS.c.number.label("version")).where(PROMPTS.c.version > (since or 0))
            prompts = [dict(row) for row in (await connection.execute(versions)).mappings()]
            columns = (SUSPENSIONS.c[name] for name in ("tenant", "name", "since"))
            held = sa.select(*columns, SUSPENSIONS.c.lifted.is_not(None).label("lifted"))
            held = held.where(SUSPENSIONS.c.version > (since or 0))
            suspensions = [dict(row) for row in (await connection.execute(held)).mappings()]
        if since is None:
            rows = [row for row in rows if state_of(row, float(last.now)) == "works"]
            prompts = [prompt for prompt in prompts if prompt["text"] is not None]
            suspensions = [suspension for suspension in suspensions if not suspension["lifted"]]
        keys = [
            {name: getattr(row, name) for name in ("id", "digest", "tenant", "name", "models", "expires")}
            | {"revoked": row.revoked is not None}
            for row in rows
        ]
        cursor = f"{epoch}:{last.version}"
        return Changes(cursor, since is None, keys, prompts, suspensions, float(last.now) - last.at)

    async def keys(self, chosen: KeyChoice) -> list[dict[str, Any]]:
        """Those that are asked for."""
        async with self._database.transaction() as connection:
            rows = (await connection.execute(chosen.query())).all()
            held = sa.select(SUSPENSIONS).where(SUSPENSIONS.c.lifted.is_(None))
            if chosen.tenant:
                held = held.where(SUSPENSIONS.c.tenant == chosen.tenant)
            since = {(row.tenant, row.name): row.since for row in await connection.execute(held)}
            return [_shown_row(row) | {"suspended": since.get((row.tenant, row.name))} for row in rows]

    async def key(self, key_id: str) -> dict[str, Any]:
        """One. Raises ServiceError where there is none."""
        return _shown_row(await self.find(key_id))

    async def acts(self, after: int, most: int) -> tuple[list[dict[str, Any]], Head]:
        """Rows of the audit behind this number, with their hashes; and the head of all."""
        query = sa.select(AUDIT).where(AUDIT.c.number > after).order_by(AUDIT.c.number).limit(most)
        last = sa.select(AUDIT.c.hash).order_by(AUDIT.c.number.desc()).limit(1)
        async with self._database.transaction(snapshot=True) as connection:
            rows = (await connection.execute(query)).mappings().all()
            count = await connection.scalar(sa.select(sa.func.count()).select_from(AUDIT))
            head = Head(count, str(await connection.scalar(last))) if count else Head()
        return [{name: row[name] for name in (*COLUMNS, "hash")} for row in rows], head

    async def count_by_state(self) -> dict[str, int]:
        """How many keys there are in each state."""
        revoked, expired = KEYS.c.revoked.is_not(None), KEYS.c.expires <= CLOCK
        state = sa.case((revoked, "revoked"), (expired, "expired"), else_="works").label("state")
        async with self._database.transaction() as connection:
            rows = await connection.execute(sa.select(state, sa.func.count()).group_by(state))
            return {"works": 0, "expired": 0, "revoked": 0} | dict(rows.tuples().all())

    async def find(self, key_id: str) -> Any:
        """One key. Raises ServiceError where there is none."""
        async with self._database.transaction() as connection:
            return await _row(connection, key_id)

    async def create(self, order: KeyOrder, key: NewKey, by: AskedBy) -> dict[str, Any]:
        """The key, which works once this returns."""
        async with self._database.transaction() as connection:
            version, now = await next_version(connection)
            if order.owner:
                await order.owner.require_room(connection, order.tenant)
            expires = None if order.expires_in_s is None else now + order.expires_in_s
            made = await _insert(connection, key, order, version, now, expires)
            await record(connection, now, by, Act("create", key.id, order.tenant, after=_kept(made)))
            return made

    async def rotate(self, key_id: str, asked: RotationOrder, key: NewKey, by: AskedBy) -> dict[str, Any]:
        """Another key for the same purpose, which lives as long as the first was made for; that one ends."""
        async with self._database.transaction() as connection:
            version, now = await next_version(connection)
            old = await _row(connection, key_id)
            if (state := state_of(old, now)) != "works":
                raise ServiceError(
                    422,
                    "key_ended",
                    f"{key_id} does not work any more, so it has no successor",
                    got=state,
                    allowed="a key that works",
                    fix="create a key instead: POST /v1/keys",
                )
            if old.successor:
                what, fix = f"{key_id} was rotated already", f"rotate its successor {old.successor}, or create a key"
                raise ServiceError(422, "rotated_already", what, got=key_id, fix=fix)
            if asked.owner:
                await asked.owner.require_room(connection, old.tenant)
            overlap_s = asked.overlap_s
            end = now + overlap_s if old.expires is None else min(old.expires, now + overlap_s)
            await _update(connection, key_id, version=version, expires=end, successor=key.id)
            before = _kept(old._mapping)
            ended = before | {"expires": end, "successor": key.id}
            await record(connection, now, by, Act("rotate", key_id, old.tenant, before, ended))
            order = KeyOrder(tenant=old.tenant, name=old.name, models=old.models)
            expires = None if old.expires is None else now + old.expires - old.created
            made = await _insert(connection, key, order, version, now, expires)
            await record(connection, now, by, Act("create", key.id, old.tenant, after=_kept(made)))
            return made

    async def revoke(self, key_id: str, by: AskedBy) -> dict[str, Any]:
        """The key, which does not work any more once this returns; nothing changes where it was revoked before."""
        async with self._database.transaction() as connection:
            row = await _row(connection, key_id)
            if row.revoked is None:
                version, now = await next_version(connection)
                # Another request may have done it while this one waited.
                row = await _row(connection, key_id)
                if row.revoked is None:
                    await _update(connection, key_id, version=version, revoked=now)
                    before = _kept(row._mapping)
                    row = await _row(connection, key_id)
                    await record(connection, now, by, Act("revoke", key_id, row.tenant, before, _kept(row._mapping)))
            return _shown_row(row)


async def _row(connection: AsyncConnection, key_id: str) -> Any:
    row = (await connection.execute(sa.select(KEYS).where(KEYS.c.id == key_id))).one_or_none()
    if row is None:
        fix = "GET /v1/keys lists them"
        raise ServiceError(404, "unknown_key", "no key has this id", got=key_id, allowed="the id of a key", fix=fix)
    return row


async def _insert(
    connection: AsyncConnection, key: NewKey, order: KeyOrder, version: int, now: int, expires: int | None
) -> dict[str, Any]:
    row: dict[str, Any] = {"id": key.id, "tenant": order.tenant, "name": order.name, "models": order.models}
    row |= {"created": now, "expires": expires}
    await connection.execute(sa.insert(KEYS).values(digest=key.digest, version=version, **row))
    return row


async def _update(connection: AsyncConnection, key_id: str, **values: int | str) -> None:
    await connection.execute(sa.update(KEYS).where(KEYS.c.id == key_id).values(**values))


def _kept(key: Mapping[str, Any]) -> dict[str, Any]:
    """What the audit has of a key: nothing by which one could call."""
    return {name: key.get(name) for name in ("name", "models", "expires", "revoked")}


def _shown_row(row: Any) -> dict[str, Any]:
    names = ("id", "tenant", "name", "models", "created", "expires", "revoked", "successor")
    return {name: getattr(row, name) for name in names} | {"state": state_of(row, time.time())}


def _version_of(cursor: str, epoch: str, last: int) -> int | None:
    """Of a cursor of this database; None for any other, and for one from after a backup that was restored."""
    of, _, version = cursor.partition(":")
    return int(version) if of == epoch and version.isdecimal() and int(version) <= last else None
