"""Reads `kubelet_fields.yaml`: every field of the kubelet's configuration, and what sets it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from stacks.facts.records import Record, read_facts

FILE = Path(__file__).parent / "kubelet_fields.yaml"

Kind = Literal[
    "switch",
    "integer",
    "number",
    "text",
    "duration",
    "texts",
    "integers",
    "section",
    "sections",
    "text_by_name",
    "switch_by_name",
    "duration_by_name",
    "quantities",
    "thresholds",
]


class DecidedFields(Record):
    """Fields that something else than `kubelet_config` decides."""

    by: str
    """A key of the site below `cluster.machines`, Talos, or the platform."""
    why: str = ""
    """The reason, where `by` alone does not show it."""
    fields: tuple[str, ...]
    """Their names."""
    always: bool | int | str | None = None
    """The value that they have in any case, so a site may write it."""


class KubeletFields(Record):
    """All fields of the kubelet's configuration."""

    types: dict[Kind, tuple[str, ...]]
    """Fields that a site may set, by what they hold."""
    choices: dict[str, tuple[str, ...]]
    """Values that a field may have."""
    ranges: dict[str, tuple[float | None, float | None]]
    """Least and most that a field may hold."""
    inner: dict[str, dict[str, Kind]]
    """Fields of a field that is a section, by their dotted place."""
    forms: dict[str, tuple[str, str]]
    """Expression and example of a field's text, or of each text in it."""
    names: dict[str, tuple[str, ...]]
    """Names that may be below a field."""
    decided: tuple[DecidedFields, ...]
    """All others."""

    @model_validator(mode="after")
    def _named_once(self) -> KubeletFields:
        free = [field for names in self.types.values() for field in names]
        written = [*free, *(field for row in self.decided for field in row.fields)]
        twice = sorted({field for field in written if written.count(field) > 1})
        places = {f"{above}.{name}" for above, fields in self.inner.items() for name in fields}
        strange = sorted({*self.choices, *self.ranges, *self.inner, *self.forms, *self.names} - {*free, *places})
        if twice or strange:
            raise ValueError(f"{FILE.name}: written twice or without a type: {', '.join(twice + strange)}")
        return self

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Field that a site may set -> what it holds."""
        return {field: kind for kind, names in self.types.items() for field in names}

    @cached_property
    def decisions(self) -> Mapping[str, DecidedFields]:
        """Field that a site may not set -> what decides it."""
        return {field: row for row in self.decided for field in row.fields}

    def named_like(self, flag: str) -> str:
        """The field that a site may set and that means the same as a flag of the kubelet, or nothing."""
        plain = flag.replace("-", "").casefold()
        return next((field for field in self.kinds if field.casefold() == plain), "")


@cache
def load() -> KubeletFields:
    """The committed table."""
    return read_facts(FILE, KubeletFields)
