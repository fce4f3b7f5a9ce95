"""More streams through one Envoy than the 1,024 that its defaults let pass to the AI gateway's processor and picker."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_file
from tests.lab.site.replicas import MODELS, Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import HOLD_S, Streamed, all_arrived, chat, stream

pytestmark = pytest.mark.row("002.17")

MODEL = "qwen3-32b"
STREAMS = 1_200
DEFAULT_LIMIT = 1_024
# httpx opens at most 100 streams on a connection; the rest waits unseen in the client.
CONNECTIONS = 13
_LIMIT = re.compile(r"^(?P<cluster>.+)::default_priority::(?P<limit>max_\w+)::(?P<value>\d+)$", re.MULTILINE)


async def _send(site: Site, replicas: list[Replica]) -> tuple[list[Streamed], int]:
    """The answers that came, and how many requests were at the engines at one time; then all clients leave."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(site.http_async(HOLD_S, http2=True)) for _ in range(CONNECTIONS)]
        body = chat(MODEL, tokens=1, stream=True)
        tasks = [asyncio.create_task(stream(clients[number % CONNECTIONS], body)) for number in range(STREAMS)]
        try:
            return await all_arrived(replicas, tasks)
        finally:
            for task in tasks:
                task.cancel()


def test_more_streams_than_envoys_default(site: Site, cluster: Cluster) -> None:
    """Beyond 1,024 streams the defaults answer 500 `ext_proc ... overflow`; here every one reaches an engine."""
    # The AI gateway starts a pod again that was there before it.
    until(lambda: len(cluster.envoys()) == 1, what="one Envoy")
    with cluster.pace(MODEL, prefill_overhead=f"{HOLD_S}s", time_factor_under_load=1.0):
        answers, held = asyncio.run(_send(site, cluster.ready_replicas(MODEL)))
    assert len(cluster.envoys()) == 1
    assert not answers, (Counter(answer.status for answer in answers), answers[0])
    assert held > DEFAULT_LIMIT, f"only {held} requests were under way at one time, so nothing was tried"


def test_limits_of_every_cluster_are_raised(site: Site, cluster: Cluster) -> None:
    """No policy reaches the clusters of AI gateway and pickers; Envoy itself must say that they are raised."""
    wanted: dict[str, dict[str, int]] = {"ai-gateway-extproc-uds": {}}
    declared = plan_file(CHECKOUT / "Pulumi.lab.yaml")
    for model in site.front.models:
        # The engines' own clusters take no more than the engines hold.
        bound = declared.models[model].stable.parallel_requests
        wanted[f"inference-platform/picker/{MODELS}/{model}"] = {}
        wanted[f"httproute/{MODELS}/{model}/rule/0"] = {"max_requests": bound, "max_pending_requests": bound}
    for envoy in cluster.envoys():
        limits: dict[str, dict[str, int]] = {}
        for match in _LIMIT.finditer(cluster.envoy_admin(envoy, "/clusters")):
            limits.setdefault(match["cluster"], {})[match["limit"]] = int(match["value"])
        assert wanted.keys() <= limits.keys()
        for name in sorted(wanted):
            for limit in ("max_requests", "max_connections", "max_pending_requests"):
                assert limits[name][limit] == wanted[name].get(limit, 65_536), (name, limit)
