"""HTTP/2 for httpx by h2, which shows trailers: gRPC puts a call's status there, and httpx's own transport drops them.

Each request has a TLS connection of its own. No connection of before a restart is used again, and where no connection
comes about, it is certain that the request was not sent.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
from h2.connection import H2Connection
from h2.events import DataReceived, Event, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from talos.api.errors import Code, RpcError, UntrustedMachineError
from talos.api.tls import TrustingContext

if TYPE_CHECKING:
    from hyperframe.frame import Frame, GoAwayFrame

_CHUNK_BYTES = 1 << 16
# What a machine may send before it must wait for us; HTTP/2's own 64 KiB make a snapshot slow over long ways.
_WINDOW_BYTES = 1 << 24
# A client's first stream, here also its only one.
_STREAM = 1
_NOT_IN_HTTP2 = {"host", "connection", "transfer-encoding"}


class Http2Transport(httpx.BaseTransport):
    """Requests with the extension `ends`, the monotonic time by which the answer is complete.

    An answer's extension `trailers` is filled when its body has ended. Every failure is an RpcError.
    """

    def __init__(self, tls: TrustingContext, *, connect_timeout_s: float) -> None:
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; returns when the answer's head has come."""
        host, ends = request.url.host, request.extensions["ends"]
        try:
            allowed_s = min(self._connect_timeout_s, _left_s(ends))
            plain = socket.create_connection((host, request.url.port), timeout=allowed_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = self._tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            raise _failure(error, sent=False) from None
        answer = _Exchange(secured, ends)
        try:
            answer.ask(request)
        except BaseException:
            answer.close()
            raise
        return httpx.Response(
            answer.status, headers=answer.head, stream=answer, extensions={"trailers": answer.trailers}
        )


class _Exchange(httpx.SyncByteStream):
    """One request's connection, and the body that comes back on it."""

    def __init__(self, secured: ssl.SSLSocket, ends: float) -> None:
        self._socket, self._ends = secured, ends
        self._http2 = _OneStream()
        self._body: deque[bytes] = deque()
        self._ended = self._broken = False
        self.status = 0
        self.head = httpx.Headers()
        self.trailers = httpx.Headers()

    def ask(self, request: httpx.Request) -> None:
        """Send the request, or so much of it as the machine wants before it answers."""
        url, http2 = request.url, self._http2
        http2.initiate_connection()
        http2.increment_flow_control_window(_WINDOW_BYTES)
        pseudo = {
            ":method": request.method,
            ":authority": url.netloc.decode(),
            ":scheme": url.scheme,
            ":path": url.path,
        }
        headers = [(name, value) for name, value in request.headers.items() if name not in _NOT_IN_HTTP2]
        http2.send_headers(_STREAM, [*pseudo.items(), *headers])
        http2.increment_flow_control_window(_WINDOW_BYTES, _STREAM)
        for chunk in request.stream:  # type: ignore[union-attr] # a synchronous client's
            self._send(chunk)
            if self._ended:
                break
        else:
            http2.end_stream(_STREAM)
        while not self.status:
            self._receive()

    def __iter__(self) -> Iterator[bytes]:
        """The body as it comes."""
        while self._body or not self._ended:
            if self._body:
                yield self._body.popleft()
            else:
                self._receive()

    def close(self) -> None:
        """End the connection, and with it what the machine still does for the request."""
        self._socket.close()

    def _send(self, chunk: bytes) -> None:
        while chunk and not self._ended:
            room = min(self._http2.local_flow_control_window(_STREAM), self._http2.max_outbound_frame_size)
            if room > 0:
                self._http2.send_data(_STREAM, chunk[:room])
                chunk = chunk[room:]
            else:
                self._receive()

    def _receive(self) -> None:
        """Send what there is to send, and take in what the machine sends next."""
        try:
            self._flush()
            self._socket.settimeout(_left_s(self._ends))
            data = self._socket.recv(_CHUNK_BYTES)
            if not data:
                raise ConnectionError("the connection broke")
            for event in self._http2.receive_data(data):
                self._take(event)
        except (OSError, ProtocolError) as error:
            raise _failure(error, sent=True) from None

    def _flush(self) -> None:
        data = self._http2.data_to_send()
        if data and not self._broken:
            try:
                self._socket.settimeout(_left_s(self._ends))
                self._socket.sendall(data)
            except OSError:
                # The read shows why: an alert, as TLS 1.3 refuses certificates after the handshake, or an early answer.
                self._broken = True

    def _take(self, event: Event) -> None:
        if isinstance(event, ResponseReceived):
            self.head = httpx.Headers(event.headers)
            self.status = int(self.head.pop(":status"))
        elif isinstance(event, DataReceived):
            self._http2.acknowledge_received_data(event.flow_controlled_length, _STREAM)
            self._body.append(event.data)
        elif isinstance(event, TrailersReceived):
            self.trailers.update(httpx.Headers(event.headers))
        elif isinstance(event, StreamEnded):
            self._ended = True
        elif isinstance(event, StreamReset) and not self._ended:
            raise ConnectionError(
                f"the machine gave up the call: {getattr(event.error_code, 'name', event.error_code)}"
            )


class _OneStream(H2Connection):
    """Goes on after a GOAWAY, by which a machine that goes down takes no more streams but ends those that it has.

    h2 itself takes the connection for ended there (its issue 1181).
    """

    def _receive_goaway_frame(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        if frame.last_stream_id < _STREAM:
            raise ConnectionError("the machine takes no more calls")
        return [], []


def _left_s(ends: float) -> float:
    left_s = ends - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _failure(error: OSError | ProtocolError, *, sent: bool) -> RpcError:
    """What a broken connection means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        # Only the TLS library's own refusals have a verify_message; a pin's has its text alone.
        reason = getattr(error, "verify_message", "") or str(error.args[-1])
        return UntrustedMachineError(f"untrusted certificate: {reason}")
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return RpcError(Code.UNAUTHENTICATED, f"the machine ended the TLS handshake: {error.reason}", sent=False)
    if isinstance(error, TimeoutError) and sent:
        return RpcError(Code.DEADLINE_EXCEEDED, "")
    if isinstance(error, TimeoutError):
        return RpcError(Code.UNAVAILABLE, "no connection within the time allowed", sent=False)
    return RpcError(Code.UNAVAILABLE, getattr(error, "strerror", None) or str(error), sent=sent)
