"""What is read: sums by hour, and the versions of prices that they were made by."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from services.database import Database
from services.ledger.bills import GpuDay, UsedInDay
from services.ledger.idle import DAY_S
from services.ledger.months import Month
from services.ledger.prices import PriceVersion
from services.ledger.tables import IDLE, PRICE_VERSIONS, REVISIONS, SPENT, USAGE
from services.ledger.usage import COSTS, GROUPS, UsageQuery

_SUMS = ("requests", "failed", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "cost_pico")

_PICO_OF_MILLIONTH = 10**6


class UsageReader:
    """Reads one database. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sums(self, query: UsageQuery, currency: str) -> list[dict[str, Any]]:
        """By bucket and group; costs by currency too, where `currency` is that of what had no price.

        Of all tenants day by day, each of which answers within its time where the whole would not.
        """
        rows: list[dict[str, Any]] = []
        step_s = query.end - query.start if "tenant" in query.filters else DAY_S
        async with self._database.transaction(snapshot=True) as connection:
            for start in range(query.start, query.end, step_s):
                chosen = _sums_of(query, start, min(start + step_s, query.end), currency)
                rows += map(dict, (await connection.execute(chosen)).mappings())
        return rows

    async def spent(self, month: Month, currency: str) -> dict[str, dict[str, int]]:
        """Tenant -> `cost_millionths` in this currency, rounded down, and `tokens` of prompts and answers."""
        own = sa.func.coalesce(PRICE_VERSIONS.c.content["currency"].astext, currency) == currency
        cost = sa.func.coalesce(sa.func.sum(SPENT.c.cost_pico).filter(own), 0)
        chosen = (
            sa.select(
                SPENT.c.tenant,
                sa.cast(sa.func.div(cost, _PICO_OF_MILLIONTH), sa.BigInteger).label("cost_millionths"),
                sa.cast(sa.func.sum(SPENT.c.tokens), sa.BigInteger).label("tokens"),
            )
            .select_from(SPENT.outerjoin(PRICE_VERSIONS, PRICE_VERSIONS.c.version == SPENT.c.price_version))
            .where(SPENT.c.month == month.start)
            .group_by(SPENT.c.tenant)
        )
        async with self._database.transaction() as connection:
            rows = (await connection.execute(chosen)).all()
        return {row.tenant: {"cost_millionths": row.cost_millionths, "tokens": row.tokens} for row in rows}

    async def month(
        self, tenant: str, month: Month
    ) -> tuple[list[UsedInDay], dict[str, PriceVersion], list[GpuDay], bool]:
        """What a tenant used by day, every version of prices of it, and what it is billed of idle GPUs; and whether a
        day of these is still open."""
        names = ("key", "model", "tier", "price_version")
        day = sa.func.date_trunc("day", USAGE.c.hour, "UTC").label("day")
        # What has no tokens is on no line: only how many requests these were.
        is_billed = USAGE.c.input_tokens + USAGE.c.output_tokens > 0
        columns = [sa.case((is_billed, USAGE.c[name]), else_="").label(name) for name in names]
        chosen = (
            sa.select(day, *columns, *_sums(USAGE.c))
            .where(USAGE.c.tenant == tenant, USAGE.c.hour >= month.start, USAGE.c.hour < (month + 1).start)
            .group_by(*(sa.literal_column(str(place)) for place in range(1, len(columns) + 2)))
        )
        shared = (
            sa.select(*(IDLE.c[name] for name in GpuDay.__dataclass_fields__))
            .where(IDLE.c.day >= month.start, IDLE.c.day < (month + 1).start)
            .where(IDLE.c.callers.any(tenant), IDLE.c.seconds.is_distinct_from(0))
            .order_by(IDLE.c.day, IDLE.c.revision)
        )
        async with self._database.transaction(snapshot=True) as connection:
            rows = (await connection.execute(chosen)).mappings().all()
            used = {row["price_version"] for row in rows}
            kept = sa.select(PRICE_VERSIONS).where(PRICE_VERSIONS.c.version.in_(used))
            contents = (await connection.execute(kept)).all()
            idle = (await connection.execute(shared)).mappings().all()
        fields = UsedInDay.__dataclass_fields__
        days = [UsedInDay(**{name: value for name, value in row.items() if name in fields}) for row in rows]
        versions = {row.version: PriceVersion.model_validate(row.content) for row in contents}
        closed = [GpuDay(**row) for row in idle if row["seconds"] is not None]
        return days, versions, closed, len(closed) < len(idle)


def _sums_of(query: UsageQuery, start: int, end: int, currency: str) -> sa.Select[Any]:
    """From start to end, which are of buckets."""
    used = _by_revision().c if "revision" in query.groups else USAGE.c
    hour_s = sa.cast(sa.func.extract("epoch", used.hour), sa.BigInteger)
    bucket = (hour_s - hour_s % query.width_s).label("bucket")
    own = sa.func.coalesce(PRICE_VERSIONS.c.content["currency"].astext, currency).label("currency")
    names = dict.fromkeys(GROUPS[group] for group in query.groups)
    groups = [bucket, *(used[name] for name in names), *([own] if query.kind == COSTS else [])]
    between = (used.hour >= sa.func.to_timestamp(start), used.hour < sa.func.to_timestamp(end))
    return (
        sa.select(*groups, *_sums(used))
        .outerjoin_from(used.hour.table, PRICE_VERSIONS, PRICE_VERSIONS.c.version == used.price_version)
        .where(*between, *(used[name].in_(values) for name, values in query.filters.items()))
        .having(sa.func.sum(used.requests) > 0)
        # By their place in the list: an expression with parameters is another one each time.
        .group_by(*(sa.literal_column(str(place)) for place in range(1, len(groups) + 1)))
        .order_by(*(sa.literal_column(str(place)) for place in range(1, len(groups) + 1)))
    )


def _by_revision() -> sa.Subquery:
    """The sums by hour with their revision. What others answered is in the sums of the model, whose stable one did the
    rest."""
    named = [column.name for column in USAGE.primary_key.columns]
    of_model = [USAGE.c[name] for name in named]
    of_others = [REVISIONS.c[name] for name in named]
    return sa.union_all(
        sa.select(*of_model, USAGE.c.model.label("revision"), *(USAGE.c[name] for name in _SUMS)),
        sa.select(
            *of_others, REVISIONS.c.model.label("revision"), *((-REVISIONS.c[name]).label(name) for name in _SUMS)
        ),
        sa.select(*of_others, REVISIONS.c.revision, *(REVISIONS.c[name] for name in _SUMS)),
    ).subquery()


def _sums(used: Any) -> list[Any]:
    """Sums of whole numbers, which PostgreSQL gives as numerics. used: columns."""
    wide = {"cost_pico": sa.Numeric(38, 0)}
    return [sa.cast(sa.func.sum(used[name]), wide.get(name, sa.BigInteger)).label(name) for name in _SUMS]
