"""The TLS end of emulated machines, in front of gRPC servers on Unix sockets.

grpcio's own TLS refuses Ed25519 certificates, which is what Talos's are, so Python's ssl does it. Each TLS connection
becomes one from a socket file of its own name, by which the gRPC server knows who calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from lab.errors import LabError

_CHUNK_BYTES = 1 << 16

Roles = frozenset[str]
Admission = Callable[[bytes | None], Roles | None]
"""From the client's certificate (DER) to its roles; None ends the connection."""


class FrontLoop:
    """The thread that carries the bytes of every machine."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="machines-tls", daemon=True)
        self._thread.start()

    def call(self, what: Coroutine[Any, Any, Any]) -> Any:
        """Run it there, and wait for its end."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(timeout=30)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)


class Front:
    """One machine's port. Closed at first; opening it again changes the TLS settings and drops every connection."""

    def __init__(self, loop: FrontLoop, address: str, port: int) -> None:
        self.address, self.port = address, port
        self._loop = loop
        self._folder = tempfile.TemporaryDirectory(prefix="machine-")  # mode 0700: nobody else may call unseen
        self.backend = Path(self._folder.name, "grpc")
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._roles: dict[str, Roles] = {}
        self._serial = itertools.count()

    def open(self, tls: ssl.SSLContext, admit: Admission) -> None:
        """Listen; LabError where the address is not this machine's or the port is taken."""
        try:
            self._loop.call(self._open(tls, admit))
        except OSError as error:
            raise LabError(
                f"cannot listen on {self.address}:{self.port}: {error.strerror}",
                fix="give the address to the network namespace first, and see that no other rack runs",
            ) from None

    def close(self) -> None:
        """Stop listening and cut every connection, as a loss of power does."""
        self._loop.call(self._close())

    def dispose(self) -> None:
        """Close for good."""
        self.close()
        self._folder.cleanup()

    def roles_of(self, peer: str) -> Roles | None:
        """The roles of a caller by gRPC's name of its connection."""
        return self._roles.get(peer)

    async def _open(self, tls: ssl.SSLContext, admit: Admission) -> None:
        await self._close()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer, admit)

        self._server = await asyncio.start_server(serve, self.address, self.port, ssl=tls)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, admit: Admission) -> None:
        secured: ssl.SSLObject = writer.get_extra_info("ssl_object")
        roles = admit(secured.getpeercert(binary_form=True))
        if roles is None:
            writer.transport.abort()
            return
        name = str(self.backend.with_name(f"caller-{next(self._serial)}"))
        self._roles[f"unix:{name}"] = roles
        self._writers.add(writer)
        inner: asyncio.StreamWriter | None = None
        try:
            caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            caller.setblocking(False)
            caller.bind(name)
            await asyncio.get_running_loop().sock_connect(caller, str(self.backend))
            inner_reader, inner = await asyncio.open_unix_connection(sock=caller)
            await asyncio.gather(_copy(reader, inner), _copy(inner_reader, writer))
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            self._roles.pop(f"unix:{name}", None)
            Path(name).unlink(missing_ok=True)
            writer.transport.abort()
            if inner is not None:
                inner.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    # Once one side is done the other has nobody to talk to.
    writer.close()
