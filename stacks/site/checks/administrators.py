"""Who may administrate a cluster: each group in one role, and someone in the highest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.specs.administrators import PREFIX
from floor.problems import Problem, shown
from stacks.site.reading.levels import MACHINES
from stacks.site.reading.raw import at, items, mapping

_SECTION = (*MACHINES, "administrators")
# The highest first: it has what the others have.
_ROLES = ("admins", "operators", "viewers")

_CLAIM = (re.compile("[A-Za-z0-9_.:/-]+"), "no token has a field of this name", "letters, digits and . _ : / -")
# Key -> what its whole value must be, what is wrong else, and what is allowed.
_FORMS = {
    "username_claim": _CLAIM,
    "groups_claim": _CLAIM,
    "client_id": (re.compile("[!-~]+"), "no issuer has a client of this name", "letters, digits and signs, no blanks"),
}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Groups that are none, or that are named twice; claims and clients that are none; and no group at all."""
    section = mapping(at(values, *_SECTION))
    places: dict[str, str] = {}
    for role in _ROLES:
        for index, group in enumerate(items(section.get(role))):
            path = (*_SECTION, role, str(index))
            if not isinstance(group, str):
                continue
            if not group.strip() or group != group.strip() or not group.isprintable():
                yield Problem(
                    path=path, what="no issuer has a group of this name", got=shown(group), fix="write its name alone"
                )
            elif group.startswith(PREFIX):
                yield Problem(
                    path=path,
                    what=f"begins with {PREFIX}, which the program puts in front of each group",
                    got=shown(group),
                    fix=f"write it without: {group.removeprefix(PREFIX)}",
                )
            elif group in places:
                yield Problem(
                    path=path,
                    what=f"is in {places[group]} already, and a role has all that the ones below it have",
                    got=shown(group),
                    fix=f"keep it in {places[group]} alone",
                )
            places.setdefault(group, role)
    for key, (form, what, allowed) in _FORMS.items():
        value = section.get(key)
        if isinstance(value, str) and value and not form.fullmatch(value):
            yield Problem(
                path=(*_SECTION, key), what=what, got=shown(value), allowed=allowed, fix="write it as the issuer has it"
            )
    if section and not places:
        yield Problem(
            path=_SECTION,
            what="names no group, so a login opens nothing",
            allowed="groups in viewers, operators or admins",
            fix="name the issuer's groups, or take the section out",
        )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What works, and is not wise."""
    section = mapping(at(values, *_SECTION))
    if section and not items(section.get("admins")):
        yield Problem(
            path=(*_SECTION, "admins"),
            what="names no group, so the only administrators are those with the stack's state",
            fix="name the group of those who stand in for that person",
        )
