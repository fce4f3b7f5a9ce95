"""TLS before a plain Unix socket: a real gRPC server can so show certificates that grpcio's own TLS refuses."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from lab.machines.front import Outstanding
from tests.unit.talos_api.machine_certificates import LOOPBACK

_END_S = 10


class TlsFront:
    """Listens on loopback until closed. What it shows may change while it runs, as when a machine reboots."""

    def __init__(self, backend: Path, settings: Callable[[], ssl.SSLContext | None]) -> None:
        """`settings` is asked at each connection; None means that the machine is down."""
        self._backend, self._settings = backend, settings
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._epoch = 0
        self._drains = False
        self._carried = Outstanding()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Stop listening and break all connections."""
        self.break_connections()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        # The next front's socket may get this one's number: a thread still on its way to accept() would answer there.
        self._accepting.join()
        self._listener.close()

    def break_connections(self) -> None:
        """As a machine that loses its power; returns when nothing gets through any more."""
        self._drains = False
        self._epoch += 1
        self._carried.wait(_END_S)

    def drain(self) -> None:
        """End all connections, each with the last byte that the server has sent."""
        self._drains = True
        self._epoch += 1
        self._carried.wait(_END_S)

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        epoch, settings = self._epoch, self._settings()
        if settings is None:
            plain.close()
            return
        with contextlib.suppress(OSError), contextlib.closing(plain):
            # Blocking, so that the alert that refuses a client is sent before the connection ends.
            secured = settings.wrap_socket(plain, server_side=True)
            with secured, socket.socket(socket.AF_UNIX) as inner:
                inner.connect(str(self._backend))
                self._carried.add(plain)
                try:
                    while self._epoch == epoch and _pass_on(secured, inner):
                        pass
                    if self._drains:
                        _drain(secured, inner)
                finally:
                    self._carried.remove(plain)


def _drain(secured: ssl.SSLSocket, inner: socket.socket) -> None:
    inner.shutdown(socket.SHUT_WR)
    while data := inner.recv(1 << 16):
        secured.sendall(data)


def _pass_on(secured: ssl.SSLSocket, inner: socket.socket) -> bool:
    """Move what is there, in one thread: two may not use one TLS connection at a time. False when one side ends."""
    readable = [secured] if secured.pending() else select.select([secured, inner], [], [], 0.05)[0]
    for source, target in ((secured, inner), (inner, secured)):
        if source in readable:
            data = source.recv(1 << 16)
            if not data:
                return False
            target.sendall(data)
    return True
