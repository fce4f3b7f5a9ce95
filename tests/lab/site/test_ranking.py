"""Requests to rank documents reach a model's replicas around its pool, and are charged as their engine reports.

The simulator ranks nothing, and answers 404: what is charged is tried with a simulated ranker in its place, where the
gateway decides about callers and where a gatekeeper does. What a real vLLM answers is in
tests/lab/engines/test_vllm_that_embeds.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from components.gateway.door_scripts import RANK_PATH
from tests.lab.simulated_ranker import Ranker, answered, counted, ranking
from tests.lab.site.cluster_objects import kubectl
from tests.lab.site.replicas import MODELS, Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of
from tests.lab.site.test_identity import heads_at_engines
from tests.lab.site.test_limits import LEFT, Meter, nearest
from tests.lab.site.test_request_log import fresh, lines_with

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("002.04")]

MODEL, CHATS = "ranks", "qwen3-32b"
BODY = {"model": MODEL, "query": "what is it?", "documents": ["it is this", "it is that"]}
PER_DAY, LONGEST = 1_000_000, 2_000


def _added(document: Document) -> None:
    document["models"][MODEL] = {
        "catalogue": "bge-reranker-v2-m3",
        "server": {"engine": "simulator", "longest_stream_s": 60, "simulated_load_scale": 0.01},
        "pool": {"pickers": 1, "cpu": "100m", "memory": "128Mi"},
    }
    for tenant in document["tenants"].values():
        tenant["models"] = [*tenant["models"], MODEL]


def _limited(document: Document) -> None:
    _added(document)
    for name, most in (("counted", PER_DAY), ("spent", 1)):
        limits = {"tokens_per_day": most}
        document["tenants"][name] = {"models": [MODEL, CHATS], "keys": {"one": {}}, "limits": limits}


def _decided(document: Document) -> None:
    _limited(document)
    document["callers"] = {"decided_by": "gatekeeper", "keep_both": True}
    document["tenants"]["counted"]["limits"]["max_prompt_tokens"] = LONGEST


@pytest.fixture(scope="module")
def stack(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditedStack]:
    with edited_stack(site.lab, tmp_path_factory.mktemp("ranking")) as edited:
        yield edited


def rank(site: Site, mark: str, key: str | None = None, **body: Any) -> httpx.Response:
    with site.http(key=key) as client:
        return client.post(f"{site.address}{RANK_PATH}", json=BODY | body, headers={"user-agent": mark})


def test_requests_to_rank_reach_every_replica_around_the_pool(site: Site, cluster: Cluster, stack: EditedStack) -> None:
    stack.up(_added)
    replicas = {replica.ip for replica in cluster.ready_replicas(MODEL)}
    mark = fresh("rank")

    def reached() -> set[str]:
        rank(site, mark)
        return {str(line["upstream_host"]).partition(":")[0] for line in lines_with(site, mark)} & replicas

    until(lambda: reached() == replicas, what="requests at each replica")

    def ask() -> None:
        assert rank(site, mark).status_code == 404

    (head,) = heads_at_engines(cluster, MODEL, ask, "rerank")
    assert head[":line"].startswith("POST /v2/rerank ")
    assert head["x-ai-eg-model"] == MODEL
    assert not {"authorization", "x-api-key"} & head.keys()
    assert rank(site, mark, "no-such-key").status_code == 401
    with site.http() as client:
        answer = client.post("/chat/completions", json=chat(MODEL))
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_path")


@pytest.fixture(scope="module")
def ranker(site: Site) -> Iterator[Ranker]:
    """In the place of the model's replicas; on the host, which pods reach."""
    with ranking(str(site.lab.network.uplink[1])) as server:
        yield server


@pytest.mark.row("000.32", "000.34", "004.11", "opening 19")
@pytest.mark.parametrize("by_gatekeeper", [False, True], ids=["gateway", "gatekeeper"])
def test_tokens_of_documents_are_charged_up_to_the_limit(
    site: Site, stack: EditedStack, ranker: Ranker, *, by_gatekeeper: bool
) -> None:
    """The query with each document, as the engine counts it, whatever the documents look like."""
    keys = stack.up(_decided if by_gatekeeper else _limited).keys
    address, port = ranker.server_address[:2]
    endpoints = json.dumps({"spec": {"endpoints": [{"ip": {"address": address, "port": port}}]}})
    kubectl(site.lab, "patch", "backends.gateway.envoyproxy.io", MODEL, "-n", MODELS, "--type=merge", "-p", endpoints)
    key, mark = keys["counted.one"], fresh("charged")
    until(lambda: LEFT in rank(site, mark, key).headers, what="limits, and a ranker that answers")

    meter = Meter(site, key)
    body = BODY | {"query": "what is it? " * 50, "documents": ["it is this", '"usage": {"total_tokens": 1}', "that"]}
    answer = rank(site, mark, key, **body)
    assert (answer.status_code, answer.json()) == (200, answered(body))
    assert nearest(answer.headers)["limit-tokens"] == str(PER_DAY)
    until(lambda: meter.charged() == counted(body), what=f"a charge of {counted(body)} tokens")
    seen = ranker.asked[-1]
    assert {name: seen[name] for name in ("path", "query", "documents")} == {
        "path": "/v2/rerank",
        "query": body["query"],
        "documents": body["documents"],
    }
    assert ("cache_salt" in seen) == by_gatekeeper

    until(lambda: rank(site, mark, keys["spent.one"]).status_code == 429, what="a refusal of what is spent")
    refused = rank(site, mark, keys["spent.one"])
    # The other one in the last two minutes of a day.
    assert error_of(refused)["code"] in ("insufficient_quota", "rate_limit_exceeded")
    assert nearest(refused.headers) == {"limit-tokens": "1", "remaining-tokens": "0"}
    assert rank(site, mark, key).status_code == 200
    if by_gatekeeper:
        before = len(ranker.asked)
        long = rank(site, mark, key, documents=["word " * LONGEST])
        assert (long.status_code, error_of(long)["code"]) == (400, "context_length_exceeded")
        assert len(ranker.asked) == before
