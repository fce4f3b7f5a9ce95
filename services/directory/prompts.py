"""Prompts of tenants: texts with variables, in versions of which one is in use. A version never changes."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from services.database import Database
from services.directory.acts import Act, next_version, record
from services.directory.orders import AskedBy
from services.directory.tables import PROMPTS
from services.failure import ServiceError, shown

LARGEST_TEXT = 16 * 1024
"""Bytes of UTF-8."""
MOST_VERSIONS, MOST_BYTES = 100, 256 * 1024
"""Of all prompts of a tenant together: every gatekeeper has them in memory and on disk."""
VARIABLE = re.compile(r"\{\{([A-Za-z_][A-Za-z0-9_]{0,63})\}\}")
"""As services/gatekeeper/prompts.go has it."""
# Meant as one, and sent to a model as it is.
_NEARLY = re.compile(r"\{\{\s*[A-Za-z_][A-Za-z0-9_-]*\s*\}\}")
# The log takes no other (components/gateway/front_door.py), with its version behind.
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


class PromptOrder(BaseModel):
    """A version that is to be made."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tenant: str
    id: str
    text: str

    def check(self) -> None:
        """Raise ServiceError for what no prompt may be."""
        if not _ID.fullmatch(self.id):
            allowed = "1 to 40 lower-case letters, digits, dots, dashes and underscores"
            raise _refused("id: not the id of a prompt", got=shown(self.id), allowed=allowed)
        size = len(self.text.encode(errors="replace"))
        # PostgreSQL keeps no NUL, and UTF-8 has no half of a pair.
        if not self.text.strip() or size > LARGEST_TEXT or re.search("[\0\ud800-\udfff]", self.text):
            raise _refused("text: not a prompt", got=f"{size} bytes", allowed=f"1 to {LARGEST_TEXT} bytes of text")
        for match in _NEARLY.finditer(self.text):
            if not VARIABLE.fullmatch(match[0]):
                allowed = "{{name}}, of letters, digits and underscores, without spaces"
                raise _refused("text: not a variable", got=shown(match[0]), allowed=allowed)


class UseOrder(BaseModel):
    """The version that is to be used."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    version: Annotated[int, Field(ge=1, le=2**31 - 1)]


class Prompts:
    """The prompts of one database. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def versions(self, tenant: str, prompt: str | None = None) -> list[dict[str, Any]]:
        """All of a tenant, or of one prompt with their texts. Raises ServiceError where that is none."""
        query = sa.select(PROMPTS).where(PROMPTS.c.tenant == tenant, PROMPTS.c.text.is_not(None))
        if prompt is not None:
            query = query.where(PROMPTS.c.id == prompt)
        async with self._database.transaction() as connection:
            rows = (await connection.execute(query.order_by(PROMPTS.c.id, PROMPTS.c.number))).all()
        if prompt is not None and not rows:
            raise _unknown(tenant, prompt)
        return [_shown_version(row) | ({} if prompt is None else {"text": row.text}) for row in rows]

    async def put(self, order: PromptOrder, by: AskedBy) -> dict[str, Any]:
        """A new version, which is in use once this returns. Raises ServiceError where the tenant has too many."""
        async with self._database.transaction() as connection:
            change, now = await next_version(connection)
            await _require_room(connection, order)
            own = (PROMPTS.c.tenant == order.tenant, PROMPTS.c.id == order.id)
            before = await _in_use(connection, *own)
            # The number of a version that was removed is not given again.
            last = await connection.scalar(sa.select(sa.func.max(PROMPTS.c.number)).where(*own))
            row = {"tenant": order.tenant, "id": order.id, "number": (last or 0) + 1, "text": order.text}
            row |= {"at": now, "actor": by.actor, "version": change, "in_use": True}
            await _stop_use(connection, change, *own)
            made = (await connection.execute(sa.insert(PROMPTS).values(row).returning(PROMPTS))).one()
            after = {"in_use": made.number, "sha256": hashlib.sha256(order.text.encode()).hexdigest()}
            await record(connection, now, by, Act("put prompt", order.id, order.tenant, before, after))
            return _shown_version(made)

    async def use(self, tenant: str, prompt: str, number: int, by: AskedBy) -> dict[str, Any]:
        """This version, which is in use once this returns. Raises ServiceError where there is none."""
        async with self._database.transaction() as connection:
            change, now = await next_version(connection)
            own = (PROMPTS.c.tenant == tenant, PROMPTS.c.id == prompt)
            await _row(connection, tenant, prompt, number)
            before = await _in_use(connection, *own)
            await _stop_use(connection, change, *own)
            chosen = sa.update(PROMPTS).where(*own, PROMPTS.c.number == number)
            row = (await connection.execute(chosen.values(in_use=True, version=change).returning(PROMPTS))).one()
            await record(connection, now, by, Act("use prompt", prompt, tenant, before, {"in_use": number}))
            return _shown_version(row)

    async def remove(self, tenant: str, prompt: str, number: int, by: AskedBy) -> dict[str, Any]:
        """This version, whose text is gone. Raises ServiceError for none, and for one in use beside others."""
        async with self._database.transaction() as connection:
            change, now = await next_version(connection)
            row = await _row(connection, tenant, prompt, number)
            own = (PROMPTS.c.tenant == tenant, PROMPTS.c.id == prompt)
            there = sa.select(sa.func.count()).select_from(PROMPTS).where(*own, PROMPTS.c.text.is_not(None))
            if row.in_use and (await connection.scalar(there) or 0) > 1:
                fix = "use another version first, or remove the others"
                raise ServiceError(422, "in_use", f"version {number} of {prompt} is in use", fix=fix)
            removed = sa.update(PROMPTS).where(*own, PROMPTS.c.number == number)
            await connection.execute(removed.values(text=None, in_use=False, version=change))
            await record(connection, now, by, Act("remove prompt", prompt, tenant, {"version": number}))
            return _shown_version(row)


