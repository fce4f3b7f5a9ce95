"""The application: pages, requests of programs, and what holds for all of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from urllib.parse import urlencode

import httpx2
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, Counter, generate_latest
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.portal import view
from services.portal.api import api_router
from services.portal.catalogue import CatalogueFile
from services.portal.desk import Desk
from services.portal.failure import PortalError
from services.portal.login import SESSION_S, Issuer, LogInNeeded
from services.portal.origin import ADDRESS, address_of
from services.portal.pages import Pages
from services.portal.platform_pages import PlatformPages
from services.portal.playground import Playground
from services.portal.prompt_pages import PromptPages
from services.portal.settings import PortalSettings, secret
from services.portal.upstream import KeyService, ModelGateway, UsageLedger
from services.portal.visits import Visits

_LARGEST_BODY = 128 * 1024
_REQUESTS = Counter("portal_requests", "Requests by method, path and status.", ["method", "path", "status"])

log = logging.getLogger(__name__)


def application(settings: PortalSettings) -> FastAPI:
    """The portal."""
    trust = settings.trust()
    client = httpx2.AsyncClient(verify=trust)
    ledger = None
    if settings.ledger and settings.ledger_token_file:
        ledger = UsageLedger(client, settings.ledger, settings.ledger_token_file)
    desk = Desk(
        CatalogueFile(settings.catalogue_file),
        KeyService(client, settings.directory, settings.directory_token_file),
        ledger,
        ModelGateway(client, settings.gateway, settings.endpoint),
    )
    issuer = Issuer(settings, trust)

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        yield
        await client.aclose()

    app = FastAPI(title="Portal", version="1", lifespan=running, docs_url=None, redoc_url=None, redirect_slashes=False)
    pages = APIRouter(route_class=_CountedPage, include_in_schema=False)
    visits = app.state.visits = Visits(desk)
    Pages(settings, visits, Playground(desk), issuer).add_to(pages)
    PromptPages(visits).add_to(pages)
    PlatformPages(visits).add_to(pages)
    pages.get("/healthz")(_health)
    pages.get("/metrics")(_metrics)

    @pages.get("/readyz")
    async def ready() -> Response:
        """The catalogue is there; while another part is away, its pages alone do not work."""
        _ = desk.catalogue
        return PlainTextResponse("ok\n")

    app.include_router(pages)
    app.include_router(api_router(desk, issuer, settings.endpoint, _CountedPage))
    app.mount("/static", StaticFiles(directory=view.STATIC))
    app.add_exception_handler(HTTPException, _no_such_request)
    app.add_middleware(
        SessionMiddleware,
        secret_key=secret(settings.session_secret_file),
        session_cookie="__Host-portal" if settings.is_https else "portal",
        max_age=SESSION_S,
        https_only=settings.is_https,
    )
    app.add_middleware(_Guard, settings=settings)
    return app


class _CountedPage(APIRoute):
    """Counts requests, and gives errors their form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def counted(request: Request) -> Response:
            try:
                response = await answer(request)
            except LogInNeeded:
                response = _to_log_in(request)
            except PortalError as error:
                response = _failure(request, error)
            except RequestValidationError as error:
                fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
                refusal = PortalError(422, "invalid_request", f"Wrong or missing: {fields}.", "See /openapi.json.")
                response = _failure(request, refusal)
            except HTTPException:
                raise
            except Exception as error:  # noqa: BLE001 - the edge: a traceback may quote what was sent
                log.error("a bug: %s at %s", type(error).__name__, self.path)
                bug = PortalError(500, "internal", "The portal has a bug.", "Report it with the portal's log.")
                response = _failure(request, bug)
            _REQUESTS.labels(request.method, self.path, response.status_code).inc()
            return response

        return counted


class _Guard:
    """Headers of every answer, and a bound for what is sent."""

    def __init__(self, app: ASGIApp, settings: PortalSettings) -> None:
        self._app = app
        self._headers = {
            "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
            "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        if settings.is_https:
            self._headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # While the portal is replaced, a page of one version may ask the other for its files.
        address = f"{scope['path']}?{scope['query_string'].decode('latin-1')}"
        cached = "public, max-age=31536000, immutable" if address in view.STATIC_ADDRESSES.values() else "no-store"

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                answered.update(self._headers)
                answered["Cache-Control"] = cached
            await send(message)

        headers = dict(scope["headers"])
        ADDRESS.set(address_of(headers.get(b"x-forwarded-for", b"").decode("latin-1")))
        length = headers.get(b"content-length", b"0")
        chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if chunked or not length.isdigit() or int(length) > _LARGEST_BODY:
            await PlainTextResponse("the request is too large\n", 413)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


async def _health() -> Response:
    return PlainTextResponse("ok\n")


async def _metrics() -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


async def _no_such_request(request: Request, error: Any) -> Response:
    what = "There is no such page." if error.status_code == 404 else f"{error.detail}."
    failure = PortalError(error.status_code, "no_such_request", what, "Begin at the list of models.")
    return _failure(request, failure)


def _failure(request: Request, error: PortalError) -> Response:
    """For a program as the other services have it, for a person as a page."""
    if request.url.path.startswith(("/api/", "/playground/stream")):
        body = {"error": {"code": error.code, "message": str(error)}}
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
        return JSONResponse(body, error.status, headers=headers)
    if request.url.path in ("/readyz", "/metrics"):
        return PlainTextResponse(f"{error}\n", error.status)
    return view.page(
        request, "failure", {"error": error, **request.app.state.visits.at_a_failure(request)}, error.status
    )


def _to_log_in(request: Request) -> Response:
    if request.url.path == "/playground/stream":
        # A script cannot follow to the issuer.
        return _failure(request, PortalError(401, "log_in", "Your session has ended.", "Load the page again."))
    if request.method != "GET":
        # A form may not lead to the issuer's host; a link may.
        return _failure(request, PortalError(401, "log_in", "Your session has ended.", "Log in, and do it again."))
    path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
    return RedirectResponse(f"/login?{urlencode({'next': path})}", 303)
