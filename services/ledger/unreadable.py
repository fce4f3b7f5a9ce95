"""Lines that are no row. They are kept as long as rows, so that a program or a person may make rows of them later."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence

import sqlalchemy as sa

from services.database import Database
from services.ledger.lines import Unreadable, read
from services.ledger.months import Month
from services.ledger.prices import PriceBook
from services.ledger.store import Writer
from services.ledger.tables import UNREADABLE
from services.ledger.writing import Added

_AT_ONCE = 500
# The shipper sends lines again whose answer was lost.
_KEEP = f"""
    INSERT INTO {UNREADABLE.name} (digest, came, reason, line)
    SELECT digest, now(), reason, line FROM unnest($1::text[], $2::text[], $3::text[]) AS given (digest, reason, line)
    ORDER BY digest ON CONFLICT (digest) DO NOTHING
    """  # noqa: S608 - names of tables


class UnreadableLines:
    """Of one database. Every method raises ServiceError while it is away."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, lines: Sequence[Unreadable]) -> None:
        """They are committed once this returns."""
        if lines:
            digests = [hashlib.sha256(own.line.encode()).hexdigest() for own in lines]
            columns = (digests, [own.reason for own in lines], [own.line for own in lines])
            async with self._database.transaction() as connection:
                await connection.exec_driver_sql(_KEEP, columns)

    async def forget(self, earliest: Month) -> None:
        """Delete those that came before a month."""
        async with self._database.transaction() as connection:
            await connection.execute(sa.delete(UNREADABLE).where(UNREADABLE.c.came < earliest.start))

    async def read_again(self, writer: Writer, book: PriceBook) -> tuple[Added, int]:
        """Add those that are rows now, and delete them; what became of these, and how many lines are left."""
        sums, left, after = Added(0, 0, 0, {}), 0, ""
        own = UNREADABLE.c
        while True:
            async with self._database.transaction() as connection:
                chosen = sa.select(own.digest, own.line).where(own.digest > after).order_by(own.digest).limit(_AT_ONCE)
                batch = (await connection.execute(chosen)).all()
            if not batch:
                return sums, left
            after = batch[-1].digest
            lines = {line.digest: read(line.line.encode(), **writer.bounds_us(time.time())) for line in batch}
            whole = {digest: parsed for digest, parsed in lines.items() if parsed.rows and not parsed.unreadable}
            left += len(batch) - len(whole)
            added = await writer.add([row for parsed in whole.values() for row in parsed.rows], book)
            sums = Added(sums.added + added.added, sums.known + added.known, sums.unpriced + added.unpriced, {})
            async with self._database.transaction() as connection:
                await connection.execute(sa.delete(UNREADABLE).where(own.digest.in_(whole)))
