"""How the SDK waits at the end of a program, without the part that grows with the square of the resources."""

from __future__ import annotations

import asyncio

from pulumi.runtime.settings import SETTINGS


def wait_for_registrations_first() -> None:
    """Have the SDK wait for one registration after the other, and for outputs only when all are made.

    That is what it means to do. But a registration is in its list only after its task has begun, and a program ends
    before any has: the SDK finds the list empty and goes on to the outputs, where each one that is done has it look at
    all the others. One entry of our own is enough: while the SDK waits for it, the others begin.
    """
    SETTINGS.rpc_manager.rpcs.append(asyncio.ensure_future(asyncio.sleep(0)))
