"""A full model refuses requests of a tier below 0, serves others, and no client chooses its own tier."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_file
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import HOLD_S, Streamed, all_arrived, chat, stream
from tests.lab.site.test_tenants import listeners
from tests.lab.waiting import PATIENCE_S

pytestmark = pytest.mark.row("002.15", "004.09")

MODEL = "glm-5-1"
SHEDDABLE, OTHER = "globex.batch", "acme.laptop"
OBJECTIVE_HEADERS = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
# Above half of the queue, and below all of it, where the gateway refuses every client.
QUEUED_SHARE = 0.7
# Apart, so that the picker has read of one queue before it fills the next.
APART_S = 0.05
# An admitted request waits in an engine's queue; a refused one gets its answer at once.
REFUSED_WITHIN_S = 10


def backlog() -> int:
    """Requests that fill all replicas, and so much of their queues that what may be shed is refused."""
    model = plan_file(CHECKOUT / "Pulumi.lab.yaml").models[MODEL].stable
    settings = model.settings
    running, queue = int(settings["max_num_seqs"].value), int(settings["picker_queue_threshold"].value)
    return model.spec.server.replicas * (running + round(QUEUED_SHARE * queue))


def test_a_full_model_makes_room_for_those_who_wait(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    """A tenant is put into a tier below 0, which changes no listener, and it is refused from then on."""

    def listed(document: Document) -> None:
        document["tenants"]["globex"]["models"] = [MODEL, "qwen3-32b"]

    def demoted(document: Document) -> None:
        listed(document)
        document["tenants"]["globex"]["tier"] = "batch"

    with edited_stack(site.lab, tmp_path) as stack:
        keys = stack.up(listed).keys
        until(lambda: answers(site, keys[SHEDDABLE]), what="the tenant's new model")
        before = listeners(cluster)
        stack.up(demoted)
        # On a busy machine scrapes are late, so the picker may need a moment to see the room.
        until(lambda: answers(site, keys[SHEDDABLE]), what="an answer while there is room")
        asyncio.run(_with_a_full_model(site, cluster, keys))
        assert listeners(cluster) == before
    until(lambda: answers(site, keys[OTHER]), what="an answer after all clients have left")


def answers(site: Site, key: str) -> bool:
    with site.http(key=key) as client:
        return client.post("/chat/completions", json=chat(MODEL)).status_code == 200


async def _with_a_full_model(site: Site, cluster: Cluster, keys: dict[str, str]) -> None:
    replicas = await asyncio.to_thread(cluster.ready_replicas, MODEL)
    with cluster.pace(MODEL, prefill_overhead=f"{HOLD_S}s", time_factor_under_load=1.0):
        async with AsyncExitStack() as clients:
            others = await clients.enter_async_context(site.http_async(HOLD_S, key=keys[OTHER]))
            sheddable = await clients.enter_async_context(site.http_async(REFUSED_WITHIN_S, key=keys[SHEDDABLE]))
            held = await _filled(others, replicas)

            # The picker reads of queues and of tiers in its own time.
            async with asyncio.timeout(PATIENCE_S):
                while (answer := await stream(sheddable, chat(MODEL, stream=True))).status != 429:
                    pass
            _refused(answer)
            for name in OBJECTIVE_HEADERS:
                claim = {name: f"interactive.{MODEL}"}
                _refused(await stream(sheddable, chat(MODEL, stream=True), claim))

            # Nor does a claim take anything away from the one who makes it.
            claims = [None, *({name: f"batch.{MODEL}"} for name in OBJECTIVE_HEADERS)]
            late = [asyncio.create_task(stream(others, chat(MODEL, tokens=1, stream=True), claim)) for claim in claims]
            assert (await all_arrived(replicas, [*held, *late]))[0] == []
            for task in (*held, *late):
                task.cancel()


async def _filled(client: httpx.AsyncClient, replicas: list[Replica]) -> list[asyncio.Task[Streamed]]:
    """Requests that the engines hold."""
    held: list[asyncio.Task[Streamed]] = []
    for number in range(backlog()):
        body = chat(MODEL, f"question {number}", tokens=1, stream=True)
        held.append(asyncio.create_task(stream(client, body)))
        await asyncio.sleep(APART_S)
    assert (await all_arrived(replicas, held))[0] == []
    return held


def _refused(answer: Streamed) -> None:
    assert answer.status == 429, answer
    error = json.loads(answer.refusal)["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "sheddable" in error["message"]
    assert int(answer.retry_after or 0) > 0
