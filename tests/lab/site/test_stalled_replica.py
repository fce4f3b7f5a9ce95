"""A replica that hangs while its health answers is restarted, and one under ordinary traffic is not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import httpx
import pytest

from stacks.plan.site_plan import plan_file
from tests.lab.site.measured import Prometheus
from tests.lab.site.replicas import Cluster, Replica, set_pace, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, fresh_prompt, stream
from tests.lab.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.row("002.11", "002.09")

MODEL = "qwen3-32b"
# More than its replicas have, so that some reach each of them.
ASKED = 16
# Of a stream that is begun before its engine hangs; it ends within seconds otherwise.
TOKENS = 40


@dataclass(frozen=True, kw_only=True)
class Stalled:
    """What became of a replica that hung, and of what it was asked."""

    before: Replica
    after: Replica
    streams: list[Streamed]
    whole: list[httpx.Response]
    health: int
    """While it hung."""
    others: list[int]
    """Statuses of what was asked after that."""


async def _ask(site: Site, cluster: Cluster, frozen: Replica) -> Stalled:
    """Until it was restarted: streams that have begun there, whole answers, and what others are asked meanwhile."""
    others: list[int] = []
    async with site.http_async(PATIENCE_S) as client, asyncio.TaskGroup() as tasks:
        streams = [Streamed() for _ in range(ASKED)]
        whole = []
        for answer in streams:
            tasks.create_task(stream(client, chat(MODEL, fresh_prompt(10), tokens=TOKENS, stream=True), answer=answer))
            whole.append(tasks.create_task(client.post("/chat/completions", json=chat(MODEL, fresh_prompt(10)))))
        while frozen.under_way() < 2:
            await asyncio.sleep(0.1)
        health = (await asyncio.to_thread(httpx.get, f"{frozen.url}/health/ready", trust_env=False)).status_code

        async def restarted() -> Replica | None:
            (now,) = [
                replica for replica in await asyncio.to_thread(cluster.replicas, MODEL) if replica.uid == frozen.uid
            ]
            return now if now.restarts > frozen.restarts and now.ready else None

        deadline = time.monotonic() + PATIENCE_S
        while not (after := await restarted()):
            assert time.monotonic() < deadline, "it was not restarted"
            await asyncio.sleep(0.5)
        for _ in range(ASKED):
            others.append((await client.post("/chat/completions", json=chat(MODEL, fresh_prompt(10)))).status_code)
    return Stalled(
        before=frozen,
        after=after,
        streams=streams,
        whole=[task.result() for task in whole],
        health=health,
        others=others,
    )


@pytest.fixture(scope="module")
def stalled(site: Site, cluster: Cluster) -> Stalled:
    """One replica's simulator takes an hour between two tokens, of every request from now on."""
    frozen, _ = cluster.ready_replicas(MODEL)
    set_pace(frozen, {"inter-token-latency": "1h"})
    return asyncio.run(_ask(site, cluster, frozen))


def restarts(cluster: Cluster) -> dict[str, int]:
    return {replica.uid: replica.restarts for replica in cluster.replicas(MODEL)}


async def _ordinary(site: Site, seconds: float) -> int:
    """Streams, whole answers and pauses by turns; how many were asked. Raises for any that failed."""
    asked, until_s = 0, time.monotonic() + seconds
    async with site.http_async(PATIENCE_S) as client:
        while asked == 0 or time.monotonic() < until_s:
            streams = [
                stream(client, chat(MODEL, fresh_prompt(2000), tokens=TOKENS, stream=True)) for _ in range(ASKED)
            ]
            assert all(answer.complete(TOKENS) for answer in await asyncio.gather(*streams))
            (await client.post("/chat/completions", json=chat(MODEL, fresh_prompt(10)))).raise_for_status()
            asked += ASKED + 1
            await asyncio.sleep(asked % 5)
    return asked


@pytest.mark.exhaustive
@pytest.mark.parametrize("seconds", [60, 3600])
def test_ordinary_traffic_restarts_no_replica(site: Site, cluster: Cluster, seconds: int) -> None:
    before = restarts(cluster)
    assert asyncio.run(_ordinary(site, seconds))
    assert restarts(cluster) == before


def test_a_replica_that_hangs_is_restarted_while_its_health_answers(site: Site, stalled: Stalled) -> None:
    assert stalled.health == 200
    assert stalled.after.restarts == stalled.before.restarts + 1
    assert set(stalled.others) == {200}
    folder = next((site.lab.logs / "pods").glob(f"*_{stalled.before.name}_*")) / "liveness"
    written = "".join(path.read_text() for path in sorted(folder.iterdir()))
    (line,) = [line for line in written.splitlines() if "is to be restarted: no step for " in line]
    stood_s = int(line.partition("no step for ")[2].split()[0])
    assert stood_s >= plan_file(site.lab.site_file).models[MODEL].stable.engine.stall_s


def test_its_requests_end_with_an_error_that_clients_may_repeat(stalled: Stalled) -> None:
    """Streams break, as nothing can be taken back of them; a whole answer is an error of the server."""
    broken = [answer for answer in stalled.streams if not answer.complete(TOKENS)]
    assert broken, "no stream was at the replica that hung"
    for answer in broken:
        assert not answer.done
        assert answer.refusal
        assert "ReadTimeout" not in answer.refusal, "the client was left waiting"
    failed = [answer for answer in stalled.whole if answer.status_code != 200]
    assert failed, "no whole answer was asked of it"
    for response in failed:
        assert response.status_code in (502, 503), response.text
        assert response.json()["error"]["type"] == "server_error"


def test_the_platform_reports_it(cluster: Cluster, stalled: Stalled) -> None:
    prometheus = Prometheus(cluster)
    alarm = 'ALERTS{alertname="ReplicaStalled", alertstate="firing"}'
    fired = until(lambda: prometheus.query(f"max_over_time({alarm}[10m])"), what="the alert")
    assert {sample["metric"]["pod"] for sample in fired} == {stalled.before.name}
    events = eventually(lambda: cluster.core.list_namespaced_event("inference-models").items)
    killed = [
        event for event in events if event.reason == "Killing" and event.involved_object.name == stalled.before.name
    ]
    assert any("failed liveness probe" in event.message for event in killed)
