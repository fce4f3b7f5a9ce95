"""Pages of a team's prompts: their versions, what differs between them, and which one is in use."""

from __future__ import annotations

import difflib
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from services.portal import view
from services.portal.examples import prompt_example
from services.portal.failure import missing
from services.portal.login import session_person
from services.portal.visits import Visits, some_tenant, whole


class PromptPages:
    """One method per page."""

    def __init__(self, visits: Visits) -> None:
        self._visits, self._desk = visits, visits.desk

    def add_to(self, router: APIRouter) -> None:
        """All of them, by their paths."""
        router.get("/prompts")(self.prompts)
        router.post("/prompts")(self.put)
        router.get("/prompts/{prompt}")(self.prompt)
        router.post("/prompts/{prompt}/use")(self.use)
        router.post("/prompts/{prompt}/remove")(self.remove)

    async def prompts(self, request: Request) -> Response:
        shared = self._visits.shared(request)
        versions = await self._desk.prompts(shared["me"], some_tenant(shared))
        counts: dict[str, int] = {}
        for version in versions:
            counts[version["id"]] = counts.get(version["id"], 0) + 1
        in_use = [version | {"count": counts[version["id"]]} for version in versions if version["in_use"]]
        return view.page(request, "prompts", shared | {"prompts": in_use})

    async def prompt(self, request: Request, prompt: str) -> Response:
        shared = self._visits.shared(request)
        versions = await self._desk.prompts(shared["me"], some_tenant(shared), prompt)
        versions.sort(key=lambda version: -version["version"])
        in_use = next((version for version in versions if version["in_use"]), versions[0])
        number = whole(request.query_params.get("version", "")) if "version" in request.query_params else None
        chosen = in_use if number is None else _numbered(versions, number)
        model = next(iter(self._desk.chat_models(shared["tenant"])), "MODEL")
        more = {
            "id": prompt,
            "versions": versions,
            "in_use": in_use,
            "chosen": chosen,
            "difference": [] if chosen is in_use else difference(in_use["text"], chosen["text"]),
            "example": prompt_example(model, prompt, in_use["variables"]),
        }
        return view.page(request, "prompt", shared | more)

    async def put(self, request: Request) -> Response:
        form = await self._visits.form(request)
        prompt = form["id"].strip()
        # A browser ends the lines of a form with both.
        text = form["text"].replace("\r\n", "\n")
        await self._desk.put_prompt(session_person(request), form["tenant"], prompt, text)
        return _to_prompt(prompt, form["tenant"])

    async def use(self, request: Request, prompt: str) -> Response:
        form = await self._visits.form(request)
        await self._desk.use_prompt(session_person(request), form["tenant"], prompt, whole(form["version"]))
        return _to_prompt(prompt, form["tenant"])

    async def remove(self, request: Request, prompt: str) -> Response:
        form = await self._visits.form(request)
        await self._desk.remove_prompt(session_person(request), form["tenant"], prompt, whole(form["version"]))
        return RedirectResponse(f"/prompts?{urlencode({'tenant': form['tenant']})}", 303)


def difference(before: str, after: str) -> list[tuple[str, str]]:
    """Lines of a unified diff without its head, each with what it is: added, removed, place or same."""
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm=""))[2:]
    return [(kinds.get(line[:1], "same"), line) for line in lines]


def _numbered(versions: list[dict[str, Any]], number: int) -> dict[str, Any]:
    for version in versions:
        if version["version"] == number:
            return version
    raise missing("There is no such version.")


def _to_prompt(prompt: str, tenant: str) -> Response:
    return RedirectResponse(f"/prompts/{quote(prompt, safe='')}?{urlencode({'tenant': tenant})}", 303)
