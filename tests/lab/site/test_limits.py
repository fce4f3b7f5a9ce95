"""Tenants' limits on the real gateway, limit service and store: what is charged, who is refused, and what they read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import openai
import pytest
from kubernetes import client

from components.addons.gateways import COUNTERS
from floor.headers import TENANT_HEADER
from floor.namespaces import GATEWAY
from tests.lab.site.replicas import until
from tests.lab.site.running_site import Site
from tests.lab.site.stack_changes import Document, EditedStack, edited_stack
from tests.lab.site.streams import chat

pytestmark = [
    pytest.mark.row("000.32", "000.33", "000.34", "001.07", "001.14", "004.03", "004.11"),
    pytest.mark.row("opening 6", "opening 19"),
]

MODELS = ["qwen3-32b", "glm-5-1"]
PER_MINUTE, PER_DAY = 3, 1_000_000
LEFT = "x-ratelimit-remaining-tokens"
# Answers in a row, each over a connection of its own.
IN_FORCE = 20
COMPLETION: dict[str, Any] = {"model": MODELS[0], "prompt": "hello", "max_tokens": 20, "ignore_eos": True}
MESSAGE = {key: value for key, value in chat(MODELS[0], "hello " * 50, tokens=20).items() if key != "ignore_eos"}
MESSAGES = "/../anthropic/v1/messages"
ANTHROPIC = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")


def _limited(site: Document) -> None:
    site["plans"] = {"brisk": {"requests_per_minute": PER_MINUTE}, "daily": {"tokens_per_day": PER_DAY}}
    site["tenants"] |= {
        "brisk": {"models": MODELS, "keys": {"one": {}, "two": {}}, "plan": "brisk"},
        "counted": {"models": MODELS, "keys": {"one": {}}, "plan": "daily"},
        "narrow": {
            "models": MODELS,
            "keys": {"one": {"limits": {"requests_per_minute": 1}}, "two": {}},
            "model_limits": {MODELS[1]: {"requests_per_minute": 1}},
        },
        "spent": {"models": MODELS, "keys": {"one": {}}, "plan": "daily", "limits": {"tokens_per_day": 1}},
    }


@pytest.fixture(scope="module")
def stack(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EditedStack]:
    with edited_stack(site.lab, tmp_path_factory.mktemp("limits")) as edited:
        yield edited


@pytest.fixture(scope="module")
def keys(site: Site, stack: EditedStack) -> dict[str, str]:
    """Of the site with plans, once limits are in force."""
    keys = stack.up(_limited).keys
    # Each of Envoy's threads asks one of the two pods, and a pod without its rules limits nothing.
    until(lambda: all(LEFT in ask(site, keys["counted.one"]).headers for _ in range(IN_FORCE)), what="limits in force")
    return keys


def ask(site: Site, key: str, path: str = "/chat/completions", **body: Any) -> httpx.Response:
    with site.http(key=key) as http:
        return http.post(path, json=body or chat(MODELS[0], tokens=1), headers={TENANT_HEADER: "acme"})


def nearest(headers: Mapping[str, str]) -> dict[str, str]:
    """What an answer has of a limit, by what is behind `x-ratelimit-`; the wait is as `retry-after` has it."""
    read = {name.removeprefix("x-ratelimit-"): value for name, value in headers.items() if "ratelimit" in name}
    resets = [name for name in read if name.startswith("reset-")]
    for name in resets:
        parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(\d+)s", read.pop(name))
        assert parts
        hours, minutes, seconds = map(int, parts.groups(default="0"))
        assert headers.get("retry-after") in (None, str(hours * 3600 + minutes * 60 + seconds))
    assert len(resets) == bool(read)
    return read


class Meter:
    """What a tenant's other requests used, by what its own questions are told is left; each question costs too."""

    def __init__(self, site: Site, key: str) -> None:
        self._site, self._key, self._asked = site, key, 0
        self._own = total(ask(site, key).text)
        # The one before may not be charged yet.
        levels = [self._level(), self._level()]
        while levels[-1] != levels[-2]:
            levels.append(self._level())
        self._start = levels[-1]

    def charged(self) -> int:
        """Tokens since it was made, as far as they are charged: an answer ends before its charge is counted."""
        return self._start - self._level()

    def _counted(self) -> httpx.Response | None:
        answer = ask(self._site, self._key)
        assert answer.status_code == 200, answer.text
        return answer if LEFT in answer.headers else None

    def _level(self) -> int:
        """What would be left without its questions."""
        # One that is answered without the limit service, because that is late, is not charged either.
        answer = until(self._counted, what="an answer of the limit service")
        self._asked += 1
        return int(answer.headers[LEFT]) + self._own * (self._asked - 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/chat/completions", chat(MODELS[0], "hello " * 50, tokens=20)),
        ("/chat/completions", chat(MODELS[1], "hello " * 50, tokens=20)),
        ("/chat/completions", chat(MODELS[0], tokens=20, stream=True) | {"stream_options": {"include_usage": True}}),
        ("/chat/completions", chat(MODELS[0], tokens=20, stream=True)),
        ("/completions", COMPLETION),
        ("/completions", COMPLETION | {"stream": True, "stream_options": {"include_usage": True}}),
        ("/responses", {"model": MODELS[0], "input": "hello", "max_output_tokens": 20}),
        ("/responses", {"model": MODELS[0], "input": "hello", "max_output_tokens": 20, "stream": True}),
        ("/embeddings", {"model": MODELS[0], "input": ["hello", "and goodbye"]}),
        (MESSAGES, MESSAGE),
    ],
)
def test_an_answer_costs_the_tokens_that_it_reports(
    site: Site, keys: dict[str, str], path: str, body: dict[str, Any]
) -> None:
    """Whole or streamed, and of a chat also where the client did not ask for the count: the gateway does."""
    meter = Meter(site, keys["counted.one"])
    answer = ask(site, keys["counted.one"], path, **body)
    assert answer.status_code == 200, answer.text
    until(lambda: meter.charged() == total(answer.text), what=f"a charge of {total(answer.text)} tokens")


