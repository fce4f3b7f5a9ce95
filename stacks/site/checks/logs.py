"""The store of logs: that a class is known for its volume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from floor.problems import Problem
from stacks.site.reading.raw import at

_SECTION = "logs"


def problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong between the section and others, as far as the values can be understood."""
    if at(values, _SECTION, "system") != "victoria_logs" or at(values, "storage", "system") == "longhorn":
        return
    if at(values, _SECTION, "storage_class") is None:
        yield Problem(
            path=(_SECTION,),
            what="lacks storage_class: VictoriaLogs keeps lines on a volume, and no class is known",
            got="system victoria_logs without storage.system: longhorn",
            allowed="a class that offers ReadWriteOnce",
            fix="set storage_class to a class of the cluster, or storage.system to longhorn",
        )
