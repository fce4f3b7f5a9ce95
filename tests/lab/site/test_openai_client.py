"""OpenAI's Python client, unmodified: answers, streams, the list of models, and the exceptions that it documents."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from tests.lab.site.running_site import Site
from tests.lab.site.streams import prompt_of

pytestmark = pytest.mark.row("000.30", "000.08")

HELLO: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def official(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[openai.OpenAI]:
    # A proxy that the machine uses for the internet cannot know the lab's addresses.
    monkeypatch.setenv("NO_PROXY", "*")
    with openai.OpenAI(base_url=site.front.endpoint, api_key=site.key, max_retries=0, timeout=60) as client:
        yield client


def test_chat(official: openai.OpenAI) -> None:
    """A whole answer and its count."""
    answer = official.chat.completions.create(model="glm-5-1", messages=HELLO, max_tokens=16)
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


def test_streaming(official: openai.OpenAI) -> None:
    """Chunks come one by one; the last one counts them."""
    chunks = list(official.chat.completions.create(model="qwen3-32b", messages=HELLO, max_tokens=16, stream=True))
    words = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    usage = chunks[-1].usage
    assert words
    assert usage is not None
    assert usage.completion_tokens == len(words)


def test_list_of_models(official: openai.OpenAI, site: Site) -> None:
    """The names that a client may ask for."""
    assert sorted(model.id for model in official.models.list()) == [
        "glm-5-1",
        "glm-5.1",
        "qwen3-32b",
        "zai-org/GLM-5.1-FP8",
    ]
    globex = official.with_options(api_key=site.front.keys["globex.laptop"])
    assert [model.id for model in globex.models.list()] == ["qwen3-32b"]


def test_wrong_key(official: openai.OpenAI) -> None:
    """401 is AuthenticationError."""
    with pytest.raises(openai.AuthenticationError) as caught:
        official.with_options(api_key="sk-wrong").chat.completions.create(model="glm-5-1", messages=HELLO)
    assert caught.value.code == "invalid_api_key"


def test_unknown_model(official: openai.OpenAI) -> None:
    """404 is NotFoundError, and it says which model."""
    with pytest.raises(openai.NotFoundError) as caught:
        official.chat.completions.create(model="gpt-nothing", messages=HELLO)
    assert caught.value.code == "model_not_found"
    assert caught.value.param == "model"
    assert "gpt-nothing" in caught.value.message


def test_model_of_others(official: openai.OpenAI, site: Site) -> None:
    """The models of a key are a list: 403 is PermissionDeniedError, and the tenant's own model answers."""
    globex = official.with_options(api_key=site.front.keys["globex.laptop"])
    with pytest.raises(openai.PermissionDeniedError) as caught:
        globex.chat.completions.create(model="glm-5-1", messages=HELLO)
    assert caught.value.code == "model_not_allowed"
    assert "glm-5-1" in caught.value.message
    assert globex.chat.completions.create(model="qwen3-32b", messages=HELLO, max_tokens=4).choices


def test_too_long_context(official: openai.OpenAI) -> None:
    """The engine's own message about its limit reaches the client."""
    with pytest.raises(openai.BadRequestError) as caught:
        official.chat.completions.create(
            model="qwen3-32b", messages=[{"role": "user", "content": prompt_of(400)}], max_tokens=4
        )
    assert "maximum context length is 40960 tokens" in caught.value.message


def test_message_of_a_wrong_shape(official: openai.OpenAI) -> None:
    """A body that is JSON but no chat is the client's mistake."""
    with pytest.raises(openai.BadRequestError):
        official.post("/chat/completions", cast_to=object, body={"model": "glm-5-1", "messages": "hello"})
