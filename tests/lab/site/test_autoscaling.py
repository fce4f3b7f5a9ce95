"""Replicas that follow the load on a running site: KEDA asks its Prometheus, and Kubernetes' autoscaler sets a number.

KEDA's operator and adapter, the autoscaler and Prometheus are real programs. A replica stays for minutes after it is
needed; the test shortens that on the cluster.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.lab.site.added_charts import keda_chart
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import MODELS, Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import Streamed, chat, stream

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("001.24", "002.06", "004.23")]

MODEL = "qwen3-32b"
LEAST, MOST = 2, 4
# A replica is to hold 37, so these are for four.
CLIENTS = 150
TOKENS = 40
# A token a second: on a loaded machine the clients' own work must be no part of a request's time.
SLOWLY: dict[str, str | float] = {"inter_token_latency": "1s", "time_factor_under_load": 1.0}
_WINDOW_S = 15
_PATIENCE_S = 240


def scales(site: Document) -> None:
    site["models"][MODEL]["server"] |= {"replicas": MOST, "scaling": {"least": LEAST}}


@dataclass(kw_only=True)
class Walk:
    """What was seen, step by step."""

    fixed: set[str]
    """Replicas before the site had a range."""
    began: set[str] = field(default_factory=set)
    """Once it had one."""
    busy: set[str] = field(default_factory=set)
    after_up: set[str] = field(default_factory=set)
    """After another `up` while the load went on."""
    unanswered: int = 0
    """After the load, without an answer of Prometheus, for longer than a replica would stay."""
    idle: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    """Once the site had a number again."""
    streams: list[Streamed] = field(default_factory=list)


@pytest.fixture(scope="module")
def walk(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    walked = Walk(fixed=uids(cluster, LEAST))
    with keda_chart(), edited_stack(site.lab, tmp_path_factory.mktemp("scaling")) as stack:
        stack.up(scales)
        walked.began = uids(cluster, LEAST)
        until(lambda: condition(site, "hpa", f"keda-hpa-{MODEL}", "ScalingActive") == "True", what="an answer")
        with cluster.pace(MODEL, **SLOWLY):
            asyncio.run(_under_load(site, cluster, stack, walked))
    walked.ended = uids(cluster, LEAST)
    yield walked


async def _under_load(site: Site, cluster: Cluster, stack: EditedStack, walked: Walk) -> None:
    """Clients stream one answer after the other until all replicas are there, and few of them go on to the end."""
    wanted = CLIENTS
    async with site.http_async(120) as client:

        async def ask(number: int) -> None:
            while number < wanted:
                walked.streams.append(await stream(client, chat(MODEL, tokens=TOKENS, stream=True)))

        clients = [asyncio.create_task(ask(number)) for number in range(CLIENTS)]
        try:
            walked.busy = await asyncio.to_thread(uids, cluster, MOST)
            await asyncio.to_thread(stack.up, scales)
            walked.after_up = await asyncio.to_thread(uids, cluster, MOST)
            triggers = await asyncio.to_thread(ask_of_no_model, site)
            await asyncio.to_thread(until, partial(falls_back, site), what="a number that stays")
            await asyncio.to_thread(shorten, site)
            wanted = LEAST
            # A replica that would go is gone by then; that none goes shows in no other way.
            await asyncio.sleep(4 * _WINDOW_S)
            walked.unanswered = len(await asyncio.to_thread(cluster.replicas, MODEL))
            await asyncio.to_thread(patch, site, triggers)
            walked.idle = await asyncio.to_thread(uids, cluster, LEAST)
        finally:
            wanted = 0
            await asyncio.gather(*clients)


def uids(cluster: Cluster, count: int) -> set[str]:
    """The model's replicas, once so many are ready and no other one is."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        ready = {replica.uid for replica in cluster.replicas(MODEL) if replica.ready}
        if len(ready) == count:
            return ready
        assert time.monotonic() < deadline, f"{len(ready)} ready replicas, not {count}"
        # The clients run in this process, and each list of pods takes of their time.
        time.sleep(0.5)


def condition(site: Site, kind: str, name: str, condition_type: str) -> str:
    """Status of a condition; empty while there is none."""
    body = json.loads(kubectl(site.lab, "get", "-n", MODELS, kind, name, "-o", "json"))
    conditions = body.get("status", {}).get("conditions", [])
    return next((entry["status"] for entry in conditions if entry["type"] == condition_type), "")


def falls_back(site: Site) -> bool:
    """Whether KEDA has given up on the queries."""
    return condition(site, "scaledobject", MODEL, "Fallback") == "True"


def patch(site: Site, spec: dict[str, Any]) -> None:
    change = json.dumps({"spec": spec})
    kubectl(site.lab, "patch", "-n", MODELS, "scaledobject", MODEL, "--type=merge", "-p", change)


def shorten(site: Site) -> None:
    down = {
        "stabilizationWindowSeconds": _WINDOW_S,
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": _WINDOW_S}],
    }
    patch(site, {"advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": down}}}})


def ask_of_no_model(site: Site) -> dict[str, Any]:
    """Queries that have no result; the fields that they were in, as they were."""
    body = json.loads(kubectl(site.lab, "get", "-n", MODELS, "scaledobject", MODEL, "-o", "json"))
    before: dict[str, Any] = {"triggers": body["spec"]["triggers"]}
    patch(site, json.loads(json.dumps(before).replace(f'model=\\"{MODEL}\\"', 'model=\\"none\\"')))
    return before


def test_a_number_becomes_a_range_and_a_number_again_and_no_replica_goes(walk: Walk) -> None:
    """Server-side apply of a field that is left out would leave one replica."""
    assert walk.began == walk.fixed
    assert walk.ended == walk.idle


def test_load_adds_replicas_up_to_the_most_and_up_leaves_them(walk: Walk) -> None:
    assert len(walk.busy) == MOST
    assert walk.busy > walk.began
    assert walk.after_up == walk.busy


def test_without_an_answer_the_number_stays(walk: Walk) -> None:
    assert walk.unanswered == MOST


def test_after_the_load_the_least_are_left_and_no_stream_was_cut(walk: Walk) -> None:
    assert len(walk.idle) == LEAST
    assert len(walk.streams) > CLIENTS
    assert [streamed for streamed in walk.streams if not streamed.complete(TOKENS)] == []
