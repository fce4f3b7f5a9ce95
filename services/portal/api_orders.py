"""Orders of models for programs, beside the other requests below /api/v1."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from services.portal.answers import ShownOrder, ShownOrders
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

    @router.get("/orders", tags=["orders"])
    async def orders(request: Request, tenant: str) -> ShownOrders:
        """Orders of models of your tenant: asked, proposed, served or declined."""
        return ShownOrders.model_validate({"orders": await desk.orders(asking(request), tenant)})

    @router.post("/orders", status_code=201, tags=["orders"])
    async def order_model(request: Request, order: ApiModelOrder) -> ShownOrder:
        """An order. Who runs the platform proposes a change of the site's file for it."""
        made = await desk.order_model(asking(request), order.tenant, order.model, order.note)
        return ShownOrder.model_validate(made)

    @router.post("/orders/{order_id}/decline", tags=["orders"])
    async def decline_order(request: Request, order_id: str, refusal: ApiRefusal) -> ShownOrder:
        """The order, declined, for admins."""
        declined = await desk.decline(asking(request), refusal.tenant, order_id, refusal.reason)
        return ShownOrder.model_validate(declined)


def asking(request: Request) -> Person:
    """Who asks, as the router found."""
    person: Person = request.state.person
    return person
