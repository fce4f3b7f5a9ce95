"""What Talos's loader accepts in each field of a machine config, from `fields.yaml`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from floor.durations import is_duration
from talos.documents import checks
from talos.documents.cel import condition
from talos.documents.checks import Check, Fault, expect
from talos.documents.document import API_VERSION

FILE = Path(__file__).parent / "fields.yaml"

_PART = "part/"
_ANY_NAME = "*"
_IN_ANY_CASE = ("apiVersion", "kind")
_MODES = 0o7777
_WHOLE_DISK = 100
# What go-humanize reads, in any case: a prefix with or without its i and B.
_SIZE = re.compile(r"([0-9][0-9,]*(?:\.[0-9]*)?) *([kKmMgGtTpPeE]?[iI]?)[bB]?")
_UNITS = {"": 1, **{prefix: 1000**power for power, prefix in enumerate("kmgtpe", 1)}}
_UNITS |= {f"{prefix}i": 1024**power for power, prefix in enumerate("kmgtpe", 1)}
_PRIORITIES = range(1, 32766)
_KUBERNETES_PRIORITY = 32500


class Misfit(NamedTuple):
    """A field that Talos does not know, where `known` are those that it does, or one whose value it refuses."""

    path: tuple[str, ...]
    value: Any
    fault: Fault
    known: tuple[str, ...] = ()


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_whole(value: Any, most: int = 2**63 - 1, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_address(text: Any) -> bool:
    # Talos reads an unspecified address as none.
    return isinstance(text, str) and not ipaddress.ip_address(text).is_unspecified


def _is_subnet(text: Any) -> bool:
    """Go's form: bits without a leading zero, no mask, no link."""
    return (
        isinstance(text, str) and bool(re.search(r"/(0|[1-9]\d*)$", text)) and "%" not in text and checks.is_cidr(text)
    )


def _is_address_port(text: Any) -> bool:
    split = urlsplit(f"//{text}")
    return isinstance(text, str) and split.port is not None and _is_address(split.hostname)


def _is_port(value: Any) -> bool:
    """A single port is a number; Talos reads a text as a range, which our own check does too."""
    return checks.ports((value,)) is None and not isinstance(value, bool)


def _is_arguments(value: Any) -> bool:
    lists = (item if isinstance(item, list) else [item] for item in value.values())
    return all(map(_is_scalar, [item for items in lists for item in items]))


def _is_variables(value: Any) -> bool:
    return checks.variables(value) is None and all(map(_is_scalar, value.values()))


def _is_size(value: Any) -> bool:
    match = _SIZE.fullmatch(str(value))
    return match is not None and float(match[1].replace(",", "")) * _UNITS[match[2].lower()[:2]] < 2**64


def _is_share(value: Any) -> bool:
    text = str(value).removeprefix("-")
    return _is_size(text) or (text.endswith("%") and 0 <= float(text[:-1]) <= _WHOLE_DISK)


def _form(test: Any, allowed: str, fix: str = "") -> Check:
    what = allowed.partition(" such as")[0].rstrip(",")
    return expect(test, allowed, what=f"is not {what}", fix=fix)


_KINDS: Mapping[str, Check] = {
    "text": _form(_is_scalar, "a text"),
    "switch": _form(lambda value: isinstance(value, bool), "true or false"),
    "whole": _form(lambda value: _is_whole(value, least=-(2**63)), "a whole number without quotes"),
    **{
        f"count{bits}": _form(
            lambda value, bits=bits: _is_whole(value, 2**bits - 1), f"a whole number from 0 to {2**bits - 1}"
        )
        for bits in (8, 16, 32, 64)
    },
    "percent": _form(lambda value: _is_whole(value, 100), "a whole number from 0 to 100"),
    "mode": _form(
        lambda value: _is_whole(value, _MODES),
        "file permissions as a decimal number, such as 420 for 0o644",
        "write 420 for 0o644, 384 for 0o600, 493 for 0o755",
    ),
    "duration": _form(lambda value: value == 0 or is_duration(value), "a time with its unit, such as 30s or 1m30s"),
    "subnet": _form(_is_subnet, "a subnet such as 10.5.0.0/24"),
    "address": _form(_is_address, "an address such as 10.5.0.11"),
    "address_port": _form(_is_address_port, "an address and a port such as 10.5.0.11:51820"),
    "hardware": _form(
        lambda text: bool(re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2})*", text)),
        "bytes such as 00:1a:2b:3c:4d:5e",
    ),
    "host_port": checks.host_and_port,
    "url": _form(lambda text: bool(urlsplit(text).scheme), "an address such as https://HOST:PORT"),
    "log_url": checks.url("tcp", "udp", port=True, path=False),
    "siderolink_url": checks.url("https", "grpc", path=False),
    "port": _form(_is_port, "a port such as 9400 without quotes, or a range such as 30000-32767"),
    "table": checks.routing_table,
    "priority": _form(
        lambda value: int(value) in _PRIORITIES and int(value) != _KUBERNETES_PRIORITY,
        f"the rule's priority such as 1000, from 1 to {_PRIORITIES[-1]} and not {_KUBERNETES_PRIORITY}",
    ),
    "size": _form(_is_size, "a size such as 100GiB or 3TB"),
    "size_or_share": _form(_is_share, "a size such as 3TB, a share such as 80%, or what to leave: -50GiB"),
    "destination": checks.both(_form(_is_subnet, "a subnet such as 10.6.0.0/16"), checks.destination),
    "pci": checks.pci_address,
    "link": checks.link_name,
    "volume": checks.volume_name,
    "disk_condition": condition("disk"),
    "volume_condition": condition("volume"),
    "link_condition": condition("link"),
    "variables": _form(_is_variables, "names of letters, digits and underscores, each with a text"),
    "arguments": _form(_is_arguments, "flags without dashes, each with a text or a list of texts"),
}


