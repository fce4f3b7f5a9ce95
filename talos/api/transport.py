"""gRPC over httpx: bytes of messages out, bytes of messages back, and a status that shows whether these are all."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import httpx

from talos.api.calls import Call
from talos.api.errors import Code, CutShortError, RpcError
from talos.api.http2 import Http2Transport
from talos.api.tls import TrustingContext

Metadata = tuple[tuple[str, str], ...]
MACHINE_API_PORT = 50000
_PREFIX_BYTES = 5
_LARGEST_MESSAGE_BYTES = 64 << 20


class GrpcTransport:
    """Sends calls to one address. Every failure is an RpcError."""

    def __init__(self, host: str, port: int, tls: TrustingContext, *, connect_timeout_s: float = 10.0) -> None:
        self._client = httpx.Client(
            base_url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            transport=Http2Transport(tls, connect_timeout_s=connect_timeout_s),
            # No proxy from the environment: machines are on the site's own network.
            trust_env=False,
        )

    def unary(self, call: Call, requests: Iterable[bytes], *, metadata: Metadata, deadline_s: float) -> bytes:
        """One message for one or several."""
        messages = list(self.stream(call, requests, metadata=metadata, deadline_s=deadline_s))
        if len(messages) != 1:
            raise RpcError(Code.INTERNAL, f"{len(messages)} replies instead of one")
        return messages[0]

    def stream(
        self, call: Call, requests: Iterable[bytes], *, metadata: Metadata, deadline_s: float
    ) -> Iterator[bytes]:
        """Messages as they come; ends without an exception only where the status is OK."""
        headers = {
            "content-type": "application/grpc+proto",
            "te": "trailers",
            "grpc-timeout": f"{int(deadline_s * 1000)}m",
            **dict(metadata),
        }
        framed = (b"\0" + len(message).to_bytes(4, "big") + message for message in requests)
        extensions = {"ends": time.monotonic() + deadline_s}
        try:
            with self._client.stream(
                "POST", call.path, content=framed, headers=headers, extensions=extensions
            ) as answer:
                yield from _messages(answer)
        except RpcError as failure:
            # The machine knows the deadline too, and may be the first to report that it has passed.
            if failure.code is Code.DEADLINE_EXCEEDED:
                failure.message = f"no complete answer within {deadline_s:g} s"
            raise

    def close(self) -> None:
        """Take no more calls; may be called twice."""
        self._client.close()


def _messages(answer: httpx.Response) -> Iterator[bytes]:
    if answer.status_code != 200:
        raise RpcError(Code.UNAVAILABLE, f"HTTP {answer.status_code}: no gRPC server")
    buffer = bytearray()
    for chunk in answer.iter_raw():
        buffer += chunk
        while len(buffer) >= _PREFIX_BYTES:
            length = int.from_bytes(buffer[1:_PREFIX_BYTES], "big")
            if buffer[0] or length > _LARGEST_MESSAGE_BYTES:
                raise RpcError(Code.INTERNAL, "an answer that is compressed or too large, which was not asked for")
            if len(buffer) < _PREFIX_BYTES + length:
                break
            yield bytes(buffer[_PREFIX_BYTES : _PREFIX_BYTES + length])
            del buffer[: _PREFIX_BYTES + length]
    _check_status(answer)
    if buffer:
        raise CutShortError("the answer ended within a message")


def _check_status(answer: httpx.Response) -> None:
    # A server that refuses at once may send no trailers, and the status with the head.
    ending = answer.extensions["trailers"] or answer.headers
    status = ending.get("grpc-status", "")
    if not status.isdigit():
        raise RpcError(Code.UNKNOWN, "the answer ended without a status")
    if int(status) != Code.OK:
        raise RpcError(Code.of(int(status)), unquote(ending.get("grpc-message", "")))
