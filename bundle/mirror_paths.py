"""Paths of images in a mirror of all registries, which has them without their registry: two may want the same one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from bundle.errors import BundleError
from floor.images import ImageReference

_FIX = (
    "let the sites take all of these from one registry, or give each a tag of its own: a node asks the mirror for the "
    "path and the tag alone"
)


def sharing_a_path(images: Iterable[ImageReference]) -> list[list[ImageReference]]:
    """Images that a mirror cannot have beside each other, sorted: path and tag are the same, and the content is not.

    Images of two registries without digests count as different. One that is named by its digest alone has a place of
    its own.
    """
    places = defaultdict[tuple[str, str], set[ImageReference]](set)
    for image in images:
        if image.tag:
            places[image.path, image.tag].add(image)
    return [
        sorted(place) for _, place in sorted(places.items()) if len({image.digest or str(image) for image in place}) > 1
    ]


def require_own_paths(images: Iterable[ImageReference]) -> None:
    """Raises BundleError, with every image that another one would replace in a mirror."""
    if shared := sharing_a_path(images):
        raise BundleError(
            "a mirror has one image per path and tag, and these share theirs: "
            + "; ".join(" and ".join(map(str, place)) for place in shared),
            fix=_FIX,
        )
