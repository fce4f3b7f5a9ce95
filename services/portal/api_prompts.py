"""Prompts of a team for programs, beside the other requests below /api/v1."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict

from services.portal.answers import ShownPrompt, ShownPrompts
from services.portal.api_orders import asking
from services.portal.desk import Desk


class ApiPrompt(BaseModel):
    """A version of a prompt that is to be made. Variables in the text are written {{name}}."""

    model_config = ConfigDict(extra="forbid")

    tenant: str
    id: str
    text: str


class ApiUse(BaseModel):
    """The version that is to be used."""

    model_config = ConfigDict(extra="forbid")

    tenant: str
    version: int


def add_prompts(router: APIRouter, desk: Desk) -> None:
    """Add the requests to those of the router, which knows who asks."""

    @router.get("/prompts", tags=["prompts"])
    async def prompts(request: Request, tenant: str) -> ShownPrompts:
        """All versions of your team's prompts, without their texts."""
        return ShownPrompts.model_validate({"versions": await desk.prompts(asking(request), tenant)})

    @router.get("/prompts/{prompt}", tags=["prompts"])
    async def prompt(request: Request, prompt: str, tenant: str) -> ShownPrompts:
        """All versions of one, with their texts."""
        return ShownPrompts.model_validate({"versions": await desk.prompts(asking(request), tenant, prompt)})

    @router.post("/prompts", status_code=201, tags=["prompts"])
    async def put_prompt(request: Request, order: ApiPrompt) -> ShownPrompt:
        """A new version, which is in use within seconds, for admins."""
        made = await desk.put_prompt(asking(request), order.tenant, order.id, order.text)
        return ShownPrompt.model_validate(made)

    @router.post("/prompts/{prompt}/use", tags=["prompts"])
    async def use_prompt(request: Request, prompt: str, order: ApiUse) -> ShownPrompt:
        """A version that is there, which is in use within seconds, for admins."""
        used = await desk.use_prompt(asking(request), order.tenant, prompt, order.version)
        return ShownPrompt.model_validate(used)

    @router.delete("/prompts/{prompt}/{version}", tags=["prompts"])
    async def remove_prompt(request: Request, prompt: str, version: int, tenant: str) -> ShownPrompt:
        """A version that is not in use, whose text is gone, for admins."""
        return ShownPrompt.model_validate(await desk.remove_prompt(asking(request), tenant, prompt, version))
