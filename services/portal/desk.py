"""What a person can do, the same from a page and from a program: each act checks their role first."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from typing import Any

from services.directory.variables import OPEN_ORDERS
from services.ledger.months import Month
from services.portal.catalogue import Catalogue, CatalogueFile
from services.portal.failure import PortalError, missing, refused
from services.portal.people import Person, Role, is_operator, role_in, roles
from services.portal.upstream import KeyService, ModelGateway, UsageLedger
from services.portal.usage import MonthOfUse, summed

LIVES_D = (7, 30, 90, 365)
"""How long a key may work."""
OVERLAPS_H = (0, 1, 24, 168)
"""How long a replaced key goes on working."""

MOST_KEYS = 20
"""Of a person in a tenant, at a time."""
MOST_SHOWN, MOST_ENDED = 100, 50
"""Keys of a list; others are found by a part of their name or id."""
FORMS = ("csv", "json", "focus")
PLAYGROUND = "playground"
_DAY_S, _HOUR_S = 86400, 3600


@dataclass(frozen=True)
class Desk:
    """The acts, over the services that carry them out."""

    catalogue_file: CatalogueFile
    directory: KeyService
    ledger: UsageLedger | None
    gateway: ModelGateway

    @property
    def catalogue(self) -> Catalogue:
        return self.catalogue_file.read()

    def role(self, person: Person, tenant: str, least: Role = Role.USER) -> Role:
        """Raises PortalError for a tenant of others."""
        return role_in(tenant, person, self.catalogue, least)

    async def order(self, person: Person, tenant: str, model: str, label: str, days: int) -> dict[str, Any]:
        """A new key for one model, with its text as `key`. Raises PortalError."""
        self.role(person, tenant)
        catalogue = self.catalogue
        if model not in catalogue.models or model not in catalogue.tenants[tenant].models:
            raise missing(f"{tenant} has no such model.")
        if days not in LIVES_D:
            raise refused("A key works for 7, 30, 90 or 365 days.", "Choose one of them.")
        if label == PLAYGROUND:
            raise refused(f"The name {PLAYGROUND} is for the portal's own keys.", "Choose another name.")
        return await self.directory.create(
            person, tenant, person.key_name(label), [model], days * _DAY_S, most=MOST_KEYS
        )

    async def keys(self, person: Person, tenant: str, part: str = "") -> list[dict[str, Any]]:
        """Theirs, and for an admin also the tenant's, up to MOST_SHOWN; those that work first, then the newest that
        ended. part: of the name or the id. Raises PortalError.
        """
        asked = [("works", MOST_SHOWN, person.mark), ("ended", MOST_ENDED, person.mark)]
        if self.role(person, tenant) >= Role.ADMIN:
            asked += [("works", MOST_SHOWN, ""), ("ended", MOST_ENDED, "")]
        listed = await asyncio.gather(*(self.directory.keys(person.actor, tenant, *chosen, part) for chosen in asked))
        keys = {key["id"]: key | {"is_own": person.owns(key["name"])} for some in listed for key in some}
        return sorted(keys.values(), key=lambda key: (key["state"] != "works", not key["is_own"], -key["created"]))

    async def key(self, person: Person, tenant: str, key_id: str) -> dict[str, Any]:
        """One that they see. Raises PortalError."""
        sees_all = self.role(person, tenant) >= Role.ADMIN
        key = await self.directory.key(person.actor, key_id)
        is_own = person.owns(key["name"])
        if key["tenant"] != tenant or not (sees_all or is_own):
            raise missing("There is no such key.")
        return key | {"is_own": is_own}

    async def rotate(self, person: Person, tenant: str, key_id: str, overlap_h: int) -> dict[str, Any]:
        """The successor of one of their keys, with its text as `key`. Raises PortalError."""
        if overlap_h not in OVERLAPS_H:
            raise refused("A replaced key works on for 0, 1, 24 or 168 hours.", "Choose one of them.")
        key = await self.key(person, tenant, key_id)
        if not person.may_rotate(key["name"], PLAYGROUND):
            raise refused("Who a key was made for rotates it.", "Revoke it, and have them order another one.")
        return await self.directory.rotate(person, key["id"], overlap_h * _HOUR_S, most=MOST_KEYS)

    async def revoke(self, person: Person, tenant: str, key_id: str) -> dict[str, Any]:
        """The key, which does not work any more. Raises PortalError."""
        key = await self.key(person, tenant, key_id)
        return await self.directory.revoke(person.actor, key["id"])

    async def order_model(self, person: Person, tenant: str, model: str, note: str) -> dict[str, Any]:
        """An order of a model that the tenant may not call yet. Raises PortalError."""
        catalogue = self.catalogue
        self.role(person, tenant, Role.ADMIN if catalogue.orders_by == "admins" else Role.USER)
        offer = catalogue.orderable.get(model)
        if offer is None and model not in catalogue.models:
            raise missing("There is no such model.")
        if offer and not offer.fits:
            what = f"{model} does not fit on this site as it is: {'; '.join(offer.reasons)}."
            raise refused(what, "Ask who runs the platform; the page shows when it fits.")
        return await self.directory.order_model(person.actor, tenant, model, " ".join(note.split()))

    async def orders(self, person: Person, tenant: str) -> list[dict[str, Any]]:
        """Of their tenant, the newest first. Raises PortalError."""
        self.role(person, tenant)
        return await self.directory.orders(person.actor, tenant)

    async def decline(self, person: Person, tenant: str, order_id: str, why: str) -> dict[str, Any]:
        """The order, which an admin or operator declines. Raises PortalError."""
        self.role(person, tenant, Role.ADMIN)
        order = await self.open_order(person, tenant, order_id)
        if not (reason := " ".join(why.split())):
            raise refused("A refusal needs a reason.", "Write what who asked can do.")
        return await self.directory.decline(person.actor, order["id"], reason)

    async def open_order(self, person: Person, tenant: str, order_id: str) -> dict[str, Any]:
        """One of their tenant that is neither served nor declined. Raises PortalError."""
        for order in await self._open_orders(person, tenant):
            if order["id"] == order_id:
                return order
        raise missing("There is no such order that is open.")

    async def open_order_of(self, person: Person, tenant: str, model: str) -> dict[str, Any] | None:
        """Their tenant's order of a model, where one is open; None also while the directory is away."""
        with contextlib.suppress(PortalError):
            for order in await self._open_orders(person, tenant):
                if order["model"] == model:
                    return order
        return None

    async def prompts(self, person: Person, tenant: str, prompt: str | None = None) -> list[dict[str, Any]]:
        """Versions of their tenant's, and those of one prompt with their texts. Raises PortalError."""
        self.role(person, tenant)
        return await self.directory.prompts(person.actor, tenant, prompt)

    async def put_prompt(self, person: Person, tenant: str, prompt: str, text: str) -> dict[str, Any]:
        """A new version, in use at once, which an admin makes: it changes all answers of the team's programs."""
        self.role(person, tenant, Role.ADMIN)
        return await self.directory.put_prompt(person.actor, tenant, prompt, text)

    async def use_prompt(self, person: Person, tenant: str, prompt: str, version: int) -> dict[str, Any]:
        """The version that an admin puts in use. Raises PortalError."""
        self.role(person, tenant, Role.ADMIN)
        return await self.directory.use_prompt(person.actor, tenant, prompt, version)

    async def remove_prompt(self, person: Person, tenant: str, prompt: str, version: int) -> dict[str, Any]:
        """The version that an admin removes. Raises PortalError."""
        self.role(person, tenant, Role.ADMIN)
        return await self.directory.remove_prompt(person.actor, tenant, prompt, version)

    async def usage(self, person: Person, tenant: str, month: Month) -> MonthOfUse:
        """With costs and the keys of all for an admin. Raises PortalError."""
        is_admin = self.role(person, tenant) >= Role.ADMIN
        ledger = self._ledger()
        start, end = (int(moment.start.timestamp()) for moment in (month, month + 1))
        kinds = ("usage/completions", "costs") if is_admin else ("usage/completions",)
        used, *costs = await asyncio.gather(*(ledger.buckets(kind, tenant, start, end) for kind in kinds))

        def key_of(client: str) -> str:
            name = client.removeprefix(f"{tenant}.")
            return name if is_admin or person.owns(name) else "keys of others"

        return summed(month, used, costs[0] if costs else (), key_of)

    async def bill(self, person: Person, tenant: str, month: Month, form: str) -> tuple[bytes, str]:
        """Content and media type, for an admin. Raises PortalError."""
        self.role(person, tenant, Role.ADMIN)
        if form not in FORMS:
            raise refused("A bill is csv, json or focus.", "Choose one of them.")
        return await self._ledger().bill(tenant, str(month), form)

    def chat_models(self, tenant: str) -> list[str]:
        """Those of a tenant that can be asked."""
        catalogue = self.catalogue
        served = {name for name, model in catalogue.models.items() if model.can_chat}
        return sorted(served.intersection(catalogue.tenants[tenant].models))

    def is_operator(self, person: Person) -> bool:
        """Whether they run the platform."""
        return is_operator(person, self.catalogue)

    def tenants(self, person: Person) -> dict[str, Role]:
        """Theirs."""
        return dict(roles(person, self.catalogue))

    async def _open_orders(self, person: Person, tenant: str) -> list[dict[str, Any]]:
        return [order for order in await self.orders(person, tenant) if order["state"] in OPEN_ORDERS]

    def _ledger(self) -> UsageLedger:
        if self.ledger is None:
            raise missing("This site keeps no ledger of usage.")
        return self.ledger


def this_month() -> Month:
    """The one that runs."""
    return Month.of(time.time())
