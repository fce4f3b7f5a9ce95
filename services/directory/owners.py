"""What holds for the keys of one person, which their names show: these end in a mark of the person's."""

from __future__ import annotations

from typing import Annotated

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.ext.asyncio import AsyncConnection

from services.directory.tables import CLOCK, KEYS, SUSPENSIONS
from services.failure import ServiceError

WORKS = sa.and_(KEYS.c.revoked.is_(None), sa.or_(KEYS.c.expires.is_(None), KEYS.c.expires > CLOCK))
"""Keys that open something now."""


class Owner(BaseModel):
    """A person, and how many keys that work they may have in a tenant; None: no bound for this request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mark: Annotated[str, Field(pattern=r"^[a-z2-7]{8}$")]
    most: Annotated[int, Field(ge=1, le=1000)] | None = None

    def has(self, name: str) -> bool:
        """Whether a key of this name is theirs."""
        return name.endswith(f"-{self.mark}")

    async def require_room(self, connection: AsyncConnection, tenant: str) -> None:
        """Raise ServiceError where they may have no other key now. The caller holds the lock of all writers."""
        mine = f"-{self.mark}"
        held = sa.select(sa.func.count()).where(
            SUSPENSIONS.c.tenant == tenant, SUSPENSIONS.c.lifted.is_(None), SUSPENSIONS.c.name.endswith(mine)
        )
        if await connection.scalar(held):
            fix = "wait until an operator lifts that: sitectl key lift"
            raise ServiceError(403, "owner_suspended", f"a key of this person in {tenant} is suspended", fix=fix)
        if self.most is None:
            return
        working = sa.select(sa.func.count()).where(KEYS.c.tenant == tenant, KEYS.c.name.endswith(mine), WORKS)
        if (count := await connection.scalar(working) or 0) >= self.most:
            what = f"this person has {count} keys that work in {tenant}"
            fix = "revoke one that is not used"
            raise ServiceError(422, "too_many_keys", what, got=str(count), allowed=f"{self.most}", fix=fix)
