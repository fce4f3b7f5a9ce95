"""Orders of models for programs, beside the other requests below /api/v1."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from services.portal.desk import Desk
from services.portal.people import Person


class ApiModelOrder(BaseModel):
    """A model that a tenant may not call yet. note: what it is for, for those who decide."""

    model_config = ConfigDict(extra="forbid")

    tenant: str
    model: str
    note: str = ""


class ApiRefusal(BaseModel):
    """Why an order is declined."""

    model_config = ConfigDict(extra="forbid")

    tenant: str
    reason: str


def add_orders(router: APIRouter, desk: Desk) -> None:
    """Add the requests to those of the router, which knows who asks."""

    @router.get("/orders")
    async def orders(request: Request, tenant: str) -> dict[str, Any]:
        """Orders of models of your tenant: asked, proposed, served or declined."""
        return {"orders": await desk.orders(asking(request), tenant)}

    @router.post("/orders", status_code=201)
    async def order_model(request: Request, order: ApiModelOrder) -> dict[str, Any]:
        """An order. Who runs the platform proposes a change of the site's file for it."""
        return await desk.order_model(asking(request), order.tenant, order.model, order.note)

    @router.post("/orders/{order_id}/decline")
    async def decline(request: Request, order_id: str, refusal: ApiRefusal) -> dict[str, Any]:
        """The order, declined, for admins."""
        return await desk.decline(asking(request), refusal.tenant, order_id, refusal.reason)


def asking(request: Request) -> Person:
    """Who asks, as the router found."""
    person: Person = request.state.person
    return person
