"""What machine-config documents have in common: how they are identified, and how fields become wire form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

API_VERSION = "v1alpha1"

Wire = dict[str, Any]


class ConfigError(ValueError):
    """A machine config that cannot be made; says what is wrong and how to mend it, and never quotes a value.

    Values are left out because any field of a machine config may be a secret.
    """

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix


def wired(name: str = "", encode: Callable[[Any], Any] | None = None) -> Mapping[str, Any]:
    """Field metadata: the wire name where it is not the camelCase of ours, and how the value is written."""
    return {"wire": name, "encode": encode}


def seconds(value: float) -> str:
    """A duration as Go writes it, in whole milliseconds where it has a fraction: 30 is `30s`, 0.1 is `100ms`."""
    return f"{value:.0f}s" if value == int(value) else f"{value * 1000:.0f}ms"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a document. An absent field (None, an empty tuple, an empty mapping) is not written."""

    def wire(self) -> Wire:
        """The piece as Talos reads it: camelCase keys, fields in the order of the class."""
        written: Wire = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None or value == () or value == {}:
                continue
            encode = each.metadata.get("encode") or _plain
            written[each.metadata.get("wire") or _camel_case(each.name)] = encode(value)
        return written


@dataclass(frozen=True, kw_only=True)
class Document(Part):
    """One document of a machine config, of the kind that Talos registers under this name."""

    kind: ClassVar[str]

    def document(self) -> Wire:
        return {"apiVersion": API_VERSION, "kind": self.kind, **self.wire()}


Identity = tuple[str, str]


def identity(document: Mapping[str, Any]) -> Identity:
    """(kind, name) of a document in wire form: what Talos matches and refuses twice. v1alpha1 itself has no kind."""
    name = document.get("name")
    return str(document.get("kind", API_VERSION)), "" if name is None else str(name)


def shown(of: Identity) -> str:
    """An identity for a message: `LinkConfig eth0`, `TimeSyncConfig`."""
    return " ".join(filter(None, of))


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.wire()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value
