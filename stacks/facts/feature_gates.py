"""Reads `feature_gates.yaml`: the feature gates of the pinned Kubernetes, of all its programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path

from stacks.facts.records import Record, read_facts

FILE = Path(__file__).parent / "feature_gates.yaml"


class FeatureGates(Record):
    """The whole table."""

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


@cache
def load() -> FeatureGates:
    """The committed table."""
    return read_facts(FILE, FeatureGates)
