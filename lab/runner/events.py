"""Events about pods, written in the background; the same text twice within a short time is written once."""

from __future__ import annotations

import asyncio
import logging
import time

from lab.runner.api import TRANSIENT, ApiRefusedError, KubeApi
from lab.runner.state import Object

_LOG = logging.getLogger(__name__)
_REPEAT_AFTER_S = 60.0
_QUEUE_LIMIT = 500


class EventLog:
    """A queue of events in front of the API server; when it is full, new ones are dropped."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._queue: asyncio.Queue[tuple[Object, str, str, str]] = asyncio.Queue(_QUEUE_LIMIT)
        self._noted_at: dict[tuple[str, str, str], float] = {}

    def add(self, pod: Object, kind: str, reason: str, message: str) -> None:
        """Note an event; never blocks."""
        now = time.monotonic()
        self._noted_at = {key: when for key, when in self._noted_at.items() if now - when < _REPEAT_AFTER_S}
        key = (pod["metadata"]["uid"], reason, message)
        if key in self._noted_at or self._queue.full():
            return
        self._noted_at[key] = now
        self._queue.put_nowait((pod, kind, reason, message))

    async def run(self) -> None:
        while True:
            pod, kind, reason, message = await self._queue.get()
            try:
                await self._api.event(pod, kind=kind, reason=reason, message=message)
            except (ApiRefusedError, *TRANSIENT) as error:
                # An event reports and does nothing: a pod that is gone, or an API server that is away, loses it.
                _LOG.info("event %s %s not written: %s", reason, message, error)
