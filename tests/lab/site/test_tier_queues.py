"""In front of a full model each tier waits in a queue of its own, and tenants take turns in it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from lab.paths import CHECKOUT
from lab.site import logs
from stacks.plan.models import RevisionPlan
from stacks.plan.site_plan import plan_values
from tests.lab.site.picker_queues import queued, saturated
from tests.lab.site.replicas import ENVOYS, MODELS, Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import KEY, Document, edited_stack
from tests.lab.site.streams import HOLD_S, Streamed, chat, stream
from tests.lab.site.test_tenants import listeners

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("002.15", "001.02", "004.16", "004.22", "001.01", "004.09")]

MODEL = "glm-5-1"
JOBS, OTHER = "globex.batch", "acme.laptop"
GREEDY, SMALL = "hooli.one", ("initech.one", "umbrella.one")
GREEDY_ASKS, SMALL_ASK, TOO_MANY_JOBS = 20, 4, 5
OBJECTIVE_HEADERS = ("x-gateway-inference-objective", "x-llm-d-inference-objective")
FAIRNESS_HEADER = "x-gateway-inference-fairness-id"
# Apart, so that the picker has read of one queue before it fills the next.
APART_S = 0.05
# What the picker lets go within a millisecond of each other may be in another order in its log.
NEIGHBOURS = 4


def revision() -> RevisionPlan:
    document = yaml.safe_load((CHECKOUT / "Pulumi.lab.yaml").read_text())
    document["config"][KEY]["models"][MODEL]["pool"]["queues"] = True
    return plan_values(document["config"][KEY], "Pulumi.lab.yaml").models[MODEL].stable


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen of a model that is full, and of the moment in which it has room again."""

    kept_its_listeners: bool
    queued: Counter[str]
    """Waiting requests by tenant while the model is full."""
    refused: list[Streamed]
    """Jobs beyond what their queue holds, without and with claims of their own."""
    order: list[str]
    """Whose requests the picker let go, one after the other, when there was room."""


