"""SIGKILL to parts of the gateway under streams: nothing hangs, what does not need the part goes on, and it returns."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import httpx
import pytest

from components.gateway.gateway_controllers import AI_NAMESPACE, ENVOY_NAMESPACE
from lab.site import supervisor
from tests.lab.site.replicas import Cluster, Replica, until
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, fresh_prompt, stream
from tests.lab.waiting import eventually

pytestmark = pytest.mark.row("004.01")

MODEL = "qwen3-32b"
STREAMS = 6
# 12 s of them, so that the first has not ended when a busy machine begins the last.
TOKENS = 120
# A client waits no longer for the next byte.
PATIENCE_S = 30
# Parts that tell Envoy what to do, and that it does without: where they are, their label, and the program.
CONTROLLERS = (
    (ENVOY_NAMESPACE, "control-plane=envoy-gateway", "envoy-gateway"),
    (AI_NAMESPACE, "app.kubernetes.io/name=ai-gateway-helm", "app"),
    ("kube-system", "k8s-app=kube-dns", "coredns"),
)


def controllers(cluster: Cluster) -> list[tuple[Replica, str]]:
    return [(cluster.pods(space, label)[0], program) for space, label, program in CONTROLLERS]


def killed_under_streams(
    site: Site, cluster: Cluster, kill: Callable[[], object]
) -> tuple[list[Streamed], list[httpx.Response | str]]:
    """What became of streams that were half-way, and of what was asked until they had ended; each on its own wire."""
    later: list[httpx.Response | str] = []

    async def ask() -> None:
        async with site.http_async(PATIENCE_S) as client:
            try:
                later.append(await client.post("/chat/completions", json=chat(MODEL)))
            except httpx.ReadTimeout:
                raise
            except httpx.TransportError as error:
                later.append(str(error) or type(error).__name__)

    async def run() -> list[Streamed]:
        answers = [Streamed() for _ in range(STREAMS)]
        async with site.http_async(PATIENCE_S) as client, asyncio.TaskGroup() as tasks:
            for answer in answers:
                body = chat(MODEL, fresh_prompt(10), tokens=TOKENS, stream=True)
                tasks.create_task(stream(client, body, answer=answer))
            while not all(answer.tokens or answer.ended for answer in answers):
                await asyncio.sleep(0.1)
            await asyncio.to_thread(kill)
            while not all(answer.ended for answer in answers):
                await ask()
                await asyncio.sleep(0.3)
        return answers

    with cluster.pace(MODEL, inter_token_latency="100ms", time_to_first_token="100ms"):
        return asyncio.run(run()), later


def serves(site: Site) -> bool:
    try:
        with site.http() as client:
            return client.post("/chat/completions", json=chat(MODEL)).status_code == 200
    except httpx.TransportError:
        return False


def test_answers_go_on_without_controllers_and_api_server(site: Site, cluster: Cluster) -> None:
    """Envoy, its processor and the pickers do with what they know."""
    victims = controllers(cluster)

    def kill() -> None:
        (server,) = (part.pid() for part in supervisor.components(site.lab) if part.name == "kube-apiserver")
        assert server is not None
        os.kill(server, signal.SIGKILL)
        for pod, program in victims:
            cluster.kill(pod, program)

    streams, later = killed_under_streams(site, cluster, kill)
    assert all(answer.complete(TOKENS) for answer in streams), [answer.refusal for answer in streams]
    assert later
    assert all(isinstance(answer, httpx.Response) and answer.status_code == 200 for answer in later), later

    def returned() -> bool:
        now = {pod.uid: pod for pod, _ in controllers(cluster)}
        return all(now[pod.uid].ready and now[pod.uid].restarts > pod.restarts for pod, _ in victims)

    eventually(returned)


@pytest.mark.parametrize("program", ["app", "envoy"], ids=["processor", "envoy"])
def test_a_dead_proxy_hangs_no_client(site: Site, cluster: Cluster, program: str) -> None:
    """Its streams end as broken, never as whole; soon everything is answered again, by the same pod."""
    # An earlier one may still drain.
    until(lambda: len(cluster.envoys()) == 1, what="one Envoy")
    (victim,) = cluster.envoys()
    streams, later = killed_under_streams(site, cluster, lambda: cluster.kill(victim, program))
    for cut in streams:
        assert cut.status == 200
        assert cut.refusal, "a part of an answer that ends as a whole one"
        assert not cut.done
        assert "ReadTimeout" not in cut.refusal, "the client was left waiting"
    for answer in later:
        if isinstance(answer, httpx.Response) and answer.status_code != 200:
            assert answer.status_code >= 500, answer.text
            assert answer.json()["error"]["message"], answer.text
    until(lambda: serves(site), what="an answer")

    def returned() -> bool:
        (now,) = cluster.envoys()
        assert now.uid == victim.uid
        return now.ready and bool(cluster.processes(now, program))

    until(returned, what="the program in its pod")
