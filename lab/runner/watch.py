"""A local copy of one collection of the API server, kept up to date by list and watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from lab.runner.api import TRANSIENT, KubeApi, RefusedError
from lab.runner.backoff import RetryBackoff
from lab.runner.state import Object

_LOG = logging.getLogger(__name__)
_GONE = 410

# Called for every change: the object, and whether it is gone.
Handler = Callable[[Object, bool], None]


class Reflector:
    """Objects of one kind by (namespace, name). `on_change` gets each change, a relist's differences included."""

    def __init__(self, api: KubeApi, path: str, kind: str, on_change: Handler) -> None:
        self._api = api
        self._path = path
        self._kind = kind
        self._on_change = on_change
        self._objects: dict[tuple[str, str], Object] = {}
        self.synced = asyncio.Event()

    def get(self, namespace: str, name: str) -> Object | None:
        return self._objects.get((namespace, name))

    def in_namespace(self, namespace: str) -> Iterator[Object]:
        return (found for (where, _), found in sorted(self._objects.items()) if where == namespace)

    async def run(self) -> None:
        """List, then watch, forever. While the API server is unavailable, retry with a growing pause of up to 10 s."""
        retry = RetryBackoff()
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                async for event in self._api.watch(self._path, version):
                    version = self._apply(event)
                    retry.reset()
            except RefusedError as refused:
                # The version is too old, or the server does not know us any more: begin with a list.
                version = ""
                if refused.code != _GONE:
                    _LOG.warning("watch of %s refused: %s", self._kind, refused)
                    await asyncio.sleep(retry.delay())
            except TRANSIENT as error:
                delay = retry.delay()
                _LOG.warning("watch of %s lost (%s); again in %.1f s", self._kind, type(error).__name__, delay)
                await asyncio.sleep(delay)

    async def _list(self) -> str:
        answer = await self._api.request("GET", self._path)
        fresh: dict[tuple[str, str], Object] = {}
        for item in answer.get("items") or []:
            item.setdefault("kind", self._kind)
            fresh[_key(item)] = item
        # A name may belong to another object by now.
        gone = [found for key, found in self._objects.items() if _uid(fresh.get(key)) != _uid(found)]
        changed = [found for key, found in fresh.items() if self._objects.get(key) != found]
        self._objects = fresh
        for items, are_gone in ((gone, True), (changed, False)):
            for item in items:
                self._on_change(item, are_gone)
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    def _apply(self, event: Object) -> str:
        found: Object = event["object"]
        if event["type"] != "BOOKMARK":
            is_gone = event["type"] == "DELETED"
            if is_gone:
                self._objects.pop(_key(found), None)
            else:
                self._objects[_key(found)] = found
            self._on_change(found, is_gone)
        return str(found["metadata"]["resourceVersion"])


def _key(found: Object) -> tuple[str, str]:
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _uid(found: Object | None) -> str:
    return str(found["metadata"]["uid"]) if found else ""
