"""Construct: components that the provider unfolds into child resources (YAML files and Helm charts)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pulumi
from pulumi.provider import ConstructResult, Provider
from pulumi.provider.server import ProviderServicer

from lab.plugins.kubernetes import VERSION
from lab.plugins.kubernetes.charts import Chart
from lab.plugins.kubernetes.errors import ProviderError
from lab.plugins.kubernetes.session import ProviderSession
from lab.plugins.kubernetes.yaml_components import ConfigFile, ConfigGroup


class _Components(Provider):
    """Gives the SDK's own provider server the component for a type token."""

    def __init__(self, session: Callable[[], ProviderSession]) -> None:
        super().__init__(VERSION)
        self._session = session

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        session = self._session()
        if session.reachable is None and not session.rendering:
            raise ProviderError(session.unreachable_text)
        component: pulumi.ComponentResource
        match resource_type:
            case "kubernetes:yaml/v2:ConfigGroup":
                component = ConfigGroup(session, name, inputs, options)
            case "kubernetes:yaml/v2:ConfigFile":
                component = ConfigFile(session, name, inputs, options)
            case "kubernetes:helm.sh/v4:Chart":
                component = Chart(session, name, inputs, options)
            case _:
                raise ProviderError(f"the lab stand-in does not cover components of type {resource_type}")
        return ConstructResult(urn=component.urn, state={"resources": component.resources})


class Constructor:
    """Runs the SDK's asynchronous Construct on a thread of its own; the other requests stay synchronous."""

    def __init__(self, engine_address: str, session: Callable[[], ProviderSession]) -> None:
        self._engine_address = engine_address
        self._components = _Components(session)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._servicer: ProviderServicer | None = None

    def construct(self, request: Any) -> Any:
        """Answer one Construct request. Raises ProviderError with the component's own message."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, daemon=True, name="construct").start()
        future = asyncio.run_coroutine_threadsafe(self._construct(request), self._loop)
        try:
            return future.result()
        except ProviderError:
            raise
        except Exception as error:
            raise ProviderError(str(error)) from error

    async def _construct(self, request: Any) -> Any:
        if self._servicer is None:
            self._servicer = ProviderServicer(self._components, [], self._engine_address)
        # The SDK keeps the engine's monitor in process-wide settings, so one component is unfolded at a time.
        async with self._servicer.lock:
            return await self._servicer._construct(request, None)
