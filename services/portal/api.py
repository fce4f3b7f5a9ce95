"""The same acts for programs, as JSON, with a token of the issuer: /openapi.json has their description."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict

from services.portal import usage
from services.portal.api_orders import add_orders, asking
from services.portal.desk import Desk, this_month
from services.portal.failure import PortalError
from services.portal.login import Issuer

_TOKEN = HTTPBearer(auto_error=False, description="A JWT that the issuer signed for the portal")


class ApiKeyOrder(BaseModel):
    """A key for one model of a tenant."""

    model_config = ConfigDict(extra="forbid")

    tenant: str
    model: str
    name: str
    expires_in_days: int


class ApiRotation(BaseModel):
    """How long the replaced key goes on working."""

    model_config = ConfigDict(extra="forbid")

    tenant: str
    overlap_hours: int


def api_router(desk: Desk, issuer: Issuer, endpoint: str, counted: type[APIRoute]) -> APIRouter:
    """The requests below /api/v1."""

    async def log_in(request: Request, token: Annotated[HTTPAuthorizationCredentials | None, Depends(_TOKEN)]) -> None:
        if token is None:
            fix = "Send a token of the issuer as Authorization: Bearer."
            raise PortalError(401, "no_token", f"{request.url.path} needs a token.", fix)
        request.state.person = await issuer.bearer(token.credentials)

    router = APIRouter(prefix="/api/v1", route_class=counted, dependencies=[Depends(log_in)])

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """Models that are served, and that can be ordered, with proof and price."""
        return desk.catalogue.model_dump(mode="json", include={"site", "models", "orderable"})

    @router.get("/tenants")
    async def tenants(request: Request) -> dict[str, Any]:
        """Yours, with your role, models, limits and budgets."""
        entries, shown = desk.catalogue.tenants, {"models", "limits", "budgets"}
        return {
            "tenants": {
                name: {"role": role.name.lower(), **entries[name].model_dump(include=shown)}
                for name, role in desk.tenants(asking(request)).items()
            }
        }

    @router.get("/keys")
    async def keys(request: Request, tenant: str) -> dict[str, Any]:
        """Your keys of a tenant; all of them for its admins."""
        return {"keys": await desk.keys(asking(request), tenant)}

    @router.post("/keys", status_code=201)
    async def order(request: Request, order: ApiKeyOrder) -> dict[str, Any]:
        """A new key. Its text is in this answer and nowhere else."""
        made = await desk.order(asking(request), order.tenant, order.model, order.name, order.expires_in_days)
        return made | {"endpoint": endpoint}

    @router.post("/keys/{key_id}/rotate", status_code=201)
    async def rotate(request: Request, key_id: str, order: ApiRotation) -> dict[str, Any]:
        """Its successor. Its text is in this answer and nowhere else."""
        return await desk.rotate(asking(request), order.tenant, key_id, order.overlap_hours) | {"endpoint": endpoint}

    @router.delete("/keys/{key_id}")
    async def revoke(request: Request, key_id: str, tenant: str) -> dict[str, Any]:
        """The key, which does not work any more."""
        return await desk.revoke(asking(request), tenant, key_id)

    add_orders(router, desk)

    @router.get("/usage")
    async def used(request: Request, tenant: str, month: str = "") -> usage.MonthOfUse:
        """A month by day, model and key; costs for admins."""
        return await desk.usage(asking(request), tenant, usage.month_of(month, this_month()))

    @router.get("/bills/{tenant}/{month}")
    async def bill(request: Request, tenant: str, month: str, format: str = "json") -> Response:  # noqa: A002 - its name
        """A bill, for admins."""
        content, media = await desk.bill(asking(request), tenant, usage.month_of(month, this_month()), format)
        return Response(content, media_type=media)

    return router
