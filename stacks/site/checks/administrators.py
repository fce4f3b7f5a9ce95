"""Who may administrate a cluster: each group in one role, and someone in the highest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Problem, shown
from stacks.site.reading.levels import MACHINES
from stacks.site.reading.raw import at, items, mapping

_SECTION = (*MACHINES, "administrators")
# The highest first: it has what the others have.
_ROLES = ("admins", "operators", "viewers")


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Groups that are none, or that are named twice; and no group at all."""
    section = mapping(at(values, *_SECTION))
    places: dict[str, str] = {}
    for role in _ROLES:
        for index, group in enumerate(items(section.get(role))):
            path = (*_SECTION, role, str(index))
            if not isinstance(group, str):
                continue
            if not group.strip() or group != group.strip():
                yield Problem(
                    path=path, what="no issuer has a group of this name", got=shown(group), fix="write its name alone"
                )
            elif group in places:
                yield Problem(
                    path=path,
                    what=f"is in {places[group]} already, and a role has all that the ones below it have",
                    got=shown(group),
                    fix=f"keep it in {places[group]} alone",
                )
            places.setdefault(group, role)
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
