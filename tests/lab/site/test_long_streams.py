"""Streams and silences of more than five minutes, and a rolling update under running streams, all at the same time.

Requirements 000.31, 000.17.

The simulators are slowed down for it: one model to 250 ms a token and 40 ms a prompt token, the other to 400 ms.
The site says beforehand that its gateway lets streams of that length run on: a change of it cuts longer ones.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import Streamed, chat, fresh_prompt, stream

# Beyond the AI gateway's 60 s for a request, the 300 s for a message to the picker, Envoy's 300 s of silence.
TRAP_S = 310
LONG_TOKENS = 1_300
SILENT_PROMPT_TOKENS = 8_200
ROLLED_STREAMS = 20
ROLLED_TOKENS = 100
LONGEST_STREAM_S = 600
_PATIENCE_S = 900


@dataclass(kw_only=True)
class Marathon:
    """What the clients of those minutes saw."""

    long: dict[str, Streamed]
    """By protocol."""
    silent: Streamed
    silent_whole: httpx.Response | httpx.HTTPError
    rolled: list[Streamed]
    """Streams that ran when the update began."""
    during: list[Streamed]
    """Streams that began while it went on."""
    held: dict[str, int] = field(default_factory=dict)
    """Streams that each old replica held when it was told to go."""
    old: set[str]
    new: set[str]


def _patient(document: Document) -> None:
    document["gateway"]["longest_stream_s"] = LONGEST_STREAM_S


@pytest.fixture(scope="module")
def marathon(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Marathon:
    with edited_stack(site.lab, tmp_path_factory.mktemp("stack")) as stack:
        former = {envoy.uid for envoy in cluster.envoys()}
        stack.up(_patient)
        patient = _replaced(cluster, former)
        ran = _paced(site, cluster, stack)
    _replaced(cluster, patient)
    return ran


def _replaced(cluster: Cluster, former: set[str]) -> set[str]:
    """Wait for the Envoy after this one to be alone and ready."""

    def successor() -> set[str]:
        found = cluster.envoys()
        return {envoy.uid for envoy in found if envoy.ready} - former if len(found) == 1 else set()

    return until(successor, timeout_s=LONGEST_STREAM_S + 60, what="another Envoy")


def _paced(site: Site, cluster: Cluster, stack: EditedStack) -> Marathon:
    slow_prefill = cluster.pace(
        "glm-5-1", inter_token_latency="250ms", prefill_time_per_token="40ms", time_factor_under_load=1.0
    )
    slow_tokens = cluster.pace("qwen3-32b", inter_token_latency="400ms", time_factor_under_load=1.0)
    with slow_prefill, slow_tokens:
        return asyncio.run(_run(site, cluster, stack))


async def _run(site: Site, cluster: Cluster, stack: EditedStack) -> Marathon:
    async with (
        site.http_async(_PATIENCE_S) as client,
        site.http_async(_PATIENCE_S, http2=True) as client2,
        asyncio.TaskGroup() as tasks,
    ):
        endless = chat("glm-5-1", tokens=LONG_TOKENS, stream=True)
        long = tasks.create_task(stream(client, endless))
        long2 = tasks.create_task(stream(client2, endless))
        silent = tasks.create_task(
            stream(client, chat("glm-5-1", fresh_prompt(SILENT_PROMPT_TOKENS), tokens=4, stream=True))
        )
        whole = tasks.create_task(_ask(client, chat("glm-5-1", fresh_prompt(SILENT_PROMPT_TOKENS))))
        rolled = tasks.create_task(_roll(cluster, client, stack))
    began, during, held, old, new = rolled.result()
    return Marathon(
        long={"http1": long.result(), "http2": long2.result()},
        silent=silent.result(),
        silent_whole=whole.result(),
        rolled=began,
        during=during,
        held=held,
        old=old,
        new=new,
    )


async def _ask(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response | httpx.HTTPError:
    try:
        return await client.post("/chat/completions", json=body)
    except httpx.HTTPError as error:
        return error


async def _roll(
    cluster: Cluster, client: httpx.AsyncClient, stack: EditedStack
) -> tuple[list[Streamed], list[Streamed], dict[str, int], set[str], set[str]]:
    body = chat("qwen3-32b", tokens=ROLLED_TOKENS, stream=True)
    before = {replica.uid: replica for replica in await asyncio.to_thread(cluster.ready_replicas, "qwen3-32b")}
    held: dict[str, int] = {}

    async def watch() -> None:
        while True:
            staying = {replica.uid for replica in await asyncio.to_thread(cluster.replicas, "qwen3-32b")}
            for uid in before.keys() - staying - held.keys():
                held[uid] = await asyncio.to_thread(before[uid].under_way)
            await asyncio.sleep(0.5)

    def changed(document: Document) -> None:
        _patient(document)
        document["models"]["qwen3-32b"]["server"]["extra_args"] = ["--seed=7"]
        # A new client changes Envoy's own configuration, under streams that know nothing of it.
        document["tenants"]["umbrella"] = {"models": ["qwen3-32b"], "keys": {"laptop": {}}}

    async def arrive(coming: list[asyncio.Task[Streamed]]) -> None:
        while True:
            coming.append(asyncio.create_task(stream(client, body)))
            await asyncio.sleep(2)

    running = [asyncio.create_task(stream(client, body)) for _ in range(ROLLED_STREAMS)]
    coming: list[asyncio.Task[Streamed]] = []
    around = [asyncio.create_task(watch()), asyncio.create_task(arrive(coming))]
    await asyncio.to_thread(stack.up, changed)
    new = {replica.uid for replica in await asyncio.to_thread(cluster.ready_replicas, "qwen3-32b")}
    for task in around:
        task.cancel()
    began = [await task for task in running]
    during = [await task for task in coming]
    # The way back takes as long; the long streams need that time anyway.
    await asyncio.to_thread(stack.up, _patient)
    return began, during, held, set(before), new


@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_a_stream_of_more_than_five_minutes(marathon: Marathon, protocol: str) -> None:
    """Beyond AI gateway's 60 s and Envoy's 300 s: not cut, and every token comes when it is made."""
    answer = marathon.long[protocol]
    assert answer.complete(LONG_TOKENS), (answer.status, answer.tokens, answer.refusal)
    assert answer.seconds > TRAP_S
    assert answer.first_token_s < 30
    assert statistics.median(answer.gaps) == pytest.approx(0.25, rel=0.2)
    together = sum(gap < 0.05 for gap in answer.gaps)
    assert together < LONG_TOKENS / 10, f"{together} tokens came with the one before: something buffers"


def test_a_silent_prefill_of_more_than_five_minutes(marathon: Marathon) -> None:
    """A stream without a byte for longer than any default timeout still gets its answer."""
    answer = marathon.silent
    assert answer.complete(4), (answer.status, answer.seconds, answer.refusal)
    assert answer.first_token_s > TRAP_S


def test_a_whole_answer_after_more_than_five_minutes(marathon: Marathon) -> None:
    """The same when not even response headers come before the end."""
    answer = marathon.silent_whole
    assert isinstance(answer, httpx.Response), repr(answer)
    assert answer.status_code == 200, answer.text
    assert answer.elapsed.total_seconds() > TRAP_S
    assert answer.json()["usage"]["completion_tokens"] == 4


def test_a_rolling_update_replaces_every_replica(marathon: Marathon) -> None:
    """One new argument, a real `pulumi up`; each old replica had streams to lose."""
    assert not marathon.old & marathon.new
    assert marathon.held.keys() == marathon.old
    assert all(marathon.held.values()), marathon.held


def test_a_rolling_update_breaks_no_stream(marathon: Marathon) -> None:
    """Streams of 40 s that were running all end whole."""
    broken = [answer.refusal or answer.tokens for answer in marathon.rolled if not answer.complete(ROLLED_TOKENS)]
    assert len(marathon.rolled) == ROLLED_STREAMS
    assert not broken
    assert min(answer.seconds for answer in marathon.rolled) > 35


def test_a_rolling_update_refuses_no_request(marathon: Marathon) -> None:
    """Whoever comes in the middle of it is served."""
    broken = [answer.refusal or answer.tokens for answer in marathon.during if not answer.complete(ROLLED_TOKENS)]
    assert len(marathon.during) > 10
    assert not broken
