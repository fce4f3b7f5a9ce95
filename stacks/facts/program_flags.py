"""Reads `program_flags.yaml`: the flags of Kubernetes' programs and of etcd, as the pinned versions know them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from stacks.facts.records import Record, read_facts

FILE = Path(__file__).parent / "program_flags.yaml"

Kind = Literal["switch", "integer", "number", "duration", "gates", "text"]


class Refused(Record):
    """A value that a program takes, and a cluster does not survive."""

    value: str
    """The value, or one word of a list."""
    why: str
    """What it would do."""


class Program(Record):
    """All flags of one program."""

    by_talos: tuple[str, ...]
    """Flags that Talos gives itself, and refuses to have set."""
    refused: dict[str, Refused] = Field(default_factory=dict)
    """Flag -> a value that it may not have."""
    types: dict[Kind, tuple[str, ...]]
    """All flags by what they take, without dashes in front."""

    @model_validator(mode="after")
    def _all_are_there(self) -> Program:
        strange = sorted({*self.by_talos, *self.refused} - set(self.kinds))
        if strange:
            raise ValueError(f"{FILE.name}: without a type: {', '.join(strange)}")
        return self

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Flag -> what it takes."""
        return {flag: kind for kind, flags in self.types.items() for flag in flags}


class ProgramFlags(Record):
    """The whole table, and the versions that it is of."""

    kubernetes: str
    talos: str
    etcd: str
    programs: dict[str, Program]
    """By the key of the machine config that holds `extraArgs`."""
    etcd_gates: tuple[str, ...]
    """Feature gates of etcd; Kubernetes' own are in feature_gates.yaml."""


@cache
def load() -> ProgramFlags:
    """The committed table."""
    return read_facts(FILE, ProgramFlags)
