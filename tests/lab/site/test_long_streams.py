"""Streams and silences of more than five minutes, all at the same time.

The simulators are slowed down for it, to 250 ms a token and 40 ms a prompt token.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.lab.site.replicas import Cluster
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, fresh_prompt, stream

pytestmark = [pytest.mark.exhaustive, pytest.mark.row("000.31")]

# Beyond the AI gateway's 60 s for a request, the 300 s for a message to the picker, Envoy's 300 s of silence.
TRAP_S = 310
LONG_TOKENS = 1_300
SILENT_PROMPT_TOKENS = 8_200
_PATIENCE_S = 900


@dataclass(kw_only=True)
class Marathon:
    """What the clients of those minutes saw."""

    long: dict[str, Streamed]
    """By protocol."""
    silent: Streamed
    silent_whole: httpx.Response | httpx.HTTPError


@pytest.fixture(scope="module")
def marathon(site: Site, cluster: Cluster) -> Marathon:
    with cluster.pace(
        "glm-5-1", inter_token_latency="250ms", prefill_time_per_token="40ms", time_factor_under_load=1.0
    ):
        return asyncio.run(_run(site))


async def _run(site: Site) -> Marathon:
    async with (
        site.http_async(_PATIENCE_S) as client,
        site.http_async(_PATIENCE_S, http2=True) as client2,
        asyncio.TaskGroup() as tasks,
    ):
        endless = chat("glm-5-1", tokens=LONG_TOKENS, stream=True)
        long = tasks.create_task(stream(client, endless))
        long2 = tasks.create_task(stream(client2, endless))
        silent = tasks.create_task(
            stream(client, chat("glm-5-1", fresh_prompt(SILENT_PROMPT_TOKENS), tokens=4, stream=True))
        )
        whole = tasks.create_task(_ask(client, chat("glm-5-1", fresh_prompt(SILENT_PROMPT_TOKENS))))
    return Marathon(
        long={"http1": long.result(), "http2": long2.result()},
        silent=silent.result(),
        silent_whole=whole.result(),
    )


async def _ask(client: httpx.AsyncClient, body: dict[str, Any]) -> httpx.Response | httpx.HTTPError:
    try:
        return await client.post("/chat/completions", json=body)
    except httpx.HTTPError as error:
        return error


@pytest.mark.parametrize("protocol", ["http1", "http2"])
def test_a_stream_of_more_than_five_minutes(marathon: Marathon, protocol: str) -> None:
    """Beyond AI gateway's 60 s and Envoy's 300 s: not cut, and every token comes when it is made."""
    answer = marathon.long[protocol]
    assert answer.complete(LONG_TOKENS), (answer.status, answer.tokens, answer.refusal)
    assert answer.seconds > TRAP_S
    assert answer.first_token_s < 30
    assert statistics.median(answer.gaps) == pytest.approx(0.25, rel=0.2)
    together = sum(gap < 0.05 for gap in answer.gaps)
    assert together < LONG_TOKENS / 10, f"{together} tokens came with the one before: something buffers"


def test_a_silent_prefill_of_more_than_five_minutes(marathon: Marathon) -> None:
    """A stream without a byte for longer than any default timeout still gets its answer."""
    answer = marathon.silent
    assert answer.complete(4), (answer.status, answer.seconds, answer.refusal)
    assert answer.first_token_s > TRAP_S


def test_a_whole_answer_after_more_than_five_minutes(marathon: Marathon) -> None:
    """The same when not even response headers come before the end."""
    answer = marathon.silent_whole
    assert isinstance(answer, httpx.Response), repr(answer)
    assert answer.status_code == 200, answer.text
    assert answer.elapsed.total_seconds() > TRAP_S
    assert answer.json()["usage"]["completion_tokens"] == 4
