"""Chat completions as a client sees them: every token with its time of arrival, and how the answer ended."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from tests.lab.site.replicas import Replica
from tests.lab.waiting import PATIENCE_S

# An engine with such a prefill answers nothing until its clients leave, however long a busy machine takes to ask.
HOLD_S = 1800
# The simulator's tokenizer counts a word as a token; what matters is that no two prompts share a prefix by chance.
_WORD_BYTES = 2


@dataclass(kw_only=True)
class Streamed:
    """One streamed answer. Times are seconds of the monotonic clock."""

    started: float = field(default_factory=time.monotonic)
    status: int = 0
    arrivals: list[float] = field(default_factory=list)
    """When each chunk with text came."""
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    done: bool = False
    """Whether [DONE] came."""
    refusal: str = ""
    """Body of an answer other than 200, an error event, or why the connection broke."""
    retry_after: str | None = None
    """What the answer says of when to come again."""
    ended: float = 0.0

    @property
    def tokens(self) -> int:
        return len(self.arrivals)

    @property
    def seconds(self) -> float:
        return self.ended - self.started

    @property
    def first_token_s(self) -> float:
        return self.arrivals[0] - self.started

    @property
    def gaps(self) -> list[float]:
        """Seconds between one token and the next."""
        return [after - before for before, after in pairwise(self.arrivals)]

    def complete(self, tokens: int) -> bool:
        """Whether the answer came whole, with exactly so many tokens."""
        return self.status == 200 and self.done and not self.refusal and self.tokens == tokens


def chat(model: str, prompt: str = "hi", *, tokens: int = 4, stream: bool = False) -> dict[str, Any]:
    """A request for an answer of exactly `tokens` tokens."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        # The simulator otherwise ends an answer where its dice say.
        "ignore_eos": True,
        **({"stream": True} if stream else {}),
    }


def fresh_prompt(tokens: int) -> str:
    """About so many tokens that no earlier prompt began with."""
    return " ".join(secrets.token_hex(_WORD_BYTES) for _ in range(tokens))


def prompt_of(kilobytes: int) -> str:
    """A text of that many KB that no earlier prompt began with."""
    return (secrets.token_hex(16) + " " + "lorem " * (kilobytes * 1000 // 6 + 1))[: kilobytes * 1000]


async def stream(
    client: httpx.AsyncClient,
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
    answer: Streamed | None = None,
) -> Streamed:
    """Send and read to the end. Never raises: what went wrong is in `refusal`.

    answer: filled as the tokens come, for a caller that watches.
    """
    answer = answer or Streamed()
    try:
        async with client.stream("POST", "/chat/completions", json=body, headers=headers) as response:
            answer.status = response.status_code
            answer.retry_after = response.headers.get("retry-after")
            if response.status_code != 200:
                answer.refusal = (await response.aread()).decode(errors="replace")
            else:
                async for line in _lines(response):
                    _take(answer, line)
    except httpx.HTTPError as error:
        answer.refusal = f"{type(error).__name__}: {error}"
    answer.ended = time.monotonic()
    return answer


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines of events. httpx's own end at each of Unicode's separators, which a random model writes too."""
    rest = b""
    async for part in response.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line.decode()


def _take(answer: Streamed, line: str) -> None:
    data = line.removeprefix("data:").strip()
    if not line.startswith("data:"):
        return
    if data == "[DONE]":
        answer.done = True
        return
    event = json.loads(data)
    if "error" in event:
        answer.refusal = data
        return
    answer.usage = event.get("usage") or answer.usage
    for choice in event.get("choices", []):
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        delta = choice.get("delta", {})
        if delta.get("content") or delta.get("reasoning"):
            answer.arrivals.append(time.monotonic())


async def all_arrived(
    replicas: Sequence[Replica], asked: Sequence[asyncio.Task[Streamed]]
) -> tuple[list[Streamed], int]:
    """Wait until each request is answered or at an engine: the answers, and how many the engines run or queue."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            held = sum(await asyncio.gather(*(asyncio.to_thread(replica.under_way) for replica in replicas)))
            answers = [task.result() for task in asked if task.done()]
            if held + len(answers) >= len(asked):
                return answers, held
            await asyncio.sleep(0.5)
