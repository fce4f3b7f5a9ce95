"""Replicas filled past the gateway, as by other Envoy pods, which count for themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_file
from tests.lab.site.replicas import Replica, until
from tests.lab.site.streams import chat


@asynccontextmanager
async def filled(model: str, replicas: Sequence[Replica]) -> AsyncIterator[None]:
    """Each of them has as many requests of a model of the lab's site as its engine holds.

    How long they last is the model's pace.
    """
    held = plan_file(CHECKOUT / "Pulumi.lab.yaml").models[model].stable.server.engine_limit
    body = chat(model, tokens=1)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(trust_env=False, timeout=300, limits=limits) as others:
        asked = [
            asyncio.create_task(others.post(f"{replica.url}/v1/chat/completions", json=body))
            for replica in replicas
            for _ in range(held)
        ]
        try:
            await asyncio.to_thread(
                until, lambda: all(replica.under_way() == held for replica in replicas), what="full replicas"
            )
            yield
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
