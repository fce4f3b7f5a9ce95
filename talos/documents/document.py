"""What machine-config documents have in common: how they are identified, and how fields become wire form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from floor.problems import Path
from talos.documents.checks import Check, Fault
from talos.documents.problems import ConfigProblem, Identity

API_VERSION = "v1alpha1"

Wire = dict[str, Any]


def wired(name: str = "", encode: Callable[[Any], Any] | None = None, check: Check | None = None) -> Mapping[str, Any]:
    """Field metadata: the wire name where it is not the camelCase of ours, how the value is written, what it may be."""
    return {"wire": name, "encode": encode, "check": check}


def checked(check: Check) -> Mapping[str, Any]:
    """Field metadata of a field that is written plainly."""
    return wired(check=check)


def seconds(value: float) -> str:
    """A duration as Go writes it, in whole milliseconds where it has a fraction: 30 is `30s`, 0.1 is `100ms`."""
    return f"{value:.0f}s" if value == int(value) else f"{value * 1000:.0f}ms"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a document. An absent field (None, an empty tuple, an empty mapping) is not written."""

    def wire(self) -> Wire:
        """The piece as Talos reads it: camelCase keys, fields in the order of the class."""
        written: Wire = {}
        for name, key, encode in _written_fields(type(self)):
            value = getattr(self, name)
            if value is None or value == () or value == {}:
                continue
            written[key] = encode(value)
        return written

    def problems(self) -> Iterator[ConfigProblem]:
        """Every mistake in here and below; paths count from here."""
        for member in fields(self):
            value = getattr(self, member.name)
            if value is None:
                continue
            if fault := _fault(type(self), member, value):
                # A list, as people write it.
                got = repr(list(value) if isinstance(value, tuple) else value) if member.repr else ""
                yield ConfigProblem(path=(member.name,), what=fault.what, got=got, allowed=fault.allowed, fix=fault.fix)
            for item, below in _below(value):
                for problem in below.problems():
                    yield problem.beneath(member.name, *item)
        yield from self.disagreements()

    def disagreements(self) -> Iterator[ConfigProblem]:
        """Mistakes that lie between fields; for classes to override."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Document(Part):
    """One document of a machine config, of the kind that Talos registers under this name."""

    kind: ClassVar[str]

    def document(self) -> Wire:
        return {"apiVersion": API_VERSION, "kind": self.kind, **self.wire()}

    def problems(self) -> Iterator[ConfigProblem]:
        for problem in super().problems():
            yield problem.of(identity(self.document()))


def identity(document: Mapping[str, Any]) -> Identity:
    """(kind, name) of a document in wire form: what Talos matches and refuses twice. v1alpha1 itself has no kind."""
    name = document.get("name")
    return str(document.get("kind", API_VERSION)), "" if name is None else str(name)


_WRITTEN: dict[type, list[tuple[str, str, Callable[[Any], Any]]]] = {}


def _written_fields(owner: type[Part]) -> list[tuple[str, str, Callable[[Any], Any]]]:
    """Of each field: our name, the wire's, and how its value is written; looked up once a class."""
    if owner in _WRITTEN:
        return _WRITTEN[owner]
    members = [
        (member.name, member.metadata.get("wire") or _camel_case(member.name), member.metadata.get("encode") or _plain)
        for member in fields(owner)
    ]
    return _WRITTEN.setdefault(owner, members)


def wire_names(owner: type[Part]) -> frozenset[str]:
    """The keys that a piece of this type may write."""
    return frozenset(key for _, key, _ in _written_fields(owner))


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.wire()
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _below(value: Any) -> Iterator[tuple[Path, Part]]:
    if isinstance(value, Part):
        yield (), value
    elif isinstance(value, tuple):
        yield from (((str(position),), part) for position, part in enumerate(value) if isinstance(part, Part))


def _fault(owner: type[Part], field: Field[Any], value: Any) -> Fault | None:
    if value == "" and field.default is MISSING:
        return Fault("is empty", "a text")
    if choices := _choices(owner).get(field.name):
        return None if value in choices else Fault("is not one of the choices", ", ".join(map(str, choices)))
    check: Check | None = field.metadata.get("check")
    return None if check is None or value == field.default else check(value)


_CHOICES: dict[type, dict[str, tuple[Any, ...]]] = {}


def _choices(owner: type) -> dict[str, tuple[Any, ...]]:
    """Fields whose type is a Literal, with what it names; looked up once a class."""
    if owner in _CHOICES:
        return _CHOICES[owner]
    choices = {}
    for name, hint in get_type_hints(owner).items():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        options = tuple(option for option in options if option is not NoneType)
        if options and all(get_origin(option) is Literal for option in options):
            choices[name] = tuple(choice for option in options for choice in get_args(option))
    return _CHOICES.setdefault(owner, choices)
