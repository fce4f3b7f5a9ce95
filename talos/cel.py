"""A first look at CEL expressions: brackets, quotes, and names that Talos knows.

Talos's own compiler has the last word. This is there for mistakes that would otherwise show on the machine: a misspelt
field, `=` for `==`, `and` for `&&`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Literal

from talos.checks import Check, Fault

Subject = Literal["disk", "volume", "link"]

_TEXT = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_MEMBER = re.compile(r"\b(disk|volume|link)\.(\w+)")
_BOUND = re.compile(r"\.(?:all|exists|exists_one|filter|map)\(\s*(\w+)\s*,")
_BRACKETS = {")": "(", "]": "[", "}": "{"}

_FIELDS = {
    "disk": """
        size io_size sector_size readonly model serial modalias wwid bus_path sub_system transport rotational cdrom
        dev_path pretty_size secondary_disks uuid symlinks
    """,
    "volume": """
        size sector_size io_size name uuid label block_size filesystem_block_size probed_size partition_uuid
        partition_type partition_label partition_index type device_path parent dev_path parent_dev_path pretty_size
        offset
    """,
    "link": """
        index type link_index flags hardware_addr broadcast_addr mtu queue_disc master_index operational_state kind
        slave_kind bus_path pciid driver driver_version firmware_version product_id vendor_id product vendor
        link_state speed_megabits port duplex vlan bridge_master bond_master wireguard permanent_addr alias alt_names
        vrf_master
    """,
}
FIELDS = {subject: frozenset(names.split()) for subject, names in _FIELDS.items()}
_CONDITIONS = {"disk": {"readonly", "rotational", "cdrom"}, "volume": set(), "link": {"link_state"}}
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
    bare = _TEXT.sub('""', expression)
    if bare.replace('""', "").count('"') or "'" in bare:
        yield "has an open quote"
        return
    if not _balanced(bare):
        yield "has an open bracket"
    if re.search(r"(?<![=!<>])=(?!=)", bare):
        yield "has `=` where CEL compares with `==`"
    for owner, name in _MEMBER.findall(bare):
        if name not in FIELDS[owner]:
            yield f"names the field {owner}.{name}, which does not exist{_meant(name, FIELDS[owner])}"
    known = _VARIABLES[subject] | _BUILT_IN | set(_BOUND.findall(bare))
    for name in _NAME.findall(bare):
        if name not in known:
            yield f"names {name}, which does not exist{_meant(name, known)}"
    if (whole := re.fullmatch(rf"\s*{subject}\.(\w+)\s*", bare)) and whole.group(1) not in _CONDITIONS[subject]:
        yield "is a value, not a condition"


def _balanced(text: str) -> bool:
    opened: list[str] = []
    for character in text:
        if character in _BRACKETS.values():
            opened.append(character)
        elif character in _BRACKETS and (not opened or opened.pop() != _BRACKETS[character]):
            return False
    return not opened


def _meant(name: str, known: frozenset[str] | set[str]) -> str:
    if name in ("and", "or", "not"):
        return f"; CEL writes {dict(zip(('and', 'or', 'not'), ('&&', '||', '!'), strict=True))[name]}"
    close = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
