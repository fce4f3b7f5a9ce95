"""A local copy of one collection of the API server, kept up to date by list and watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator

from lab import watching
from lab.runner.api import TRANSIENT, KubeApi
from lab.runner.state import Object

_LOG = logging.getLogger(__name__)

# Called for every change: the object, and whether it is gone.
Handler = Callable[[Object, bool], None]


class Reflector:
    """Objects of one kind by (namespace, name). `on_change` gets each change, a relist's differences included."""

    def __init__(self, api: KubeApi, path: str, on_change: Handler) -> None:
        self._source = _Source(api, path)
        self._on_change = on_change
        self._collection = watching.Collection()
        self.synced = asyncio.Event()

    def get(self, namespace: str, name: str) -> Object | None:
        return self._collection.objects.get((namespace, name))

    def in_namespace(self, namespace: str) -> Iterator[Object]:
        return (item for (where, _), item in sorted(self._collection.objects.items()) if where == namespace)

    async def run(self) -> None:
        """List, then watch, forever."""
        async for change in watching.follow_async(self._source, self._collection):
            if change is None:
                self.synced.set()
            else:
                self._on_change(change.object, change.gone)


class _Source:
    lost = TRANSIENT

    def __init__(self, api: KubeApi, path: str) -> None:
        self._api = api
        self._path = path

    async def list(self) -> Object:
        return await self._api.request("GET", self._path)

    def watch(self, version: str) -> AsyncGenerator[bytes]:
        return self._api.watch(self._path, version)

    async def pause(self, seconds: float, reason: str) -> None:
        if reason:
            _LOG.warning("watch of %s lost (%s); again in %.1f s", self._path, reason, seconds)
        await asyncio.sleep(seconds)
