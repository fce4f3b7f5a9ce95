"""The SDK's runtime under its mocks, a new one for each program that a test declares."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pulumi.runtime.config import set_all_config
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.settings import SETTINGS

from stacks.program import source_positions

T = TypeVar("T")
# A program that waits for what never comes ends in an error that pytest can show; others take a second.
_HANGS_S = 180


class EchoingMocks(Mocks):
    """Resources have what was asked for, calls give nothing."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        return args.name, dict(args.inputs)

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:  # noqa: ARG002
        return {}, None


class Recorder(MockMonitor):
    """Keeps what an engine gets for each resource, by name."""

    def __init__(self) -> None:
        super().__init__(EchoingMocks())
        self.requests: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        self.requests[request.name] = request
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]


def in_own_runtime(
    mocks: Mocks,
    program: Callable[[], Coroutine[Any, Any, T]],
    *,
    stack: str = "lab",
    preview: bool = False,
    config: Mapping[str, str] | None = None,
    monitor: MockMonitor | None = None,
    positions: bool = False,
) -> T:
    """What `program` returns, run under `mocks` with an event loop of its own.

    config: the stack's configuration, by full key. monitor: replaces the engine, if not the SDK's own.
    positions: whether registrations have the place in the program that the SDK adds.

    The SDK keeps its root resource, calls and configuration in context variables, so that an empty context has none of
    an earlier program, which this one would wait for on a loop that runs no more.
    """

    def use() -> None:
        # The one that the mocks leave as it is.
        SETTINGS.outputs = set()
        set_all_config(dict(config or {}))
        set_mocks(mocks, project="inference-platform", stack=stack, preview=preview, monitor=monitor)

    # The whole stack of a test for each of hundreds of resources is a fifth of the time that a program takes here.
    with contextlib.nullcontext() if positions else source_positions.left_out():
        return contextvars.Context().run(_run, use, program)


def _run(use: Callable[[], None], program: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop = asyncio.new_event_loop()
    # Refused registrations that no test checks would be reported at garbage collection, in the middle of another test.
    loop.set_exception_handler(lambda *_: None)
    asyncio.set_event_loop(loop)
    try:
        use()
        return loop.run_until_complete(asyncio.wait_for(program(), timeout=_HANGS_S))
    finally:
        _end(loop)


def _end(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    with contextlib.suppress(RuntimeError):
        loop.run_until_complete(loop.shutdown_default_executor())
    asyncio.set_event_loop(None)
    loop.close()
