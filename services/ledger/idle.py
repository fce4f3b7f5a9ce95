"""GPUs that are billed day by day: idle ones of models, and dedicated ones for all of the day.

A day of UTC has the GPUs, prices and callers that the price book had when it began. It is closed some hours after its
end, out of the sums by hour: how many seconds of it the revision's GPUs stood idle, for each caller an equal part,
rounded down to a whole second. From there on it does not change, whatever the site's file has then. After a failure
rows still arrive that waited, and would be missing: a day then waits, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field

from services.database import Database
from services.ledger.tables import IDLE, REVISIONS, USAGE

DAY_S = 86_400
CLOSED_AFTER_H = 6
"""Hours from the end of a day until it is closed; what comes later of it changes no bill."""
SOUND_S = 3600.0
"""For how long rows must have been added without a failure: shippers send what waited in that time."""


class BilledGpus(BaseModel):
    """Of one revision of a model, as the price book has it."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    carried: Annotated[int, Field(ge=0, le=10**15)]
    """Tokens of a day that its GPUs are proven to carry, of prompts and answers; 0 where all of the day is billed, and
    no token."""
    price: Annotated[int, Field(ge=0, le=10**15)]
    """Pico-units of the currency for a second of all its GPUs."""
    callers: Annotated[Sequence[str], Field(min_length=1)]
    """Tenants."""


_TOMORROW = "date_trunc('day', now(), 'UTC') + interval '1 day'"
_GIVEN_UP = sa.text(
    f"DELETE FROM {IDLE.name} WHERE day >= {_TOMORROW} AND NOT revision = ANY (:revisions)"  # noqa: S608 - of tables
)
_OPEN = sa.text(
    f"INSERT INTO {IDLE.name} (day, revision, carried, price, currency, callers) "  # noqa: S608 - names of tables
    f"VALUES ({_TOMORROW}, :revision, :carried, :price, :currency, :callers) "
    "ON CONFLICT (day, revision) DO UPDATE SET carried = excluded.carried, price = excluded.price, "
    "currency = excluded.currency, callers = excluded.callers"
)
_HOURS = "hour >= idle.day AND hour < idle.day + interval '1 day'"
_TOKENS = "coalesce(sum(input_tokens + output_tokens), 0)"
# The stable revision has the model's name; what others answered is among the sums of the model.
_CLOSE = sa.text(
    f"""
    UPDATE {IDLE.name} AS idle SET seconds = CASE carried WHEN 0 THEN {DAY_S} / cardinality(callers) ELSE div(
        {DAY_S} * greatest(0, carried
            - (SELECT {_TOKENS} FROM {USAGE.name} WHERE {_HOURS} AND model = idle.revision)
            + (SELECT {_TOKENS} FROM {REVISIONS.name} WHERE {_HOURS} AND model = idle.revision)
            - (SELECT {_TOKENS} FROM {REVISIONS.name} AS own WHERE {_HOURS} AND own.revision = idle.revision)
        )::numeric, carried::numeric * cardinality(callers)
    ) END WHERE seconds IS NULL AND day <= now() - interval '1 day' - interval '{CLOSED_AFTER_H} hours'
    """  # noqa: S608 - names of tables
)


_CLOSED = sa.text(
    f"SELECT coalesce(extract(epoch FROM max(day)), 0) FROM {IDLE.name} WHERE seconds IS NOT NULL"  # noqa: S608
)


def next_day(now: float) -> float:
    """When it begins, in Unix time."""
    return (now // DAY_S + 1) * DAY_S


async def keep_days(database: Database, gpus: Mapping[str, BilledGpus], currency: str, *, sound_s: float) -> float:
    """Open the next day for these revisions and no other, and close those that are over. Raises ServiceError.

    gpus: by revision, none where idle GPUs are not billed; sound_s: since when rows are added without a failure.
    Gives the start of the last day that is closed, in Unix time, or 0.
    """
    rows = [
        {"revision": name, "currency": currency, **own.model_dump(), "callers": list(own.callers)}
        for name, own in sorted(gpus.items())
    ]
    async with database.transaction() as connection:
        if sound_s >= SOUND_S:
            await connection.execute(_CLOSE)
        await connection.execute(_GIVEN_UP, {"revisions": list(gpus)})
        if rows:
            await connection.execute(_OPEN, rows)
        return float((await connection.execute(_CLOSED)).scalar_one())
