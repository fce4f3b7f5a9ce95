"""The lock of images: which digest a registry, or a mirror of all, has for each image now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bundle.asking import Asking
from bundle.crane import Crane
from bundle.errors import BundleError
from floor.images import ImageReference
from stacks.facts.image_lock import FILE, ImageLock
from stacks.facts.own_images import is_built_here

PLATFORM = "linux/amd64"
"""Of HGX nodes, and so of every node of a site."""


@dataclass(frozen=True, kw_only=True)
class Registries:
    """Where images are looked up."""

    crane: Crane
    asking: Asking
    mirror: str | None = None
    """`HOST[:PORT][/PREFIX]` that has all images by their paths; None: each from its registry."""
    platform: str = PLATFORM

    def locked(self, images: Iterable[ImageReference], lock: ImageLock) -> ImageLock:
        """The lock with these images too. What it has stays as it is; a digest that an image is named by is taken.

        Raises BundleError, also for an image that is named by another digest than the locked one.
        """
        new = dict[str, ImageReference]()
        # Those with digests first: where one part of a site pins an image and another names its tag, both get the pin.
        for image in sorted(images, key=lambda image: (not image.digest, image)):
            known = lock.digests.get(image.tagged) or (new[image.tagged].digest if image.tagged in new else "")
            if known and image.digest not in ("", known):
                raise BundleError(
                    f"{image.tagged} is named by two digests",
                    got=image.digest,
                    allowed=f"{known}, which {'is locked' if image.tagged in lock.digests else 'another part names'}",
                    fix=f"name one in all parts of the sites; for another than the locked one, remove its line from "
                    f"{FILE} first",
                )
            if known:
                continue
            new[image.tagged] = image if image.digest else replace(image, digest=self._digest(image))
        return lock.with_images(new.values())

    def _digest(self, image: ImageReference) -> str:
        if self.mirror is None and is_built_here(image.name):
            raise BundleError(
                f"{image} is of this repository's sources, and no registry has it",
                fix=f"sitectl bundle services, which builds it and writes its digest into {FILE}",
            )
        asked = image.held_by(self.mirror) if self.mirror else image
        return self.asking.once(
            ("digest", asked, self.platform),
            str(asked),
            asked.registry,
            lambda limit_s: self.crane.digest(asked, self.platform, limit_s=limit_s),
        )
