"""Who a request comes from and where it goes is the gateway's to say: what clients claim in headers is dropped."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from floor.headers import TRUSTED_HEADERS
from tests.lab.site import wire
from tests.lab.site.replicas import ENGINE_PORT, Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of

pytestmark = pytest.mark.row("004.11", "000.34")

CLAIMS = {
    "endpoint-load-metrics-format": "JSON",
    "x-data-parallel-rank": "0",
    "x-ai-eg-model": "qwen3-32b",
    "x-ai-eg-original-path": "/v1/models",
    "x-gateway-destination-endpoint": "198.18.0.66:8000",
    "x-gateway-destination-endpoint-subset": "198.18.0.66:8000",
    "x-gateway-destination-endpoint-served": "198.18.0.66:8000",
    "x-gateway-inference-fairness-id": "globex.laptop",
    "x-gateway-inference-objective": "critical",
    "x-gateway-model-name-rewrite": "qwen3-32b",
    "x-inference-refusal": "unknown_path",
    "x-llm-d-inference-fairness-id": "globex.laptop",
    "x-llm-d-inference-objective": "critical",
    "x-llm-d-model-name-rewrite": "qwen3-32b",
    "x-llm-d-slo-tpot-ms": "1",
    "x-llm-d-slo-ttft-ms": "1",
    "x-prefiller-host-port": "198.18.0.66:8000",
    "x-slo-tpot-ms": "1",
    "x-slo-ttft-ms": "1",
    "x-vllm-priority": "-1",
}
BODY_WITHOUT_KEY = chat("glm-5-1")


def test_every_trusted_header_is_claimed_here() -> None:
    assert set(TRUSTED_HEADERS) == CLAIMS.keys()


def heads_at_engines(
    cluster: Cluster, model: str, ask: Callable[[], None], path: str = "completions"
) -> list[dict[str, str]]:
    """Heads of the requests with this in their path that reach the model's replicas while `ask` runs."""
    taps = [
        subprocess.Popen(
            [*cluster.enter_argv(replica), sys.executable, str(Path(wire.__file__)), str(ENGINE_PORT), "60"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for replica in cluster.ready_replicas(model)
    ]
    heads: list[dict[str, str]] = []
    seen = threading.Event()

    def read(tap: subprocess.Popen[str]) -> None:
        assert tap.stdout is not None
        for line in tap.stdout:
            head = json.loads(line)
            if path in head[":line"]:
                heads.append(head)
                seen.set()

    try:
        for tap in taps:
            assert tap.stdout is not None
            assert tap.stdout.readline() == "ready\n"
        readers = [threading.Thread(target=read, args=(tap,), daemon=True) for tap in taps]
        for reader in readers:
            reader.start()
        ask()
        seen.wait(timeout=10)
    finally:
        for tap in taps:
            tap.kill()
            tap.wait()
    for reader in readers:
        reader.join(timeout=5)
    return heads


def test_claims_do_not_pass_and_the_key_stays_here(site: Site, cluster: Cluster) -> None:
    """The engine sees the client that the key belongs to, the picker's choice, and no key."""

    def ask() -> None:
        with site.http() as client:
            answer = client.post("/chat/completions", json=chat("glm-5-1"), headers=CLAIMS)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == "glm-5-1"

    (head,) = heads_at_engines(cluster, "glm-5-1", ask)
    assert head["x-gateway-inference-fairness-id"] == site.front.client
    assert head["x-ai-eg-model"] == "glm-5-1"
    addresses = {f"{replica.ip}:{ENGINE_PORT}" for replica in cluster.replicas("glm-5-1")}
    assert set(head["x-gateway-destination-endpoint"].split(",")) <= addresses
    assert head["x-ai-eg-original-path"] == "/v1/chat/completions"
    # The tenant's own tier, not the one that it claims.
    assert head["x-gateway-inference-objective"] == "interactive.glm-5-1"
    decided_inside = {
        "x-gateway-inference-fairness-id",
        "x-gateway-inference-objective",
        "x-ai-eg-model",
        "x-ai-eg-original-path",
        "x-gateway-destination-endpoint",
    }
    passed = {name: head[name] for name in CLAIMS if name in head and name not in decided_inside}
    assert not passed
    assert site.key not in json.dumps(head)
    assert "authorization" not in head
    assert "x-api-key" not in head


@pytest.mark.parametrize("claim", sorted(CLAIMS))
def test_no_claim_opens_another_model(site: Site, claim: str) -> None:
    """A tenant that may not call a model cannot reach it by any header."""
    with site.http(key=site.front.keys["globex.laptop"]) as client:
        answer = client.post("/chat/completions", json=chat("glm-5-1"), headers={claim: CLAIMS[claim]})
    assert answer.status_code == 403, answer.text
    assert error_of(answer)["code"] == "model_not_allowed"


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
        ("v1/completions", {"prompt": "hi"}),
        ("v1/responses", {"input": "hi"}),
        ("v1/embeddings", {"input": "hi"}),
        ("anthropic/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}),
    ],
)
def test_no_path_opens_another_model(site: Site, path: str, question: dict[str, Any]) -> None:
    """The list of models holds for every interface that the gateway speaks."""
    with site.http(key=site.front.keys["globex.laptop"]) as client:
        answer = client.post(f"{site.address}/{path}", json={"model": "glm-5-1", **question})
    assert answer.status_code == 403, answer.text
    assert error_of(answer)["code"] == "model_not_allowed"


@pytest.mark.parametrize(
    ("names", "status"),
    [
        ('"model": "glm-5\\u002d1"', 403),
        ('"model": "qwen3-32b", "model": "glm-5-1"', 403),
        ('"model": "glm-5-1", "model": "qwen3-32b"', 200),
        ('"model": "GLM-5-1"', 404),
        ('"model": "glm-5-1 "', 404),
        ('"model": ["glm-5-1"]', 400),
    ],
    ids=["escaped", "twice", "twice-reversed", "capitals", "blank", "list"],
)
def test_no_spelling_opens_another_model(site: Site, names: str, status: int) -> None:
    """Who checks and who routes read the same name, however it is written; of two the last one counts."""
    body = '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, ' + names + "}"
    with site.http(key=site.front.keys["globex.laptop"]) as client:
        answer = client.post("/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert status != 200 or answer.json()["model"] == "qwen3-32b"


def test_client_claims_of_an_allowed_client(site: Site) -> None:
    """A claim to be a client that may call the model has no effect."""
    claims = {"x-gateway-inference-fairness-id": site.front.client, "x-ai-eg-model": "glm-5-1"}
    with site.http(key=site.front.keys["globex.laptop"]) as client:
        assert client.post("/chat/completions", json=chat("glm-5-1"), headers=claims).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer sk-wrong"}, CLAIMS], ids=["none", "wrong", "claims"])
@pytest.mark.parametrize("model", ["glm-5-1", "qwen3-32b", "unknown"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/models",
        "/anthropic/v1/messages",
        "/",
        "/metrics",
        "/tokenize",
        "/admin/config",
    ],
)
def test_nothing_answers_without_a_key(site: Site, path: str, model: str, headers: dict[str, str]) -> None:
    """Keys are checked before the model is known: no path, and no model in the body, is answered without one."""
    with httpx.Client(base_url=site.address, trust_env=False, timeout=60) as client:
        answer = client.post(path, json={**BODY_WITHOUT_KEY, "model": model, "input": "hi"}, headers=headers)
    assert answer.status_code == 401, answer.text
    assert error_of(answer)["code"] == "invalid_api_key"


@pytest.mark.parametrize("path", ["/metrics", "/admin/config", "/fake_metrics", "/sleep", "/v1/load_lora_adapter"])
def test_engine_internals_are_not_served(site: Site, path: str) -> None:
    """With a key or not, only the API's own paths lead to an engine."""
    with site.http() as client:
        answer = client.post(f"{site.address}{path}", json=chat("glm-5-1"))
    assert answer.status_code == 404, answer.text
