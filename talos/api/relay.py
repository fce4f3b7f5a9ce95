"""TLS for grpcio, done by Python's ssl: a Unix socket in a private folder whose other end is the machine.

grpcio's own TLS cannot talk to Talos: its BoringSSL refuses Ed25519 certificates, which is what Talos's are, and Python
has no way to tell it otherwise. Nor can it pin a key, as maintenance mode needs.
"""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import ssl
import tempfile
import threading
from pathlib import Path

from talos.api.errors import Code, RpcError
from talos.api.tls import TrustingContext
from talos.api.transport import connection_failure

_CHUNK_BYTES = 1 << 16
_LOOK_FOR_END_S = 0.2


class TlsRelay:
    """Relays each connection to `path` over TLS to host and port. `failure` is why the last one did not come about."""

    def __init__(self, host: str, port: int, tls: TrustingContext, *, connect_timeout_s: float = 10.0) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._connect_timeout_s = connect_timeout_s
        self.failure: RpcError | None = None
        self._closing = threading.Event()
        self._folder = tempfile.mkdtemp(prefix="machine-api-")  # mode 0700: no other user may use our identity
        self.path = Path(self._folder, "grpc")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._accept, name="machine-api-tls", daemon=True).start()

    def close(self) -> None:
        """End all connections and remove the socket; may be called twice."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(ours,), name="machine-api-tls", daemon=True).start()

    def _serve(self, ours: socket.socket) -> None:
        with ours:
            try:
                plain = socket.create_connection((self._host, self._port), timeout=self._connect_timeout_s)
                machine = self._tls.wrap_socket(plain, server_hostname=self._host)
            except TimeoutError:
                self._note(connection_failure(TimeoutError("no connection within the time allowed"), sent=False))
                return
            except (OSError, ssl.SSLError) as error:
                self._note(connection_failure(error, sent=False))
                return
            self.failure = None
            with machine:
                machine.settimeout(None)
                try:
                    while not self._closing.is_set() and _pass_on(machine, ours):
                        pass
                except (OSError, ssl.SSLError) as error:
                    # TLS 1.3 refuses a client's certificate only after the handshake, so it shows here.
                    self._note(connection_failure(error, sent=True))

    def _note(self, failure: RpcError) -> None:
        # A refusal says more than the broken pipe of a parallel connection.
        if self.failure is None or failure.code is not Code.UNAVAILABLE:
            self.failure = failure


def _pass_on(machine: ssl.SSLSocket, ours: socket.socket) -> bool:
    """Move what is there, by one thread: two may not use one TLS connection at a time. False when one side ends.

    Waiting for one side while it does not read is no trap: gRPC's ends read whether or not they can write.
    """
    readable = [machine] if machine.pending() else select.select([machine, ours], [], [], _LOOK_FOR_END_S)[0]
    for source, target in ((machine, ours), (ours, machine)):
        if source in readable:
            data = source.recv(_CHUNK_BYTES)
            if not data:
                return False
            target.sendall(data)
    return True
