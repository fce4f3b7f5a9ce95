"""Digests of images as the project locked them, in a file that belongs into version control."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from floor.images import ImageReference, image_reference
from floor.problems import Problem, file_error, shown

FILE = "images.lock"
"""In the project's folder."""
LOCKED_IMAGE = r"[a-z0-9][a-z0-9.:-]*(/[a-z0-9][a-z0-9._-]*)+(:[A-Za-z0-9_][A-Za-z0-9._-]*)?@sha256:[0-9a-f]{64}"
"""As registries name images: no part of one begins with a dot, so it is the path of a folder below another too."""
_RELEASE = r"[a-z0-9_]+@[A-Za-z0-9._+-]+"
_LINE = re.compile(rf"(?P<image>{LOCKED_IMAGE})(?P<releases>( {_RELEASE})*)")
_FORM = "REGISTRY/NAME:TAG@sha256:DIGEST, each name with its tag once; then CHART@VERSION of charts, if any"


@dataclass(frozen=True, order=True)
class ChartRelease:
    """A version of a chart, by the chart's name in versions.yaml."""

    chart: str
    version: str

    def __str__(self) -> str:
        return f"{self.chart}@{self.version}"


@dataclass(frozen=True)
class ImageLock:
    """Digest of each image, by its name with its tag."""

    digests: Mapping[str, str]
    renderings: Mapping[str, frozenset[ChartRelease]] = field(default_factory=dict)
    """Of images whose tag only a rendering has: the releases of charts that were rendered, by name with tag."""

    def pinned(self, image: str) -> str | None:
        """The image by tag and locked digest; None for one that is not locked, or is locked with another digest."""
        asked = image_reference(image)
        digest = self.digests.get(asked.tagged)
        if digest is None or asked.digest not in ("", digest):
            return None
        return str(ImageReference(asked.registry, asked.path, asked.tag, digest))

    @property
    def images(self) -> list[ImageReference]:
        """All of them with their digests, sorted."""
        return sorted(image_reference(f"{name}@{digest}") for name, digest in self.digests.items())

    def text(self) -> str:
        """The file's content."""
        lines = ([str(image), *map(str, sorted(self.renderings.get(image.tagged, ())))] for image in self.images)
        return "".join(f"{' '.join(words)}\n" for words in lines)

    def rendered(self, repository: str, release: ChartRelease) -> list[ImageReference]:
        """Images of the repository that a rendering of this release names, sorted."""
        return [
            image
            for image in self.images
            if image.name == repository and release in self.renderings.get(image.tagged, ())
        ]

    def with_images(self, images: Iterable[ImageReference]) -> ImageLock:
        """With these too, each of which has a digest."""
        return replace(self, digests={**self.digests, **{image.tagged: image.digest for image in images}})

    def with_renderings(self, releases: Mapping[str, Collection[ChartRelease]]) -> ImageLock:
        """With these releases, which name images by their names with tags, in the place of others of their charts."""
        renderings = dict(self.renderings)
        for name, new in releases.items():
            charts = {release.chart for release in new}
            others = {release for release in renderings.get(name, ()) if release.chart not in charts}
            renderings[name] = frozenset(others.union(new))
        return replace(self, renderings=renderings)

    def without(self, names: Iterable[str]) -> ImageLock:
        """Without the images of these names with tags."""
        gone = set(names)
        return ImageLock(
            {name: digest for name, digest in self.digests.items() if name not in gone},
            {name: releases for name, releases in self.renderings.items() if name not in gone},
        )


def read_image_lock(project: Path) -> ImageLock:
    """The lock of a project; empty without the file. Raises SiteError with every line that is wrong."""
    try:
        text = (project / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ImageLock({})
    digests, renderings, problems = dict[str, str](), dict[str, frozenset[ChartRelease]](), list[Problem]()
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        image = image_reference(match["image"]) if match else None
        if match is None or image is None or image.tagged in digests:
            problems.append(
                Problem(
                    path=(),
                    what="not a locked image",
                    got=shown(line),
                    allowed=_FORM,
                    fix="take the file back from version control, or remove the line: sitectl bundle lock writes it",
                    line=number,
                )
            )
            continue
        digests[image.tagged] = image.digest
        if releases := frozenset(ChartRelease(*word.split("@")) for word in match["releases"].split()):
            renderings[image.tagged] = releases
    if problems:
        raise file_error(FILE, problems)
    return ImageLock(digests, renderings)
