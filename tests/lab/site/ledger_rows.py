"""What a site's ledger has in its database, and requests that can be found there again."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import httpx

from floor.headers import PROMPT_ID_HEADER
from lab.cluster import operator_database
from lab.paths import Lab
from tests.lab.site.running_site import Site
from tests.lab.site.streams import Streamed, chat, stream

_APART_S = 0.1
_ROWS = "SELECT coalesce(json_agg({table}), '[]') FROM {table}"


class Ledger:
    """Its table of requests."""

    def __init__(self, lab: Lab) -> None:
        self._psql = str(lab.bin / "psql")
        self._url = operator_database.url(lab, operator_database.USAGE)

    def rows(self, prompt_ids: Collection[str]) -> list[dict[str, Any]]:
        """Those of these prompts. Raises OSError while the database is away."""
        return [row for row in self._all() if row["prompt_id"] in prompt_ids]

    def doubles(self) -> int:
        """Rows more than there are requests."""
        ids = [row["id"] for row in self._all()]
        return len(ids) - len(set(ids))

    def networks(self, tenant: str) -> set[str]:
        """Digests of the networks that its keys came from, where keys are watched."""
        return {row["network"] for row in self._all("recent_networks") if row["tenant"] == tenant}

    def _all(self, table: str = "requests") -> list[dict[str, Any]]:
        query = _ROWS.format(table=table)
        words = ["--no-psqlrc", "--tuples-only", "--no-align", "--command", query, self._url]
        done = subprocess.run([self._psql, *words], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise OSError(done.stderr)
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows


def fresh_id() -> str:
    """A client's id of a prompt, of which there is one."""
    return f"prompt_{secrets.token_hex(8)}"


def counted(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Tokens of prompt, of these cached, and of the answer, in either of OpenAI's forms."""
    prompt = usage.get("prompt_tokens", usage.get("input_tokens", 0))
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    answer = usage.get("completion_tokens", usage.get("output_tokens", 0))
    return prompt, details.get("cached_tokens") or 0, answer or 0


def counted_in(row: dict[str, Any]) -> tuple[int, int, int]:
    """The same of a row."""
    return row["input_tokens"], row["cached_input_tokens"], row["output_tokens"]


@dataclass(kw_only=True)
class MeteredLoad:
    """Requests that arrive while something happens, and what those that ended whole reported."""

    model: str
    tokens: int = 20
    finished: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Prompt id -> tokens."""
    failed: list[str] = field(default_factory=list)

    async def during(self, site: Site, work: Callable[[], object]) -> None:
        """Whole answers and streams by turns, until `work` has returned."""
        under_way: set[asyncio.Task[None]] = set()

        async def arrive(client: httpx.AsyncClient) -> None:
            while True:
                for kind in (self._ask, self._stream):
                    task = asyncio.create_task(kind(client))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                    await asyncio.sleep(_APART_S)

        async with site.http_async(120) as client:
            arriving = asyncio.create_task(arrive(client))
            try:
                await asyncio.to_thread(work)
            finally:
                arriving.cancel()
                await asyncio.gather(*under_way)

    async def _ask(self, client: httpx.AsyncClient) -> None:
        prompt_id = fresh_id()
        headers = {PROMPT_ID_HEADER: prompt_id}
        try:
            answer = await client.post("/chat/completions", json=chat(self.model, tokens=self.tokens), headers=headers)
        except httpx.HTTPError as error:
            self.failed.append(type(error).__name__)
            return
        if answer.status_code == 200:
            self.finished[prompt_id] = counted(answer.json()["usage"])
        else:
            self.failed.append(answer.text)

    async def _stream(self, client: httpx.AsyncClient) -> None:
        prompt_id = fresh_id()
        body = chat(self.model, tokens=self.tokens, stream=True) | {"stream_options": {"include_usage": True}}
        answer: Streamed = await stream(client, body, {PROMPT_ID_HEADER: prompt_id})
        if answer.complete(self.tokens) and answer.usage:
            self.finished[prompt_id] = counted(answer.usage)
        else:
            self.failed.append(answer.refusal)
