"""A first look at CEL expressions: brackets, quotes, names that Talos knows, and types.

Talos's own compiler has the last word. This is there for mistakes that would otherwise show on the machine: a misspelt
field, `=` for `==`, `and` for `&&`, `3 * TB` for `3u * TB`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from talos.documents.cel_types import mistake
from talos.documents.checks import Check, Fault

Subject = Literal["disk", "volume", "link"]

_TEXT = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'")
_NO_TEXT = '""'
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_FIELD = r"\b(disk|volume|link)\.(\w+)"
_MEMBER = re.compile(_FIELD)
_LITERAL = r"(\"\"|true\b|false\b|-?\d[\d.]*u?\b)"
_COMPARED = re.compile(rf"{_FIELD}\s*(?:==|!=|<=?|>=?)\s*{_LITERAL}")
_COMPARED_AFTER = re.compile(rf"{_LITERAL}\s*(?:==|!=|<=?|>=?)\s*{_FIELD}\b(?!\s*\()")
_SIGNED_SIZE = re.compile(r"(?<![\w.])(\d+)\s*\*\s*([KMGTPE]i?B|kB)\b")
# Fields that never have such a text, and a size that no disk has.
_NEVER = (
    (
        re.compile(r"\bdisk\.dev_path\s*==\s*[\"'](?!/dev/)"),
        "compares disk.dev_path with a text that is no path in /dev",
    ),
    (
        re.compile(r"\bdisk\.transport\s*==\s*[\"'][^\"']*[A-Z]"),
        "compares disk.transport with capital letters; Talos writes nvme",
    ),
    (
        re.compile(r"\bdisk\.size\s*[<>]=?\s*0*[1-9]\d{0,8}u(?!\s*\*)\b"),
        "compares disk.size with bytes; CEL writes 3u * TB",
    ),
)
_NUMBER_WITH_UNIT = re.compile(r"(?<![\w.])(\d[\d.]*)((?!u\b|[eE][-+\d]|[xX][0-9a-fA-F])[A-Za-z]\w*)")
# CEL has no others outside of texts.
_NO_SIGN = re.compile(r"[^\x20-\x7e\s]|[#$;@`\\~]")
_CALL = re.compile(r"\.(\w+)\s*\(")
_CALL_NAMES = "contains startsWith endsWith matches size all exists exists_one map filter"
_CALLS = frozenset(_CALL_NAMES.split())
_BOUND = re.compile(r"\.(?:all|exists|exists_one|filter|map)\(\s*(\w+)\s*,")
_BRACKETS = {")": "(", "]": "[", "}": "{"}

# Fields by what they hold, of DiskSpec, DiscoveredVolumeSpec and LinkStatusSpec in Talos 1.13's definitions (protobuf).
_FIELDS = {
    "disk": {
        "text": """
            model serial modalias wwid bus_path sub_system transport dev_path pretty_size uuid
        """,
        "number": "size io_size sector_size",
        "condition": "readonly rotational cdrom",
        "list": "secondary_disks symlinks",
    },
    "volume": {
        "text": """
            name uuid label partition_uuid partition_type partition_label type device_path parent dev_path
            parent_dev_path pretty_size
        """,
        "number": """
            size sector_size io_size block_size filesystem_block_size probed_size partition_index offset
        """,
    },
    "link": {
        "text": """
            queue_disc kind slave_kind bus_path pciid driver driver_version firmware_version product_id vendor_id
            product vendor alias
        """,
        "number": "index link_index flags mtu master_index",
        "signed number": "type operational_state speed_megabits port duplex",
        "condition": "link_state",
        "list": "alt_names",
        "address": "hardware_addr broadcast_addr permanent_addr",
        "group of fields": "vlan bridge_master bond_master wireguard vrf_master",
    },
}
KINDS = {
    subject: {name: kind for kind, names in kinds.items() for name in names.split()}
    for subject, kinds in _FIELDS.items()
}
# What CEL compares with each; numbers with and without a sign are two types.
_LITERALS = {
    "text": "a text",
    "number": "a number such as 512u",
    "signed number": "a whole number without u",
    "condition": "true or false",
    "list": 'a list; write `"..." in` before it',
    "address": "an address; write mac() around it",
}
_UNITS = frozenset(f"{prefix}{unit}" for unit in ("iB", "B") for prefix in "KMGTPE") - {"KB"} | {"kB"}
_VARIABLES = {
    "disk": {"disk", "system_disk", "glob"} | _UNITS,
    "volume": {"volume", "disk"} | _UNITS,
    "link": {"link", "glob", "mac"},
}
_NAMES = "true false null in size has int uint double string bytes bool duration timestamp type dyn"
_BUILT_IN = frozenset(_NAMES.split())
_FIX = "correct the expression; `talosctl get disks` and `get links` show the values"


def condition(subject: Subject) -> Check:
    """A check for an expression that is a condition on one disk, volume or link."""

    def check(value: Any) -> Fault | None:
        if not isinstance(value, str) or not value.strip():
            return Fault("is empty", f"a CEL condition on `{subject}`", _FIX)
        wrong = next(_mistakes(value, subject), None)
        return None if wrong is None else Fault(wrong, f"a CEL condition on `{subject}`", _FIX)

    return check


def _mistakes(expression: str, subject: Subject) -> Iterator[str]:
    bare = _TEXT.sub(_NO_TEXT, expression)
    if bare.replace(_NO_TEXT, "").count('"') or "'" in bare:
        yield "has an open quote"
        return
    if not _balanced(bare):
        yield "has an open bracket"
    if re.search(r"(?<![=!<>])=(?!=)", bare):
        yield "has `=` where CEL compares with `==`"
    for owner, name in _MEMBER.findall(bare):
        if name not in KINDS[owner]:
            yield f"names the field {owner}.{name}, which does not exist{_meant(name, KINDS[owner])}"
    yield from _numbers(bare)
    yield from _comparisons(bare)
    for name in _CALL.findall(bare):
        if name not in _CALLS:
            yield f"calls {name}, which does not exist{_meant(name, _CALLS)}"
    known = _VARIABLES[subject] | _BUILT_IN | set(_BOUND.findall(bare))
    for name in _NAME.findall(bare):
        if name not in known:
            yield f"names {name}, which does not exist{_meant(name, known)}"
    yield from (never for form, never in _NEVER if form.search(expression))
    if wrong := mistake(bare, {variable: KINDS[variable] for variable in KINDS if variable in _VARIABLES[subject]}):
        yield wrong


def _numbers(bare: str) -> Iterator[str]:
    """Numbers with a unit, sizes with a sign, and what CEL has no use for."""
    if sign := _NO_SIGN.search(bare):
        yield f"has {sign[0]!a}, which is no sign of CEL"
    for count, unit in _NUMBER_WITH_UNIT.findall(bare):
        yield f"has {count}{unit}, which is no number; CEL writes {count}u * {unit if unit in _UNITS else 'GB'}"
    for count, unit in _SIGNED_SIZE.findall(bare):
        yield f"multiplies {count}, which has a sign, with {unit}; CEL writes {count}u * {unit}"


def _comparisons(bare: str) -> Iterator[str]:
    """Fields beside a literal that CEL does not compare them with."""
    comparisons = list(_COMPARED.findall(bare))
    comparisons += [(owner, name, literal) for literal, owner, name in _COMPARED_AFTER.findall(bare)]
    for owner, name, literal in comparisons:
        kind = KINDS[owner].get(name, "")
        if kind and not _comparable(kind, literal):
            meant = _LITERALS.get(kind, "nothing; name one of its fields")
            shown = "a text" if literal == _NO_TEXT else literal
            yield f"compares {owner}.{name} with {shown}; CEL compares it with {meant}"


def _comparable(kind: str, literal: str) -> bool:
    if literal == _NO_TEXT:
        return kind == "text"
    if literal in ("true", "false"):
        return kind == "condition"
    return kind == ("number" if literal.endswith("u") else "signed number" if literal.lstrip("-").isdigit() else "")


def _balanced(text: str) -> bool:
    opened: list[str] = []
    for character in text:
        if character in _BRACKETS.values():
            opened.append(character)
        elif character in _BRACKETS and (not opened or opened.pop() != _BRACKETS[character]):
            return False
    return not opened


def _meant(name: str, known: Iterable[str]) -> str:
    if name in ("and", "or", "not"):
        return f"; CEL writes {dict(zip(('and', 'or', 'not'), ('&&', '||', '!'), strict=True))[name]}"
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
