"""What the services' HTTP interfaces share: errors of one form, bodies with a bound, a server that ends its waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from types import FrameType
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from prometheus_client import Counter
from starlette.exceptions import HTTPException

from services.database import Database
from services.failure import ServiceError, shown

Handlers = Mapping[tuple[str, str], Callable[..., Awaitable[Response]]]
"""By method and path."""

log = logging.getLogger(__name__)


def application(
    database: Database, router: APIRouter, *, page: str, tasks: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
) -> FastAPI:
    """The service, for one database. page: what explains its requests; tasks: what runs beside them, for ever."""

    @contextlib.asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        beside = [asyncio.create_task(task()) for task in (database.run, *tasks)]
        yield
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        await database.close()

    async def no_such_request(request: Request, problem: Any) -> Response:
        what = f"{request.method} {shown(request.url.path)}: {problem.detail}; fix: read {page}"
        return error(problem.status_code, "no_such_request", what, problem.headers)

    app = FastAPI(lifespan=running, openapi_url=None)
    app.include_router(router)
    app.add_exception_handler(HTTPException, no_such_request)
    return app


def router_of(service: str, requests: Counter, handlers: Handlers) -> APIRouter:
    """They are counted, and their errors have one form."""

    class _Counted(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            answer = super().get_route_handler()

            async def counted(request: Request) -> Response:
                try:
                    response = await answer(request)
                except ServiceError as refusal:
                    headers = {"Retry-After": str(refusal.retry_after_s)} if refusal.retry_after_s else {}
                    response = error(refusal.status, refusal.code, refusal.message, headers)
                except Exception as bug:  # noqa: BLE001 - the edge: a traceback may quote what was sent
                    log.error("a bug: %s", type(bug).__name__)
                    what = f"the {service} has a bug; fix: report it with the {service}'s log"
                    response = error(500, "internal", what)
                requests.labels(request.method, self.path, response.status_code).inc()
                return response

            return counted

    router = APIRouter(route_class=_Counted)
    for (method, path), handler in handlers.items():
        router.add_api_route(path, handler, methods=[method])
    return router


def error(status: int, code: str, message: str, headers: Any = None) -> JSONResponse:
    """An answer of the form that all errors have: {"error": {"code", "message"}}."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers=headers)


async def body_of(request: Request, largest: int, fix: str) -> bytes:
    """The request's body. Raises ServiceError where it is larger."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > largest:
            raise ServiceError(413, "too_large", "the body is too large", allowed=f"{largest} bytes", fix=fix)
    return bytes(body)


class _Server(uvicorn.Server):
    """Requests that wait for a change would hold up its end."""

    def __init__(self, config: uvicorn.Config, database: Database) -> None:
        super().__init__(config)
        self._database = database

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._database.end_waits()
        super().handle_exit(sig, frame)


def serve(app: FastAPI, database: Database, port: int) -> None:
    """Answer requests until a signal ends it."""
    config = uvicorn.Config(
        app,
        host="0.0.0.0",  # noqa: S104 - a pod's own
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
    )
    _Server(config, database).run()
