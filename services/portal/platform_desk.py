"""What those who run the platform see of all teams, and do: orders, keys that may be abused, and who did what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.directory.variables import OPEN_ORDERS
from services.portal.desk import Desk
from services.portal.failure import NOT_THERE, PortalError, missing, refused
from services.portal.people import Person

MOST_ACTS = 50
"""On a page."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """Of all teams."""

    orders: list[dict[str, Any]]
    suspensions: list[dict[str, Any]]
    signals: list[dict[str, Any]]
    without_signals: str
    """Why there are none to show; empty where keys are watched."""
    acts: list[dict[str, Any]]
    """The newest first."""
    head: dict[str, Any]
    """`count` and `hash` of the chain."""

    @property
    def clients_held(self) -> set[str]:
        """Suspended keys as TENANT.KEY."""
        return {f"{held['tenant']}.{held['name']}" for held in self.suspensions}


class PlatformDesk:
    """Every act raises PortalError for anyone but an operator."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._directory = desk, desk.directory

    async def overview(self, person: Person, before: int | None = None) -> Overview:
        """before: the number of an act, for older ones."""
        self._require(person)
        orders, held, (signals, without), (acts, head) = await asyncio.gather(
            self._directory.orders(person.actor),
            self._directory.suspensions(person.actor),
            self._signals(),
            self._acts(person, before),
        )
        return Overview(
            orders=[order for order in orders if order["state"] in OPEN_ORDERS],
            suspensions=held,
            signals=signals,
            without_signals=without,
            acts=acts,
            head=head,
        )

    async def suspend(self, person: Person, client: str, why: str) -> None:
        """client: TENANT.KEY."""
        self._require(person)
        tenant, name = _client(client)
        if not (reason := " ".join(why.split())):
            raise refused("A suspension needs a reason.", "Write what you saw; the audit keeps it.")
        await self._directory.suspend(person.actor, tenant, name, reason)

    async def lift(self, person: Person, client: str) -> None:
        """client: TENANT.KEY."""
        self._require(person)
        await self._directory.lift(person.actor, *_client(client))

    def check(self, person: Person, client: str) -> None:
        """Raise PortalError for what is no key of a tenant."""
        self._require(person)
        _client(client)

    async def _signals(self) -> tuple[list[dict[str, Any]], str]:
        if self._desk.ledger is None:
            return [], "Keys are watched on sites with a ledger."
        try:
            return (await self._desk.ledger.signals())["signals"], ""
        except PortalError as error:
            is_off = error.code == NOT_THERE
            return [], "This site does not watch keys: set usage.abuse in its file." if is_off else str(error)

    async def _acts(self, person: Person, before: int | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        head = (await self._directory.acts(person.actor, 0, 1))["head"]
        last = head["count"] if before is None else min(head["count"], before - 1)
        if last < 1:
            return [], head
        first = max(0, last - MOST_ACTS)
        page = await self._directory.acts(person.actor, first, last - first)
        return [act | {"change": change_of(act["before"], act["after"])} for act in reversed(page["acts"])], head

    def _require(self, person: Person) -> None:
        if not self._desk.is_operator(person):
            raise missing("There is no such page for you.")


def change_of(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> list[tuple[str, Any]]:
    """What an act left other than it was, by name; of what it made all that is set, of what it ended all that was."""
    old, new = before or {}, after or {}
    if after is None:
        return [(name, value) for name, value in old.items() if value is not None]
    return [(name, value) for name, value in new.items() if value is not None and old.get(name) != value]


def _client(text: str) -> tuple[str, str]:
    tenant, dot, name = text.strip().partition(".")
    if not (tenant and dot and name):
        raise refused("A key is written as TEAM.NAME.", "Choose one from the list, such as search.ci.")
    return tenant, name
