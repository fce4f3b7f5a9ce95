"""gRPC over grpcio, which sees trailers, with TLS by the relay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import grpc

from talos.api.calls import Call
from talos.api.errors import Code, RpcError
from talos.api.relay import TlsRelay
from talos.api.tls import TrustingContext
from talos.api.transport import Metadata

_LARGEST_MESSAGE_BYTES = 64 << 20

# grpcio's own messages for a broken connection; anything else is the machine's own text.
_OWN_WORDS = ("Stream removed", "Socket closed", "Connection reset", "failed to connect")


class GrpcioTransport:
    """Calls over one grpcio channel; made again after a failure, so that a repeat does not meet the old one's pause."""

    def __init__(self, host: str, port: int, tls: TrustingContext, *, connect_timeout_s: float = 10.0) -> None:
        self._address = (host, port, tls, connect_timeout_s)
        self._authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._relay: TlsRelay | None = None
        self._channel: grpc.Channel | None = None

    def unary(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> bytes:
        """One message for one message."""
        send: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self._open().unary_unary(call.path)
        try:
            return send(request, timeout=deadline_s, metadata=metadata)
        except grpc.RpcError as error:
            raise self._failure(error, deadline_s) from None

    def stream(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> Iterator[bytes]:
        """Messages as they come; ends without an exception only where the status was OK."""
        send: grpc.UnaryStreamMultiCallable[bytes, bytes] = self._open().unary_stream(call.path)
        answer = send(request, timeout=deadline_s, metadata=metadata)
        try:
            yield from answer
        except grpc.RpcError as error:
            raise self._failure(error, deadline_s) from None
        finally:
            answer.cancel()

    def upload(self, call: Call, requests: Iterable[bytes], *, metadata: Metadata, deadline_s: float) -> bytes:
        """Several messages for one."""
        send: grpc.StreamUnaryMultiCallable[bytes, bytes] = self._open().stream_unary(call.path)
        try:
            return send(iter(requests), timeout=deadline_s, metadata=metadata)
        except grpc.RpcError as error:
            raise self._failure(error, deadline_s) from None

    def close(self) -> None:
        """Close channel and relay; may be called twice."""
        if self._channel is not None:
            self._channel.close()
        if self._relay is not None:
            self._relay.close()
        self._channel = self._relay = None

    def _open(self) -> grpc.Channel:
        if self._channel is None:
            host, port, tls, connect_timeout_s = self._address
            self._relay = TlsRelay(host, port, tls, connect_timeout_s=connect_timeout_s)
            self._channel = grpc.insecure_channel(
                f"unix:{self._relay.path}",
                options=(
                    ("grpc.default_authority", self._authority),
                    ("grpc.enable_retries", 0),
                    ("grpc.enable_http_proxy", 0),
                    ("grpc.use_local_subchannel_pool", 1),
                    ("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),
                ),
            )
        return self._channel

    def _failure(self, error: grpc.RpcError, deadline_s: float) -> RpcError:
        code = Code.of(error.code().value[0])
        if code is Code.UNAVAILABLE:
            reason = self._relay.failure if self._relay else None
            self.close()
            if reason is not None:
                return reason
            details = error.details() or ""
            return RpcError(code, "the connection broke" if details.startswith(_OWN_WORDS) else details)
        if code is Code.DEADLINE_EXCEEDED:
            return RpcError(code, f"no complete answer within {deadline_s:g} s")
        return RpcError(code, error.details() or "")
