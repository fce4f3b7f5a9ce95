"""Replicas that are full before the gateway is: what clients see, and that the model serves again."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_file
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream

pytestmark = pytest.mark.row("001.29")

MODEL = "glm-5-1"
VLLM = json.loads((CHECKOUT / "tests" / "fixtures" / "vllm" / "full_engine.json").read_text())


def test_full_engines_answer_is_passed_on_and_who_left_is_forgotten(site: Site, cluster: Cluster) -> None:
    """As vLLM says it: 503, to a stream too.

    The replicas are filled past the gateway, as by other Envoy pods, which count for themselves.
    """
    replicas = cluster.ready_replicas(MODEL)
    held = plan_file(CHECKOUT / "Pulumi.lab.yaml").models[MODEL].stable.server.engine_limit
    body = chat(MODEL, tokens=1)

    async def scenario() -> tuple[httpx.Response, Streamed]:
        limits = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(trust_env=False, timeout=300, limits=limits) as others,
            site.http_async() as tenant,
        ):
            asked = [
                asyncio.create_task(others.post(f"{replica.url}/v1/chat/completions", json=body))
                for replica in replicas
                for _ in range(held)
            ]
            await asyncio.to_thread(
                until,
                lambda: all(replica.under_way() == held for replica in replicas),
                what="full replicas",
            )
            whole = await tenant.post("/chat/completions", json=body)
            streamed = await stream(tenant, chat(MODEL, tokens=1, stream=True))
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            return whole, streamed

    with cluster.pace(MODEL, prefill_overhead="280s", time_factor_under_load=1.0):
        whole, streamed = asyncio.run(scenario())
        assert whole.status_code == VLLM["whole"]["status"]
        assert whole.json() == VLLM["whole"]["body"]
        assert streamed.status == VLLM["whole"]["status"]
        assert json.loads(streamed.refusal) == VLLM["whole"]["body"]
        # Long before their answers would have been written: no client waits for these.
        until(lambda: not any(replica.under_way() for replica in replicas), what="replicas without work")
    with site.http() as client:
        assert client.post("/chat/completions", json=body).status_code == 200
