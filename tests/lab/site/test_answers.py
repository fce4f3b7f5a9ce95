"""Answers through Envoy, AI gateway, picker and engine: whole and streamed, both protocols, and what they count."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream

pytestmark = pytest.mark.row("000.28", "004.01")

MODELS = ("glm-5-1", "qwen3-32b")
PROTOCOLS = pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])


def streamed(site: Site, body: dict[str, Any], *, http2: bool = False) -> Streamed:
    async def ask() -> Streamed:
        async with site.http_async(http2=http2) as client:
            return await stream(client, body)

    return asyncio.run(ask())


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer in OpenAI's form."""
    assert answer.headers["content-type"].startswith("application/json"), answer.text
    error = answer.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    return dict(error)


@PROTOCOLS
@pytest.mark.parametrize("model", MODELS)
def test_whole_answer(site: Site, model: str, *, http2: bool) -> None:
    """A completion in one piece, over both protocols."""
    with site.http(http2=http2) as client:
        answer = client.post("/chat/completions", json=chat(model, tokens=7))
    assert answer.status_code == 200, answer.text
    assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
    body = answer.json()
    assert body["model"] == model
    assert body["choices"][0]["message"]["content"]
    assert body["usage"]["completion_tokens"] == 7
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 7


@PROTOCOLS
@pytest.mark.parametrize("model", MODELS)
def test_streamed_answer_counts_tokens_unasked(site: Site, model: str, *, http2: bool) -> None:
    """Usage ends each stream, asked for or not."""
    answer = streamed(site, chat(model, tokens=20, stream=True), http2=http2)
    assert answer.complete(20), answer
    assert answer.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 20
    assert answer.usage["prompt_tokens"] > 0


def test_a_client_cannot_switch_the_count_off(site: Site) -> None:
    """`include_usage: false` is overruled."""
    answer = streamed(site, {**chat("glm-5-1", tokens=5, stream=True), "stream_options": {"include_usage": False}})
    assert answer.complete(5), answer
    assert answer.usage is not None
    assert answer.usage["completion_tokens"] == 5


def test_either_header_carries_the_key(site: Site) -> None:
    """OpenAI's clients send one header, Anthropic's the other."""
    with httpx.Client(base_url=site.front.endpoint, trust_env=False, timeout=60) as client:
        for headers in ({"x-api-key": site.key}, {"Authorization": f"Bearer {site.key}"}):
            assert client.post("/chat/completions", json=chat("qwen3-32b"), headers=headers).status_code == 200


def test_model_list_needs_a_key_and_says_simulator(site: Site) -> None:
    """The cards name who answers; no one mistakes a simulator's text for a model's."""
    with httpx.Client(base_url=site.front.endpoint, trust_env=False, timeout=60) as nobody:
        refused = nobody.get("/models")
    assert refused.status_code == 401
    assert error_of(refused)["code"] == "invalid_api_key"
    assert _owners(site, site.key) == {
        **dict.fromkeys(("glm-5-1", "glm-5.1", "zai-org/GLM-5.1-FP8"), "simulator of zai-org/GLM-5.1-FP8"),
        "qwen3-32b": "simulator of Qwen/Qwen3-32B-FP8",
    }


def test_a_tenant_sees_its_own_models_alone(site: Site) -> None:
    """The names of others' models are theirs."""
    assert _owners(site, site.front.keys["globex.laptop"]) == {"qwen3-32b": "simulator of Qwen/Qwen3-32B-FP8"}


def _owners(site: Site, key: str) -> dict[str, str]:
    with site.http(key=key) as client:
        listed = client.get("/models").raise_for_status().json()
    assert listed["object"] == "list"
    assert all(card["object"] == "model" and isinstance(card["created"], int) for card in listed["data"])
    return {card["id"]: card["owned_by"] for card in listed["data"]}


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b'{"model": "glm-5-1", "messages": [', 400, "invalid_request"),
        (b'{"messages": [{"role": "user", "content": "hi"}]}', 400, "missing_required_parameter"),
        (b'{"model": "a \\"b\\"", "messages": [{"role": "user", "content": "hi"}]}', 404, "model_not_found"),
    ],
    ids=["malformed", "no-model", "quoted-model"],
)
def test_refusals_are_valid_json(site: Site, content: bytes, status: int, code: str) -> None:
    """The gateway's own refusals have OpenAI's form, whatever the client wrote."""
    with site.http() as client:
        answer = client.post("/chat/completions", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert error_of(answer)["code"] == code


def test_unknown_path(site: Site) -> None:
    """A wrong path is no model's fault."""
    with site.http() as client:
        answer = client.post("/chat/completion", json=chat("glm-5-1"))
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "unknown_path"
