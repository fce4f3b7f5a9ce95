"""A picker ends without effect on clients: neither on streams that it placed long ago, nor on new requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest
from kubernetes import client

from components.gateway.pickers import Picker
from lab.paths import CHECKOUT
from stacks.plan.site_plan import plan_file
from tests import documented
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import MODELS, Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import Streamed, chat, stream
from tests.lab.site.test_picker import PICKER

pytestmark = pytest.mark.row("000.20", "000.27")

MODEL = "qwen3-32b"
# A picker breaks off what it still sees 30 s after SIGTERM: longer than that, and than it waits before, all together.
STREAM_TOKENS = 500
TOKEN_MS = 100
# Requests went on to an ending picker for as long as Envoy kept its connection.
GO_ON_S = 40
NOTICE_S = 15
# Envoy asks DNS for pickers every 5 s, and a dead one is not among them.
KNOWN_S = 3


@dataclass(kw_only=True)
class Seen:
    streams: list[Streamed] = field(default_factory=list)
    short: list[httpx.Response | httpx.HTTPError] = field(default_factory=list)

    def failures(self) -> list[str]:
        """Each request that was not served whole."""
        broken = [
            f"{stream.status} {stream.refusal or stream.tokens}"
            for stream in self.streams
            if not stream.complete(STREAM_TOKENS)
        ]
        return broken + [
            str(answer) if isinstance(answer, httpx.HTTPError) else f"{answer.status_code} {answer.text}"
            for answer in self.short
            if isinstance(answer, httpx.HTTPError) or answer.status_code != 200
        ]


async def _load(site: Site, act: Callable[[], object], *, go_on_s: float, streams: int) -> Seen:
    """At least so many long streams, and thrice as many short requests, before, while and after `act` runs.

    All have ended on return.
    """
    seen, tasks = Seen(), []
    async with site.http_async(120) as front:

        async def ask() -> None:
            try:
                seen.short.append(await front.post("/chat/completions", json=chat(MODEL)))
            except httpx.HTTPError as error:
                seen.short.append(error)

        async def long() -> None:
            seen.streams.append(await stream(front, chat(MODEL, tokens=STREAM_TOKENS, stream=True)))

        async def arrive() -> None:
            while True:
                for kind in (long, ask, ask, ask):
                    tasks.append(asyncio.create_task(kind()))
                    await asyncio.sleep(0.5)

        source = asyncio.create_task(arrive())
        await asyncio.sleep(5)
        await asyncio.to_thread(act)
        await asyncio.sleep(go_on_s)
        while len(tasks) < 4 * streams:
            await asyncio.sleep(0.5)
        source.cancel()
        await asyncio.gather(*tasks)
    return seen


def ready(cluster: Cluster) -> list[Replica]:
    return [picker for picker in cluster.pickers(MODEL) if picker.ready and not picker.leaving]


@pytest.mark.exhaustive
def test_a_picker_gives_way_to_its_successor(site: Site, cluster: Cluster) -> None:
    """As a change of its configuration does it, or a drain of its node: no stream is cut and no request refused."""
    longest_s = plan_file(CHECKOUT / "Pulumi.lab.yaml").site.models[MODEL].server.longest_stream_s
    assert longest_s > STREAM_TOKENS * TOKEN_MS / 1000, "the site does not promise more"
    (before,) = ready(cluster)

    def restart() -> None:
        kubectl(site.lab, "rollout", "restart", f"deployment/{MODEL}-epp", "-n", MODELS)
        kubectl(site.lab, "rollout", "status", f"deployment/{MODEL}-epp", "-n", MODELS, "--timeout=120s")

    with cluster.pace(MODEL, inter_token_latency=f"{TOKEN_MS}ms", time_factor_under_load=1.0):
        seen = asyncio.run(_load(site, restart, go_on_s=GO_ON_S, streams=20))
    assert not seen.failures(), (seen.failures(), len(seen.streams), len(seen.short))
    (after,) = ready(cluster)
    assert after.uid != before.uid


@pytest.mark.exhaustive
def test_the_runbooks_commands_move_pickers(site: Site, cluster: Cluster) -> None:
    """As they are written there. The lab has one node that takes pickers, so they move before it is cordoned."""
    restart = documented.argv("kubectl -n inference-models rollout restart deployment glm-5-1-epp qwen3-32b-epp")
    assert kubectl(site.lab, *restart[1:]).count("restarted") == 2
    status = documented.argv("kubectl -n inference-models rollout status deployment/glm-5-1-epp")
    for deployment in restart[-2:]:
        kubectl(site.lab, *status[1:-1], f"deployment/{deployment}", "--timeout=180s")
    assert ready(cluster)
    try:
        assert "cordoned" in kubectl(site.lab, *documented.argv("kubectl cordon cp-1")[1:])
    finally:
        assert "uncordoned" in kubectl(site.lab, *documented.argv("kubectl uncordon cp-1")[1:])


@pytest.fixture
def two(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    """The site with two pickers for the model, both ready."""

    def twice(document: Document) -> None:
        document["models"][MODEL]["pool"]["pickers"] = 2

    with edited_stack(site.lab, tmp_path_factory.mktemp("stack")) as stack:
        stack.up(twice)
        # The gateway learns of the second within some seconds.
        time.sleep(NOTICE_S)
        yield ready(cluster)


def asked_again(cluster: Cluster) -> int:
    """How often an Envoy has asked another picker of the model, as one did not answer."""
    shown = "".join(cluster.envoy_admin(envoy, "/stats?filter=upstream_rq_retry$") for envoy in cluster.envoys())
    name = Picker(pool=MODEL, namespace=MODELS, authority="", parallel=0).connection.name
    return sum(int(line.rpartition(" ")[2]) for line in shown.splitlines() if f".{name}." in line)


@pytest.mark.exhaustive
def test_of_two_pickers_one_may_go(site: Site, cluster: Cluster, two: list[Replica]) -> None:
    """An eviction takes one and is refused the other; one may be killed. No stream is cut and no request fails."""
    assert len(two) == 2
    refused: list[int] = []

    def evict() -> None:
        for picker in two:
            body = client.V1Eviction(metadata=client.V1ObjectMeta(name=picker.name, namespace=MODELS))
            try:
                cluster.core.create_namespaced_pod_eviction(picker.name, MODELS, body)
            except client.ApiException as error:
                refused.append(error.status)

    seen = asyncio.run(_load(site, evict, go_on_s=NOTICE_S, streams=5))
    assert not seen.failures(), (seen.failures(), len(seen.streams), len(seen.short))
    assert refused == [429], "both were evicted at once"

    first, _ = until(lambda: pickers if len(pickers := ready(cluster)) == 2 else None, what="two ready pickers")
    # As above, so that the killed one is asked at all.
    time.sleep(NOTICE_S)
    before = asked_again(cluster)

    def missed() -> bool:
        """The first restart is at once, so it is kept dead for as long as Envoy knows it."""
        until_s = time.monotonic() + KNOWN_S
        while time.monotonic() < until_s:
            cluster.keep_dead(first, PICKER)
            if asked_again(cluster) > before:
                return True
        until(lambda: len(ready(cluster)) == 2, what="two ready pickers")
        time.sleep(NOTICE_S)
        return False

    def kill_until_missed() -> None:
        until(missed, what="a request that the killed picker did not answer")

    with cluster.pace(MODEL, inter_token_latency=f"{TOKEN_MS // 5}ms", time_factor_under_load=1.0):
        seen = asyncio.run(_load(site, kill_until_missed, go_on_s=NOTICE_S, streams=5))
    assert not seen.failures(), (seen.failures(), len(seen.streams), len(seen.short))


@pytest.mark.exhaustive
def test_a_picker_that_hangs_holds_no_request(site: Site, cluster: Cluster, two: list[Replica]) -> None:
    """Its connection stays open and answers no ping, so what it was asked goes to the other one."""
    assert len(two) == 2
    # Envoy knows both.
    time.sleep(NOTICE_S)
    before = asked_again(cluster)
    hung = two[0]
    stopped = cluster.processes(hung, PICKER)
    assert stopped

    def hang() -> None:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: asked_again(cluster) > before, what="a request that the hanging picker did not answer")

    try:
        with cluster.pace(MODEL, inter_token_latency=f"{TOKEN_MS // 5}ms", time_factor_under_load=1.0):
            seen = asyncio.run(_load(site, hang, go_on_s=NOTICE_S, streams=5))
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    assert not seen.failures(), (seen.failures(), len(seen.streams), len(seen.short))
