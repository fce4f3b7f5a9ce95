"""Noticing changes of one kind of object on the API server, over restarts of it."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from lab import watching

log = logging.getLogger(__name__)

Listing = Callable[..., Any]


def changes(
    listing: Listing, *, resync_s: int, stopping: threading.Event, first_pause_s: float = 0.2
) -> Iterator[None]:
    """Yield at first, at each change, and at each resync; what the world looks like is the caller's to read.

    `listing` is a list method of the kubernetes client. Ends when `stopping` is set.
    """
    source = _Listing(listing, resync_s, stopping)
    for _ in watching.follow(source, watching.Collection(first_pause_s=first_pause_s)):
        if stopping.is_set():
            return
        yield


class _Listing:
    lost = (HTTPError, OSError)

    def __init__(self, listing: Listing, resync_s: int, stopping: threading.Event) -> None:
        self._listing = listing
        self._resync_s = resync_s
        self._stopping = stopping

    def list(self) -> watching.Object:
        answer: watching.Object = json.loads(self._ask(_request_timeout=10).data)
        return answer

    def watch(self, version: str) -> Generator[bytes]:
        # The read timeout ends a connection that died without a close.
        timeouts = {"timeout_seconds": self._resync_s, "_request_timeout": (5, self._resync_s + 10)}
        response = self._ask(watch=True, allow_watch_bookmarks=True, resource_version=version, **timeouts)
        yield from watching.chunks_of(response)

    def pause(self, seconds: float, reason: str) -> bool:
        if reason:
            log.warning("lost the API server, again in %.1f s: %s", seconds, reason)
        return self._stopping.wait(seconds)

    def _ask(self, **options: Any) -> Any:
        try:
            return self._listing(_preload_content=False, **options)
        except client.ApiException as error:
            raise watching.RefusedError(error.status or 0, str(error.reason)) from error
