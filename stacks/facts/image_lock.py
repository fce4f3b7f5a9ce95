"""Digests of images as the project locked them, in a file that belongs into version control."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from floor.images import ImageReference, image_reference
from floor.problems import Problem, file_error, shown

FILE = "images.lock"
"""In the project's folder."""
LOCKED_IMAGE = r"[a-z0-9][a-z0-9.:-]*(/[a-z0-9][a-z0-9._-]*)+(:[A-Za-z0-9_][A-Za-z0-9._-]*)?@sha256:[0-9a-f]{64}"
"""As registries name images: no part of one begins with a dot, so it is the path of a folder below another too."""
_FORM = "REGISTRY/NAME:TAG@sha256:DIGEST, each name with its tag once"


@dataclass(frozen=True)
class ImageLock:
    """Digest of each image, by its name with its tag."""

    digests: Mapping[str, str]

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
        return "".join(f"{image}\n" for image in self.images)

    def with_images(self, images: Iterable[ImageReference]) -> ImageLock:
        """With these too, each of which has a digest."""
        return ImageLock({**self.digests, **{image.tagged: image.digest for image in images}})

    def without(self, names: Iterable[str]) -> ImageLock:
        """Without the images of these names with tags."""
        gone = set(names)
        return ImageLock({name: digest for name, digest in self.digests.items() if name not in gone})


def read_image_lock(project: Path) -> ImageLock:
    """The lock of a project; empty without the file. Raises SiteError with every line that is wrong."""
    try:
        text = (project / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ImageLock({})
    digests, problems = dict[str, str](), list[Problem]()
    for number, line in enumerate(text.splitlines(), start=1):
        image = image_reference(line) if re.fullmatch(LOCKED_IMAGE, line) else None
        if image is None or image.tagged in digests:
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
        else:
            digests[image.tagged] = image.digest
    if problems:
        raise file_error(FILE, problems)
    return ImageLock(digests)
