"""The SDK's messages to the engine at debug level: none is sent."""

from __future__ import annotations

import pulumi


def send_none() -> None:
    """Have the SDK send no debug messages.

    It sends four for each resource and waits for each, half of what the program took in a preview of 900 tenants, and
    the engine drops them unless `--debug` or `--event-log` is given. Those of a stack's outputs have secret values in
    plain text. What fails is reported by its own error.
    """
    pulumi.log.debug = _drop


def _drop(
    msg: str,
    resource: pulumi.Resource | None = None,
    stream_id: int | None = None,
    ephemeral: bool | None = None,  # noqa: FBT001 - as the SDK has it
) -> None:
    pass
