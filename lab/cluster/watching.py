"""Noticing changes of one kind of object on the API server, over restarts of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kubernetes import client, watch
from urllib3.exceptions import HTTPError

_FIRST_BACKOFF_S = 0.2
_LONGEST_BACKOFF_S = 5.0

log = logging.getLogger(__name__)

Listing = Callable[..., Any]


def changes(
    listing: Listing, *, resync_s: int, stopping: threading.Event, first_backoff_s: float = _FIRST_BACKOFF_S
) -> Iterator[None]:
    """Yield once at first, once per change, and once per resync; what the world looks like is the caller's to read.

    `listing` is a list method of the kubernetes client. Ends when `stopping` is set. A lost API server
    is asked again after `first_backoff_s`, then after twice as long each time, up to 5 s.
    """
    backoff_s = first_backoff_s
    while not stopping.is_set():
        try:
            since = listing(limit=1, _request_timeout=10).metadata.resource_version
            yield
            backoff_s = first_backoff_s
            # The read timeout ends a connection that died without a close.
            timeouts = {"timeout_seconds": resync_s, "_request_timeout": (5, resync_s + 10)}
            for _ in watch.Watch().stream(listing, resource_version=since, **timeouts):
                yield
        except (client.ApiException, HTTPError, OSError) as error:
            log.warning("lost the API server, again in %.1f s: %s", backoff_s, _short(error))
            stopping.wait(backoff_s)
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
