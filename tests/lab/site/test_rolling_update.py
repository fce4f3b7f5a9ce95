"""A rolling update of a model's replicas under running streams: none is cut and no request refused.

The simulators are slowed down to 400 ms a token, so that streams outlive the update of the replica that they are on.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

import pytest
from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import Streamed, chat, stream

pytestmark = pytest.mark.row("000.20", "002.06", "004.23")

MODEL = "qwen3-32b"
STREAMS = 20
TOKENS = 100
TOKEN_MS = 400
_PATIENCE_S = 300


@dataclass(kw_only=True)
class Roll:
    """What the clients saw, and which replicas were there."""

    began: list[Streamed]
    """Streams that ran when the update began."""
    during: list[Streamed]
    """Streams that began while it went on."""
    held: dict[str, int]
    """Streams of each old replica when its termination began."""
    old: set[str]
    new: set[str]


def _changed(document: Document) -> None:
    document["models"][MODEL]["server"]["extra_args"] = ["--seed=7"]
    # A new client changes Envoy's own configuration, under streams that know nothing of it.
    document["tenants"]["umbrella"] = {"models": [MODEL], "keys": {"laptop": {}}}


@pytest.fixture(scope="module")
def roll(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Roll:
    with (
        edited_stack(site.lab, tmp_path_factory.mktemp("stack")) as stack,
        cluster.pace(MODEL, inter_token_latency=f"{TOKEN_MS}ms", time_factor_under_load=1.0),
    ):
        return asyncio.run(_roll(site, cluster, stack))


async def _roll(site: Site, cluster: Cluster, stack: EditedStack) -> Roll:
    body = chat(MODEL, tokens=TOKENS, stream=True)
    before = {replica.uid: replica for replica in await asyncio.to_thread(cluster.ready_replicas, MODEL)}
    held: dict[str, int] = {}
    during: list[asyncio.Task[Streamed]] = []

    async with site.http_async(_PATIENCE_S) as client:

        async def watch() -> None:
            while True:
                with suppress(ApiException, HTTPError):
                    staying = {replica.uid for replica in await asyncio.to_thread(cluster.replicas, MODEL)}
                    for uid in before.keys() - staying - held.keys():
                        held[uid] = await asyncio.to_thread(before[uid].under_way)
                await asyncio.sleep(0.5)

        async def arrive() -> None:
            while True:
                during.append(asyncio.create_task(stream(client, body)))
                await asyncio.sleep(2)

        began = [asyncio.create_task(stream(client, body)) for _ in range(STREAMS)]
        around = [asyncio.create_task(watch()), asyncio.create_task(arrive())]
        await asyncio.to_thread(stack.up, _changed)
        new = {replica.uid for replica in await asyncio.to_thread(cluster.ready_replicas, MODEL)}
        for task in around:
            task.cancel()
        return Roll(
            began=[await task for task in began],
            during=[await task for task in during],
            held=held,
            old=set(before),
            new=new,
        )


def test_a_rolling_update_replaces_every_replica(roll: Roll) -> None:
    """One new argument, a real `pulumi up`; each old replica had streams to lose."""
    assert not roll.old & roll.new
    assert roll.held.keys() == roll.old
    assert all(roll.held.values()), roll.held


def test_a_rolling_update_breaks_no_stream(roll: Roll) -> None:
    """Streams of 40 s that were running all end whole."""
    broken = [answer.refusal or answer.tokens for answer in roll.began if not answer.complete(TOKENS)]
    assert len(roll.began) == STREAMS
    assert not broken
    assert min(answer.seconds for answer in roll.began) > 0.9 * TOKENS * TOKEN_MS / 1000


def test_a_rolling_update_refuses_no_request(roll: Roll) -> None:
    """Requests that come in the middle of it are served."""
    broken = [answer.refusal or answer.tokens for answer in roll.during if not answer.complete(TOKENS)]
    # Two probes, 5 s apart, are in the way of every replica.
    assert len(roll.during) > 3
    assert not broken
