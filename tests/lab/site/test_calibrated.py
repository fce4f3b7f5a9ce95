"""A site's own step times out of what its Prometheus measured: simulators at a known pace, under real requests."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml

from lab.paths import CHECKOUT
from sitectl.live import measured_periods
from sitectl.live.asked_prometheus import AskedPrometheus
from sitectl.live.site_service import SiteService
from stacks.plan.calibration import pace_of
from stacks.plan.site_plan import plan_values
from stacks.proof.proof import Proof
from tests.lab.site.measured import Prometheus
from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import KEY
from tests.lab.site.streams import chat, stream

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("opening 29")]

MODEL = "qwen3-32b"
PACE = 1.5
CLIENTS, TOKENS = 6, 40
PERIOD_S, PERIODS = 60, 3


class Directly:
    """The running site's Prometheus without an API server in between."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus

    def ask(self, method: str, path: str) -> dict[str, Any]:
        assert method == "GET"
        asked = urlsplit(path)
        return {"data": self._prometheus.ask(asked.path.removeprefix("/api/v1/"), **dict(parse_qsl(asked.query)))}


def loaded() -> Proof:
    """Of the checked-in site with a load, whose size counts for nothing here."""
    values = yaml.safe_load((CHECKOUT / "Pulumi.lab.yaml").read_text())["config"][KEY]
    values["models"][MODEL]["load"] = {"requests_per_s": 1}
    return plan_values(values, "lab").models[MODEL].stable.proof


async def requests(site: Site, seconds: float) -> None:
    """Streams one after the other, of a few clients."""
    ends = time.monotonic() + seconds
    async with site.http_async(60) as client:

        async def one_client() -> None:
            while time.monotonic() < ends:
                answer = await stream(client, chat(MODEL, tokens=TOKENS, stream=True))
                assert answer.complete(TOKENS), answer.refusal

        await asyncio.gather(*(one_client() for _ in range(CLIENTS)))


def test_the_pace_of_engines_is_the_one_that_prometheus_measured(site: Site, cluster: Cluster) -> None:
    """Within the time that a busy machine adds to each token."""
    proof = loaded()
    token_ms = PACE * proof.speed["decode_alone"].value
    with cluster.pace(MODEL, inter_token_latency=f"{token_ms:.0f}ms"):
        asyncio.run(requests(site, PERIOD_S * (PERIODS + 1)))
    end = time.time()
    prometheus = AskedPrometheus(cast(SiteService, Directly(Prometheus(cluster))))
    begin = end - PERIOD_S * PERIODS
    measured = measured_periods.periods(prometheus, begin=begin, end=end, every_s=PERIOD_S)[MODEL]
    assert len(measured) == PERIODS
    for period in measured:
        assert period.replicas == 2
        assert period.answer_tokens == pytest.approx(TOKENS, rel=0.05)
        assert pace_of(proof, period) == pytest.approx(PACE, rel=0.1)