def test_a_streamed_message_costs_its_prompt_too(site: Site, keys: dict[str, str]) -> None:
    """Its events report the answer alone (AI gateway v1.0.0, internal/translator/anthropic_openai.go)."""
    prompt = ask(site, keys["counted.one"], MESSAGES, **MESSAGE).json()["usage"] | {"output_tokens": 0}
    meter = Meter(site, keys["counted.one"])
    answer = ask(site, keys["counted.one"], MESSAGES, **MESSAGE, stream=True)
    tokens = total(json.dumps(prompt)) + total(answer.text)
    until(lambda: meter.charged() == tokens, what=f"a charge of {tokens} tokens")


def test_a_stream_that_its_client_leaves_is_charged(site: Site, keys: dict[str, str]) -> None:
    """For its prompt, by its bytes, and for what went by; not for what the engine never wrote."""
    prompt, tokens, read = "word " * 400, 2000, 10
    meter = Meter(site, keys["counted.one"])
    body = chat(MODELS[0], prompt, tokens=tokens, stream=True)
    with site.http(key=keys["counted.one"]) as http, http.stream("POST", "/chat/completions", json=body) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:"))
        for _ in range(read):
            next(lines)
    until(lambda: meter.charged() >= len(prompt) // 4 + read, what="a charge for what went by")
    assert meter.charged() < len(prompt) // 4 + tokens


def test_a_tenants_keys_and_models_draw_on_one_limit(site: Site, keys: dict[str, str]) -> None:
    """And no header of a client's moves it to another tenant. Another one goes on."""
    refused: httpx.Response | None = None
    answers = []
    # A minute may end between two of them, and another begin.
    for number in range(2 * PER_MINUTE + 1):
        answer = ask(site, keys[f"brisk.{('one', 'two')[number % 2]}"], **chat(MODELS[number % 2]))
        answers.append(answer.status_code)
        refused = answer if answer.status_code == 429 else refused
    assert refused is not None, answers
    assert answers.count(200) >= PER_MINUTE
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert nearest(refused.headers) == {"limit-requests": str(PER_MINUTE), "remaining-requests": "0"}
    assert "x-should-retry" not in refused.headers
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    unlimited = ask(site, keys["acme.laptop"])
    assert unlimited.status_code == 200
    assert not nearest(unlimited.headers)


def test_a_key_and_a_model_have_limits_of_their_own(site: Site, keys: dict[str, str]) -> None:
    """What one key has used, another one has not, and the same of models."""

    def status(key: str, model: str) -> int:
        return ask(site, keys[f"narrow.{key}"], **chat(model, tokens=1)).status_code

    until(lambda: status("one", MODELS[0]) == 429, what="a key at its limit")
    assert status("two", MODELS[0]) == 200
    until(lambda: status("two", MODELS[1]) == 429, what="a model at its tenant's limit")
    assert [status("two", MODELS[0]) for _ in range(PER_MINUTE)] == [200] * PER_MINUTE
    assert ask(site, keys["counted.one"], **chat(MODELS[1])).status_code == 200


@pytest.fixture
def spent(site: Site, keys: dict[str, str]) -> str:
    """Key of a tenant that has used its day."""
    key = keys["spent.one"]
    until(lambda: ask(site, key).status_code == 429, what="a refusal of what is spent")
    return key


def test_a_client_does_not_try_again_what_cannot_succeed(
    site: Site, spent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spent day has OpenAI's own code for it, and its library, which tries twice more by default, asks once."""
    # A proxy that the machine uses for the internet cannot know the lab's addresses.
    monkeypatch.setenv("NO_PROXY", "*")
    asked: list[object] = []
    counting = openai.DefaultHttpxClient(event_hooks={"request": [asked.append]}, verify=site.front.trust)
    with openai.OpenAI(base_url=site.front.endpoint, api_key=spent, timeout=60, http_client=counting) as official:

        def refusal() -> openai.RateLimitError | None:
            asked.clear()
            try:
                official.chat.completions.create(model=MODELS[0], messages=[{"role": "user", "content": "hi"}])
            except openai.RateLimitError as error:
                return error
            # Answered without the limit service, because that is late.
            return None

        caught = until(refusal, what="a refusal of what is spent")
    assert len(asked) == 1
    assert caught.code == "insufficient_quota"
    assert int(caught.response.headers["retry-after"]) > 120
    assert nearest(caught.response.headers) == {"limit-tokens": "1", "remaining-tokens": "0"}


@pytest.mark.exhaustive
def test_counters_that_are_away_admit_or_refuse_and_forget_nothing(
    site: Site, stack: EditedStack, keys: dict[str, str], spent: str
) -> None:
    """By the site's choice; the store has on its volume what it counted."""
    unlimited = keys["acme.laptop"]
    _stores(site, 0)
    until(lambda: ask(site, spent).status_code == 200, what="an admission without counters")

    def strict(document: Document) -> None:
        _limited(document)
        document["counters"] = {"when_away": "refuse"}

    stack.up(strict)
    _stores(site, 1)
    until(lambda: ask(site, spent).status_code == 429, what="a refusal of what was spent before")
    _stores(site, 0)
    until(lambda: ask(site, unlimited).status_code == 503, what="a refusal")
    refusal = ask(site, unlimited)
    assert refusal.json()["error"]["code"] == "limits_unavailable"
    assert refusal.headers["retry-after"]
    _stores(site, 1)
    until(lambda: ask(site, unlimited).status_code == 200, what="an answer with counters again")


def _stores(site: Site, replicas: int) -> None:
    apps = client.AppsV1Api(site.kubernetes())
    apps.patch_namespaced_stateful_set_scale(COUNTERS, GATEWAY, {"spec": {"replicas": replicas}})


def total(text: str) -> int:
    """The last count of tokens in an answer; Anthropic's has one for each kind."""
    counts = {name: int(count) for name, count in re.findall(r'"(\w+_tokens)":\s*(\d+)', text)}
    return counts["total_tokens"] if "total_tokens" in counts else sum(counts.get(name, 0) for name in ANTHROPIC)
