"""Reads `extensions.yaml`: the system extensions that Sidero publishes for the pinned Talos."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from pathlib import Path

from stacks.facts.records import Record, read_facts

FILE = Path(__file__).parent / "extensions.yaml"
_OWNER = "siderolabs"
_CLOSE = 0.85


class Extensions(Record):
    """The whole table."""

    talos: str
    names: tuple[str, ...]

    def meant(self, name: str, talos: str) -> str:
        """What a name was probably meant to be; nothing for one that there is, or that may be a factory's own.

        For a Talos of another minor version nothing is known.
        """
        owner, _, own = name.partition("/")
        close = [*get_close_matches(own, self.names, n=1, cutoff=_CLOSE), ""][0]
        known = talos.startswith(f"{self.talos}.") and get_close_matches(owner, [_OWNER], cutoff=_CLOSE)
        # With another owner, the rest must be right.
        right = close and known and (owner == _OWNER or close == own) and name != f"{_OWNER}/{close}"
        return f"{_OWNER}/{close}" if right else ""


@cache
def load() -> Extensions:
    """The committed table."""
    return read_facts(FILE, Extensions)
