"""Requests to rank documents reach a model's replicas around its pool. The simulator ranks nothing: it answers 404.

What a real vLLM answers there is in tests/lab/engines/test_vllm_that_embeds.py.
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.lab.site.replicas import Cluster, until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, edited_stack
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of
from tests.lab.site.test_identity import heads_at_engines
from tests.lab.site.test_request_log import fresh, lines_with

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("002.04")]

MODEL = "ranks"
BODY = {"model": MODEL, "query": "what is it?", "documents": ["it is this", "it is that"]}


def _added(document: Document) -> None:
    document["models"][MODEL] = {
        "catalogue": "bge-reranker-v2-m3",
        "server": {"engine": "simulator", "longest_stream_s": 60, "simulated_load_scale": 0.01},
        "pool": {"pickers": 1, "cpu": "100m", "memory": "128Mi"},
    }
    for tenant in document["tenants"].values():
        tenant["models"] = [*tenant["models"], MODEL]


def rank(site: Site, mark: str, key: str | None = None) -> httpx.Response:
    with site.http(key=key) as client:
        return client.post(f"{site.address}/cohere/v2/rerank", json=BODY, headers={"user-agent": mark})


def test_requests_to_rank_reach_every_replica_around_the_pool(site: Site, cluster: Cluster, tmp_path: Path) -> None:
    with edited_stack(site.lab, tmp_path) as stack:
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
