"""Suspends keys that the ledger has signals of, where the site lets it: by these signals, and no more than so many."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from prometheus_client import Gauge

from services.database import Database
from services.directory.orders import AskedBy
from services.directory.suspensions import SIGNALS, Suspensions, Suspicion
from services.ledger import variables as ledger
from services.mounted import secret

_LOOK_EVERY_S, _AGAIN_AFTER_S = 30.0, 5.0
_ANSWER_S = httpx2.Timeout(5, read=15)
_BY = AskedBy(SIGNALS, "directory")
_HELD = Gauge(
    "directory_suspensions_held", "Keys that a signal would suspend, above the most that are suspended in an hour."
)
_READ = Gauge("directory_key_signals_read_timestamp_seconds", "When the ledger last answered with signals. 0: never.")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SuspendOptions:
    """When it suspends."""

    ledger_url: str
    ledger_token: Path
    signals: Sequence[str]
    """Those that suspend, by their rank."""
    most_per_hour: int
    never: Sequence[str] = ()
    """Keys, as TENANT.NAME, that none suspends."""


def suspicions(answer: Mapping[str, Any], signals: Sequence[str], never: Sequence[str]) -> list[Suspicion]:
    """Keys that have one of these signals now; by the signals' order, and then by which began first."""
    on = [row for row in answer["signals"] if row["on"] and row["signal"] in signals]
    on = [row for row in on if f"{row['tenant']}.{row['key']}" not in never]
    on.sort(key=lambda row: (signals.index(row["signal"]), row["began"], row["tenant"], row["key"]))
    return [Suspicion(tenant=row["tenant"], name=row["key"], why=_why(row["signal"], row["figures"])) for row in on]


def _why(signal: str, figures: Mapping[str, Any]) -> str:
    return f"{signal}: {', '.join(f'{name} {figures[name]}' for name in figures if name != 'why')}"


class SignalWatch:
    """Of one directory; several may share a database."""

    def __init__(self, database: Database, options: SuspendOptions) -> None:
        self._suspensions, self._options = Suspensions(database), options

    async def run(self) -> None:
        """Look now and then, for ever. Without the ledger nothing is suspended, and what is stays so."""
        answered = True
        async with httpx2.AsyncClient(trust_env=False, timeout=_ANSWER_S) as client:
            while True:
                try:
                    await self.look(client)
                    answered = True
                except Exception as error:  # noqa: BLE001 - whatever fails: it is tried again
                    if answered:
                        log.warning("no key is suspended by a signal: %s", type(error).__name__)
                    answered = False
                    # It pages, and by now it is of an answer that is old.
                    _HELD.set(0)
                await asyncio.sleep(_LOOK_EVERY_S if answered else _AGAIN_AFTER_S)

    async def look(self, client: httpx2.AsyncClient) -> None:
        """Once. Raises what keeps it from that."""
        options = self._options
        headers = {ledger.TOKEN_HEADER: secret(options.ledger_token).decode()}
        answer = await client.get(f"{options.ledger_url}{ledger.SIGNALS_PATH}", headers=headers)
        answer.raise_for_status()
        suspects = suspicions(answer.json(), options.signals, options.never)
        _READ.set_to_current_time()
        acted = await self._suspensions.suspend_all(suspects, options.most_per_hour, _BY)
        _HELD.set(acted.held)
        for suspicion in acted.suspended:
            log.warning("suspended %s.%s: %s", suspicion.tenant, suspicion.name, suspicion.why)
