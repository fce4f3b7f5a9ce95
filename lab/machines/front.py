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
from typing import Any, TypeVar

from lab.errors import LabError

_CHUNK_BYTES = 1 << 16
_HANDSHAKE_S = 20
_LINGER_S = 1

_DRAIN_S = 2

T = TypeVar("T")

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


class Outstanding:
    """Calls, or connections, that have begun and not ended."""

    def __init__(self) -> None:
        self._begun: set[object] = set()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        """How many there are now."""
        return len(self._begun)

    def add(self, begun: object) -> None:
        """It begins."""
        with self._changed:
            self._begun.add(begun)

    def remove(self, begun: object) -> None:
        """It has ended."""
        with self._changed:
            self._begun.discard(begun)
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Until all that began so far has ended, but no longer than this."""
        with self._changed:
            earlier = set(self._begun)
            self._changed.wait_for(lambda: not earlier & self._begun, seconds)


class Front:
    """One machine's port. Closed at first; opening it again changes the TLS settings and drops every connection."""

    def __init__(self, loop: FrontLoop, address: str, port: int) -> None:
        self.address, self.port = address, port
        self._loop = loop
        self._folder = tempfile.TemporaryDirectory(prefix="machine-")  # mode 0700: no other user may call
        self.backend = Path(self._folder.name, "grpc")
        self._server: asyncio.Server | None = None
        self.calls = Outstanding()
        self._writers: set[asyncio.StreamWriter] = set()
        self._inner: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}
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

    def drain(self) -> None:
        """Take no further calls on the connections there are, and end each with its last byte sent."""
        self._loop.call(self._drain())

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
            self._writers.add(writer)
            try:
                await self._serve(TlsStream(tls, reader, writer), admit)
            except (OSError, ssl.SSLError):
                pass
            finally:
                # Not aborted: the last answer may still be on its way.
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                self._writers.discard(writer)

        self._server = await asyncio.start_server(serve, self.address, self.port)

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _drain(self) -> None:
        # When it learns that no more requests come, the gRPC server ends its side after its last byte.
        ending = [task for task in self._inner.values() if task is not None]
        for inner in list(self._inner):
            if not inner.transport.is_closing():
                inner.write_eof()
        self._inner.clear()
        if ending:
            await asyncio.wait(ending, timeout=_DRAIN_S)

    async def _serve(self, stream: TlsStream, admit: Admission) -> None:
        async with asyncio.timeout(_HANDSHAKE_S):
            certificate = await stream.handshake()
        roles = admit(certificate)
        if roles is None:
            return
        name = str(self.backend.with_name(f"caller-{next(self._serial)}"))
        self._roles[f"unix:{name}"] = roles
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        caller.settimeout(0)
        caller.bind(name)
        inner: asyncio.StreamWriter | None = None
        try:
            await asyncio.get_running_loop().sock_connect(caller, str(self.backend))
            inner_reader, inner = await asyncio.open_unix_connection(sock=caller)
            self._inner[inner] = asyncio.current_task()
            await _until_one_ends(self._inwards(stream, inner), _outwards(inner_reader, stream))
        finally:
            self._roles.pop(f"unix:{name}", None)
            Path(name).unlink(missing_ok=True)
            if inner is not None:
                self._inner.pop(inner, None)
                inner.transport.abort()
            caller.close()

    async def _inwards(self, stream: TlsStream, inner: asyncio.StreamWriter) -> None:
        while chunk := await stream.read():
            # A client goes on with window updates and the like while its connection is drained.
            if inner in self._inner:
                inner.write(chunk)
                await inner.drain()


class TlsStream:
    """The server's end of one TLS connection. Unlike asyncio's own it reports why a handshake failed: as an alert."""

    def __init__(self, tls: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._arrived, self._leaving, server_side=True)

    async def handshake(self) -> bytes | None:
        """The client's certificate (DER), if it showed one; ssl.SSLError after the alert was sent."""
        try:
            await self._carry_out(self._tls.do_handshake)
        except ssl.SSLError:
            await self._flush()
            # Closing with unread bytes would reset the connection, and the alert with it.
            self._writer.write_eof()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_S):
                    while await self._reader.read(_CHUNK_BYTES):
                        pass
            raise
        return self._tls.getpeercert(binary_form=True)

    async def read(self) -> bytes:
        """Some bytes; none at the end."""
        try:
            return await self._carry_out(lambda: self._tls.read(_CHUNK_BYTES))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    async def write(self, content: bytes) -> None:
        """Send all of it."""
        self._tls.write(content)
        await self._flush()

    async def _carry_out(self, step: Callable[[], T]) -> T:
        while True:
            try:
                done = step()
            except ssl.SSLWantReadError:
                await self._flush()
                chunk = await self._reader.read(_CHUNK_BYTES)
                self._arrived.write(chunk) if chunk else self._arrived.write_eof()
            else:
                await self._flush()
                return done

    async def _flush(self) -> None:
        if self._leaving.pending:
            self._writer.write(self._leaving.read())
            await self._writer.drain()


async def _outwards(reader: asyncio.StreamReader, stream: TlsStream) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        await stream.write(chunk)


async def _until_one_ends(*directions: Coroutine[Any, Any, None]) -> None:
    """Once one side is done, the other has no peer."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    _, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in left:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
