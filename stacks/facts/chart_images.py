"""Reads `chart_images.yaml`: the images that the pinned charts lead to, those included that no rendering names.

A site without a network needs each of them before it starts, and a controller's own default is in no chart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from floor.problems import WrongValueError
from stacks.facts.records import Record, read_facts
from stacks.facts.versions import parts

FILE = Path(__file__).parent / "chart_images.yaml"

# With the registry, which docker.io too is: a mirror keeps the whole name.
_REPOSITORY = r"[a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+"
Repository = Annotated[str, Field(pattern=rf"^{_REPOSITORY}$")]
# A tag without a digit, such as `latest`, names no release.
_TAG, _DIGEST = r":[A-Za-z0-9._-]*[0-9][A-Za-z0-9._-]*", "(@sha256:[0-9a-f]{64})?"
FullImage = Annotated[str, Field(pattern=rf"^{_REPOSITORY}{_TAG}{_DIGEST}$")]
Starter = Literal["chart", "controller", "compiled"]


class UnknownTag(Record):
    """A repository of which an image is pulled by a tag that is not known here."""

    what: str
    """What the image is for."""
    by: Starter
    """Who starts it."""
    why: str
    """Why the tag is not known, and what is known of it."""


class ChartImages(Record):
    """Images of one chart with the program's values."""

    version: str
    """The pinned one that they are for."""
    known: Literal["exact", "near"]
    """exact: read in this version of the chart. near: in another version, or in lists; then some tags are not known."""
    read: str
    """Where: repository, tag or commit, files, and the version where it is another one."""
    images: dict[Starter, dict[FullImage, str]] = Field(default_factory=dict)
    """Image with registry and tag, and the digest where the publisher has one in it -> what it is for, by who starts
    it. A rendering of the chart names those of `chart` and `controller`."""
    unknown_tags: dict[Repository, UnknownTag] = Field(default_factory=dict)
    """Repositories of images that are pulled too."""
    unused: dict[Repository, str] = Field(default_factory=dict)
    """Repositories that a rendering names and that no pod runs -> why."""
    with_slices: tuple[Repository, ...] = ()
    """Those of `unused` that run where a machine has its GPUs cut (MIG)."""

    @model_validator(mode="after")
    def _is_whole(self) -> ChartImages:
        named = [parts(image)[0] for image in self.all_images()]
        named += [*self.unknown_tags, *self.unused]
        if twice := sorted(name for name, times in Counter(named).items() if times > 1):
            raise WrongValueError(f"named twice: {', '.join(twice)}", fix="name each repository in one place")
        if unnamed := sorted({*self.with_slices} - self.unused.keys()):
            raise WrongValueError(f"with_slices names {', '.join(unnamed)}", fix="state in unused why others lack it")
        if (self.known == "near") != bool(self.unknown_tags):
            raise WrongValueError(
                f"known is {self.known}, with {len(self.unknown_tags)} unknown tags",
                allowed="exact without unknown_tags, or near with them",
                fix="read the pinned chart, or name what could not be read",
            )
        return self

    def all_images(self) -> Iterator[str]:
        """Every image whose tag is known, of each starter."""
        for started in self.images.values():
            yield from started


@cache
def load() -> Mapping[str, ChartImages]:
    """By the chart's name in versions.yaml, Cilium included. Raises SiteError for a file that is wrong."""
    return read_facts(FILE, dict[str, ChartImages])
