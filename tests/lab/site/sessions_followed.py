"""Sessions whose requests name themselves, and which revision each of their requests was sent to, by Envoy's log."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream
from tests.lab.site.test_request_log import lines_with

_APART_S = 0.08
_STREAM_EVERY = 25


def takes_the_canary(revision: str, tenant: str, session: str, percent: int) -> bool:
    """What the gatekeeper decides for a session that a client names (services/gatekeeper/canary.go)."""
    hashed = hashlib.sha256()
    for part in (revision, tenant, "session", session):
        hashed.update(len(part.encode()).to_bytes(8, "big") + part.encode())
    return int.from_bytes(hashed.digest()[:8], "big") % 100 < percent


@dataclass(kw_only=True)
class Followed:
    """Requests of the same sessions, one after the other, of each model; every so many of them a stream."""

    site: Site
    key: str
    models: Sequence[str]
    sessions: Sequence[str]
    stream_tokens: int
    phase: str = "begin"
    """Part of the mark of each request that begins now."""
    streams: list[Streamed] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    sent: int = 0
    known: dict[str, Answered] = field(default_factory=dict)
    """By number, as far as Envoy's log was read."""

    @asynccontextmanager
    async def all_the_time(self) -> AsyncIterator[None]:
        """Requests come until the end of the block, and then all of them end."""
        async with self.site.http_async(120, key=self.site.front.keys[self.key]) as client:
            under_way: set[asyncio.Task[None]] = set()

            async def arrive() -> None:
                turns = itertools.cycle(itertools.product(self.sessions, self.models))
                for number, (session, model) in enumerate(turns):
                    task = asyncio.create_task(self._ask(client, model, session, stream_=number % _STREAM_EVERY == 0))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    await asyncio.sleep(_APART_S)

            arriving = asyncio.create_task(arrive())
            try:
                yield
            finally:
                arriving.cancel()
                await asyncio.gather(*under_way)

    async def once(self, model: str, sessions: Sequence[str], parallel: int = 16) -> None:
        """One request of each session."""
        async with self.site.http_async(120, key=self.site.front.keys[self.key]) as client:
            room = asyncio.Semaphore(parallel)

            async def ask(session: str) -> None:
                async with room:
                    await self._ask(client, model, session)

            await asyncio.gather(*(ask(session) for session in sessions))

    async def _ask(self, client: httpx.AsyncClient, model: str, session: str, *, stream_: bool = False) -> None:
        self.sent += 1
        headers = {"user-agent": f"followed/{self.phase}/{model}/{session}/{self.sent}"}
        body = {**chat(model, tokens=self.stream_tokens if stream_ else 1, stream=stream_), "prompt_cache_key": session}
        if stream_:
            self.streams.append(await stream(client, body, headers))
            if not self.streams[-1].complete(self.stream_tokens):
                self.failed.append(f"{headers['user-agent']} {self.streams[-1].status} {self.streams[-1].refusal}")
            return
        try:
            answer = await client.post("/chat/completions", json=body, headers=headers)
        except httpx.HTTPError as error:
            self.failed.append(f"{headers['user-agent']} {type(error).__name__}: {error}")
            return
        if answer.status_code != 200:
            self.failed.append(f"{headers['user-agent']} {answer.status_code} {answer.text}")

    def read(self) -> None:
        """What Envoy has logged so far; its log keeps the last tens of thousands of lines."""
        for line in lines_with(self.site, '"followed/'):
            _, phase, model, session, number = line["user-agent"].split("/")
            # A request that no route took is among those that failed.
            _, _, route, *_ = (line["upstream_cluster"] or "//").split("/")
            self.known[number] = Answered(phase=phase, model=model, session=session, by=route, start=line["start_time"])

    def all_answered(self) -> list[Answered]:
        """Every request in the order of their starts, once Envoy has logged all of them; empty before."""
        self.read()
        answers = sorted(self.known.values(), key=lambda answer: answer.start)
        return answers if len(answers) == self.sent else []


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A request, and the revision that it was sent to."""

    phase: str
    model: str
    session: str
    by: str
    start: str
    """ISO 8601, to the millisecond."""
