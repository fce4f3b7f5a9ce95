"""The streaming client against a server of ten lines."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks import client
from benchmarks.client import Answer, Connection
from lab.errors import LabError
from tests.certificates import authority


def _event(text: str = "", usage: Mapping[str, object] | None = None) -> bytes:
    choices = [{"delta": {"content": text}}] if usage is None else []
    return b"data: " + json.dumps({"choices": choices, "usage": usage}, separators=(",", ":")).encode() + b"\n\n"


async def _serve(
    answers: list[list[bytes]],
    status: int = 200,
    tls: ssl.SSLContext | None = None,
    trust: ssl.SSLContext | bool = True,
) -> tuple[list[Answer], list[bytes]]:
    """Ask once for each answer over one connection; what came back, and the requests' heads."""
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for chunks in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            heads.append(head)
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
            await reader.readexactly(length)
            writer.write(b"HTTP/1.1 %d X\r\nTransfer-Encoding: chunked\r\n\r\n" % status)
            for chunk in chunks:
                writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    try:
        address = f"{'https' if tls else 'http'}://127.0.0.1:{port}/v1"
        async with Connection(address, {"X-Who": "me"}, trust=trust) as connection:
            return [await connection.stream({"model": "m"}) for _ in answers], heads
    finally:
        server.close()


def test_stream_is_read_and_its_connection_used_again() -> None:
    usage = {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 16}}
    stream = [_event(), _event("Hel"), _event("lo"), _event(usage=usage) + b"data: [DONE]\n\n"]
    answers, heads = asyncio.run(_serve([stream, stream]))
    assert [(answer.text, answer.prompt_tokens, answer.cached_tokens) for answer in answers] == [("Hello", 30, 16)] * 2
    assert len(heads) == 2
    assert heads[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"X-Who: me" in heads[0]


def test_an_answer_may_hold_what_unicode_counts_as_the_end_of_a_line() -> None:
    """vLLM writes these characters as they are."""
    text = "a\u2028b\u0085c"
    event = json.dumps({"choices": [{"delta": {"content": text}}], "usage": None}, ensure_ascii=False).encode()
    end = _event(usage={"prompt_tokens": 1}) + b"data: [DONE]\n\n"
    (answer,), _ = asyncio.run(_serve([[b"data: " + event + b"\n\n", end]]))
    assert answer.text == text


def test_first_token_is_not_the_role_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on with each chunk that is read."""
    read = 0
    chunks_of = client._body

    async def counted(*where: Any) -> AsyncIterator[bytes]:
        nonlocal read
        async for chunk in chunks_of(*where):
            read += 1
            yield chunk

    monkeypatch.setattr(client, "_body", counted)
    monkeypatch.setattr(time, "perf_counter", lambda: float(read))
    usage = {"prompt_tokens": 1}
    # The event with the first piece comes in two chunks: it counts when it is whole.
    piece = _event("Hi")
    stream = [_event(), piece[:20], piece[20:], _event(usage=usage)]
    (answer,) = asyncio.run(_serve([stream]))[0]
    assert (answer.first_token_s, answer.whole_s) == (3, 4)
    assert answer.cached_tokens == 0


def test_refusal_names_status_and_text() -> None:
    with pytest.raises(LabError, match="503: no replica"):
        asyncio.run(_serve([[b"no replica"]], status=503))


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_an_address_without_a_port_has_that_of_its_scheme(
    scheme: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def opened(host: str, at: int, **_: Any) -> Any:
        raise LabError(f"{host} {at}", fix="none")

    async def ask() -> None:
        async with Connection(f"{scheme}://gateway.example/v1", {}) as connection:
            await connection.stream({"model": "m"})

    monkeypatch.setattr(asyncio, "open_connection", opened)
    with pytest.raises(LabError, match=f"gateway.example {port}"):
        asyncio.run(ask())


def test_https_is_trusted_by_the_given_ca_alone(tmp_path: Path) -> None:
    issuer = authority()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*issuer.identity(tmp_path, "127.0.0.1"))
    trusting = ssl.create_default_context(cadata=issuer.pem)
    stream = [_event("Hi"), _event(usage={"prompt_tokens": 1})]
    (answer,) = asyncio.run(_serve([stream], tls=tls, trust=trusting))[0]
    assert answer.text == "Hi"
    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(_serve([stream], tls=tls))
