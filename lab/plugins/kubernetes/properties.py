"""Property values on the wire: protobuf Struct to plain Python trees and back, with secrets and unknowns kept.

A decoded tree holds dict, list, str, int, float, bool and None, plus two marks: `Secret(value)` around a secret
value and `UNKNOWN` in place of one that is not known yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

_SIGNATURE: Final = rpc._special_sig_key
_SECRET: Final = rpc._special_secret_sig
_OUTPUT: Final = rpc._special_output_value_sig

# The engine has one placeholder per type: string, bool, number, array, asset, archive and object.
_UNKNOWN_TEXTS: Final = frozenset(
    {
        rpc.UNKNOWN,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)

Tree = dict[str, Any]


class Unknown:
    """A value that the engine does not know yet; there is one instance, `UNKNOWN`."""

    _instance: Unknown | None = None

    def __new__(cls) -> Unknown:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __copy__(self) -> Unknown:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Unknown:
        return self


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A secret value; its repr never shows what it holds."""

    value: Any

    def __repr__(self) -> str:
        return "Secret(...)"


def decode(properties: struct_pb2.Struct) -> Tree:
    """Read a message's properties into a tree with `Secret` and `UNKNOWN` marks."""
    return {key: _decode_value(value) for key, value in properties.fields.items()}


def _decode_value(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        text = value.string_value
        return UNKNOWN if text in _UNKNOWN_TEXTS else text
    if kind == "struct_value":
        fields = value.struct_value.fields
        signature = fields[_SIGNATURE].string_value if _SIGNATURE in fields else ""
        if signature == _SECRET:
            return Secret(_decode_value(fields["value"]))
        if signature == _OUTPUT:
            inner = _decode_value(fields["value"]) if "value" in fields else UNKNOWN
            return Secret(inner) if "secret" in fields and fields["secret"].bool_value else inner
        return {key: _decode_value(item) for key, item in fields.items()}
    if kind == "list_value":
        return [_decode_value(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        # Struct numbers are doubles; Kubernetes refuses 3.0 where it expects an integer.
        return int(number) if number.is_integer() and abs(number) < 2**53 else number
    if kind == "bool_value":
        return value.bool_value
    return None


def encode(tree: Tree) -> struct_pb2.Struct:
    """Write a tree, marks included, as a message's properties."""
    result = struct_pb2.Struct()
    fields = result.fields
    for key, item in tree.items():
        _encode_into(fields[key], item)
    return result


def _encode_into(target: struct_pb2.Value, value: Any) -> None:
    if isinstance(value, str):
        target.string_value = value
    elif isinstance(value, dict):
        fields = target.struct_value.fields
        # Touching the message marks it as set, so an empty object stays an object.
        target.struct_value.SetInParent()
        for key, item in value.items():
            _encode_into(fields[key], item)
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, (int, float)):
        target.number_value = value
    elif isinstance(value, (list, tuple)):
        values = target.list_value.values
        target.list_value.SetInParent()
        for item in value:
            _encode_into(values.add(), item)
    elif value is None:
        target.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, Secret):
        fields = target.struct_value.fields
        fields[_SIGNATURE].string_value = _SECRET
        _encode_into(fields["value"], value.value)
    elif value is UNKNOWN:
        target.string_value = rpc.UNKNOWN
    else:
        raise TypeError(f"no property value for {type(value).__name__}")


def plain(value: Any) -> Any:
    """A copy without secret marks; unknowns stay."""
    if isinstance(value, Secret):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def has_unknown(value: Any) -> bool:
    """Whether an unknown sits anywhere in the tree."""
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    if isinstance(value, Secret):
        return has_unknown(value.value)
    return value is UNKNOWN


def has_secret(value: Any) -> bool:
    """Whether a secret sits anywhere in the tree."""
    if isinstance(value, Secret):
        return True
    if isinstance(value, dict):
        return any(has_secret(item) for item in value.values())
    if isinstance(value, list):
        return any(has_secret(item) for item in value)
    return False


def mark_secrets(outputs: Tree, inputs: Tree | None) -> None:
    """Mark in place what the inputs kept secret, key by key; a list with one secret element becomes secret as a whole.

    The data of a Secret object is always secret, no matter who wrote it.
    """
    if outputs.get("kind") == "Secret":
        for key in ("data", "stringData"):
            if key in outputs and not isinstance(outputs[key], Secret):
                outputs[key] = Secret(outputs[key])
        return
    for key, given in (inputs or {}).items():
        if key not in outputs:
            continue
        produced = outputs[key]
        if isinstance(produced, dict) and isinstance(given, dict):
            mark_secrets(produced, given)
        elif not isinstance(produced, Secret) and has_secret(given):
            outputs[key] = Secret(produced)


# Shorter ones would blot out half of a message and protect nothing.
_SHORTEST_HIDDEN: Final = 4


def secret_texts(value: Any, *, secret: bool = False) -> frozenset[str]:
    """Every text that is secret or part of something secret, for keeping it out of messages."""
    if isinstance(value, Secret):
        return secret_texts(value.value, secret=True)
    if isinstance(value, dict):
        return frozenset().union(*(secret_texts(item, secret=secret) for item in value.values()))
    if isinstance(value, list):
        return frozenset().union(*(secret_texts(item, secret=secret) for item in value))
    return frozenset({value}) if secret and isinstance(value, str) and len(value) >= _SHORTEST_HIDDEN else frozenset()


def hide(message: str, texts: Iterable[str]) -> str:
    """The message without the texts."""
    for text in sorted(texts, key=len, reverse=True):
        message = message.replace(text, "[secret]")
    return message
