"""Reads `chart_values/`: keys and types that charts of others document, so that a value which nothing reads is found.

Helm takes any value, and a chart ignores what it does not know. A file is of one pinned version, and states the one
that was read: the nearest before it that its project serves as source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import model_validator

from stacks.facts.records import Record, read_facts

FOLDER = Path(__file__).parent / "chart_values"

Kind = Literal["switch", "integer", "text", "list", "map"]
_HOLDS: Mapping[Kind, tuple[type, ...]] = {
    "switch": (bool,),
    "integer": (int,),
    "text": (str,),
    "list": (list, tuple),
    "map": (Mapping,),
}


class ChartValues(Record):
    """The documented values of one chart."""

    chart: str
    """Its name."""
    version: str
    """The pinned one that they are for."""
    read: str
    """Where they are documented: repository@tag, and the file."""
    read_version: str = ""
    """The chart's version there, where it is not the pinned one."""
    types: dict[Kind, tuple[str, ...]]
    """Dotted keys by what they hold; below a map, every key is the site's own."""

    @model_validator(mode="after")
    def _named_once(self) -> ChartValues:
        written = [key for keys in self.types.values() for key in keys]
        if twice := sorted({key for key in written if written.count(key) > 1}):
            raise ValueError(f"{self.chart}: written twice: {', '.join(twice)}")
        return self

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Dotted key -> what it holds."""
        return {key: kind for kind, keys in self.types.items() for key in keys}

    def misread(self, documented: str) -> Iterator[str]:
        """Keys of this list that a chart's values.yaml has not, or with a default of another kind."""
        values = yaml.safe_load(documented)
        for key, kind in self.kinds.items():
            below: Any = values
            *parents, last = key.split(".")
            for part in parents:
                below = below.get(part) if isinstance(below, Mapping) else None
            if isinstance(below, Mapping) and last in below:
                default = below[last]
                if default is not None and not _is(default, kind):
                    yield f"{key}: is {type(default).__name__} in its values.yaml, and {_a(kind)} here"
            # What has no default is documented by a comment.
            elif not re.search(rf"^ *# ?{re.escape(last)}:", documented, re.MULTILINE):
                yield f"{key}: is not in its values.yaml"

    def unread(self, values: Mapping[str, Any], above: str = "") -> Iterator[str]:
        """Values that the chart would not read as they are meant, each with the reason."""
        for key, value in values.items():
            name = f"{above}{key}"
            kind = self.kinds.get(name)
            if kind is None:
                within = isinstance(value, Mapping) and any(known.startswith(f"{name}.") for known in self.kinds)
                if within:
                    yield from self.unread(value, f"{name}.")
                else:
                    yield f"{name}: {self.chart} {self.version} documents no such value"
            elif not _is(value, kind):
                yield f"{name}: is {type(value).__name__}, and {self.chart} {self.version} reads {_a(kind)}"


def _a(kind: Kind) -> str:
    return f"an {kind}" if kind == "integer" else f"a {kind}"


def _is(value: object, kind: Kind) -> bool:
    return isinstance(value, _HOLDS[kind]) and isinstance(value, bool) == (kind == "switch")


@cache
def load(name: str) -> ChartValues:
    """Of the chart that versions.yaml calls so. Raises SiteError for a file that is wrong."""
    return read_facts(FOLDER / f"{name}.yaml", ChartValues)
