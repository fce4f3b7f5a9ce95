"""The pages. Every form works without a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

from services.portal import usage, view
from services.portal.desk import FORMS, LIVES_D, MOST_SHOWN, OVERLAPS_H, PLAYGROUND, this_month
from services.portal.examples import examples
from services.portal.failure import PortalError, missing
from services.portal.login import Issuer, session_person
from services.portal.people import Role
from services.portal.playground import LONGEST_PROMPT, Playground
from services.portal.settings import PortalSettings
from services.portal.visits import Fields, Visits, some_tenant, whole


class Pages:
    """One method per page."""

    def __init__(self, settings: PortalSettings, visits: Visits, playground: Playground, issuer: Issuer) -> None:
        self._settings, self._visits, self._desk = settings, visits, visits.desk
        self._playground, self._issuer = playground, issuer

    def add_to(self, router: APIRouter) -> None:
        """All of them, by their paths."""
        router.get("/login")(self.login)
        router.get("/callback")(self.callback)
        router.post("/logout")(self.logout)
        router.get("/goodbye")(self.goodbye)
        router.get("/")(self.models)
        router.get("/models/{name}")(self.model)
        router.post("/orders")(self.order)
        router.get("/orders")(self.orders)
        router.post("/models/{name}/order")(self.order_model)
        router.get("/orders/{order_id}/decline")(self.refusal)
        router.post("/orders/{order_id}/decline")(self.decline)
        router.get("/keys")(self.keys)
        router.get("/keys/{key_id}/rotate")(self.rotation)
        router.post("/keys/{key_id}/rotate")(self.rotate)
        router.get("/keys/{key_id}/revoke")(self.revocation)
        router.post("/keys/{key_id}/revoke")(self.revoke)
        router.get("/usage")(self.usage)
        router.get("/usage/bill")(self.bill)
        router.get("/playground")(self.playground)
        router.post("/playground")(self.ask)
        router.post("/playground/stream")(self.stream)

    async def login(self, request: Request) -> Response:
        return await self._issuer.begin(request, request.query_params.get("next", "/"))

    async def callback(self, request: Request) -> Response:
        return await self._issuer.finish(request, self._desk.catalogue)

    async def logout(self, request: Request) -> Response:
        await self._visits.form(request)
        session = request.session
        await self._playground.forget(session_person(request), session["id"], session.get("played", ()))
        session.clear()
        # A page with a link, as the portal's policy lets no form lead to another host.
        return view.page(
            request, "goodbye", {"site": self._desk.catalogue.site, "end": await self._issuer.end_address()}
        )

    async def goodbye(self, request: Request) -> Response:
        return view.page(request, "goodbye", {"site": self._desk.catalogue.site, "end": None})

    async def models(self, request: Request) -> Response:
        shared = self._visits.shared(request)
        catalogue = self._desk.catalogue
        own = set(catalogue.tenants[shared["tenant"]].models) if shared["tenant"] else set()
        served = sorted(catalogue.models.items(), key=lambda item: (item[0] not in own, item[1].title))
        orderable = sorted(catalogue.orderable.items(), key=lambda item: (not item[1].fits, item[1].title))
        return view.page(request, "models", shared | {"served": served, "own": own, "orderable": orderable})

    async def model(self, request: Request, name: str) -> Response:
        shared = self._visits.shared(request)
        catalogue = self._desk.catalogue
        if (model := catalogue.models.get(name) or catalogue.orderable.get(name)) is None:
            raise missing("There is no such model.")
        tenant = shared["tenant"]
        is_own = bool(tenant) and name in catalogue.tenants[tenant].models
        more = {
            "name": name,
            "model": model,
            "is_served": name in catalogue.models,
            "is_own": is_own,
            "open_order": await self._desk.open_order_of(shared["me"], tenant, name) if tenant and not is_own else None,
            "limits": catalogue.tenants[tenant].limits if tenant else {},
            "lives": LIVES_D,
            "may_order": shared["is_admin"] or catalogue.orders_by == "users",
            "notice_days": catalogue.notice_days,
        }
        return view.page(request, "model", shared | more)

    async def order(self, request: Request) -> Response:
        form = await self._visits.form(request)
        person, tenant, model = session_person(request), form["tenant"], form["model"]
        made = await self._desk.order(person, tenant, model, form["name"].strip(), whole(form["days"]))
        return self._made(request, made, model, rotated=False)

    async def order_model(self, request: Request, name: str) -> Response:
        form = await self._visits.form(request)
        await self._desk.order_model(session_person(request), form["tenant"], name, form["note"])
        return _to_orders(form)

    async def orders(self, request: Request) -> Response:
        shared = self._visits.shared(request)
        orders = await self._desk.orders(shared["me"], some_tenant(shared))
        return view.page(request, "orders", shared | {"orders": orders, "titles": self._desk.catalogue.titles})

    async def refusal(self, request: Request, order_id: str) -> Response:
        shared = self._visits.shared(request)
        tenant = some_tenant(shared)
        self._desk.role(shared["me"], tenant, Role.ADMIN)
        order = await self._desk.open_order(shared["me"], tenant, order_id)
        return view.page(request, "decline", shared | {"order": order, "titles": self._desk.catalogue.titles})

    async def decline(self, request: Request, order_id: str) -> Response:
        form = await self._visits.form(request)
        await self._desk.decline(session_person(request), form["tenant"], order_id, form["reason"])
        return _to_orders(form)

    async def keys(self, request: Request) -> Response:
        shared = self._visits.shared(request)
        part = request.query_params.get("find", "").strip()[:40]
        keys = await self._desk.keys(shared["me"], some_tenant(shared), part)
        more = {"keys": keys, "playground": PLAYGROUND, "part": part, "most": MOST_SHOWN}
        return view.page(request, "keys", shared | more)

    async def rotation(self, request: Request, key_id: str) -> Response:
        return await self._about_key(request, key_id, "rotate", {"overlaps": OVERLAPS_H})

    async def revocation(self, request: Request, key_id: str) -> Response:
        return await self._about_key(request, key_id, "revoke", {})

    async def rotate(self, request: Request, key_id: str) -> Response:
        form = await self._visits.form(request)
        person = session_person(request)
        made = await self._desk.rotate(person, form["tenant"], key_id, whole(form["hours"]))
        return self._made(request, made, (made["models"] or ["MODEL"])[0], rotated=True)

    async def revoke(self, request: Request, key_id: str) -> Response:
        form = await self._visits.form(request)
        await self._desk.revoke(session_person(request), form["tenant"], key_id)
        return RedirectResponse(f"/keys?{urlencode({'tenant': form['tenant']})}", 303)

    async def usage(self, request: Request) -> Response:
        shared = self._visits.shared(request)
        tenant = some_tenant(shared)
        month = usage.month_of(request.query_params.get("month", ""), this_month())
        use = await self._desk.usage(shared["me"], tenant, month)
        budgets = self._desk.catalogue.tenants[tenant].budgets if month == this_month() else {}
        left = usage.remainders(use, budgets, is_admin=shared["is_admin"])
        plot = {"bars": usage.bars(use), "width": usage.PLOT_WIDTH, "height": usage.PLOT_HEIGHT, "left": left}
        more = {"use": use, "months": usage.last_months(this_month()), "forms": FORMS, "bar": usage.BAR_WIDTH}
        return view.page(request, "usage", shared | plot | more)

    async def bill(self, request: Request) -> Response:
        asked = request.query_params
        tenant, form = asked.get("tenant", ""), asked.get("format", "")
        month = usage.month_of(asked.get("month", ""), this_month())
        content, media = await self._desk.bill(session_person(request), tenant, month, form)
        file = f"bill-{tenant}-{month}{'-focus' if form == 'focus' else ''}.{'json' if form == 'json' else 'csv'}"
        return Response(content, media_type=media, headers={"Content-Disposition": f'attachment; filename="{file}"'})

    async def playground(self, request: Request) -> Response:
        shared = self._visits.shared(request)
        more = {"model": request.query_params.get("model", ""), "prompt": "", "answer": ""}
        return view.page(request, "playground", shared | more | self._asking(some_tenant(shared)))

    async def ask(self, request: Request) -> Response:
        """The same as `stream` for a browser without a script: the whole answer at once."""
        form = await self._visits.form(request)
        person, tenant = session_person(request), form["tenant"]
        self._desk.role(person, tenant)
        _note_played(request, tenant)
        pieces = self._playground.answer(person, request.session["id"], tenant, form["model"], form["prompt"])
        more = {"model": form["model"], "prompt": form["prompt"], "answer": "".join([piece async for piece in pieces])}
        return view.page(request, "playground", self._visits.shared(request, tenant) | more | self._asking(tenant))

    async def stream(self, request: Request) -> Response:
        form = await self._visits.form(request)
        person, session = session_person(request), request.session["id"]
        tenant, model, prompt = form["tenant"], form["model"], form["prompt"]
        self._playground.check(person, tenant, model, prompt)
        _note_played(request, tenant)

        async def lines() -> AsyncIterator[str]:
            try:
                async for piece in self._playground.answer(person, session, tenant, model, prompt):
                    yield json.dumps({"text": piece}) + "\n"
            except PortalError as error:
                yield json.dumps({"error": str(error)}) + "\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    def _asking(self, tenant: str) -> dict[str, Any]:
        return {"chat_models": self._desk.chat_models(tenant), "longest": LONGEST_PROMPT}

    async def _about_key(self, request: Request, key_id: str, act: str, more: dict[str, Any]) -> Response:
        shared = self._visits.shared(request)
        key = await self._desk.key(shared["me"], some_tenant(shared), key_id)
        if key["state"] != "works":
            raise missing("This key has ended already.")
        return view.page(request, act, shared | more | {"key": key})

    def _made(self, request: Request, made: dict[str, Any], model: str, *, rotated: bool) -> Response:
        known, endpoint = self._desk.catalogue.models.get(model), self._settings.endpoint
        lines = examples(endpoint, made["key"], model, known.task if known else "")
        more = {"made": made, "tab": "/keys", "rotated": rotated, "endpoint": endpoint, "examples": lines}
        return view.page(request, "made", self._visits.shared(request, made["tenant"]) | more, 201)


def _note_played(request: Request, tenant: str) -> None:
    """So that a log out ends the playground's keys there."""
    request.session["played"] = sorted({*request.session.get("played", ()), tenant})


def _to_orders(form: Fields) -> Response:
    return RedirectResponse(f"/orders?{urlencode({'tenant': form['tenant']})}", 303)
