"""The HTTP interface. Errors have one form: {"error": {"code", "message"}}."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest

from services import serving
from services.database import Database
from services.directory.departures import Departures
from services.directory.keys import ID, new_key
from services.directory.order_requests import OrderRequests
from services.directory.orders import AskedBy, KeyOrder, RotationOrder, asked_by, parsed, require, scope_problems
from services.directory.prompts import PromptOrder, Prompts, UseOrder
from services.directory.settings import Settings
from services.directory.signal_watch import SignalWatch, SuspendOptions
from services.directory.store import STATES, KeyChoice, Store
from services.directory.suspension_requests import SuspensionRequests
from services.directory.suspensions import SIGNALS, Suspensions
from services.directory.tables import KEPT
from services.directory.variables import TOKEN_HEADER
from services.failure import ServiceError, shown

_LONGEST_WAIT_S = 30.0
_LARGEST_BODY = 64 * 1024
_COUNT_EVERY_S = 60.0
_MOST_ACTS = 1000
_MOST_KEYS = 10_000
_REQUESTS = Counter("directory_requests", "Requests by method, path and status.", ["method", "path", "status"])
_KEYS = Gauge("directory_keys", "Keys by state.", ["state"])
_SUSPENSIONS = Gauge(
    "directory_suspensions",
    "1 for a key that is suspended, by whether a person or a signal did it.",
    ["tenant", "key", "by"],
)
_WAITING = Gauge("directory_waiting_readers", "Readers that wait for a change.")
_LATENCY = Histogram(
    "directory_change_seconds",
    "From a change to its answer to a reader that waits.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)

log = logging.getLogger(__name__)


def application(settings: Settings, database: Database, suspending: SuspendOptions | None = None) -> FastAPI:
    """The service, for one database. suspending: by which signals of keys; None: by none."""
    departures = Departures(database, settings)
    router = _Requests(settings, database, departures).router()
    tasks = [departures.run, *([SignalWatch(database, suspending).run] if suspending else [])]
    return serving.application(database, router, page="docs/how-to/keys-for-tenants.md", tasks=tasks)


class _Requests:
    """One method per request. Tokens are checked before a body is read."""

    def __init__(self, settings: Settings, database: Database, departures: Departures) -> None:
        self._settings, self._database, self._departures = settings, database, departures
        self._store, self._prompts = Store(database), Prompts(database)
        self._suspensions = Suspensions(database)
        self._counted_before: asyncio.Future[bool] | None = None
        self._next_count = 0.0

    def router(self) -> APIRouter:
        """All of them, by their paths."""
        handlers: serving.Handlers = {
            ("GET", "/v1/changes"): self.changes,
            ("POST", "/v1/keys"): self.create,
            ("GET", "/v1/keys"): self.keys,
            ("GET", "/v1/keys/{key_id}"): self.key,
            ("POST", "/v1/keys/{key_id}/rotate"): self.rotate,
            ("DELETE", "/v1/keys/{key_id}"): self.revoke,
            ("DELETE", "/v1/tenants/{tenant}"): self.forget,
            ("GET", "/v1/audit"): self.audit,
            ("POST", "/v1/prompts"): self.put_prompt,
            ("GET", "/v1/prompts"): self.prompts,
            ("GET", "/v1/prompts/{tenant}/{prompt}"): self.prompt,
            ("POST", "/v1/prompts/{tenant}/{prompt}/use"): self.use_prompt,
            ("DELETE", "/v1/prompts/{tenant}/{prompt}/{version}"): self.remove_prompt,
            ("GET", "/healthz"): self.health,
            ("GET", "/readyz"): self.ready,
            ("GET", "/metrics"): self.metrics,
            **OrderRequests(self._settings, self._database, self._operator).handlers(),
            **SuspensionRequests(self._settings, self._database, self._operator).handlers(),
        }
        return serving.router_of(KEPT.service, _REQUESTS, handlers)

    async def changes(self, request: Request, after: str = "", wait: str = "0") -> Response:
        token = request.headers.get(TOKEN_HEADER, "")
        if not (self._settings.is_reader(token) or self._settings.is_operator(token)):
            raise _not_allowed(is_known=False)
        deadline, has_waited = time.monotonic() + _wait_s(wait), False
        while True:
            # Before the question, so that no change falls between it and the wait.
            coming = self._database.next_change()
            changes = await self._store.changes(after)
            left_s = deadline - time.monotonic()
            if changes.keys or changes.prompts or changes.suspensions or changes.full or left_s <= 0:
                break
            with _WAITING.track_inprogress():
                done, _ = await asyncio.wait([coming], timeout=left_s)
            if not done or not coming.result():
                break
            has_waited = True
        if has_waited and changes.keys:
            _LATENCY.observe(max(0.0, changes.age_s))
        names = ("cursor", "full", "keys", "prompts", "suspensions")
        return JSONResponse({name: getattr(changes, name) for name in names})

    async def create(self, request: Request) -> Response:
        by = self._operator(request)
        order = parsed(KeyOrder, await _body(request))
        order.check(self._settings.models_by_tenant())
        key = new_key(self._settings.pepper_bytes())
        made = await self._store.create(order, key, by)
        log.info("%s created %s of %s/%s", by.actor, key.id, order.tenant, order.name)
        return JSONResponse(made | {"key": key.text}, 201)

    async def keys(
        self, request: Request, tenant: str = "", owner: str = "", part: str = "", state: str = "", most: str = ""
    ) -> Response:
        self._operator(request)
        if state and state not in STATES:
            what, fix = "state: no such state", "correct it, or leave it out"
            raise ServiceError(422, "invalid_request", what, got=shown(state), allowed=", ".join(STATES), fix=fix)
        bound = _whole("most", most, 1, _MOST_KEYS) if most else None
        chosen = KeyChoice(tenant=tenant, owner=owner, part=part, state=state, most=bound)
        return JSONResponse({"keys": await self._store.keys(chosen)})

    async def key(self, request: Request, key_id: str) -> Response:
        self._operator(request)
        return JSONResponse(await self._store.key(_id(key_id)))

    async def forget(self, request: Request, tenant: str) -> Response:
        by = self._operator(request)
        counts = await self._departures.forget(tenant, by)
        log.info("%s had the tenant %s forgotten", by.actor, tenant)
        return JSONResponse({"tenant": tenant, "forgotten": counts})

    async def rotate(self, request: Request, key_id: str) -> Response:
        by = self._operator(request)
        order = parsed(RotationOrder, await _body(request))
        old = await self._store.find(_id(key_id))
        if order.owner and not order.owner.has(old.name):
            raise _not_theirs(key_id)
        require(scope_problems(old.tenant, old.models, self._settings.models_by_tenant()))
        key = new_key(self._settings.pepper_bytes())
        made = await self._store.rotate(key_id, order, key, by)
        log.info("%s rotated %s of %s/%s to %s", by.actor, key_id, old.tenant, old.name, key.id)
        return JSONResponse(made | {"key": key.text}, 201)

    async def revoke(self, request: Request, key_id: str) -> Response:
        by = self._operator(request)
        key = await self._store.revoke(_id(key_id), by)
        log.info("%s revoked %s of %s/%s", by.actor, key_id, key["tenant"], key["name"])
        return JSONResponse(key)

    async def audit(self, request: Request, after: str = "0", limit: str = str(_MOST_ACTS)) -> Response:
        self._operator(request)
        most = _whole("limit", limit, 1, _MOST_ACTS)
        acts, head = await self._store.acts(_whole("after", after, 0, 2**62), most)
        return JSONResponse({"acts": acts, "more": len(acts) == most, "head": {"count": head.count, "hash": head.hash}})

    async def put_prompt(self, request: Request) -> Response:
        by = self._operator(request)
        order = parsed(PromptOrder, await _body(request))
        order.check()
        require(scope_problems(order.tenant, None, self._settings.models_by_tenant()))
        made = await self._prompts.put(order, by)
        log.info("%s put version %d of %s/%s", by.actor, made["version"], order.tenant, order.id)
        return JSONResponse(made, 201)

    async def prompts(self, request: Request, tenant: str = "") -> Response:
        self._operator(request)
        return JSONResponse({"versions": await self._prompts.versions(tenant)})

    async def prompt(self, request: Request, tenant: str, prompt: str) -> Response:
        self._operator(request)
        return JSONResponse({"versions": await self._prompts.versions(tenant, prompt)})

    async def use_prompt(self, request: Request, tenant: str, prompt: str) -> Response:
        by = self._operator(request)
        version = parsed(UseOrder, await _body(request)).version
        used = await self._prompts.use(tenant, prompt, version, by)
        log.info("%s let version %d of %s/%s be used", by.actor, version, tenant, prompt)
        return JSONResponse(used)

    async def remove_prompt(self, request: Request, tenant: str, prompt: str, version: str) -> Response:
        by = self._operator(request)
        number = _whole("version", version, 1, 2**31 - 1)
        removed = await self._prompts.remove(tenant, prompt, number, by)
        log.info("%s removed version %d of %s/%s", by.actor, number, tenant, prompt)
        return JSONResponse(removed)

    async def health(self) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self) -> Response:
        """Asks the database nothing: the connection that hears of changes is tried all the time, for every probe."""
        self._database.next_change()
        return PlainTextResponse("ok\n")

    async def metrics(self) -> Response:
        with contextlib.suppress(ServiceError):
            await self._count()
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def _count(self) -> None:
        """It reads all rows, so it is done after a change, and now and then for keys that expire."""
        coming = self._database.next_change()
        if coming is self._counted_before and time.monotonic() < self._next_count:
            return
        for state, count in (await self._store.count_by_state()).items():
            _KEYS.labels(state).set(count)
        held = await self._suspensions.listed()
        _SUSPENSIONS.clear()
        for row in held:
            by = "signal" if row["actor"] == SIGNALS else "person"
            _SUSPENSIONS.labels(row["tenant"], row["name"], by).set(1)
        self._counted_before, self._next_count = coming, time.monotonic() + _COUNT_EVERY_S

    def _operator(self, request: Request) -> AskedBy:
        """Who asks. Raises ServiceError for anyone but an operator."""
        token = request.headers.get(TOKEN_HEADER, "")
        if self._settings.is_operator(token):
            return asked_by(request.headers)
        raise _not_allowed(is_known=self._settings.is_reader(token))


def _id(text: str) -> str:
    if ID.fullmatch(text):
        return text
    raise ServiceError(
        404,
        "unknown_key",
        "this is no id of a key",
        got=shown(text),
        allowed="the 10 characters between sk- and the second dash",
        fix="GET /v1/keys lists them; a whole key belongs in no address, so revoke one that was in this",
    )


def _not_theirs(key_id: str) -> ServiceError:
    what, fix = "this key is another person's", "its owner rotates it; revoke it, and have them make another"
    return ServiceError(404, "unknown_key", what, got=key_id, fix=fix)


async def _body(request: Request) -> bytes:
    return await serving.body_of(request, _LARGEST_BODY, "send the fields that the page lists, and nothing else")


def _wait_s(text: str) -> float:
    with contextlib.suppress(ValueError):
        if (seconds := float(text)) >= 0:
            return min(seconds, _LONGEST_WAIT_S)
    what, fix = "wait: no number of seconds", "send wait=30, or leave it out"
    raise ServiceError(422, "invalid_request", what, got=shown(text), allowed="0 to 30", fix=fix)


def _whole(name: str, text: str, least: int, most: int) -> int:
    if text.isdecimal() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    allowed, fix = f"{least} to {most}", "correct it, or leave it out"
    raise ServiceError(422, "invalid_request", f"{name}: no such number", got=shown(text), allowed=allowed, fix=fix)


def _not_allowed(*, is_known: bool) -> ServiceError:
    fix = f"send the operator's token as {TOKEN_HEADER}; `sitectl key` does"
    if is_known:
        return ServiceError(403, "forbidden", "the reader's token only reads changes", fix=fix)
    return ServiceError(401, "unauthorized", f"the header {TOKEN_HEADER} has no token of this directory", fix=fix)
