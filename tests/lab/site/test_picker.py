"""The picker's choice is real: prefixes stay where they are cached, and an engine that is gone gets nothing more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import httpx
import pytest

from tests.lab.site.replicas import MODELS, Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, fresh_prompt, stream
from tests.lab.site.test_answers import error_of
from tests.lab.waiting import PATIENCE_S

pytestmark = pytest.mark.row("000.25", "000.26", "000.27", "001.11")

ENGINE = "llm-d-inference"  # as the kernel cuts the program's name
PICKER = "epp"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
# From a status that says so to the last request that may still be sent there: the picker watches the status.
NOTICE_S = 5
PREFIX_TOKENS, TURNS = 3_000, 4


def served(replicas: list[Replica]) -> dict[str, int]:
    return {replica.name: replica.served() for replica in replicas}


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - count for name, count in before.items() if after[name] > count}


def counted_turns(replicas: list[Replica], before: dict[str, int]) -> dict[str, int]:
    """Turns by replica, once all are counted: a simulator does it a moment after it has answered."""
    turns = grown(before, served(replicas))
    return turns if sum(turns.values()) >= TURNS else {}


def test_one_prefix_one_replica(site: Site, cluster: Cluster) -> None:
    """Every turn after the first finds its prefix in the cache; prefixes spread over the replicas."""
    model = "glm-5-1"
    replicas = cluster.ready_replicas(model)
    homes: list[str] = []
    with site.http() as client:
        # A fresh prefix goes to either of two idle replicas.
        while len(homes) < 10 or (len(set(homes)) < len(replicas) and len(homes) < 60):
            prefix, before = fresh_prompt(PREFIX_TOKENS), served(replicas)
            for turn in range(TURNS):
                body = chat(model, f"{prefix} turn {turn}")
                usage = client.post("/chat/completions", json=body).raise_for_status().json()["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                if turn:
                    assert cached > 0.95 * usage["prompt_tokens"], f"turn {turn} went elsewhere"
                else:
                    assert cached < 0.05 * usage["prompt_tokens"]
            (home,) = until(partial(counted_turns, replicas, before), what="each turn counted")
            homes.append(home)
    assert set(homes) == {replica.name for replica in replicas}, f"all prefixes went to {homes[0]}"


@dataclass(kw_only=True)
class Traffic:
    """A steady flow of short streams, and what became of each."""

    answers: list[Streamed] = field(default_factory=list)

    def broken(self, after: float = 0.0) -> list[Streamed]:
        """Those that began after that moment and did not come whole."""
        return [
            answer for answer in self.answers if answer.started > after and not (answer.status == 200 and answer.done)
        ]


@contextlib.asynccontextmanager
async def traffic(site: Site, model: str, *, tokens: int, pause_s: float = 0.25) -> AsyncIterator[Traffic]:
    """A new stream every `pause_s`; on leaving, all have ended."""
    flow = Traffic()
    tasks: list[asyncio.Task[None]] = []

    async with site.http_async(120) as client:

        async def ask() -> None:
            flow.answers.append(await stream(client, chat(model, fresh_prompt(20), tokens=tokens, stream=True)))

        async def go_on() -> None:
            while True:
                tasks.append(asyncio.create_task(ask()))
                await asyncio.sleep(pause_s)

        source = asyncio.create_task(go_on())
        try:
            yield flow
        finally:
            source.cancel()
            await asyncio.gather(*tasks)


async def gets_traffic(replica: Callable[[], Replica | None]) -> Replica:
    """Wait until the replica has answered something."""

    def answered() -> Replica | None:
        there = replica()
        return there if there and there.served() > 0 else None

    return await asyncio.to_thread(until, answered, what="a replica that gets traffic again")


def test_killed_engine(site: Site, cluster: Cluster) -> None:
    """SIGKILL. What it was working on is lost; soon nothing is sent there; it comes back by itself."""
    model = "qwen3-32b"
    victim = cluster.ready_replicas(model)[0]

    async def run() -> tuple[Traffic, float, float]:
        async with traffic(site, model, tokens=30) as flow:
            await asyncio.sleep(3)
            killed = await asyncio.to_thread(cluster.kill, victim, ENGINE)

            def noticed() -> bool:
                same = [replica for replica in cluster.replicas(model) if replica.uid == victim.uid]
                return bool(same) and (not same[0].ready or same[0].restarts > victim.restarts)

            await asyncio.to_thread(until, noticed, what="a replica that is not ready")
            known = time.monotonic()

            def again() -> Replica | None:
                same = [replica for replica in cluster.replicas(model) if replica.uid == victim.uid]
                return same[0] if same and same[0].restarts > victim.restarts and same[0].ready else None

            # The counters of the new process begin at nothing.
            await gets_traffic(again)
            # It may be back before the time is over in which requests may still be sent to it.
            await asyncio.sleep(max(0.0, known + NOTICE_S + 2 - time.monotonic()))
            return flow, killed, known

    flow, killed, known = asyncio.run(run())
    late = flow.broken(after=known + NOTICE_S)
    assert not late, [(answer.status, answer.refusal, answer.started - known) for answer in late]
    assert [answer for answer in flow.answers if answer.started > known + NOTICE_S]
    assert not [answer for answer in flow.broken() if answer.ended < killed]


def test_deleted_replica(site: Site, cluster: Cluster) -> None:
    """A pod that is deleted loses nothing, gets nothing new, and its successor takes its share."""
    model = "qwen3-32b"
    victim, other = cluster.ready_replicas(model)

    async def run() -> Traffic:
        async with traffic(site, model, tokens=150) as flow:
            await asyncio.sleep(3)
            await asyncio.to_thread(cluster.core.delete_namespaced_pod, victim.name, MODELS)
            await asyncio.sleep(NOTICE_S)
            # A request counts when it ends.
            await asyncio.to_thread(until, lambda: not victim.under_way(), what="the end of its streams")
            seen = victim.counts().get(PROMPT_TOKENS)
            assert seen is not None, "the deleted pod did not wait for its streams"
            await asyncio.sleep(5)
            assert victim.counts().get(PROMPT_TOKENS) == seen, "new prompts reached the deleted pod"

            def successor() -> Replica | None:
                new = [
                    replica
                    for replica in cluster.replicas(model)
                    if replica.uid not in {victim.uid, other.uid} and replica.ready
                ]
                return new[0] if new else None

            await gets_traffic(successor)
        return flow

    flow = asyncio.run(run())
    assert len(flow.answers) > 20
    assert not flow.broken(), [(answer.status, answer.refusal) for answer in flow.broken()]


def refused(answers: list[httpx.Response]) -> list[httpx.Response]:
    return [answer for answer in answers if answer.status_code != 200]


def _outage(site: Site, cluster: Cluster, model: str, victim: Replica) -> list[httpx.Response]:
    """Answers from the picker's death on: it is kept dead until one is refused, and the last ten are good."""

    async def run() -> list[httpx.Response]:
        answers: list[httpx.Response] = []
        async with site.http_async(30) as client:

            def ask() -> Awaitable[httpx.Response]:
                return client.post("/chat/completions", json=chat(model))

            killed = await asyncio.to_thread(cluster.kill, victim, PICKER)
            while not refused(answers) or refused(answers[-10:]):
                assert time.monotonic() < killed + PATIENCE_S, f"still {answers[-1].status_code}: {answers[-1].text}"
                if not refused(answers):
                    # The first restart is at once, and may be over before Envoy gives up.
                    await asyncio.to_thread(cluster.keep_dead, victim, PICKER)
                answers.append(await ask())
                await asyncio.sleep(0.2)
        return answers

    return asyncio.run(run())


def test_killed_picker(site: Site, cluster: Cluster) -> None:
    """Without a picker nothing is served, the client gets an error in OpenAI's form, and the outage ends by itself."""
    model = "qwen3-32b"
    picker = until(
        lambda: next((picker for picker in cluster.pickers(model) if picker.ready and not picker.leaving), None),
        what="a ready picker",
    )
    for answer in refused(_outage(site, cluster, model, picker)):
        assert answer.status_code in {500, 503}, answer.text
        assert error_of(answer)["type"] == "server_error"
        assert error_of(answer)["message"]
