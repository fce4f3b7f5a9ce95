"""Questions to a model from a page, with a key that the portal makes for the session and never shows."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from services.portal.desk import PLAYGROUND, Desk
from services.portal.failure import PortalError, missing, refused
from services.portal.people import Person

LONGEST_PROMPT = 20_000
_LIFE_S = 3600
# A key that is about to end is not taken for another question.
_SPARE_S = 300
# Of keys of a person, more than they have; each of the portal's pods may have made one.
_MOST_PROCESSES = 100
_PAUSES_S = (0.2, 0.5, 1.0, 2.0)


@dataclass
class _PlaygroundKey:
    id: str
    text: str
    made: float = field(default_factory=time.time)


class Playground:
    """Its keys are in memory alone: another process makes its own, and a restart loses nothing.

    heard_of_s: within this time gateways hear of a new key; an older one that they do not know was revoked.
    """

    def __init__(self, desk: Desk, heard_of_s: float = 10) -> None:
        self._desk, self._heard_of_s = desk, heard_of_s
        self._keys: dict[tuple[str, str], _PlaygroundKey] = {}
        self._making: dict[tuple[str, str], asyncio.Lock] = {}

    def check(self, person: Person, tenant: str, model: str, prompt: str) -> None:
        """Raise PortalError for what is not asked."""
        self._desk.role(person, tenant)
        if model not in self._desk.chat_models(tenant):
            raise missing(f"{tenant} has no such model for a chat.")
        if not prompt.strip() or len(prompt) > LONGEST_PROMPT:
            raise refused(f"A prompt has 1 to {LONGEST_PROMPT:,} characters.", "Write one, or shorten it.")

    async def answer(self, person: Person, session: str, tenant: str, model: str, prompt: str) -> AsyncIterator[str]:
        """Pieces of its text. Raises PortalError, also in the middle of it."""
        self.check(person, tenant, model, prompt)
        for pause_s in (*_PAUSES_S, None):
            key = await self._key(person, session, tenant)
            try:
                async with contextlib.aclosing(self._desk.gateway.stream(key.text, model, prompt)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            except PortalError as error:
                if error.code != "key_not_known" or pause_s is None:
                    raise
            if time.time() - key.made > self._heard_of_s:
                self._keys.pop((session, tenant), None)
            await asyncio.sleep(pause_s)

    async def forget(self, person: Person, session: str, tenants: Iterable[str]) -> None:
        """End their playground keys in these tenants, of whichever process. One that cannot be revoked now ends within
        the hour.
        """
        for place in [place for place in self._keys if place[0] == session]:
            del self._keys[place]
        name, directory = person.key_name(PLAYGROUND), self._desk.directory
        for tenant in tenants:
            with contextlib.suppress(PortalError):
                for key in await directory.keys(person.actor, tenant, "works", _MOST_PROCESSES, person.mark):
                    if key["name"] == name:
                        await directory.revoke(person.actor, key["id"])

    async def _key(self, person: Person, session: str, tenant: str) -> _PlaygroundKey:
        place = (session, tenant)
        oldest = time.time() - _LIFE_S + _SPARE_S
        self._keys = {old: key for old, key in self._keys.items() if key.made > oldest}
        if key := self._keys.get(place):
            return key
        # Two questions of one session make one key; others do not wait for it.
        async with self._making.setdefault(place, asyncio.Lock()):
            try:
                if (key := self._keys.get(place)) is None:
                    name = person.key_name(PLAYGROUND)
                    made = await self._desk.directory.create(person, tenant, name, None, _LIFE_S, most=None)
                    key = self._keys[place] = _PlaygroundKey(made["id"], made["key"])
                return key
            finally:
                self._making.pop(place, None)
