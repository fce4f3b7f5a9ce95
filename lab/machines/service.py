"""The gRPC server of one emulated machine: roles, faults, and passing calls on to other machines.

Bytes in, bytes out: what a call does is in `handlers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from google.protobuf.message import DecodeError

from lab.machines import handlers
from lab.machines.failing import NOT_AUTHORIZED, PowerLostError, refusal
from lab.machines.methods import METHODS, Method
from talos.api.errors import Code, RpcError
from talos.api.messages import decode, new

if TYPE_CHECKING:
    from lab.machines.machine import Machine

_WORKERS = 16
_LARGEST_MESSAGE_BYTES = 32 << 20


@dataclass(frozen=True)
class Caller:
    """Who calls, as the first machine saw it, and whom the call is for."""

    roles: frozenset[str]
    node: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class MachineServer(grpc.GenericRpcHandler):
    """Serves one machine on the Unix socket behind its front."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._server = grpc.server(
            ThreadPoolExecutor(_WORKERS, thread_name_prefix=f"api-{machine.name}"),
            options=(("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),),
        )
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix:{machine.front.backend}")
        self._server.start()

    def stop(self) -> None:
        """End at once."""
        self._server.stop(grace=None)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        """The handler for a method; None answers that it is not implemented."""
        method = METHODS.get(handler_call_details.method)
        if method is None:
            return None
        metadata = handler_call_details.invocation_metadata
        # Each machine's `nodes` is a value of its own, but one with commas is met too.
        node, nodes = (
            tuple(part.strip() for key, value in metadata if key == name for part in str(value).split(","))
            for name in ("node", "nodes")
        )

        def stream(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            front = self._machine.front
            roles, call = front.roles_of(context.peer()), object()
            front.calls.add(call)
            if not context.add_callback(lambda: front.calls.remove(call)):
                front.calls.remove(call)
            try:
                if roles is None:
                    raise refusal(Code.UNAVAILABLE, "the connection is gone")
                yield from answer(self._machine, method, requests, Caller(roles, node, nodes))
            except RpcError as error:
                context.abort(_status(error.code), error.message)
            except PowerLostError:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the machine is going down")

        def whole(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            return b"".join(stream(requests, context))

        if method.uploads:
            return grpc.stream_unary_rpc_method_handler(whole)
        if method.streams:
            return grpc.unary_stream_rpc_method_handler(lambda request, context: stream(iter((request,)), context))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: whole(iter((request,)), context))


def answer(machine: Machine, method: Method, requests: Iterator[bytes], caller: Caller) -> Iterator[bytes]:
    """The answer of the machine that is called, by itself or for those that the call is for; RpcError for a status."""
    if caller.nodes:
        if not method.aggregates:
            raise refusal(Code.INVALID_ARGUMENT, f"one-2-many proxying is not supported for method {method.path}")
        wire = list(requests)
        for target in caller.nodes:
            yield from _of_many(machine, method, iter(wire), caller.roles, target)
        return
    if len(caller.node) > 1:
        raise refusal(Code.INVALID_ARGUMENT, "node metadata must be single-valued")
    if caller.node:
        yield from _forwarded(machine, method, requests, caller.roles, caller.node[0])
        return
    yield from _local(machine, method, requests, caller.roles)


def _local(machine: Machine, method: Method, requests: Iterator[bytes], roles: frozenset[str]) -> Iterator[bytes]:
    session = machine.session()
    session.wait(machine.faults.slow_s(method.name))
    fault = machine.faults.refusal(method.name)
    if fault is not None:
        raise refusal(Code[fault.code], fault.message)
    if not method.roles & roles:
        raise refusal(Code.PERMISSION_DENIED, NOT_AUTHORIZED)
    try:
        messages = [decode(method.request, request) for request in requests]
    except DecodeError:
        raise refusal(Code.INTERNAL, f"cannot read a {method.request}") from None
    handler = handlers.HANDLERS[method.path]
    message = messages if method.uploads else messages[0]
    if method.streams:
        for reply in handler(machine, message, roles):
            yield reply.SerializeToString()
    else:
        yield handler(machine, message, roles).SerializeToString()


def _forwarded(
    machine: Machine, method: Method, requests: Iterator[bytes], roles: frozenset[str], target: str
) -> Iterator[bytes]:
    if not machine.forwards_calls:
        if target == machine.address:
            yield from _local(machine, method, requests, roles)
            return
        raise refusal(Code.PERMISSION_DENIED, "no request forwarding")
    other = machine.site.machine_at(target)
    failure = "no such host" if other is None else other.unreachable_for(machine)
    if other is None or failure:
        raise refusal(Code.UNAVAILABLE, f'connection error: desc = "transport: {failure}"')
    yield from _local(other, method, requests, roles)


def _of_many(
    machine: Machine, method: Method, requests: Iterator[bytes], roles: frozenset[str], target: str
) -> Iterator[bytes]:
    """One machine's part of the answer: its reply with its name, or its error as a message."""
    name = {"hostname": target}
    try:
        for reply in _forwarded(machine, method, requests, roles, target):
            message = decode(method.reply, reply)
            for part in (message,) if method.streams else message.messages:
                part.metadata.hostname = target
            yield message.SerializeToString()
    except (RpcError, PowerLostError) as error:
        code, text = (error.code, error.message) if isinstance(error, RpcError) else (Code.UNAVAILABLE, "going down")
        metadata = {
            **name,
            "error": f"rpc error: code = {_go_name(code)} desc = {text}",
            "status": {"code": int(code), "message": text},
        }
        failed = new("common.Data", metadata=metadata)
        if not method.streams:
            # Every reply has its messages as field 1, and every message its metadata as field 1.
            failed = new("machine.BootstrapResponse", messages=[{"metadata": metadata}])
        yield failed.SerializeToString()


def _status(code: Code) -> grpc.StatusCode:
    return next(status for status in grpc.StatusCode if status.value[0] == code)


def _go_name(code: Code) -> str:
    return "OK" if code is Code.OK else "".join(part.capitalize() for part in code.name.split("_"))
