"""Two hundred adapters of a model on a running site: each answers, and pickers send them where they have a place.

The real gateway, picker and gatekeeper; the engine is the simulator, which has places as vLLM does, and copies nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from lab.hub.made_up import ADAPTER, ADAPTER_MARK
from tests.lab.site.cluster_objects import inventory
from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack
from tests.lab.site.streams import Streamed, chat, fresh_prompt, stream

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("003.27")]

MODEL, CLIENT = "qwen3-32b", "acme.laptop"
NAMES = [f"task-{number:03}" for number in range(200)]
PLACES = 8
# Of the API server for a ConfigMap, and below what etcd takes of any object.
MOST_BYTES = 2**20


def _both(site: Document) -> None:
    site["callers"] = {"decided_by": "gatekeeper", "keep_both": True}


def _many(site: Document) -> None:
    site["callers"] = {"decided_by": "gatekeeper"}
    site["models"][MODEL]["server"]["resident_adapters"] = PLACES
    site["models"][MODEL]["adapters"] = {
        name: {
            "repository": f"acme/qwen{ADAPTER_MARK}-{name}",
            # A letter, as YAML takes digits for a number.
            "revision": f"a{number:039x}",
            "rank": ADAPTER["r"],
            "target_modules": ADAPTER["target_modules"],
        }
        for number, name in enumerate(NAMES)
    }


@pytest.fixture(scope="module")
def many(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The site stays so: the claim of its weights has grown, and cannot be put back."""
    stack = EditedStack(site.lab, tmp_path_factory.mktemp("many") / "Pulumi.edited.yaml")
    stack.up(_both)
    return replace(site, front=stack.up(_many))


def test_each_is_listed_and_answers_under_its_own_name(many: Site) -> None:
    answered = {}
    with many.http(key=many.front.keys[CLIENT]) as client:
        listed = {card["id"] for card in client.get("/models").json()["data"]}
        for name in NAMES:
            answer = client.post("/chat/completions", json=chat(name, tokens=1))
            answered[name] = (answer.status_code, answer.json().get("model"))
    assert answered == {name: (200, name) for name in NAMES}
    assert {MODEL, *NAMES} <= listed


def test_no_object_outgrows_what_the_cluster_takes(many: Site) -> None:
    sizes = {name: len(str(item)) for name, item in inventory(many.lab).items()}
    assert max(sizes.values()) < MOST_BYTES / 2, max(sizes, key=lambda name: sizes[name])


def test_a_request_goes_where_its_adapter_has_a_place(many: Site, cluster: Cluster) -> None:
    """While a stream of it runs there; prompts have nothing in common."""
    replicas = cluster.ready_replicas(MODEL)

    async def ask() -> tuple[list[int], list[Streamed]]:
        async with many.http_async(120, key=many.front.keys[CLIENT]) as client:
            long = asyncio.create_task(stream(client, chat(NAMES[7], tokens=600, stream=True)))
            holder = await asyncio.to_thread(
                until, lambda: [replica for replica in replicas if replica.under_way()], what="the stream"
            )
            before = holder[0].served()
            short = []
            for _ in range(20):
                short.append(await stream(client, chat(NAMES[7], fresh_prompt(8), tokens=1, stream=True)))
                # The picker has read that the adapter has a place there.
            there = holder[0].served() - before
            return [there, len(holder)], [await long, *short]

    (there, holders), answers = asyncio.run(ask())
    assert holders == 1
    assert all(answer.done and not answer.refusal for answer in answers)
    assert there >= 18
