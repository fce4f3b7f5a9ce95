"""Requests about orders of models, for operators: `sitectl order`, and the portal in the name of a person."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from services import serving
from services.database import Database
from services.directory.model_orders import ModelOrder, OrderChange, OrderStore, is_order_id
from services.directory.orders import AskedBy, parsed
from services.directory.settings import Settings
from services.failure import ServiceError, shown

_LARGEST_BODY = 16 * 1024

log = logging.getLogger(__name__)


class OrderRequests:
    """operator: who asks; raises ServiceError for anyone but an operator."""

    def __init__(self, settings: Settings, database: Database, operator: Callable[[Request], AskedBy]) -> None:
        self._settings, self._store, self._operator = settings, OrderStore(database), operator

    def handlers(self) -> serving.Handlers:
        """All of them."""
        return {
            ("GET", "/v1/orders"): self.orders,
            ("POST", "/v1/orders"): self.ask,
            ("POST", "/v1/orders/{order_id}"): self.change,
        }

    async def orders(self, request: Request, tenant: str | None = None) -> Response:
        self._operator(request)
        return JSONResponse({"orders": await self._store.orders(tenant, self._settings.models_by_tenant())})

    async def ask(self, request: Request) -> Response:
        by = self._operator(request)
        order = parsed(ModelOrder, await _body(request))
        known = self._settings.models_by_tenant()
        order.check(known)
        made = await self._store.ask(order, by, known)
        log.info("%s ordered %s for %s as %s", by.actor, order.model, order.tenant, made["id"])
        return JSONResponse(made, 201)

    async def change(self, request: Request, order_id: str) -> Response:
        by = self._operator(request)
        change = parsed(OrderChange, await _body(request))
        change.check()
        if not is_order_id(order_id):
            fix = "GET /v1/orders lists them"
            raise ServiceError(404, "unknown_order", "this is no id of an order", got=shown(order_id), fix=fix)
        made = await self._store.change(order_id, change, by, self._settings.models_by_tenant())
        log.info("%s %s order %s of %s/%s", by.actor, change.state, order_id, made["tenant"], made["model"])
        return JSONResponse(made)


async def _body(request: Request) -> bytes:
    return await serving.body_of(request, _LARGEST_BODY, "send the fields that the page lists, and nothing else")
