"""gRPC over httpx: HTTP/2 and mutual TLS, without trailers.

A status is seen only where the server sends it as a header, which is how it may answer a call that fails at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import httpx

from talos.api.calls import Call
from talos.api.errors import Code, CutShortError, HiddenStatusError, RpcError
from talos.api.tls import TrustingContext
from talos.api.transport import Metadata, connection_failure

_PREFIX_BYTES = 5
_LARGEST_MESSAGE_BYTES = 64 << 20


class HttpxTransport:
    """Calls over one httpx client. Answers only for calls whose proof of success is in the body."""

    def __init__(self, host: str, port: int, tls: TrustingContext, *, connect_timeout_s: float = 10.0) -> None:
        self._url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._connect_timeout_s = connect_timeout_s
        # No proxy from the environment: machines are on the site's own network.
        self._client = httpx.Client(http1=False, http2=True, verify=tls, trust_env=False)

    def unary(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> bytes:
        """One message; HiddenStatusError where the call failed and the body does not say why."""
        messages = list(self._messages(call, request, metadata, deadline_s))
        if len(messages) != 1:
            raise RpcError(Code.INTERNAL, f"{len(messages)} replies instead of one")
        return messages[0]

    def stream(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> Iterator[bytes]:
        """Messages as they come; HiddenStatusError where there is none at all."""
        return self._messages(call, request, metadata, deadline_s)

    def upload(self, call: Call, requests: Iterable[bytes], *, metadata: Metadata, deadline_s: float) -> bytes:
        """Not offered: no call that sends several messages can do without its status."""
        raise NotImplementedError(f"{call.name} over httpx")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _messages(self, call: Call, request: bytes, metadata: Metadata, deadline_s: float) -> Iterator[bytes]:
        ends = time.monotonic() + deadline_s
        headers = {
            "content-type": "application/grpc+proto",
            "te": "trailers",
            "grpc-timeout": f"{int(deadline_s * 1000)}m",
            **dict(metadata),
        }
        timeout = httpx.Timeout(deadline_s, connect=min(self._connect_timeout_s, deadline_s))
        try:
            with self._client.stream(
                "POST", f"{self._url}{call.path}", content=_framed(request), headers=headers, timeout=timeout
            ) as answer:
                _check_status(answer, deadline_s)
                yield from _unframed(answer, ends, deadline_s)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise connection_failure(error, sent=False) from None
        except httpx.TimeoutException:
            raise _too_slow(deadline_s) from None
        except httpx.HTTPError as error:
            raise connection_failure(error, sent=True) from None


def _framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def _too_slow(deadline_s: float) -> RpcError:
    return RpcError(Code.DEADLINE_EXCEEDED, f"no complete answer within {deadline_s:g} s")


def _check_status(answer: httpx.Response, deadline_s: float) -> None:
    if answer.status_code != 200:
        raise RpcError(Code.UNAVAILABLE, f"HTTP {answer.status_code}: no gRPC server")
    status = answer.headers.get("grpc-status", "0")
    if status != "0":
        code = Code.of(int(status) if status.isdigit() else Code.UNKNOWN)
        # The machine knows the deadline too, and may say first that it has passed.
        raise (
            _too_slow(deadline_s)
            if code is Code.DEADLINE_EXCEEDED
            else RpcError(code, unquote(answer.headers.get("grpc-message", "")))
        )


def _unframed(answer: httpx.Response, ends: float, deadline_s: float) -> Iterator[bytes]:
    buffer = bytearray()
    found = 0
    for chunk in answer.iter_raw():
        if time.monotonic() > ends:
            raise _too_slow(deadline_s)
        buffer += chunk
        while len(buffer) >= _PREFIX_BYTES:
            length = int.from_bytes(buffer[1:_PREFIX_BYTES], "big")
            if buffer[0] or length > _LARGEST_MESSAGE_BYTES:
                raise RpcError(Code.INTERNAL, "an answer that is compressed or too large, which was not asked for")
            if len(buffer) < _PREFIX_BYTES + length:
                break
            found += 1
            yield bytes(buffer[_PREFIX_BYTES : _PREFIX_BYTES + length])
            del buffer[: _PREFIX_BYTES + length]
    if buffer:
        raise CutShortError("the answer ended within a message")
    if not found:
        raise HiddenStatusError
