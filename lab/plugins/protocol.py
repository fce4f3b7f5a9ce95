"""What every stand-in plugin must do: a server on loopback, its port on stdout, log lines, a timely end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc

# The engine sends whole resources, bundled CRDs among them: gRPC's default of 4 MB is too small for it.
_MESSAGE_BYTES = 400 * 1024 * 1024
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
]

# A thread per operation under way; the engine's --parallel is the real limit, this one must only never be below it.
_THREADS = 512
_ENGINE_CHECK_S = 1.0


class EngineLog:
    """Sends log lines to the engine, which shows them at the resource they belong to. Never raises."""

    def __init__(self, address: str) -> None:
        """`address` is host:port as the engine gives it; an empty one drops every line (a manual start)."""
        channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS) if address else None
        self._engine = engine_pb2_grpc.EngineStub(channel) if channel else None

    def status(self, urn: str, message: str) -> None:
        """A temporary line, shown next to the resource while the operation runs."""
        self._send(engine_pb2.INFO, urn, message, passing=True)

    def info(self, urn: str, message: str) -> None:
        self._send(engine_pb2.INFO, urn, message, passing=False)

    def warning(self, urn: str, message: str) -> None:
        self._send(engine_pb2.WARNING, urn, message, passing=False)

    def _send(self, severity: Any, urn: str, message: str, *, passing: bool) -> None:
        if self._engine is None:
            return
        try:
            self._engine.Log(engine_pb2.LogRequest(severity=severity, urn=urn, message=message, ephemeral=passing))
        except grpc.RpcError:
            # The engine is going away; a lost log line must not turn a finished operation into a failed one.
            return


def invoked(result: Struct) -> provider_pb2.InvokeResponse:
    """The answer of a function. Its field is called `return`, which no keyword argument can be."""
    response = provider_pb2.InvokeResponse()
    getattr(response, "return").CopyFrom(result)
    return response


def serve(make_provider: Callable[[EngineLog], Any], on_end: Callable[[], None] = lambda: None) -> None:
    """Serve one provider until the engine ends it, or itself ends.

    The engine passes its own address as the first argument that is not a flag and reads the port from the first line
    of stdout. `on_end` runs once before the process exits, whatever ended it, save SIGKILL.
    """
    engine_address = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    server = grpc.server(ThreadPoolExecutor(max_workers=_THREADS), options=CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(make_provider(EngineLog(engine_address)), server)
    port = server.add_insecure_port("127.0.0.1:0")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    engine = os.getppid()
    server.start()
    print(port, flush=True)
    # A killed engine sends nothing, it only leaves this process to another parent.
    while not ended.wait(_ENGINE_CHECK_S) and os.getppid() == engine:
        pass
    on_end()
    server.stop(grace=1).wait()
    # Threads that still wait for a child or a watch would hold a normal exit up.
    os._exit(0)
