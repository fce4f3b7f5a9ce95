"""Pages of those who run the platform."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from services.portal import view
from services.portal.login import session_person
from services.portal.platform_desk import PlatformDesk
from services.portal.visits import Visits, whole


class PlatformPages:
    """One method per page."""

    def __init__(self, visits: Visits) -> None:
        self._visits, self._desk = visits, PlatformDesk(visits.desk)

    def add_to(self, router: APIRouter) -> None:
        """All of them, by their paths."""
        router.get("/platform")(self.overview)
        router.get("/platform/suspend")(self.suspension)
        router.post("/platform/suspend")(self.suspend)
        router.post("/platform/lift")(self.lift)

    async def overview(self, request: Request) -> Response:
        shared = self._visits.shared(request)
        before = whole(request.query_params["before"]) if "before" in request.query_params else None
        seen = await self._desk.overview(shared["me"], before)
        titles = self._visits.desk.catalogue.titles
        return view.page(request, "platform", shared | {"seen": seen, "titles": titles, "before": before})

    async def suspension(self, request: Request) -> Response:
        shared: dict[str, Any] = self._visits.shared(request)
        client = request.query_params.get("key", "")
        self._desk.check(shared["me"], client)
        return view.page(request, "suspend", shared | {"client": client})

    async def suspend(self, request: Request) -> Response:
        form = await self._visits.form(request)
        await self._desk.suspend(session_person(request), form["key"], form["reason"])
        return RedirectResponse("/platform", 303)

    async def lift(self, request: Request) -> Response:
        form = await self._visits.form(request)
        await self._desk.lift(session_person(request), form["key"])
        return RedirectResponse("/platform", 303)
