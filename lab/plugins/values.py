"""The engine's property values as plain Python: markers for secrets and unknowns, and what they mean to a provider.

Struct fields become dict, list, str, float, bool and None; a secret stays `{SIGNATURE: SECRET, "value": ...}` and an
unknown stays the string UNKNOWN, so that a value goes back to the engine exactly as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import json_format, struct_pb2

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - the protocol's public marker of a secret
ASSET = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def from_struct(struct: Any) -> dict[str, Any]:
    """Property map of a request, markers kept."""
    properties: dict[str, Any] = json_format.MessageToDict(struct)
    return properties


def to_struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """Property map for a response, markers kept."""
    return json_format.ParseDict(dict(properties), struct_pb2.Struct())


def is_secret(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get(SIGNATURE) == SECRET


def secret(value: Any) -> Any:
    """Mark a value as secret; marking twice is marking once."""
    return value if is_secret(value) else {SIGNATURE: SECRET, "value": value}


def plain(value: Any) -> Any:
    """The value without any secret marker, at every depth. Not for anything that is shown or stored."""
    if is_secret(value):
        return plain(value.get("value"))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def has_unknown(value: Any) -> bool:
    """Whether anything in the value is decided only when the program runs for real."""
    return any(leaf == UNKNOWN for leaf in _leaves(plain(value)))


def secret_texts(value: Any) -> set[str]:
    """Every string that is secret, or part of something secret."""
    if is_secret(value):
        return {leaf for leaf in _leaves(plain(value)) if isinstance(leaf, str)}
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return {text for child in children for text in secret_texts(child)}


def _leaves(value: Any) -> Iterator[Any]:
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    if children is None:
        yield value
        return
    for child in children:
        yield from _leaves(child)
