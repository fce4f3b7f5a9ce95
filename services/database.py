"""The connections to PostgreSQL: a pool for statements, and one that hears of changes.

Both come back by themselves, also at another address than before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.failure import ServiceError, database_away

_SCRIPTS = Path(__file__).parent / "migrations"
# Any number, the same in every process: two that start at once migrate one after the other.
_LOCK = 4_113_207_981
_ANSWER_S = 5.0
_LOOK_EVERY_S = 3.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_FAILURES = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What a service keeps in its database, beside which others may keep theirs."""

    service: str
    migrations: Path
    """Folder of alembic's versions."""
    version_table: str
    """Where alembic notes how far they went."""
    channel: str
    """Of the changes that every process of the service hears of."""
    fix: str
    """For a client whose request found the database away."""

    def away(self, reason: str) -> ServiceError:
        """The error for a database that does not answer."""
        return database_away(reason, service=self.service, fix=self.fix)


class Database:
    """One database, which may be away at any time; `url` gives its address each time that it is connected to."""

    def __init__(self, url: Callable[[], str], kept: Kept) -> None:
        self._url, self._kept = url, kept
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_pre_ping=True,
            pool_timeout=_ANSWER_S,
            # A row has a digest in it, and a URL a password: neither belongs in an error.
            hide_parameters=True,
        )
        self._next: asyncio.Future[bool] | None = None
        self._connected_at = math.inf
        self._is_ending = False

    @contextlib.asynccontextmanager
    async def transaction(
        self, *, snapshot: bool = False, answer_s: float = _ANSWER_S
    ) -> AsyncIterator[AsyncConnection]:
        """Commit what is done inside, or nothing. Raises ServiceError while the database is away.

        snapshot: all statements see the same moment. answer_s: how long each may take.
        """
        options: dict[str, Any] = {"isolation_level": "REPEATABLE READ"} if snapshot else {}
        engine = self._engine if answer_s == _ANSWER_S else self._patient(answer_s)
        try:
            async with engine.connect() as connection:
                await connection.execution_options(**options)
                async with connection.begin():
                    yield connection
        except _FAILURES as error:
            log.warning("the database failed: %s", _reason_of(error))
            raise self._kept.away(_reason_of(error)) from None

    @property
    def connected_s(self) -> float:
        """For how long it has been connected without a break; 0 while it is not."""
        return max(0.0, time.monotonic() - self._connected_at)

    def next_change(self) -> asyncio.Future[bool]:
        """Done with True at the next change, with False at the end of this process.

        Raises ServiceError, at once or when it is awaited, where none is heard.
        """
        if self._next is None:
            raise self._kept.away("it is being connected to")
        return self._next

    async def run(self) -> None:
        """Migrate, then hear of changes, until cancelled; the same from the start for each other address."""
        pause_s, migrated = _FIRST_PAUSE_S, ""
        while True:
            try:
                if (address := self._url()) != migrated:
                    # The pool is connected to the earlier one.
                    await self._engine.dispose()
                    await self.migrate()
                    migrated = address
                async with self._hearing() as connection:
                    pause_s = _FIRST_PAUSE_S
                    await self._while_it_lasts(connection, address)
            except Exception as error:  # noqa: BLE001 - whatever fails, as an address that is none: it is tried again
                log.warning("no connection to the database, again in %.1f s: %s", pause_s, _reason_of(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def migrate(self, back_to: str = "") -> None:
        """Bring the tables to this program's version, or back to an earlier one."""
        # What a migration makes of many rows may take longer than an answer.
        async with self._patient(None).begin() as connection:
            await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            await connection.run_sync(_migrate, self._kept, back_to)

    def end_waits(self) -> None:
        """Let every request that waits for a change answer now."""
        self._is_ending = True
        self._tell(more=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    def _patient(self, answer_s: float | None) -> AsyncEngine:
        """Each of its connections is a new one, which ends with its transaction."""
        return create_async_engine(
            "postgresql+asyncpg://",
            async_creator=partial(self._connect, answer_s),
            poolclass=sa.NullPool,
            hide_parameters=True,
        )

    @contextlib.asynccontextmanager
    async def _hearing(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await self._connect()
        try:
            await connection.add_listener(self._kept.channel, lambda *_: self._tell(more=True))
            self._next = asyncio.get_running_loop().create_future()
            self._next.add_done_callback(_was_seen)
            self._connected_at = time.monotonic()
            yield connection
        finally:
            self._connected_at = math.inf
            waiting, self._next = self._next, None
            if waiting and not waiting.done():
                waiting.set_exception(self._kept.away("the connection was lost"))
            connection.terminate()

    async def _while_it_lasts(self, connection: asyncpg.Connection, address: str) -> None:
        ended = asyncio.Event()
        connection.add_termination_listener(lambda *_: ended.set())
        while not connection.is_closed() and self._url() == address:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), _LOOK_EVERY_S)
                return
            await connection.execute("SELECT 1")

    def _tell(self, *, more: bool) -> None:
        if self._next is None or self._next.done():
            return
        previous, self._next = self._next, asyncio.get_running_loop().create_future()
        self._next.add_done_callback(_was_seen)
        previous.set_result(more)
        if self._is_ending:
            self._next.set_result(False)

    async def _connect(self, answer_s: float | None = _ANSWER_S) -> asyncpg.Connection:
        return await asyncpg.connect(
            self._url(),
            timeout=_ANSWER_S,
            command_timeout=answer_s,
            server_settings={
                "application_name": self._kept.service,
                # Days and months are of UTC, whatever the server or the database has.
                "timezone": "UTC",
                # A process that is lost in the middle of a write must not hold up the others' for ever.
                "idle_in_transaction_session_timeout": "10s",
            },
        )


def _reason_of(error: BaseException) -> str:
    """The sort of a failure, without its text, which may quote a row or an address."""
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None)
    return f"SQLSTATE {state}" if state else type(error).__name__


def _migrate(connection: sa.Connection, kept: Kept, back_to: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", str(kept.migrations))
    config.attributes.update(connection=connection, version_table=kept.version_table)
    if back_to:
        command.downgrade(config, back_to)
    else:
        command.upgrade(config, "head")


def _was_seen(future: asyncio.Future[bool]) -> None:
    """A failure that no request waits for is none."""
    if not future.cancelled():
        future.exception()
