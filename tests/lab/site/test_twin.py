"""The twin of `sitectl whatif` beside the running platform: the same arrivals, more than a model takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import pytest

from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_file
from stacks.whatif.deployment import served_of, tiers_of
from stacks.whatif.lengths import seeded
from stacks.whatif.simulation import Simulation
from stacks.whatif.tally import Counts, together
from stacks.whatif.traffic import Arrival
from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream

pytestmark = pytest.mark.row("opening 12", "004.20")

MODEL = "glm-5-1"
# An answer takes ten seconds of a slot, and the rate is about twice what the slots of two replicas answer.
TOKENS, GAP_S = 40, 0.25
RATE, SECONDS = 16.0, 30.0
# The real picker's ties fall otherwise, and a busy machine streams late.
SHARE_BAND, WAIT_BAND = 0.1, 1.5


@dataclass(frozen=True)
class Listed:
    """Requests at these seconds, of prompts too short to be cached."""

    times: Sequence[float]

    def earlier(self) -> Sequence[Arrival]:
        return []

    def arrivals(self, until_s: float) -> Iterator[Arrival]:
        yield from (Arrival(at_s, 0, 1, TOKENS, ()) for at_s in self.times if at_s < until_s)


@pytest.mark.exhaustive
def test_the_twin_foretells_who_is_refused_and_how_long_others_wait(site: Site, cluster: Cluster) -> None:
    """With the simulator's own timing in the place of a GPU's."""
    random, times = seeded("1", "times"), [0.0]
    while times[-1] < SECONDS:
        times.append(times[-1] + random.expovariate(RATE))
    latency = f"{GAP_S * 1000:.0f}ms"
    with cluster.pace(MODEL, prefill_overhead="1ms", inter_token_latency=latency, time_factor_under_load=1.0):
        answers = asyncio.run(_sent(site, times))
    served = [answer for answer in answers if answer.complete(TOKENS)]
    refused = [answer for answer in answers if not answer.tokens]
    assert len(served) + len(refused) == len(answers)
    # A busy machine sends late: the twin gets the requests when they were sent.
    began = min(answer.started for answer in answers)
    simulated = _foretold(sorted(answer.started - began for answer in answers))
    share = simulated.refused / simulated.came
    assert share > 0.2, "the load is too small to tell anything"
    assert abs(len(refused) / len(answers) - share) < SHARE_BAND
    wait_s, simulated_s = median(answer.first_token_s for answer in served), median(simulated.first_s)
    assert simulated_s / WAIT_BAND < wait_s < simulated_s * WAIT_BAND


def _foretold(times: Sequence[float]) -> Counts:
    plan = plan_file(CHECKOUT / "Pulumi.lab.yaml")
    revision = plan.models[MODEL].stable

    def step_s(prefill: int, reach: float, decodes: int, context: float) -> float:
        return GAP_S

    model = served_of(plan, revision, step_s, tiers_of(plan, MODEL, {}))
    return together(Simulation(model, Listed(times), seed="1").run(times[-1] + 1, drain_s=600).tally.counts[0])


async def _sent(site: Site, times: Sequence[float]) -> list[Streamed]:
    """Every request at its second, whatever became of those before."""
    async with site.http_async(300) as client:
        began = time.monotonic()
        asked = []
        for at_s in times:
            await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
            asked.append(asyncio.create_task(stream(client, chat(MODEL, tokens=TOKENS, stream=True))))
        return await asyncio.gather(*asked)
