"""Probes against small local servers."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from lab.runner.probes import Outcome, Prober
from lab.runner.process import Finished

LOOPBACK = "127.0.0.1"


class FakeInstance:
    """Answers an exec probe with a given exit code."""

    def __init__(self, code: int = 0) -> None:
        self._code = code

    async def execute(self, command: list[str], timeout_s: float) -> Finished:
        assert timeout_s > 0
        if command == ["slow"]:
            raise TimeoutError
        return Finished(code=self._code, output=" ".join(command))


async def check(probe: dict[str, Any], code: int = 0) -> Outcome:
    prober = Prober()
    try:
        return await prober.check(probe, {"name": "main"}, LOOPBACK, FakeInstance(code))
    finally:
        await prober.close()


@pytest.mark.parametrize(("status", "ok"), [(200, True), (302, True), (404, False), (503, False)])
def test_http_status_decides(status: int, ok: bool) -> None:
    async def scenario() -> Outcome:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readuntil(b"\r\n\r\n")
            assert b"X-Probe: yes" in request
            location = b"Location: /ok\r\n" if status == 302 and b"GET /a " in request else b""
            code = status if b"GET /a " in request else 200
            writer.write(b"HTTP/1.1 %d X\r\n%sContent-Length: 0\r\n\r\n" % (code, location))
            writer.close()

        server = await asyncio.start_server(answer, LOOPBACK, 0)
        port = server.sockets[0].getsockname()[1]
        action = {"port": port, "path": "/a", "httpHeaders": [{"name": "X-Probe", "value": "yes"}]}
        outcome = await check({"httpGet": action})
        server.close()
        return outcome

    assert asyncio.run(scenario()).ok is ok


def test_nobody_listening_fails_with_words() -> None:
    outcome = asyncio.run(check({"tcpSocket": {"port": 1}}))
    assert not outcome.ok
    assert "refused" in outcome.message.lower() or "connect" in outcome.message.lower()
    assert not asyncio.run(check({"httpGet": {"port": 1}})).ok
    assert not asyncio.run(check({"httpGet": {"port": "unnamed"}})).ok


@pytest.mark.parametrize(("status", "ok"), [(b"\x08\x01", True), (b"\x08\x02", False), (b"", False)])
def test_grpc_health(status: bytes, ok: bool) -> None:
    asked: list[bytes] = []

    async def scenario() -> Outcome:
        async def answer(request: bytes, _context: Any) -> bytes:
            asked.append(request)
            return status

        server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler(
            "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(answer)}
        )
        server.add_generic_rpc_handlers((handler,))
        port = server.add_insecure_port(f"{LOOPBACK}:0")
        await server.start()
        outcome = await check({"grpc": {"port": port, "service": "epp"}})
        await server.stop(None)
        return outcome

    assert asyncio.run(scenario()).ok is ok
    assert asked == [b"\x0a\x03epp"]


def test_exec_code_and_time_limit_decide() -> None:
    assert asyncio.run(check({"exec": {"command": ["a", "b"]}})).ok
    failed = asyncio.run(check({"exec": {"command": ["a", "b"]}}, code=1))
    assert (failed.ok, failed.message) == (False, "a b")
    assert asyncio.run(check({"exec": {"command": ["slow"]}, "timeoutSeconds": 2})).message == "no answer within 2 s"
