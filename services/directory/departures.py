"""Forgets tenants that have left the site's file, and keys that ended long ago; the audit keeps who did what."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from services.database import Database
from services.directory.acts import Act, next_version, record
from services.directory.orders import AskedBy
from services.directory.settings import Settings
from services.directory.tables import CLOCK, KEYS, MODEL_ORDERS, PROMPTS, SUSPENSIONS
from services.failure import ServiceError

_DAY_S = 86400
KEPT_ENDED_S = 30 * _DAY_S
"""For so long the list of keys has one that has ended."""
KEPT_SHORT_S = _DAY_S
"""The same for a key that was made for a day at most, as a playground's."""
KEPT_OF_LEFT_S = 3600
"""The same for one of a tenant that the site's file lacks. Gatekeepers read all that there is every ten minutes
(services/gatekeeper/follow.go), so none of them knows a key whose row goes."""
FORGOTTEN = "forgotten"
"""The name of a key of a tenant that was forgotten: the first one had a person's name in it."""
_LOOK_EVERY_S, _AGAIN_AFTER_S = 3600.0, 60.0

log = logging.getLogger(__name__)


class Departures:
    """Of one database. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings

    async def forget(self, tenant: str, by: AskedBy) -> dict[str, int]:
        """How much there was of a tenant; nothing of it works once this returns. Raises ServiceError for one of the
        site's file.
        """
        if tenant in self._settings.models_by_tenant():
            what = f"{tenant} is a tenant of the site's file"
            fix = "remove it from the file and run pulumi up first"
            raise ServiceError(422, "tenant_is_there", what, got=tenant, fix=fix)
        async with self._database.transaction() as connection:
            version, now = await next_version(connection)
            ended = {"version": version, "revoked": sa.func.coalesce(KEYS.c.revoked, now)}
            forgotten = {"name": FORGOTTEN, "models": None, "successor": None}
            held = {"version": version, "lifted": sa.func.coalesce(SUSPENSIONS.c.lifted, now)}
            changes: dict[str, Any] = {
                "keys": sa.update(KEYS)
                .where(KEYS.c.tenant == tenant, KEYS.c.name != FORGOTTEN)
                .values(**ended, **forgotten),
                "prompts": sa.update(PROMPTS)
                .where(PROMPTS.c.tenant == tenant, PROMPTS.c.text.is_not(None))
                .values(text=None, in_use=False, version=version),
                "suspensions": sa.update(SUSPENSIONS)
                .where(SUSPENSIONS.c.tenant == tenant, SUSPENSIONS.c.lifted.is_(None))
                .values(**held),
                "orders": sa.delete(MODEL_ORDERS).where(MODEL_ORDERS.c.tenant == tenant),
            }
            counts = {name: (await connection.execute(change)).rowcount for name, change in changes.items()}
            if any(counts.values()):
                await record(connection, now, by, Act("forget tenant", tenant, tenant, after=counts))
            return counts

    async def run(self) -> None:
        """Delete what ended long ago, every hour, for ever."""
        while True:
            try:
                await self.purge(self._settings.models_by_tenant())
            except ServiceError as error:
                log.warning("keys that ended long ago are deleted later: %s", error.code)
                await asyncio.sleep(_AGAIN_AFTER_S)
            else:
                await asyncio.sleep(_LOOK_EVERY_S)

    async def purge(self, tenants: Collection[str]) -> int:
        """Rows that no reader has to learn of any more are deleted; how many. tenants: of the site's file."""
        end = sa.func.least(KEYS.c.revoked, KEYS.c.expires)
        kept = sa.case(
            (KEYS.c.tenant.not_in(tenants), KEPT_OF_LEFT_S),
            (KEYS.c.expires - KEYS.c.created <= _DAY_S, KEPT_SHORT_S),
            else_=KEPT_ENDED_S,
        )
        left = sa.delete(PROMPTS).where(PROMPTS.c.tenant.not_in(tenants), PROMPTS.c.text.is_(None))
        lifted = sa.delete(SUSPENSIONS).where(
            SUSPENSIONS.c.tenant.not_in(tenants), SUSPENSIONS.c.lifted < CLOCK - KEPT_OF_LEFT_S
        )
        async with self._database.transaction() as connection:
            count = (await connection.execute(sa.delete(KEYS).where(end < CLOCK - kept))).rowcount
            count += (await connection.execute(left)).rowcount
            return count + (await connection.execute(lifted)).rowcount
