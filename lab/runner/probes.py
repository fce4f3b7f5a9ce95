"""Probes: one check of each form, and the rule that turns results into success and failure."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import grpc.aio

from lab.runner import podspec
from lab.runner.process import Finished
from lab.runner.state import Object

_USER_AGENT = "kube-probe/lab"
# grpc.health.v1: field 1 of the answer is the status, 1 is SERVING.
_SERVING = b"\x08\x01"


class Executor(Protocol):
    """What an exec probe needs of a running container."""

    async def execute(self, command: list[str], timeout_s: float) -> Finished: ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    ok: bool
    message: str = ""


@dataclass(kw_only=True)
class Threshold:
    """Counts results in a row; the verdict flips only after as many as the probe asks for."""

    success: int
    failure: int
    verdict: bool | None = None
    _row: int = 0
    _last: bool | None = None

    def add(self, *, ok: bool) -> bool:
        """Take one result; True when the verdict became a new one."""
        self._row = self._row + 1 if ok == self._last else 1
        self._last = ok
        if self._row < (self.success if ok else self.failure) or self.verdict == ok:
            return False
        self.verdict = ok
        return True


def threshold(probe: Object) -> Threshold:
    return Threshold(success=int(probe.get("successThreshold", 1)), failure=int(probe.get("failureThreshold", 3)))


def http_url(action: Object, container: Object, pod_ip: str) -> str:
    """The address of an httpGet action."""
    scheme = str(action.get("scheme", "HTTP")).lower()
    path = str(action.get("path") or "/")
    port = podspec.named_port(container, action["port"])
    return f"{scheme}://{action.get('host') or pod_ip}:{port}{path if path.startswith('/') else '/' + path}"


def http_headers(action: Object) -> dict[str, str]:
    given = {item["name"]: item["value"] for item in action.get("httpHeaders") or []}
    return {"User-Agent": _USER_AGENT, "Accept": "*/*", **given}


class Prober:
    """Runs single checks. One for the whole runner: it shares the HTTP client and the TLS settings."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        # The kubelet does not verify what it probes either.
        self._tls.verify_mode = ssl.CERT_NONE
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session:
            await self._session.close()

    async def check(self, probe: Object, container: Object, pod_ip: str, instance: Executor) -> Outcome:
        """Do one check of whatever form the probe has; never raises for a failing target."""
        timeout = float(probe.get("timeoutSeconds", 1))
        try:
            if action := probe.get("httpGet"):
                return await self.http_get(action, container, pod_ip, timeout)
            if action := probe.get("tcpSocket"):
                return await _tcp(action, container, pod_ip, timeout)
            if action := probe.get("grpc"):
                return await _grpc_health(action, pod_ip, timeout)
            if action := probe.get("exec"):
                finished = await instance.execute(list(action["command"]), timeout)
                return Outcome(ok=finished.code == 0, message=finished.output.strip()[-500:])
        except TimeoutError:
            return Outcome(ok=False, message=f"no answer within {timeout:g} s")
        except (OSError, aiohttp.ClientError, KeyError) as error:
            return Outcome(ok=False, message=f"{type(error).__name__}: {error}")
        return Outcome(ok=True)

    async def http_get(self, action: Object, container: Object, pod_ip: str, timeout_s: float) -> Outcome:
        """GET; 200 to 399 is success.

        Raises OSError, aiohttp.ClientError or TimeoutError when there is no answer.
        """
        if self._session is None:
            # Every check opens its own connection, as the kubelet's do: a kept one would hide a closed listener.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._tls, force_close=True))
        async with self._session.get(
            http_url(action, container, pod_ip),
            headers=http_headers(action),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as response:
            text = (await response.content.read(500)).decode(errors="replace")
            ok = 200 <= response.status < 400
            return Outcome(ok=ok, message="" if ok else f"HTTP probe failed with statuscode: {response.status} {text}")


async def _tcp(action: Mapping[str, object], container: Object, pod_ip: str, timeout_s: float) -> Outcome:
    port = podspec.named_port(container, str(action["port"]))
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(str(action.get("host") or pod_ip), port)
    writer.close()
    return Outcome(ok=True)


async def _grpc_health(action: Mapping[str, object], pod_ip: str, timeout_s: float) -> Outcome:
    service = str(action.get("service") or "").encode()
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    async with grpc.aio.insecure_channel(f"{pod_ip}:{action['port']}") as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            answer = await check(request, timeout=timeout_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            return Outcome(ok=False, message=f"gRPC health check failed: {error.code().name} {error.details()}")
    serving = answer == _SERVING
    return Outcome(ok=serving, message="" if serving else f"gRPC health answer is {answer.hex()}, not SERVING")