@cache
def _table() -> Mapping[str, Any]:
    read: Mapping[str, Any] = yaml.load(FILE.read_text(), Loader=yaml.CSafeLoader)
    return read


def misfits(document: Mapping[str, Any]) -> Iterator[Misfit]:
    """Fields of a document, or of a patch of one, that Talos does not know or whose values it refuses."""
    kind = str(document.get("kind", API_VERSION))
    fields = _table()["documents"].get(kind)
    if fields is None:
        fault = Fault("is no kind of document that Talos 1.13 knows", "", "take the patch out")
        yield Misfit(("kind",), document.get("kind"), fault, tuple(set(_table()["documents"]) - {API_VERSION}))
        return
    if kind == API_VERSION:
        yield from _below((), document, fields)
        return
    if document.get("apiVersion") != API_VERSION:
        fault = Fault("is not Talos's", API_VERSION, f"write {API_VERSION}")
        yield Misfit(("apiVersion",), document.get("apiVersion"), fault)
    yield from _below((), {name: value for name, value in document.items() if name not in _IN_ANY_CASE}, fields)


def required(kind: str) -> tuple[tuple[str, ...], ...]:
    """Fields, dotted, without which Talos refuses a document of this kind; one of each group is enough."""
    return tuple(map(tuple, _table()["required"].get(kind, ())))


def _below(path: tuple[str, ...], value: Any, kind: Any) -> Iterator[Misfit]:
    if value is None or (isinstance(value, Mapping) and "$patch" in value):
        # The merge of patches reports what a patch removes or does not change.
        return
    if isinstance(kind, str) and kind.startswith(_PART):
        kind = _table()["parts"][kind.removeprefix(_PART)]
    if isinstance(kind, Mapping):
        if isinstance(value, Mapping):
            yield from _of_fields(path, value, kind)
        else:
            yield Misfit(path, value, Fault("is not a section", "a section", "write its fields below it"))
    elif isinstance(kind, list):
        if isinstance(value, list | tuple):
            for index, item in enumerate(value):
                yield from _below((*path, str(index)), item, kind[0])
        else:
            yield Misfit(path, value, Fault("is not a list", "a list", "begin each entry with a dash"))
    elif (fault := _fault(value, kind)) is not None:
        yield Misfit(path, value, fault)


def _of_fields(path: tuple[str, ...], value: Mapping[str, Any], fields: Mapping[str, Any]) -> Iterator[Misfit]:
    for name, inner in value.items():
        kind = fields.get(str(name), fields.get(_ANY_NAME))
        if kind is None:
            fault = Fault("is no field of Talos's machine config", "", "take it out")
            yield Misfit((*path, str(name)), None, fault, tuple(fields))
        else:
            yield from _below((*path, str(name)), inner, kind)


def _fault(value: Any, kind: str) -> Fault | None:
    if kind == "any":
        return None
    if kind in _KINDS:
        return _KINDS[kind](value)
    words = kind.split("|")
    allowed = words[0] if len(words) == 1 else f"one of {', '.join(words)}"
    return None if value in words else Fault("is not one of the values that Talos knows", allowed, f"write {allowed}")
