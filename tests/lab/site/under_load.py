"""Requests that arrive at a site while something happens to it, and which of them were not served whole."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace

import httpx

from lab import deploy
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream

# A short one and a stream by turns.
_APART_S = 0.5


@dataclass(kw_only=True)
class Load:
    """What the clients of a model got."""

    model: str
    stream_tokens: int
    key: str | None = None
    """Client whose key is used; None for any."""
    streams: list[Streamed] = field(default_factory=list)
    short: list[httpx.Response | httpx.HTTPError] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def failures(self) -> list[str]:
        """Every request that was not served whole, and of streams when they began, in seconds."""
        broken = [
            f"{stream.started - self.began:.1f} s: {stream.status} {stream.refusal or stream.tokens}"
            for stream in self.streams
            if not stream.complete(self.stream_tokens)
        ]
        for answer in self.short:
            if isinstance(answer, httpx.HTTPError):
                broken.append(f"{type(answer).__name__}: {answer}")
            elif answer.status_code != 200:
                broken.append(f"{answer.status_code} {answer.text}")
        return broken

    async def during(self, site: Site, work: Callable[[], object], *beside: Coroutine[None, None, None]) -> None:
        """Requests arrive until `work` has returned, and then end; `beside` runs as long."""
        # The keys are those of now: a site that was destroyed and made again has others.
        now = replace(site, front=deploy.front(site.lab))
        key = now.front.keys[self.key] if self.key else None
        async with now.http_async(120, key=key) as client:
            under_way: set[asyncio.Task[None]] = set()

            async def arrive() -> None:
                while True:
                    for kind in (self._ask, self._stream):
                        task = asyncio.create_task(kind(client))
                        under_way.add(task)
                        task.add_done_callback(under_way.discard)
                        await asyncio.sleep(_APART_S)

            around = [asyncio.create_task(running) for running in (arrive(), *beside)]
            try:
                await asyncio.to_thread(work)
            finally:
                for task in around:
                    task.cancel()
                await asyncio.gather(*under_way)
            for task in around:
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _ask(self, client: httpx.AsyncClient) -> None:
        try:
            self.short.append(await client.post("/chat/completions", json=chat(self.model)))
        except httpx.HTTPError as error:
            self.short.append(error)

    async def _stream(self, client: httpx.AsyncClient) -> None:
        body = chat(self.model, tokens=self.stream_tokens, stream=True)
        self.streams.append(await stream(client, body))
