"""An HTTP/2 server that breaks off where a test needs it, like a machine that dies half-way."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, RequestReceived, StreamEnded
from hyperframe.frame import GoAwayFrame

from tests.unit.talos_api.machine_certificates import LOOPBACK, Identity

GRPC_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


def framed(message: bytes) -> bytes:
    """One message as gRPC puts it into a body."""
    return b"\0" + len(message).to_bytes(4, "big") + message


# One thing that the server does with a stream; returns False to break the connection.
Step = Callable[[H2Connection, int], bool]


def headers(*more: tuple[str, str], end: bool = False) -> Step:
    """The answer's head, or all of it (a gRPC failure may be sent so)."""

    def step(connection: H2Connection, stream: int) -> bool:
        connection.send_headers(stream, [*GRPC_HEADERS, *more], end_stream=end)
        return True

    return step


def body(content: bytes, *, end: bool = False) -> Step:
    """Bytes of the body."""

    def step(connection: H2Connection, stream: int) -> bool:
        connection.send_data(stream, content, end_stream=end)
        return True

    return step


def trailers(status: int, message: str = "") -> Step:
    """What gRPC ends an answer with."""

    def step(connection: H2Connection, stream: int) -> bool:
        connection.send_headers(stream, [("grpc-status", str(status)), ("grpc-message", message)], end_stream=True)
        return True

    return step


def reset(code: ErrorCodes = ErrorCodes.INTERNAL_ERROR) -> Step:
    """Give up the stream."""

    def step(connection: H2Connection, stream: int) -> bool:
        connection.reset_stream(stream, code)
        return True

    return step


def going_down() -> Step:
    """Announce that no more streams are taken, behind the back of h2, which would end this one too."""

    def step(connection: H2Connection, stream: int) -> bool:
        connection._data_to_send += GoAwayFrame(last_stream_id=stream).serialize()
        return True

    return step


def pause(over: threading.Event, seconds: float) -> Step:
    """Say nothing until the event is set, or for a while."""

    def step(_connection: H2Connection, _stream: int) -> bool:
        over.wait(seconds)
        return True

    return step


def hang_up(_connection: H2Connection, _stream: int) -> bool:
    """Close the TCP connection."""
    return False


class BrokenServer:
    """Does the same with each request: a list of steps, or what a function says for the nth request."""

    def __init__(self, identity: Identity, clients_of: bytes, script: Callable[[int], list[Step]]) -> None:
        self._settings = identity.server(clients_of=clients_of)
        self._script = script
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: list[dict[str, str]] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        # The next server's socket may get this one's number: a thread still on its way to accept() would answer there.
        self._accepting.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), self._settings.wrap_socket(plain, server_side=True) as secured:
            connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
            connection.initiate_connection()
            secured.sendall(connection.data_to_send())
            while data := secured.recv(1 << 16):
                for event in connection.receive_data(data):
                    if not self._handle(connection, event, secured):
                        return
                secured.sendall(connection.data_to_send())

    def _handle(self, connection: H2Connection, event: Event, secured: ssl.SSLSocket) -> bool:
        if isinstance(event, RequestReceived):
            self.requests.append({str(name): str(value) for name, value in event.headers or []})
        if not isinstance(event, StreamEnded) or event.stream_id is None:
            return True
        for step in self._script(len(self.requests)):
            going_on = step(connection, event.stream_id)
            secured.sendall(connection.data_to_send())
            if not going_on:
                return False
        return True
