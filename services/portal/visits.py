"""What every page knows of who asks for it, and what its forms send."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from services.portal.desk import Desk
from services.portal.failure import PortalError, missing
from services.portal.login import LogInNeeded, require_csrf, session_person
from services.portal.people import Role


class Fields(dict[str, str]):
    """Of a form; one that is not there is empty."""

    def __missing__(self, name: str) -> str:
        return ""


class Visits:
    """Of people who are logged in, at one desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def shared(self, request: Request, tenant: str | None = None) -> dict[str, Any]:
        """What every page of a person knows. The tenant is that of the address, else the last, else their first."""
        if asked := tenant or request.query_params.get("tenant"):
            self.desk.role(session_person(request), asked)
        return self._of(request, asked)

    def at_a_failure(self, request: Request) -> dict[str, Any]:
        """The same for a page that shows one, whatever the address asks for; nothing for who is not logged in."""
        try:
            return self._of(request, None)
        except (LogInNeeded, PortalError):
            return {}

    def _of(self, request: Request, asked: str | None) -> dict[str, Any]:
        person, session = session_person(request), request.session
        tenants = self.desk.tenants(person)
        chosen = asked or (session.get("tenant") if session.get("tenant") in tenants else next(iter(tenants), None))
        if chosen and session.get("tenant") != chosen:
            session["tenant"] = chosen
        role = tenants.get(chosen) if chosen else None
        return {
            "me": person,
            "site": self.desk.catalogue.site,
            "tenants": tenants,
            "tenant": chosen,
            "role": role.name.lower() if role else "",
            "is_admin": (role or 0) >= Role.ADMIN,
            "is_operator": self.desk.is_operator(person),
            "has_ledger": self.desk.ledger is not None,
        }

    async def form(self, request: Request) -> Fields:
        """What a form of the session sends. Raises PortalError for one of another page."""
        session_person(request)
        fields = Fields({name: value for name, value in (await request.form()).items() if isinstance(value, str)})
        require_csrf(request, fields.get("csrf"))
        return fields


def some_tenant(shared: dict[str, Any]) -> str:
    """The one that a page is about. Raises PortalError for a person who has none."""
    if not shared["tenant"]:
        raise missing("You are in no team of this site yet.")
    return str(shared["tenant"])


def whole(text: str) -> int:
    """The number in a form or an address; -1, which is allowed nowhere, for anything else."""
    return int(text) if text.isdecimal() and len(text) < 10 else -1
