"""A moment that can come nearer: how long a pod's containers may still take to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

_Result = TypeVar("_Result")


class Deadline:
    """Unset until `within` names a moment; later calls can only shorten it, as a second delete with less grace does."""

    def __init__(self) -> None:
        self._moment: float | None = None
        self._moved = asyncio.Event()

    def within(self, seconds: float) -> None:
        moment = asyncio.get_running_loop().time() + seconds
        if self._moment is None or moment < self._moment:
            self._moment = moment
            self._moved.set()

    def remaining_s(self) -> float:
        """Seconds left, not less than 0; infinite while unset."""
        if self._moment is None:
            return float("inf")
        return max(0.0, self._moment - asyncio.get_running_loop().time())

    async def passed(self) -> None:
        """Return once the moment is over, however often it moves before."""
        while (left := self.remaining_s()) > 0:
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if left == float("inf") else left):
                    await self._moved.wait()

    async def limit(self, work: Awaitable[_Result]) -> _Result | None:
        """The work's result, or None when the moment comes first; the work is cancelled then."""
        task = asyncio.ensure_future(work)
        limit = asyncio.create_task(self.passed())
        try:
            await asyncio.wait({task, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return None
            return task.result()
        finally:
            for pending in (task, limit):
                pending.cancel()
