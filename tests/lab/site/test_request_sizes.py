"""Long prompts: nothing between client and engine cuts them below the site's limit."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.lab.site.running_site import Site
from tests.lab.site.streams import chat, prompt_of, stream
from tests.lab.site.test_answers import PROTOCOLS, error_of

pytestmark = pytest.mark.row("000.03")

LIMIT_BYTES = 4 * 2**20  # gateway.max_body_mib, which the lab leaves at its default


@PROTOCOLS
@pytest.mark.parametrize("kilobytes", [200, 2_000, 4_180])
def test_large_prompts_reach_the_engine(site: Site, kilobytes: int, *, http2: bool) -> None:
    """Beyond Envoy's default buffer of 32 KiB; what does not fit the context is the engine's to refuse."""
    with site.http(timeout_s=180, http2=http2) as client:
        answer = client.post("/chat/completions", json=chat("glm-5-1", prompt_of(kilobytes)))
    if kilobytes <= 200:
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] > 30_000
    else:
        assert answer.status_code == 400, answer.text
        assert "maximum context length is 202752 tokens" in answer.json()["error"]["message"]


@PROTOCOLS
@pytest.mark.parametrize("kilobytes", [200, 700])
def test_large_prompts_stream(site: Site, kilobytes: int, *, http2: bool) -> None:
    """The answer to a long prompt streams and is counted."""

    async def ask() -> None:
        async with site.http_async(timeout_s=180, http2=http2) as client:
            answer = await stream(client, chat("glm-5-1", prompt_of(kilobytes), tokens=10, stream=True))
        assert answer.complete(10), answer
        assert answer.usage is not None
        assert answer.usage["prompt_tokens"] > 150 * kilobytes

    asyncio.run(ask())


@PROTOCOLS
@pytest.mark.parametrize("body_bytes", [LIMIT_BYTES - 2_000, LIMIT_BYTES + 1, 12_000_000])
def test_more_than_the_limit(site: Site, body_bytes: int, *, http2: bool) -> None:
    """What the picker could not read (500, half-way) is refused at the door, and the answer says why."""
    with site.http(timeout_s=60, http2=http2) as client:
        answer = client.post("/chat/completions", json=chat("glm-5-1", prompt_of(body_bytes // 1_000 + 1)))
    assert answer.status_code == 413, answer.text
    assert error_of(answer)["code"] == "request_too_large"


@PROTOCOLS
def test_more_than_the_limit_without_a_length(site: Site, *, http2: bool) -> None:
    """A body that does not say beforehand how long it is meets the same limit."""
    body = json.dumps(chat("glm-5-1", prompt_of(LIMIT_BYTES // 1_000 + 100))).encode()
    pieces = (body[start : start + 65_536] for start in range(0, len(body), 65_536))
    with site.http(timeout_s=60, http2=http2) as client:
        answer = client.post("/chat/completions", content=pieces, headers={"content-type": "application/json"})
    assert answer.status_code == 413, answer.text
    assert error_of(answer)["code"] == "request_too_large"
