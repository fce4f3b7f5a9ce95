"""A tenant's life: added, one key rotated, removed, each by `pulumi up`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floor.namespaces import GATEWAY
from lab.deploy import StackOutputs
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import Streamed, chat, stream

pytestmark = pytest.mark.row("004.11", "000.38")

# Half of the minute that the lab's site lets a stream run on for.
STREAM_TOKENS = 1500
BETWEEN_S = 4.0


def status(site: Site, key: str) -> int:
    with site.http(key=key) as client:
        return client.post("/chat/completions", json=chat("qwen3-32b")).status_code


def in_force(site: Site, key: str, wanted: int) -> None:
    until(lambda: status(site, key) == wanted, what=f"{wanted} for the key")


def listeners(cluster: Cluster) -> dict[str, Any]:
    """Listeners of each Envoy pod, by its name, with the pickers' filters in the order of their names.

    The AI gateway v1.0.0 puts these in an order that it draws at each translation (maybeModifyListenerAndRoutes
    ranges over a map), and each route enables one of them alone, so their order means nothing.
    """
    by_envoy = {}
    for envoy in cluster.envoys():
        dump = json.loads(cluster.envoy_admin(envoy, "/config_dump?resource=dynamic_listeners"))
        by_envoy[envoy.name] = [_ordered(config["active_state"]["listener"]) for config in dump["configs"]]
    return by_envoy


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(inner) for key, inner in value.items()}
    if not isinstance(value, list):
        return value
    pickers = iter(
        sorted(
            (listener_part for listener_part in value if _is_picker(listener_part)),
            key=lambda listener_part: str(listener_part["name"]),
        )
    )
    return [next(pickers) if _is_picker(part) else _ordered(part) for part in value]


def _is_picker(value: Any) -> bool:
    return isinstance(value, dict) and "ext_proc/endpointpicker/" in str(value.get("name"))


def up_under_streams(site: Site, change: Callable[[], StackOutputs]) -> StackOutputs:
    """`up` while others' streams run, of which one more begins every few seconds: each comes whole."""

    async def both() -> tuple[StackOutputs, list[Streamed]]:
        async with site.http_async(120) as client:
            body = chat("qwen3-32b", tokens=STREAM_TOKENS, stream=True)
            changing = asyncio.create_task(asyncio.to_thread(change))
            streams = []
            while not changing.done():
                streams.append(asyncio.create_task(stream(client, body)))
                await asyncio.wait([changing], timeout=BETWEEN_S)
            return await changing, await asyncio.gather(*streams)

    front, answers = asyncio.run(both())
    assert answers
    assert all(answer.complete(STREAM_TOKENS) for answer in answers), [answer.refusal for answer in answers]
    return front


def test_life_of_a_tenant(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    """Keys come and go without effect on other tenants: their keys stay, their streams run on, no listener means
    anything else."""
    # One that an earlier test has had replaced may still drain, and has listeners until it ends.
    until(lambda: len(cluster.envoys()) == 1, what="one Envoy")
    before = listeners(cluster)
    assert "endpointpicker" in json.dumps(before)

    def hired(document: Document) -> None:
        document["tenants"]["initech"] = {"models": ["qwen3-32b"], "keys": {"old": {}, "steady": {}}}

    def rotated(document: Document) -> None:
        hired(document)
        document["tenants"]["initech"]["keys"]["old"] = {"rotation": 2}

    with edited_stack(site.lab, tmp_path) as stack:
        first = up_under_streams(site, lambda: stack.up(hired)).keys
        assert {name: first[name] for name in site.front.keys} == site.front.keys
        in_force(site, first["initech.old"], 200)
        in_force(site, first["initech.steady"], 200)

        second = up_under_streams(site, lambda: stack.up(rotated)).keys
        assert second["initech.old"] != first["initech.old"]
        assert {name: key for name, key in second.items() if name != "initech.old"} == {
            name: key for name, key in first.items() if name != "initech.old"
        }
        in_force(site, second["initech.old"], 200)
        in_force(site, first["initech.old"], 401)
        assert status(site, first["initech.steady"]) == 200
        assert status(site, site.key) == 200
    in_force(site, second["initech.old"], 401)
    in_force(site, second["initech.steady"], 401)
    assert status(site, site.key) == 200
    assert listeners(cluster) == before


@pytest.mark.exhaustive
def test_an_up_that_is_killed_takes_no_key_with_it(site: Site, tmp_path: Path) -> None:
    """Between another set of a tenant's keys and the policy that names it; the next `up` is the change back."""

    def with_a_key_more(document: Document) -> None:
        document["tenants"]["globex"]["keys"]["later"] = {}

    answers: list[int] = []

    async def ask(change: asyncio.Task[None]) -> None:
        async with site.http_async(120, key=site.front.keys["globex.laptop"]) as client:
            while not change.done():
                answers.append((await client.post("/chat/completions", json=chat("qwen3-32b", tokens=1))).status_code)

    def secrets() -> set[str]:
        return set(kubectl(site.lab, "get", "secrets", "-n", GATEWAY, "-o", "name").split())

    there = secrets()
    with edited_stack(site.lab, tmp_path) as stack:

        def killed_and_back() -> None:
            stack.killed(with_a_key_more, r"access-globex-keys\S* created")
            stack.restore()

        async def both() -> None:
            change = asyncio.create_task(asyncio.to_thread(killed_and_back))
            await asyncio.gather(change, ask(change))

        asyncio.run(both())
        assert answers
        assert set(answers) == {200}
        assert status(site, site.front.keys["globex.laptop"]) == 200
    # No state knows what the killed one had just made.
    for name in secrets() - there:
        kubectl(site.lab, "delete", "-n", GATEWAY, name)
