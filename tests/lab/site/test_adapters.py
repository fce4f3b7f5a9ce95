"""Adapters on a running site: each answers under its own name to those who may call it, with a gatekeeper and without.

The real gateways, picker and gatekeeper; the engine is the simulator, which knows adapters by name alone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import httpx
import pytest

from lab.hub.made_up import ADAPTER, ADAPTER_MARK
from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of
from tests.lab.site.test_identity import heads_at_engines
from tests.lab.site.under_load import Load

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("001.13", "004.11")]

MODEL, OPEN, CLOSED = "qwen3-32b", "authors", "contracts"
MAY, MAY_NOT = "acme.laptop", "globex.laptop"


def _adapted(site: Document) -> None:
    site["models"][MODEL]["adapters"] = {
        name: {
            "repository": f"acme/qwen{ADAPTER_MARK}-{name}",
            "revision": name[0] * 40,
            "rank": ADAPTER["r"],
            "target_modules": ADAPTER["target_modules"],
        }
        for name in (OPEN, CLOSED)
    }
    site["models"][MODEL]["adapters"][CLOSED]["tenants"] = ["acme"]


def _both(site: Document) -> None:
    _adapted(site)
    site["callers"] = {"decided_by": "gatekeeper", "keep_both": True}


def _decided(site: Document) -> None:
    _adapted(site)
    site["callers"] = {"decided_by": "gatekeeper"}


@dataclass(kw_only=True)
class Answers:
    """What a client got while one of the two decided."""

    answered: dict[tuple[str, str], httpx.Response]
    """By key and name."""
    listed: dict[str, set[str]]
    claimed: httpx.Response
    """With a header that names the model, whose adapter the tenant may not call."""
    streamed: set[str]
    """Names in the chunks of a stream."""
    heads: list[dict[str, str]]
    """Of a request for an adapter, as the engine got it."""


def _asked(site: Site, cluster: Cluster) -> Answers:
    answered, listed = {}, {}
    for key in (MAY, MAY_NOT):
        with site.http(key=site.front.keys[key]) as client:
            listed[key] = {card["id"] for card in client.get("/models").json()["data"]}
            for name in (MODEL, OPEN, CLOSED, "nothing"):
                answered[key, name] = client.post("/chat/completions", json=chat(name, tokens=2))
            claim = {"x-ai-eg-model": MODEL, "x-gateway-model-name-rewrite": CLOSED}
            claimed = client.post("/chat/completions", json=chat(CLOSED), headers=claim)
    body = chat(CLOSED, tokens=8, stream=True)
    with site.http(key=site.front.keys[MAY]) as client, client.stream("POST", "/chat/completions", json=body) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]

    def send() -> None:
        with site.http(key=site.front.keys[MAY]) as client:
            assert client.post("/chat/completions", json=chat(CLOSED)).status_code == 200

    return Answers(
        answered=answered,
        listed=listed,
        claimed=claimed,
        streamed={json.loads(line)["model"] for line in lines[:-1]},
        heads=heads_at_engines(cluster, MODEL, send),
    )


@dataclass(kw_only=True)
class Walk:
    load: Load
    by: dict[str, Answers]
    """Who decided -> what was answered."""


@pytest.fixture(scope="module")
def walk(site: Site, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """Streams of the model itself run while its replicas restart with adapters."""
    walked = Walk(load=Load(model=MODEL, stream_tokens=20, key=MAY_NOT), by={})
    with edited_stack(site.lab, tmp_path_factory.mktemp("adapters")) as stack:
        fronts = []
        asyncio.run(walked.load.during(site, partial(lambda: fronts.append(stack.up(_adapted)))))
        walked.by["gateway"] = _asked(replace(site, front=fronts[-1]), cluster)
        for edit in (_both, _decided):
            fronts.append(stack.up(edit))
        walked.by["gatekeeper"] = _asked(replace(site, front=fronts[-1]), cluster)
        yield walked


@pytest.mark.parametrize("decider", ["gateway", "gatekeeper"])
def test_an_adapter_answers_under_its_own_name_to_those_who_may(walk: Walk, decider: str) -> None:
    got = walk.by[decider]
    for key, name in ((MAY, MODEL), (MAY, OPEN), (MAY, CLOSED), (MAY_NOT, MODEL), (MAY_NOT, OPEN)):
        answer = got.answered[key, name]
        assert answer.status_code == 200, (key, name, answer.text)
        assert answer.json()["model"] == name
    assert got.streamed == {CLOSED}


@pytest.mark.parametrize("decider", ["gateway", "gatekeeper"])
def test_others_are_refused_and_do_not_see_it(walk: Walk, decider: str) -> None:
    got = walk.by[decider]
    for refused in (got.answered[MAY_NOT, CLOSED], got.claimed):
        assert (refused.status_code, error_of(refused)["code"]) == (403, "model_not_allowed")
    assert got.answered[MAY, "nothing"].status_code == 404
    assert {MODEL, OPEN, CLOSED} <= got.listed[MAY]
    assert got.listed[MAY_NOT] == {MODEL, OPEN}


@pytest.mark.parametrize("decider", ["gateway", "gatekeeper"])
def test_routes_limits_and_logs_know_its_model_alone(walk: Walk, decider: str) -> None:
    (head,) = walk.by[decider].heads
    assert head["x-ai-eg-model"] == MODEL
    assert head["x-gateway-inference-objective"] == f"interactive.{MODEL}"


def test_clients_of_the_model_lose_nothing_as_it_gets_adapters(walk: Walk) -> None:
    assert walk.load.streams
    assert not walk.load.failures()