async def _require_room(connection: AsyncConnection, order: PromptOrder) -> None:
    sums = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sa.func.octet_length(PROMPTS.c.text)), 0))
    own = sums.where(PROMPTS.c.tenant == order.tenant, PROMPTS.c.text.is_not(None))
    count, size = (await connection.execute(own)).tuples().one()
    if count >= MOST_VERSIONS or size + len(order.text.encode()) > MOST_BYTES:
        raise ServiceError(
            422,
            "too_many_prompts",
            f"{order.tenant} has no room for another version",
            got=f"{count} versions of {size} bytes",
            allowed=f"{MOST_VERSIONS} versions of {MOST_BYTES} bytes together",
            fix="remove versions that are not used: sitectl prompts remove",
        )


async def _in_use(connection: AsyncConnection, *own: sa.ColumnElement[bool]) -> dict[str, Any] | None:
    number = await connection.scalar(sa.select(PROMPTS.c.number).where(*own, PROMPTS.c.in_use))
    return None if number is None else {"in_use": number}


async def _stop_use(connection: AsyncConnection, change: int, *own: sa.ColumnElement[bool]) -> None:
    await connection.execute(sa.update(PROMPTS).where(*own, PROMPTS.c.in_use).values(in_use=False, version=change))


async def _row(connection: AsyncConnection, tenant: str, prompt: str, number: int) -> Any:
    own = (PROMPTS.c.tenant == tenant, PROMPTS.c.id == prompt, PROMPTS.c.number == number)
    row = (await connection.execute(sa.select(PROMPTS).where(*own, PROMPTS.c.text.is_not(None)))).one_or_none()
    if row is None:
        raise _unknown(tenant, f"{prompt} {number}")
    return row


def _shown_version(row: Any) -> dict[str, Any]:
    shown_row = {name: getattr(row, name) for name in ("tenant", "id", "at", "actor", "in_use")}
    return shown_row | {"version": row.number, "variables": list(dict.fromkeys(VARIABLE.findall(row.text)))}


def _unknown(tenant: str, prompt: str) -> ServiceError:
    what, fix = f"{shown(tenant)} has no such prompt", "GET /v1/prompts lists them"
    return ServiceError(404, "unknown_prompt", what, got=shown(prompt), allowed="an id with a version", fix=fix)


def _refused(what: str, *, got: str, allowed: str) -> ServiceError:
    return ServiceError(422, "invalid_request", what, got=got, allowed=allowed, fix="correct what is named")
