"""Orders of models that a tenant may not call yet.

An order asks, and no more: the site's file decides what takes GPUs, so an order is served once that file, as it was
applied, lets the tenant call the model.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from services.database import Database
from services.directory.acts import Act, next_version, record
from services.directory.orders import NAME, AskedBy, line_problems, problem, require
from services.directory.tables import CLOCK, MODEL_ORDERS
from services.directory.variables import OPEN_ORDERS
from services.failure import ServiceError

_ID = re.compile(r"[0-9a-f]{10}")
_MOST_SHOWN = 500
_NOW = sa.cast(sa.func.ceil(CLOCK), sa.BigInteger)


class ModelOrder(BaseModel):
    """A model that a tenant is to have."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tenant: str
    model: str
    note: Annotated[str, Field(max_length=300)] = ""

    def check(self, known: Mapping[str, list[str]]) -> None:
        """Raise ServiceError for a tenant that the site's file lacks, and for a model that it has already."""
        wrong = []
        if self.tenant not in known:
            wrong.append(problem("tenant", "no tenant of the site's file", self.tenant, "the name of a tenant"))
        if not NAME.fullmatch(self.model):
            wrong.append(problem("model", "not a name", self.model, "1 to 40 letters, digits and inner dashes"))
        elif self.model in known.get(self.tenant, ()):
            wrong.append(problem("model", f"{self.tenant} has it already", self.model, "another model"))
        require([*wrong, *line_problems("note", self.note)])


class OrderChange(BaseModel):
    """What became of an order."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    state: Literal["proposed", "declined"]
    why: Annotated[str, Field(min_length=1, max_length=500)]

    def check(self) -> None:
        """Raise ServiceError for text that is no line."""
        require(line_problems("why", self.why))


class OrderStore:
    """The orders of one database. `known`: models by tenant. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def orders(self, tenant: str | None, known: Mapping[str, list[str]]) -> list[dict[str, Any]]:
        """Of a tenant or of all, the open ones and then the newest first: closed ones hide no open one."""
        order = (MODEL_ORDERS.c.state.in_(OPEN_ORDERS).desc(), MODEL_ORDERS.c.asked.desc(), MODEL_ORDERS.c.id)
        query = sa.select(MODEL_ORDERS).order_by(*order).limit(_MOST_SHOWN)
        async with self._database.transaction() as connection:
            await _settle(connection, known)
            rows = await connection.execute(query.where(MODEL_ORDERS.c.tenant == tenant) if tenant else query)
            return [dict(row) for row in rows.mappings()]

    async def ask(self, order: ModelOrder, by: AskedBy, known: Mapping[str, list[str]]) -> dict[str, Any]:
        """The order. Raises ServiceError where the tenant has one of this model that is open."""
        row = order.model_dump() | {"id": secrets.token_hex(5), "state": "asked", "why": ""}
        row |= {"asked_by": by.actor, "changed_by": by.actor, "asked": _NOW, "changed": _NOW}
        async with self._database.transaction() as connection:
            _, now = await next_version(connection)
            await _settle(connection, known)
            made = (
                await connection.execute(
                    insert(MODEL_ORDERS).values(row).on_conflict_do_nothing().returning(MODEL_ORDERS)
                )
            ).mappings()
            if (kept := made.one_or_none()) is None:
                fix = "GET /v1/orders shows how far it is"
                raise ServiceError(
                    422, "ordered_already", f"{order.tenant} has ordered it already", got=order.model, fix=fix
                )
            after = {"model": order.model, "note": order.note or None}
            await record(connection, now, by, Act("order model", kept["id"], order.tenant, after=after))
            return dict(kept)

    async def change(
        self, order_id: str, change: OrderChange, by: AskedBy, known: Mapping[str, list[str]]
    ) -> dict[str, Any]:
        """The order as it is now. Raises ServiceError where there is none, or none that is open."""
        fix = "GET /v1/orders lists them"
        async with self._database.transaction() as connection:
            _, now = await next_version(connection)
            await _settle(connection, known)
            chosen = sa.select(MODEL_ORDERS).where(MODEL_ORDERS.c.id == order_id).with_for_update()
            row = (await connection.execute(chosen)).one_or_none()
            if row is None:
                raise ServiceError(404, "unknown_order", "no order has this id", got=order_id, fix=fix)
            if row.state not in OPEN_ORDERS:
                allowed = "an order that is asked or proposed"
                raise ServiceError(422, "order_ended", f"{order_id} is {row.state}", allowed=allowed, fix=fix)
            after = {"model": row.model, "state": change.state, "why": change.why}
            act = Act("change order", order_id, row.tenant, {"model": row.model, "state": row.state}, after)
            await record(connection, now, by, act)
            changed = _set(order_id, change.state, by.actor, change.why)
            return dict((await connection.execute(changed)).mappings().one())


def is_order_id(text: str) -> bool:
    """Whether it has the form of one."""
    return bool(_ID.fullmatch(text))


def _set(order_id: str, state: str, actor: str, why: str) -> Any:
    values = {"state": state, "changed_by": actor, "changed": _NOW, "why": why}
    return sa.update(MODEL_ORDERS).where(MODEL_ORDERS.c.id == order_id).values(values).returning(MODEL_ORDERS)


async def _settle(connection: AsyncConnection, known: Mapping[str, list[str]]) -> None:
    """An order is served once the tenant has the model."""
    for row in (await connection.execute(sa.select(MODEL_ORDERS).where(MODEL_ORDERS.c.state.in_(OPEN_ORDERS)))).all():
        if row.model in known.get(row.tenant, ()):
            await connection.execute(_set(row.id, "served", "directory", row.why))
