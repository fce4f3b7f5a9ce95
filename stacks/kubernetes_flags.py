"""Reads `kubernetes_flags.yaml`: flags of the programs that Talos starts, and the feature gates of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Literal

from stacks.records import Record, read_facts

FILE = Path(__file__).parent / "kubernetes_flags.yaml"

Kind = Literal["switch", "whole", "number", "duration", "text"]


class Program(Record):
    """What one program takes."""

    flags: dict[Kind, tuple[str, ...]]
    """Flags by what they hold."""
    kept: tuple[str, ...]
    """Flags that Talos sets, and refuses from others."""

    @cached_property
    def kinds(self) -> Mapping[str, Kind]:
        """Flag -> what it holds."""
        return {flag: kind for kind, flags in self.flags.items() for flag in flags}


class Gates(Record):
    """Feature gates of all programs of Kubernetes."""

    free: tuple[str, ...]
    locked_on: tuple[str, ...]
    locked_off: tuple[str, ...]

    @cached_property
    def locked(self) -> Mapping[str, bool]:
        """Gates that have one value."""
        return {**dict.fromkeys(self.locked_on, True), **dict.fromkeys(self.locked_off, False)}

    def names(self) -> Iterator[str]:
        """All gates."""
        yield from (*self.free, *self.locked)


class KubernetesFlags(Record):
    """The whole table."""

    programs: dict[str, Program]
    gates: Gates


@cache
def load() -> KubernetesFlags:
    """The committed table."""
    return read_facts(FILE, KubernetesFlags)
