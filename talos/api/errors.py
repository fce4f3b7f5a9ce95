"""What can go wrong between us and a machine, each as an exception with node, call, cause and fix."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """gRPC status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16

    @classmethod
    def of(cls, number: int) -> Code:
        """The code of a number from the wire; UNKNOWN for one that gRPC does not know."""
        return cls(number) if number in cls._value2member_map_ else cls.UNKNOWN


class RpcError(Exception):
    """A call that failed, as a transport sees it. The client turns it into a MachineApiError.

    `sent` is False where it is certain that no byte of the request reached the machine.
    """

    def __init__(self, code: Code, message: str, *, sent: bool = True) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.sent = sent


class CutShortError(RpcError):
    """A stream that ended before the sign by which its end is known."""

    def __init__(self, what: str) -> None:
        super().__init__(Code.UNAVAILABLE, what)


class UntrustedMachineError(RpcError):
    """The machine's certificate is not the one that was to be expected; nothing was sent to it."""

    def __init__(self, message: str) -> None:
        super().__init__(Code.UNAUTHENTICATED, message, sent=False)


class MachineApiError(Exception):
    """A call to a machine that failed.

    `node`, `call`, `cause` and `fix` are for people; `code` is the gRPC status, also where no RPC came about.
    """

    default_fix = "look into the machine's log (talosctl dmesg) and repeat"

    def __init__(self, *, node: str, call: str, cause: str, code: Code = Code.UNKNOWN, fix: str = "") -> None:
        self.node = node
        self.call = call
        self.cause = cause
        self.code = code
        self.fix = fix or self.default_fix
        super().__init__(f"{node}: {call}: {cause}\n  fix: {self.fix}")


class UnreachableError(MachineApiError):
    """No connection, or it broke; a mutating call may or may not have had its effect."""

    default_fix = (
        "check that the machine is up and that TCP port 50000 is open from here, then repeat; a configured machine may "
        "also break off like this when the client has no certificate of its cluster"
    )


class UntrustedError(MachineApiError):
    """The machine showed another certificate than expected."""

    default_fix = (
        "in maintenance mode the certificate is self-signed: compare the fingerprint on the machine's console and give "
        "it; otherwise check that the address is this cluster's machine and the talosconfig is this cluster's"
    )


class DeniedError(MachineApiError):
    """The machine does not accept this client, or its role may not do this."""

    default_fix = (
        "use a talosconfig of this cluster whose role allows the call (os:admin for changes) and is not expired"
    )


class InvalidError(MachineApiError):
    """The machine refuses what it was given."""

    default_fix = "correct what the cause names; the checker of machine configs finds most of it without the machine"


class NotReadyError(MachineApiError):
    """The machine cannot do this now, but may later."""

    default_fix = "wait and repeat"


class AlreadyDoneError(MachineApiError):
    """What was asked for is there already."""

    default_fix = "nothing: it is as asked"


class AbsentError(MachineApiError):
    """What was asked for does not exist on the machine."""

    default_fix = "check the name, and that the machine is in the state that has it"


class NotOfferedError(MachineApiError):
    """The machine's Talos version, or its mode, does not have this call."""

    default_fix = "check the machine's Talos version and whether it is in maintenance mode"


class TooSlowError(MachineApiError):
    """The deadline passed; a mutating call may or may not have had its effect."""

    default_fix = "check the machine's load and the network, then repeat with a longer deadline"


class UpgradeFailedError(MachineApiError):
    """The installer ran on the machine and failed; the machine still boots what it ran before."""

    default_fix = "check that the installer image exists for this Talos version and schematic; see the messages above"


_BY_CODE: dict[Code, type[MachineApiError]] = {
    Code.UNAVAILABLE: UnreachableError,
    Code.UNAUTHENTICATED: DeniedError,
    Code.PERMISSION_DENIED: DeniedError,
    Code.INVALID_ARGUMENT: InvalidError,
    Code.OUT_OF_RANGE: InvalidError,
    Code.FAILED_PRECONDITION: NotReadyError,
    Code.ABORTED: NotReadyError,
    Code.ALREADY_EXISTS: AlreadyDoneError,
    Code.NOT_FOUND: AbsentError,
    Code.UNIMPLEMENTED: NotOfferedError,
    Code.DEADLINE_EXCEEDED: TooSlowError,
}


def api_error(node: str, call: str, failure: RpcError) -> MachineApiError:
    """The exception for a transport's failure."""
    kind = UntrustedError if isinstance(failure, UntrustedMachineError) else _BY_CODE.get(failure.code, MachineApiError)
    return kind(node=node, call=call, cause=failure.message or failure.code.name, code=failure.code)
