"""Images that a chart's rendering names, of repositories whose tag the facts do not know."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

import yaml

from bundle.errors import BundleError
from floor.images import ImageReference, image_reference

_REFERENCE = re.compile(
    r"(?<![\w./-])[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?/[a-z0-9/._-]+:[\w.-]+(?:@sha256:[0-9a-f]{64})?"
)


def images_in(text: str, repositories: Collection[str], chart: str) -> list[ImageReference]:
    """Images of these repositories in a chart's objects, sorted. Raises BundleError where one is not named.

    Also in arguments and configurations, and in the three keys in which NVIDIA's ClusterPolicy has them.
    """
    try:
        named = {image for document in yaml.load_all(text, Loader=yaml.CSafeLoader) for image in _images(document)}
    except yaml.YAMLError as error:
        raise BundleError(
            f"{chart} renders to no YAML", got=str(error), fix="take the chart from its publisher"
        ) from None
    images = sorted(image for image in map(image_reference, named) if image.name in repositories)
    if missing := sorted(set(repositories) - {image.name for image in images}):
        raise BundleError(
            f"{chart} names no image of {', '.join(missing)}",
            fix="correct stacks/facts/chart_images.yaml: the chart of this version runs others",
        )
    return images


def _images(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from _REFERENCE.findall(value)
        case list():
            for item in value:
                yield from _images(item)
        case {"repository": str(repository), "image": str(image), "version": str(version)}:
            yield f"{repository}/{image}{'@' if version.startswith('sha256:') else ':'}{version}"
        case dict():
            for item in value.values():
                yield from _images(item)
