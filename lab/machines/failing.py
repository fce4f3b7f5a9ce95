"""How the emulation fails: as a call that gets a gRPC status, or as a machine that lost power."""

from __future__ import annotations

from talos.api.errors import Code, RpcError


class PowerLostError(Exception):
    """The machine was switched off or restarted while this was under way."""


class DiedError(PowerLostError):
    """The machine died by a fault that was asked for."""


def refusal(code: Code, message: str) -> RpcError:
    """What a handler raises to answer with a status other than OK."""
    return RpcError(code, message)


NOT_AUTHORIZED = "not authorized"