@pytest.fixture(scope="module")
def seen(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    def listed(document: Document) -> None:
        document["models"][MODEL]["pool"]["queues"] = True
        document["tenants"]["globex"]["models"] = [MODEL, "qwen3-32b"]
        for client in (GREEDY, *SMALL):
            tenant, _, key = client.partition(".")
            document["tenants"][tenant] = {"models": [MODEL], "tier": "interactive", "keys": {key: {}}}

    def demoted(document: Document) -> None:
        listed(document)
        document["tenants"]["globex"]["tier"] = "batch"

    with edited_stack(site.lab, tmp_path_factory.mktemp("tiers")) as stack:
        keys = stack.up(listed).keys
        until(lambda: answers(site, keys[JOBS]), what="the tenant's new model")
        before = listeners(cluster)
        stack.up(demoted)
        for client in (JOBS, GREEDY, *SMALL):
            until(lambda key=keys[client]: answers(site, key), what="an answer while there is room")  # type: ignore[misc]
        until(lambda: len(cluster.pickers(MODEL)) == 1, what="the end of the picker without queues")
        seen = asyncio.run(_with_a_full_model(site, cluster, keys))
        kept = listeners(cluster) == before
        until(lambda: answers(site, keys[OTHER]), what="an answer after all clients have left")
        order = seen.pop("order")
        # Envoy writes its log some seconds late.
        clients = until(lambda: _known(order, _clients(site, cluster)), what="all requests in the gateway's log")
        yield Seen(kept_its_listeners=kept, order=[clients[request_id] for request_id in order], **seen)


def _known(order: list[str], clients: dict[str, str]) -> dict[str, str] | None:
    return clients if clients.keys() >= set(order) else None


def answers(site: Site, key: str) -> bool:
    with site.http(key=key) as client:
        return client.post("/chat/completions", json=chat(MODEL)).status_code == 200


async def _with_a_full_model(site: Site, cluster: Cluster, keys: dict[str, str]) -> dict[str, Any]:
    replicas = len(await asyncio.to_thread(cluster.ready_replicas, MODEL))
    (picker,) = await asyncio.to_thread(cluster.pickers, MODEL)
    plan = revision()
    room = plan.picker.bands[-1].requests
    with cluster.pace(MODEL, prefill_overhead=f"{HOLD_S}s", time_factor_under_load=1.0):
        async with AsyncExitStack() as stack:
            clients = {
                name: await stack.enter_async_context(site.http_async(HOLD_S, key=keys[name]))
                for name in (OTHER, JOBS, GREEDY, *SMALL)
            }
            full = replicas * (plan.server.max_num_seqs + plan.picker.shedding_queue_threshold)
            first = await _asked(clients[OTHER], full)
            await _until(lambda: saturated(cluster, MODEL), what="a full model")

            jobs = await _asked(clients[JOBS], room + TOO_MANY_JOBS)
            await _until(lambda: queued(cluster, MODEL)["globex"] == room, what="a full queue of jobs")
            refused = [job.result() for job in jobs if job.done()]
            claims = [{name: f"interactive.{MODEL}"} for name in OBJECTIVE_HEADERS]
            for claim in (*claims, {FAIRNESS_HEADER: "initech"}):
                refused.append(await stream(clients[JOBS], chat(MODEL, stream=True), claim))

            later = await _asked(clients[GREEDY], GREEDY_ASKS)
            for name in SMALL:
                later += await _asked(clients[name], SMALL_ASK)
            asked = GREEDY_ASKS + len(SMALL) * SMALL_ASK
            await _until(
                lambda: queued(cluster, MODEL).total() - queued(cluster, MODEL)["acme"] == room + asked,
                what="all who wait",
            )
            waiting = await asyncio.to_thread(queued, cluster, MODEL)

            before = len(await asyncio.to_thread(_let_go, site, picker))
            for task in first:
                task.cancel()
            held = [task for task in (*jobs, *later) if not task.done()]
            await _until(lambda: not queued(cluster, MODEL), what="room for all who wait")
            await _until(lambda: len(_let_go(site, picker)) >= before + len(held), what="the picker's log")
            order = await asyncio.to_thread(_let_go, site, picker)
            for task in held:
                task.cancel()
    # What is left of those who fill the model.
    del waiting["acme"]
    return {"queued": waiting, "refused": refused, "order": order[before:]}


async def _asked(client: httpx.AsyncClient, count: int) -> list[asyncio.Task[Streamed]]:
    asked: list[asyncio.Task[Streamed]] = []
    for number in range(count):
        body = chat(MODEL, f"question {number}", tokens=1, stream=True)
        asked.append(asyncio.create_task(stream(client, body)))
        await asyncio.sleep(APART_S)
    return asked


async def _until(holds: object, *, what: str) -> None:
    await asyncio.to_thread(until, holds, what=what)  # type: ignore[arg-type]


def _let_go(site: Site, picker: Replica) -> list[str]:
    """Ids of the requests that a picker has let go, in their order."""
    lines = logs.find(site.lab, f"{MODELS}/{picker.name}").read_text().splitlines()
    return [json.loads(line)["x-request-id"] for line in lines if "EPP sent request body response(s)" in line]


def _clients(site: Site, cluster: Cluster) -> dict[str, str]:
    """Request id -> client, by the gateway's log."""
    (envoy,) = cluster.envoys()
    lines = logs.find(site.lab, f"{ENVOYS}/{envoy.name}/envoy").read_text().splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{") and '"x-request-id"' in line]
    return {entry["x-request-id"]: entry["client"] for entry in entries}


def test_a_tenant_gets_a_tier_without_a_new_listener(seen: Seen) -> None:
    assert seen.kept_its_listeners


def test_jobs_wait_and_beyond_their_queue_are_refused(seen: Seen) -> None:
    assert seen.queued["globex"] == revision().picker.bands[-1].requests
    assert len(seen.refused) == TOO_MANY_JOBS + len(OBJECTIVE_HEADERS) + 1
    for answer in seen.refused:
        assert answer.status == 429, answer
        error = json.loads(answer.refusal)["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert "queue at capacity" in error["message"]
        assert int(answer.retry_after or 0) > 0


def test_a_tenant_waits_under_its_own_name(seen: Seen) -> None:
    """Not under that of its key: many keys would be many turns. A full queue of jobs takes no room from others."""
    small = dict.fromkeys((client.partition(".")[0] for client in SMALL), SMALL_ASK)
    jobs = revision().picker.bands[-1].requests
    assert dict(seen.queued) == {"globex": jobs, "hooli": GREEDY_ASKS, **small}


def test_who_waits_for_an_answer_goes_before_jobs_that_came_earlier(seen: Seen) -> None:
    answered = GREEDY_ASKS + len(SMALL) * SMALL_ASK
    assert Counter(seen.order)[JOBS] == seen.queued["globex"]
    late = [client for client in seen.order[:answered] if client == JOBS]
    assert len(late) <= NEIGHBOURS, seen.order


def test_a_greedy_tenant_takes_no_more_turns_than_a_small_one(seen: Seen) -> None:
    """It came first with all of its requests; in one queue all of them would go before the others'."""
    last = max(place for place, client in enumerate(seen.order) if client in SMALL)
    assert last < (1 + len(SMALL)) * SMALL_ASK + NEIGHBOURS, seen.order
