"""Reads `upgrades.yaml`: how parts go from one version to another, in which order, and how far back they go."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from floor.releases import numbers
from floor.spec import Spec
from stacks.facts.records import read_facts

FILE = Path(__file__).parent / "upgrades.yaml"


class UpgradedPart(Spec):
    """What is upgraded in one step."""

    part: str
    """Its name for people."""
    facts: tuple[str, ...] = Field(min_length=1)
    """Facts that move together, as `stacks.plan.conflicts` names them; the first is the part's version."""
    steps: Literal["one_minor", "any"]
    back: Literal["any", "one_minor", "patch", "none"]
    releases: tuple[str, ...] = ()
    """Minor versions in the order in which they were published, where they are not counted up by one."""
    back_first: str = ""
    """What has to be done by hand before an older version is rolled out."""
    snapshot: bool = False
    """Whether the cluster's snapshot leads back where the publisher supports no way: it takes all objects back, those
    of every other part too."""
    before: str = Field(min_length=5)
    after: str = Field(min_length=5)
    source: str = Field(min_length=5)

    @model_validator(mode="after")
    def _is_whole(self) -> UpgradedPart:
        if [numbers(release) for release in self.releases] != sorted({numbers(release) for release in self.releases}):
            raise ValueError(f"{self.part}: releases that do not rise")
        if {self.steps, self.back} == {"one_minor", "any"}:
            raise ValueError(f"{self.part}: steps and back differ, and a step back is a step")
        return self


class Crossing(Spec):
    """A single step that does not work, or that needs something first."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    verdict: Literal["refused", "by_hand"]
    fact: str
    runs: str
    """Condition on the version that runs, as in compatibility.yaml."""
    wanted: str
    """Condition on the version that is wanted."""
    text: str = Field(min_length=20)
    fix: str = Field(min_length=5)
    source: str = Field(min_length=5)


class Upgrades(Spec):
    """The file."""

    parts: tuple[UpgradedPart, ...]
    """From the bottom up."""
    crossings: tuple[Crossing, ...]


@cache
def load() -> Upgrades:
    """Every rule of the checkout. Raises SiteError for a file that is wrong."""
    return read_facts(FILE, Upgrades)
