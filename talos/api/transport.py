"""What a transport is: bytes of one message out, bytes of one or several messages back. And the choice between two."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator
from typing import Protocol

from talos.api.calls import Call
from talos.api.errors import Code, HiddenStatusError, MachineApiError, RpcError, UntrustedMachineError

Metadata = tuple[tuple[str, str], ...]
MACHINE_API_PORT = 50000


class Transport(Protocol):
    """Sends calls to one address. Every failure is an RpcError."""

    def unary(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> bytes:
        """One message for one message."""

    def stream(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> Iterator[bytes]:
        """One message for several. Whether the last one was the last, the caller checks by the call's proof."""

    def upload(self, call: Call, requests: Iterable[bytes], *, metadata: Metadata, deadline_s: float) -> bytes:
        """Several messages for one."""

    def close(self) -> None:
        """Close the connections; may be called twice."""


class RoutedTransport:
    """Sends each call over the transport that its table entry names.

    Where httpx learns that a call failed but not why, the call is asked again over grpcio, which sees the reason: such
    calls change nothing.
    """

    def __init__(self, over_httpx: Transport, over_grpcio: Transport) -> None:
        self._by_name: dict[str, Transport] = {"httpx": over_httpx, "grpcio": over_grpcio}

    def unary(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> bytes:
        """As Transport.unary."""
        try:
            return self._by_name[call.transport].unary(call, request, metadata=metadata, deadline_s=deadline_s)
        except HiddenStatusError:
            return self._by_name["grpcio"].unary(call, request, metadata=metadata, deadline_s=deadline_s)

    def stream(self, call: Call, request: bytes, *, metadata: Metadata, deadline_s: float) -> Iterator[bytes]:
        """As Transport.stream."""
        try:
            yield from self._by_name[call.transport].stream(call, request, metadata=metadata, deadline_s=deadline_s)
        except HiddenStatusError:  # only ever before the first message
            yield from self._by_name["grpcio"].stream(call, request, metadata=metadata, deadline_s=deadline_s)

    def upload(self, call: Call, requests: Iterable[bytes], *, metadata: Metadata, deadline_s: float) -> bytes:
        """As Transport.upload."""
        return self._by_name[call.transport].upload(call, requests, metadata=metadata, deadline_s=deadline_s)

    def close(self) -> None:
        """Close both."""
        for transport in self._by_name.values():
            transport.close()


def connection_failure(error: BaseException, *, sent: bool) -> RpcError:
    """What a broken connection means, by the innermost TLS or network error in the exception's chain."""
    causes: list[BaseException] = []
    # Beyond one of our own begins what the caller was handling when it called: an earlier call's failure.
    while error is not None and error not in causes and not isinstance(error, RpcError | MachineApiError):
        causes.append(error)
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            # Only the TLS library's own refusals have a verify_message; a pin's has its text alone.
            reason = getattr(cause, "verify_message", "") or str(cause.args[-1])
            return UntrustedMachineError(f"untrusted certificate: {reason}")
    for cause in causes:
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            return RpcError(Code.UNAUTHENTICATED, f"the machine ended the TLS handshake: {cause.reason}", sent=False)
    last = next((cause for cause in causes if isinstance(cause, OSError) and str(cause)), causes[0])
    reason = getattr(last, "strerror", None) or str(last) or type(last).__name__
    return RpcError(Code.UNAVAILABLE, reason, sent=sent)
