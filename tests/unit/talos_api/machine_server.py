"""Real gRPC servers that play a machine: each call is answered by a function that the test gives."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from talos.api.calls import CALLS, Call
from talos.api.messages import decode, new
from tests.unit.talos_api.machine_certificates import Cluster, Identity
from tests.unit.talos_api.tls_front import TlsFront

# Request (or an iterator of requests, for uploads) and grpcio's context to a reply, or an iterator of replies.
Answer = Callable[[Any, Any], Any]


@dataclass
class Seen:
    """One call as it arrived."""

    call: str
    request: Any
    metadata: dict[str, str]


@dataclass
class Machine:
    """What the server answers, by the call's name, and what it was asked."""

    answers: dict[str, Answer] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    identity: Identity | None = None
    """None while the machine is down."""
    clients_of: bytes | None = None
    port: int = 0
    front: TlsFront | None = None
    reads_uploads_first: bool = True

    @classmethod
    def of(cls, owner: Cluster, **options: Any) -> Machine:
        """A machine of this cluster, which takes its clients alone."""
        return cls(identity=owner.machine(), clients_of=owner.ca, **options)

    def asked(self, call: Call) -> list[Any]:
        """The requests of one call."""
        return [seen.request for seen in self.seen if seen.call == call.name]


def fail(context: Any, code: grpc.StatusCode, message: str) -> None:
    """End the call with this status."""
    context.abort(code, message)


def carried(message: str, *, code: int = 0, text: str = "") -> Any:
    """Metadata of a reply message that carries a node's failure."""
    status = new("google.rpc.Status", code=code, message=text) if code else None
    return new("common.Metadata", hostname="cp-1", error=message, **({"status": status} if status else {}))


def data(*chunks: bytes) -> Iterator[Any]:
    """A stream of common.Data."""
    return iter([new("common.Data", bytes=chunk) for chunk in chunks])


def grpc_server(machine: Machine) -> Any:
    """A grpcio server with generic handlers for the whole table of calls."""
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    services: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        service, _, method = call.path.strip("/").rpartition("/")
        services.setdefault(service, {})[method] = _handler(machine, call)
    for service, methods in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    return server


@contextmanager
def serving(machine: Machine) -> Iterator[Machine]:
    """The machine behind a TLS server of Python's, which has no objection to Talos's Ed25519 certificates."""
    with tempfile.TemporaryDirectory() as folder:
        backend = Path(folder, "grpc")
        server = grpc_server(machine)
        server.add_insecure_port(f"unix:{backend}")
        server.start()
        machine.front = TlsFront(
            backend, lambda: machine.identity.server(clients_of=machine.clients_of) if machine.identity else None
        )
        machine.port = machine.front.port
        try:
            yield machine
        finally:
            machine.front.close()
            server.stop(grace=None).wait(2)


def _handler(machine: Machine, call: Call) -> Any:
    def read(wire: bytes) -> Any:
        return decode(call.request, wire)

    def write(message: Any) -> bytes:
        return message if isinstance(message, bytes) else bytes(message.SerializeToString())

    def note(request: Any, context: Any) -> Answer:
        metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        machine.seen.append(Seen(call.name, request, metadata))
        answer = machine.answers.get(call.name)
        if answer is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {call.name}")
        assert answer is not None
        return answer

    def unary(request: Any, context: Any) -> Any:
        return note(request, context)(request, context)

    def several(request: Any, context: Any) -> Iterator[Any]:
        yield from note(request, context)(request, context)

    def uploaded(requests: Any, context: Any) -> Any:
        received = list(requests) if machine.reads_uploads_first else requests
        return note(received, context)(received, context)

    if call.uploads:
        return grpc.stream_unary_rpc_method_handler(uploaded, read, write)
    if call.streams:
        return grpc.unary_stream_rpc_method_handler(several, read, write)
    return grpc.unary_unary_rpc_method_handler(unary, read, write)
