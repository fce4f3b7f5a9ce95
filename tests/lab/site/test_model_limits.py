"""What the proof derives holds in the running platform: picker's thresholds, replicas' queues, the gateway's bound."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress

import httpx
import pytest

from lab.paths import CHECKOUT
from lab.site import logs
from stacks.plan.settings.definition import Setting
from stacks.plan.site_plan import plan_file
from tests.lab.site.replicas import MODELS, Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import HOLD_S, Streamed, chat, stream
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


async def _flood(site: Site) -> tuple[list[Streamed], int]:
    """The answers until a request is refused, and how many requests wait or run then; all clients leave."""
    # HTTP/1.1: where many streams share a connection, httpx sees an early answer only after later ones.
    async with site.http_async(HOLD_S) as client:
        tasks: list[asyncio.Task[Streamed]] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while sum(task.done() and task.result().status == 429 for task in tasks) < REFUSED:
                    body = chat(MODEL, f"question {len(tasks)}", tokens=1, stream=True)
                    tasks.append(asyncio.create_task(stream(client, body)))
                    await asyncio.sleep(APART_S)
            answers = [task.result() for task in tasks if task.done()]
            return answers, len(tasks) - len(answers)
        finally:
            for task in tasks:
                task.cancel()


def test_what_the_replicas_could_not_hold_is_refused(site: Site, cluster: Cluster) -> None:
    """Beyond replicas x (running + waiting) a request is refused, not queued, in OpenAI's form; no other suffers.

    Half of those that wait are in the replicas' own queues, and the others in the picker's.
    """

    def serves() -> bool:
        with site.http() as client, suppress(httpx.ConnectError):
            return client.post("/chat/completions", json=chat(MODEL)).status_code == 200
        return False

    # An Envoy that is busy with other tests' streams can miss its readiness probe and be out of its Service.
    until(serves, what="an answer before the flood")
    bound = int(settings(MODEL)["gateway_parallel_requests"].value)
    with cluster.pace(MODEL, prefill_overhead=f"{HOLD_S}s", time_factor_under_load=1.0):
        answers, held = asyncio.run(_flood(site))
    # None by the gateway or an engine, also where the picker has filled a queue further than it meant to.
    assert {answer.status for answer in answers} == {429}
    # A few are let go before the picker reads of a full queue.
    assert bound - 5 <= held <= bound + 10, held
    for answer in answers:
        error = json.loads(answer.refusal)["error"]
        assert (error["code"], error["type"]) == ("rate_limit_exceeded", "rate_limit_error")
        assert "queue at capacity" in error["message"]
        assert int(answer.retry_after or 0) > 0

    until(serves, what="an answer after all clients have left")
