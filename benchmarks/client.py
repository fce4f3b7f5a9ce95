"""A small HTTP/1.1 client for streamed completions; cheap, because it shares the cores with what it measures."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from lab.errors import LabError

_PATIENCE_S = 120.0
_LINE_BYTES = 2**20
Read = TypeVar("Read")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One streamed completion as its client saw it; times in seconds from the first byte sent."""

    first_token_s: float
    whole_s: float
    text: str
    pieces: int
    """Events that carry a choice: an engine sends several tokens in one where its front end is behind."""
    prompt_tokens: int
    cached_tokens: int


class Connection:
    """One kept-alive connection, one request at a time."""

    def __init__(self, base_url: str, headers: Mapping[str, str], *, trust: ssl.SSLContext | bool = True) -> None:
        parts = urlsplit(base_url)
        self._host = parts.hostname or ""
        self._tls = trust if parts.scheme == "https" else None
        self._port = parts.port or (80 if self._tls is None else 443)
        self._path = f"{parts.path.rstrip('/')}/chat/completions"
        self._headers = {"Host": parts.netloc, "Content-Type": "application/json", **headers}
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def stream(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        """Send the request and read its stream to the end. Raises LabError on anything but a complete answer."""
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        return await self._ask(streamed, headers or {}, self._read)

    async def whole(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send the request and take its answer in one piece. Raises LabError on anything but a complete answer."""
        return await self._ask({**body, "stream": False}, {}, self._read_whole)

    async def _ask(
        self, body: Mapping[str, Any], headers: Mapping[str, str], read: Callable[[float], Awaitable[Read]]
    ) -> Read:
        payload = json.dumps(body).encode()
        head = {**self._headers, **headers, "Content-Length": str(len(payload))}
        lines = [f"POST {self._path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, limit=_LINE_BYTES
            )
        started = time.perf_counter()
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + payload)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await read(started)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self._close()
            raise LabError(f"the stream broke: {error!r}", fix="python -m lab logs") from error

    async def _begun(self) -> Mapping[str, str]:
        """Headers of an answer that is none of a failure."""
        assert self._reader is not None
        status, headers = await _head(self._reader)
        if status != 200:
            text = b"".join([chunk async for chunk in _body(self._reader, headers)]).decode(errors="replace")
            raise LabError(f"the answer was {status}: {text[:300]}", fix="python -m lab status")
        return headers

    async def _read_whole(self, _: float) -> Mapping[str, Any]:
        headers = await self._begun()
        assert self._reader is not None
        answer: Mapping[str, Any] = json.loads(b"".join([chunk async for chunk in _body(self._reader, headers)]))
        return answer

    async def _read(self, started: float) -> Answer:
        headers = await self._begun()
        assert self._reader is not None
        first, received = 0.0, bytearray()
        async for chunk in _body(self._reader, headers):
            received += chunk
            if not first and _has_token(received):
                first = time.perf_counter()
        ended = time.perf_counter()
        events = [
            json.loads(line[5:])
            # `splitlines` ends at each of Unicode's separators, which an answer may hold.
            for line in received.decode().split("\n")
            if line.startswith("data:") and not line.rstrip().endswith("[DONE]")
        ]
        usage = next(event["usage"] for event in reversed(events) if event.get("usage"))
        return Answer(
            first_token_s=first - started,
            whole_s=ended - started,
            pieces=sum(bool(event["choices"]) for event in events),
            text="".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"]),
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        )

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def _has_token(received: bytearray) -> bool:
    """Whether the stream so far holds a whole event with a piece of the answer; the first event only names the role."""
    for line in received.split(b"\n")[:-1]:
        if line.startswith(b"data:") and b'"content":"' in line and b'"content":""' not in line:
            return True
    return False


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    status = int((await reader.readline()).split(b" ", 2)[1] or 0)
    headers = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding") != "chunked":
        yield await reader.readexactly(int(headers.get("content-length", "0")))
        return
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
