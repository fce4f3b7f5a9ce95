"""The same acts for programs, as JSON, with a token of the issuer: /openapi.json has their description."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict

from services.portal.answers import MadeKey, ShownFailure, ShownKey, ShownKeys, ShownModels, ShownTenants
from services.portal.api_orders import add_orders, asking
from services.portal.api_prompts import add_prompts
from services.portal.desk import Desk, this_month
from services.portal.failure import PortalError
from services.portal.login import Issuer
from services.portal.usage import MonthOfUse, month_of

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

    router = APIRouter(
        prefix="/api/v1",
        route_class=counted,
        dependencies=[Depends(log_in)],
        responses={status: {"model": ShownFailure} for status in (401, 404, 422, 503)},
        # Clients that are made of the description have functions of these names.
        generate_unique_id_function=lambda route: route.name,
    )

    @router.get("/models", tags=["models"])
    async def models() -> ShownModels:
        """Models that are served, and that can be ordered, with proof and price."""
        return ShownModels.model_validate(dict(desk.catalogue))

    @router.get("/tenants", tags=["models"])
    async def tenants(request: Request) -> ShownTenants:
        """Yours, with your role, models, limits and budgets."""
        entries, roles = desk.catalogue.tenants, desk.tenants(asking(request))
        shown = {name: {"role": role.name.lower(), **dict(entries[name])} for name, role in roles.items()}
        return ShownTenants.model_validate({"tenants": shown})

    @router.get("/keys", tags=["keys"])
    async def keys(request: Request, tenant: str, find: str = "") -> ShownKeys:
        """Your keys of a tenant, and for its admins the first of others'; find: a part of the name or id."""
        return ShownKeys.model_validate({"keys": await desk.keys(asking(request), tenant, find)})

    @router.post("/keys", status_code=201, tags=["keys"])
    async def order_key(request: Request, order: ApiKeyOrder) -> MadeKey:
        """A new key. Its text is in this answer and nowhere else."""
        made = await desk.order(asking(request), order.tenant, order.model, order.name, order.expires_in_days)
        return MadeKey.model_validate(made | {"endpoint": endpoint})

    @router.post("/keys/{key_id}/rotate", status_code=201, tags=["keys"])
    async def rotate_key(request: Request, key_id: str, order: ApiRotation) -> MadeKey:
        """Its successor. Its text is in this answer and nowhere else."""
        made = await desk.rotate(asking(request), order.tenant, key_id, order.overlap_hours)
        return MadeKey.model_validate(made | {"endpoint": endpoint})

    @router.delete("/keys/{key_id}", tags=["keys"])
    async def revoke_key(request: Request, key_id: str, tenant: str) -> ShownKey:
        """The key, which does not work any more."""
        return ShownKey.model_validate(await desk.revoke(asking(request), tenant, key_id))

    add_orders(router, desk)
    add_prompts(router, desk)

    @router.get("/usage", tags=["usage"])
    async def usage(request: Request, tenant: str, month: str = "") -> MonthOfUse:
        """A month by day, model and key; costs for admins."""
        return await desk.usage(asking(request), tenant, month_of(month, this_month()))

    @router.get("/bills/{tenant}/{month}", tags=["usage"])
    async def bill(request: Request, tenant: str, month: str, format: str = "json") -> Response:  # noqa: A002 - its name
        """A bill, for admins."""
        content, media = await desk.bill(asking(request), tenant, month_of(month, this_month()), format)
        return Response(content, media_type=media)

    return router
