"""Storage classes of what keeps data of its own on a volume: that one is known, and that its name is of now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from components.specs.longhorn import database_class, scratch_class
from floor.problems import Problem, shown
from stacks.site.model import StorageSpec
from stacks.site.reading.raw import at

_STORAGE_CLASS = str(StorageSpec.model_fields["storage_class"].default)
# Section -> its system that has a volume, and what is on it.
_KEEPS = {
    "logs": ("victoria_logs", "VictoriaLogs keeps lines"),
    "monitoring": ("prometheus_operator", "Prometheus keeps what it measures"),
}


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Volumes without a class, as far as the values can be understood."""
    if at(values, "storage", "system") == "longhorn":
        return
    for section, (system, keeps) in _KEEPS.items():
        if at(values, section, "system") == system and at(values, section, "storage_class") is None:
            yield Problem(
                path=(section,),
                what=f"lacks storage_class: {keeps} on a volume, and no class is known",
                got=f"system {system} without storage.system: longhorn",
                allowed="a class that offers ReadWriteOnce",
                fix="set storage_class to a class of the cluster, or storage.system to longhorn",
            )


def warnings(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Classes of the program's Longhorn are called after `storage.storage_class`: a copied name outlives its change."""
    if at(values, "storage", "system") != "longhorn":
        return
    storage = str(at(values, "storage", "storage_class") or _STORAGE_CLASS)
    before = [made(_STORAGE_CLASS) for made in (scratch_class, database_class)]
    made = [storage, scratch_class(storage), database_class(storage)]
    for path in ((section, "storage_class") for section in (*_KEEPS, "counters")):
        name = at(values, *path)
        if not isinstance(name, str) or name in made:
            continue
        close = get_close_matches(name, made, n=1, cutoff=0.9)
        if name in before:
            yield Problem(
                path=path,
                what=f"is a class that the program makes where storage.storage_class is {_STORAGE_CLASS}",
                got=shown(name),
                allowed=f"{made[1]}, {made[2]}, or a class that you make",
                fix=f"write {storage}{name.removeprefix(_STORAGE_CLASS)}",
            )
        elif close:
            yield Problem(
                path=path,
                what="is no class that this program makes, so the cluster must have it",
                got=shown(name),
                near=close[0],
                fix=f"write {close[0]}, or make the class before `up`",
            )
