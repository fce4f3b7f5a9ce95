"""A model is asked by its aliases as by its name, with the same tenants, tier and replicas: the real gateway."""

from __future__ import annotations

import json

import pytest

from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat
from tests.lab.site.test_answers import error_of
from tests.lab.site.test_identity import heads_at_engines

pytestmark = pytest.mark.row("000.36", "004.11")

MODEL, ALIASES = "glm-5-1", ["glm-5.1", "zai-org/GLM-5.1-FP8"]


@pytest.mark.parametrize("alias", ALIASES)
def test_an_answer_to_an_alias_carries_the_models_own_name(site: Site, alias: str) -> None:
    with site.http() as client:
        answer = client.post("/chat/completions", json=chat(alias))
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == MODEL


def test_so_does_every_chunk_of_a_stream(site: Site) -> None:
    body = chat(ALIASES[1], tokens=20, stream=True)
    with site.http() as client, client.stream("POST", "/chat/completions", json=body) as answer:
        assert answer.status_code == 200, answer.read()
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    assert len(lines) > 20
    assert {json.loads(line)["model"] for line in lines[:-1]} == {MODEL}


@pytest.mark.parametrize(
    ("path", "question"), [("completions", {"prompt": "hi", "max_tokens": 4}), ("responses", {"input": "hi"})]
)
def test_other_paths_take_an_alias_too(site: Site, path: str, question: dict[str, object]) -> None:
    with site.http() as client:
        answer = client.post(f"/{path}", json={"model": ALIASES[0], **question})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == MODEL


def test_behind_the_gateway_there_is_the_models_own_name_alone(site: Site, cluster: Cluster) -> None:
    """What limits, tiers and logs go by is no alias."""

    def ask() -> None:
        with site.http() as client:
            assert client.post("/chat/completions", json=chat(ALIASES[1])).status_code == 200

    (head,) = heads_at_engines(cluster, MODEL, ask)
    assert head["x-ai-eg-model"] == MODEL
    assert head["x-gateway-inference-objective"] == f"interactive.{MODEL}"
    assert head["x-gateway-inference-fairness-id"] == site.front.client


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_opens_no_model_that_the_tenant_may_not_call(site: Site, alias: str) -> None:
    with site.http(key=site.front.keys["globex.laptop"]) as client:
        answer = client.post("/chat/completions", json=chat(alias))
        claimed = client.post("/chat/completions", json=chat(alias), headers={"x-ai-eg-model": "qwen3-32b"})
        listed = {card["id"] for card in client.get("/models").json()["data"]}
    for refused in (answer, claimed):
        assert refused.status_code == 403, refused.text
        assert error_of(refused)["code"] == "model_not_allowed"
    assert listed == {"qwen3-32b"}


def test_aliases_are_listed_beside_the_name(site: Site) -> None:
    with site.http() as client:
        cards = client.get("/models").json()["data"]
    assert {card["id"] for card in cards} == {MODEL, *ALIASES, "qwen3-32b"}
    assert len({card["owned_by"] for card in cards if card["id"] != "qwen3-32b"}) == 1


@pytest.mark.parametrize("name", ["GLM-5.1", "glm-5.1 ", "glm-5.1/", "zai-org"])
def test_what_only_looks_like_an_alias_is_no_model(site: Site, name: str) -> None:
    with site.http() as client:
        answer = client.post("/chat/completions", json=chat(name))
    assert answer.status_code == 404, answer.text
