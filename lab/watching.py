"""Follows a collection of the API server by list and watch: one state, a loop for threads and one for asyncio.

The state is fed what the API server sends and knows what to ask for next. A loop asks by means of its source.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing, closing
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]


class RefusedError(Exception):
    """The API server answered with an error; `code` is the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Change(NamedTuple):
    """An object that is new, changed or gone."""

    object: Object
    gone: bool


class Collection:
    """Objects by (namespace, name), and the version from which to watch them; without a version they must be listed.

    Changes are those of the objects: what is sent twice is no change, what a list no longer holds is gone, and an
    object of the same name with another uid is one that is gone and one that is new.
    """

    def __init__(
        self,
        objects: Iterable[Object] = (),
        version: str = "",
        *,
        first_pause_s: float = 0.2,
        longest_pause_s: float = 10.0,
    ) -> None:
        self.objects = {_key(item): item for item in objects}
        self.version = version
        self._first_pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s
        self._pause_s = 0.0
        # Of the connection: the line that is not complete yet, and whether an event came.
        self._pending = b""
        self._heard = False

    def listed(self, answer: Object) -> Sequence[Change]:
        """Take the answer to a list; what is gone comes before what is there."""
        # Items of a list lack what its events have.
        kind = {field: answer[field].removesuffix("List") for field in ("apiVersion", "kind") if field in answer}
        fresh = {_key(item): {**kind, **item} for item in answer.get("items") or ()}
        known, self.objects = self.objects, fresh
        self.version = str(answer["metadata"]["resourceVersion"])
        gone = [Change(item, gone=True) for key, item in known.items() if _uid(fresh.get(key)) != _uid(item)]
        changed = [item for key, item in fresh.items() if _revision(known.get(key)) != _revision(item)]
        return [*gone, *(Change(item, gone=False) for item in changed)]

    def fed(self, chunk: bytes) -> Iterator[Change]:
        """Take the next bytes of a watch. Raises RefusedError when the API server ends it by an error."""
        # Cut here: the clients' own watches refuse long lines, or make typed objects that nothing needs.
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                event = json.loads(line)
                yield from self._event(event["type"], event["object"])

    def _event(self, kind: str, item: Object) -> Sequence[Change]:
        if kind == "ERROR":
            raise RefusedError(int(item.get("code", 0)), str(item.get("message", "")))
        self._heard = True
        self._pause_s = 0.0
        self.version = str(item["metadata"]["resourceVersion"])
        if kind == "BOOKMARK":
            return []
        key = _key(item)
        known = self.objects.pop(key, None)
        if kind == "DELETED":
            return [Change(item, gone=True)] if known else []
        self.objects[key] = item
        if _revision(known) == _revision(item):
            return []
        replaced = [Change(known, gone=True)] if known and _uid(known) != _uid(item) else []
        return [*replaced, Change(item, gone=False)]

    def ended(self) -> float:
        """The API server ended the watch in time: go on from the last version after as many seconds."""
        # One that ends at once and silently, again and again, must not become a storm of requests.
        pause_s = 0.0 if self._heard else self._first_pause_s
        self._pause_s = 0.0
        self._disconnect()
        return pause_s

    def failed(self, error: Exception) -> float:
        """A request was refused or its connection lost: try again after as many seconds, longer each time.

        A connection that was cut is taken up where it was. After a refusal (410: the version is too old), or if no
        event came at all, the version may be worth nothing: an API server may come back with an older state.
        """
        if isinstance(error, RefusedError) or not self._heard:
            self.version = ""
        self._pause_s = min(max(2 * self._pause_s, self._first_pause_s), self._longest_pause_s)
        self._disconnect()
        return self._pause_s

    def _disconnect(self) -> None:
        self._pending = b""
        self._heard = False


class Source(Protocol):
    """How a thread asks. `list` and `watch` raise RefusedError or one of `lost`; any other error ends the loop."""

    @property
    def lost(self) -> tuple[type[Exception], ...]: ...

    def list(self) -> Object: ...

    def watch(self, version: str) -> Generator[bytes]: ...

    def pause(self, seconds: float, reason: str) -> bool | None:
        """Wait; True ends the loop. There is a reason if something is wrong."""


class AsyncSource(Protocol):
    """The same for asyncio."""

    @property
    def lost(self) -> tuple[type[Exception], ...]: ...

    async def list(self) -> Object: ...

    def watch(self, version: str) -> AsyncGenerator[bytes]: ...

    async def pause(self, seconds: float, reason: str) -> None: ...


def follow(source: Source, collection: Collection) -> Generator[Change | None]:
    """Changes for ever. None after each list and each end of a watch: until here, `collection` is up to date."""
    lost: tuple[type[Exception], ...] = (RefusedError, *source.lost)
    while True:
        try:
            if not collection.version:
                yield from collection.listed(source.list())
                yield None
            with closing(source.watch(collection.version)) as chunks:
                for chunk in chunks:
                    yield from collection.fed(chunk)
            pause_s, reason = collection.ended(), ""
            yield None
        except lost as error:
            pause_s, reason = collection.failed(error), short(error)
        if source.pause(pause_s, reason):
            return


async def follow_async(source: AsyncSource, collection: Collection) -> AsyncIterator[Change | None]:
    """The same for asyncio."""
    lost: tuple[type[Exception], ...] = (RefusedError, *source.lost)
    while True:
        try:
            if not collection.version:
                for change in collection.listed(await source.list()):
                    yield change
                yield None
            async with aclosing(source.watch(collection.version)) as chunks:
                async for chunk in chunks:
                    for change in collection.fed(chunk):
                        yield change
            pause_s, reason = collection.ended(), ""
            yield None
        except lost as error:
            pause_s, reason = collection.failed(error), short(error)
        await source.pause(pause_s, reason)


def chunks_of(response: Any) -> Generator[bytes]:
    """The body of a urllib3 response as it comes; a half-read one does not go back to the pool."""
    try:
        yield from response.stream(amt=None, decode_content=False)
    finally:
        response.close()


def short(error: Exception) -> str:
    """The first line of an error, or its type if it has none."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _key(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _uid(item: Object | None) -> str:
    return str(item["metadata"].get("uid", "")) if item else ""


def _revision(item: Object | None) -> tuple[str, str] | None:
    return (_uid(item), str(item["metadata"].get("resourceVersion", ""))) if item else None
