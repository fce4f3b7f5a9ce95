"""The SDK's messages to the engine at debug level, without the values of a stack's outputs."""

from __future__ import annotations

import pulumi

_VALUES = ", props="
_tell = pulumi.log.debug


def hide_outputs() -> None:
    """Have `pulumi up --debug` and `--event-log` show no outputs: the SDK writes secret ones there in plain text.

    The engine drops debug messages unless one of these options is given, but it cannot know what is secret in them.
    """
    pulumi.log.debug = _without_outputs


def _without_outputs(
    msg: str,
    resource: pulumi.Resource | None = None,
    stream_id: int | None = None,
    ephemeral: bool | None = None,  # noqa: FBT001 - as the SDK has it
) -> None:
    _tell(msg.partition(_VALUES)[0], resource, stream_id, ephemeral)
