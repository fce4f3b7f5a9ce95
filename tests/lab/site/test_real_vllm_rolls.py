"""A rolling update of real engines under load: no stream is cut, none is refused."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from lab.vllm_cpu.site import HELD, MODEL
from tests.lab.site.replicas import Cluster, under_way, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import Streamed, chat, fresh_prompt, stream

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.20", "002.06", "004.23")]

# What one replica holds: while the other is replaced, all streams are its own.
CLIENTS = HELD - 2
TOKENS = 1000
_PATIENCE_S = 600


def _changed(document: Document) -> None:
    document["models"][MODEL]["server"]["extra_args"] = ["--seed=7"]


def test_a_rolling_update_of_real_engines_breaks_no_stream(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    before = {replica.uid: replica for replica in cluster.ready_replicas(MODEL)}
    answers: list[Streamed] = []
    # Streams of each replica: when it last answered, and then when its termination was seen.
    running: dict[str, int] = {}
    held: dict[str, int] = {}

    async def scenario(stack: EditedStack) -> None:
        rolled = asyncio.Event()
        async with site.http_async(_PATIENCE_S) as client:

            async def ask(number: int) -> None:
                # One by one: of requests that come together, the picker knows no replica's load.
                await asyncio.sleep(number)
                while not rolled.is_set():
                    body = chat(MODEL, fresh_prompt(50), tokens=TOKENS, stream=True)
                    answers.append(await stream(client, {**body, "stream_options": {"include_usage": True}}))

            async def watch() -> None:
                while not rolled.is_set():
                    # Two engines that start leave an API server little of two cores.
                    with suppress(ApiException, HTTPError):
                        for uid in before.keys() - held.keys():
                            # One that drains has closed its port and says nothing of the streams that it still has.
                            if counts := await asyncio.to_thread(before[uid].counts):
                                running[uid] = under_way(counts)
                        staying = {replica.uid for replica in await asyncio.to_thread(cluster.replicas, MODEL)}
                        held.update({uid: running[uid] for uid in before.keys() - staying - held.keys()})
                    await asyncio.sleep(0.5)

            async def roll() -> None:
                try:
                    await asyncio.to_thread(until, lambda: all(map(running.get, before)), what="streams at both")
                    await asyncio.to_thread(stack.up, _changed)
                finally:
                    rolled.set()

            await asyncio.gather(roll(), watch(), *(ask(number) for number in range(CLIENTS)))

    with edited_stack(site.lab, tmp_path) as stack:
        asyncio.run(scenario(stack))
    after = {replica.uid for replica in cluster.ready_replicas(MODEL)}
    assert not after & before.keys()
    assert held.keys() == before.keys()
    # One of the two may just have answered all that it had.
    assert any(held.values()), f"both replicas were stopped without a stream: {held}"
    broken = [answer for answer in answers if not (answer.status == 200 and answer.done and not answer.refusal)]
    assert not broken
    assert {(answer.usage or {}).get("completion_tokens") for answer in answers} == {TOKENS}
