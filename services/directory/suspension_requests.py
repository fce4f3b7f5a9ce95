"""Requests about suspensions of keys, for operators: `sitectl key suspend` and `sitectl key lift`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from services import serving
from services.database import Database
from services.directory.orders import AskedBy, parsed
from services.directory.settings import Settings
from services.directory.suspensions import SuspensionOrder, Suspensions

_LARGEST_BODY = 16 * 1024

log = logging.getLogger(__name__)


class SuspensionRequests:
    """operator: who asks; raises ServiceError for anyone but an operator."""

    def __init__(self, settings: Settings, database: Database, operator: Callable[[Request], AskedBy]) -> None:
        self._settings, self._store, self._operator = settings, Suspensions(database), operator

    def handlers(self) -> serving.Handlers:
        """All of them."""
        return {
            ("GET", "/v1/suspensions"): self.listed,
            ("POST", "/v1/suspensions"): self.suspend,
            ("DELETE", "/v1/suspensions/{tenant}/{name}"): self.lift,
        }

    async def listed(self, request: Request) -> Response:
        self._operator(request)
        return JSONResponse({"suspensions": await self._store.listed()})

    async def suspend(self, request: Request) -> Response:
        by = self._operator(request)
        body = await serving.body_of(request, _LARGEST_BODY, "send the fields that the page lists, and nothing else")
        order = parsed(SuspensionOrder, body)
        order.check(self._settings.models_by_tenant())
        made = await self._store.suspend(order, by)
        log.info("%s suspended %s.%s", by.actor, order.tenant, order.name)
        return JSONResponse(made, 201)

    async def lift(self, request: Request, tenant: str, name: str) -> Response:
        by = self._operator(request)
        lifted = await self._store.lift(tenant, name, by)
        log.info("%s lifted the suspension of %s.%s", by.actor, tenant, name)
        return JSONResponse(lifted)
