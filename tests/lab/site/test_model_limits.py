"""What the proof derives holds in the running platform: picker's thresholds, replicas' queues, the gateway's bound."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import httpx
import pytest

from lab.paths import CHECKOUT
from lab.site import logs
from stacks.plan.settings.definition import Setting
from stacks.plan.site_plan import plan_file
from tests.lab.site.replicas import MODELS, Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import HOLD_S, Streamed, all_arrived, chat, stream
from tests.lab.waiting import PATIENCE_S

pytestmark = pytest.mark.row("001.29", "004.09", "opening 2")

MODEL = "glm-5-1"
REFUSED = 5
# Apart, so that the picker has read of one queue before it fills the next.
APART_S = 0.05


def settings(model: str) -> Mapping[str, Setting]:
    return plan_file(CHECKOUT / "Pulumi.lab.yaml").models[model].stable.settings


@pytest.mark.parametrize("model", ["glm-5-1", "qwen3-32b"])
def test_the_picker_started_with_the_derived_thresholds(site: Site, cluster: Cluster, model: str) -> None:
    derived = settings(model)
    for picker in cluster.pickers(model):
        log = logs.find(site.lab, f"{MODELS}/{picker.name}").read_text()
        entries = [json.loads(line) for line in log.splitlines() if "Creating new UtilizationDetector" in line]
        detectors = {line["logger"].split("/")[0]: line for line in entries}
        assert detectors.keys() == {"utilization-detector", "shedding"}, log[:2000]
        queue = derived["picker_queue_threshold"].value
        assert detectors["utilization-detector"]["queueDepthThreshold"] == queue
        assert detectors["shedding"]["queueDepthThreshold"] == max(1, int(queue) // 2)
        for line in detectors.values():
            assert line["kvCacheUtilThreshold"] == derived["picker_kv_threshold"].value


async def _flood(site: Site, replicas: list[Replica]) -> tuple[list[Streamed], int]:
    """The answers until the gateway refuses, and how many requests the engines hold then; all clients leave."""
    # HTTP/1.1: where many streams share a connection, httpx sees an early answer only after later ones.
    async with site.http_async(HOLD_S) as client:
        tasks: list[asyncio.Task[Streamed]] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while sum(task.done() and task.result().status == 503 for task in tasks) < REFUSED:
                    body = chat(MODEL, f"question {len(tasks)}", tokens=1, stream=True)
                    tasks.append(asyncio.create_task(stream(client, body)))
                    await asyncio.sleep(APART_S)
            return await all_arrived(replicas, tasks)
        finally:
            for task in tasks:
                task.cancel()


def test_the_gateway_refuses_what_the_replicas_could_not_hold(site: Site, cluster: Cluster) -> None:
    """Beyond replicas x (running + waiting) a request is refused, not queued, in OpenAI's form; no other suffers."""

    def serves() -> bool:
        with site.http() as client, suppress(httpx.ConnectError):
            return client.post("/chat/completions", json=chat(MODEL)).status_code == 200
        return False

    # An Envoy that is busy with other tests' streams can miss its readiness probe and be out of its Service.
    until(serves, what="an answer before the flood")
    bound = int(settings(MODEL)["gateway_parallel_requests"].value)
    with cluster.pace(MODEL, prefill_overhead=f"{HOLD_S}s", time_factor_under_load=1.0):
        answers, held = asyncio.run(_flood(site, cluster.ready_replicas(MODEL)))
    statuses = Counter(answer.status for answer in answers)
    refused = [answer for answer in answers if answer.status == 503]
    # None by an engine, also where the picker has filled a queue further than it meant to.
    assert len(refused) == len(answers), statuses
    # A few may slip through between a look and a count.
    assert bound - 5 <= held <= bound + 5, (held, statuses)
    for answer in refused:
        error = json.loads(answer.refusal)["error"]
        assert (error["code"], error["type"]) == ("model_overloaded", "server_error")
        assert MODEL in error["message"]
        assert int(answer.retry_after or 0) > 0

    until(serves, what="an answer after all clients have left")
