"""Everything that sites take from outside, and where it is in a bundle's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bundle.fetching import PackedChart
from bundle.plugins import Plugin, plugins_of
from bundle.schematics import FactoryImage
from bundle.wheels import Package
from floor.images import ImageReference
from services.weights.manifest import Manifest

IMAGES, CHARTS, WHEELS, WEIGHTS, PROGRAMS, BOOT = "images", "charts", "wheels", "weights", "programs", "boot"
"""Folders of a bundle. `charts` has definitions and the pod network too, for `sitectl bundle --from`."""

BUILT = Path(".bundle/images")
"""Where `sitectl bundle services` puts images of own services, below the project."""

COMMANDS = ("pulumi", "helm", "crane")
"""Programs that a machine behind the wall needs, beside Python. No version of them is pinned."""


@dataclass(frozen=True, kw_only=True)
class Supplies:
    """What sites take from outside, sorted, each once."""

    sites: tuple[str, ...]
    images: tuple[ImageReference, ...]
    """With digests, except those that are not locked yet."""
    used_by: dict[str, list[str]]
    """What runs each image."""
    charts: tuple[PackedChart, ...]
    packages: tuple[Package, ...]
    weights: tuple[Manifest, ...]
    """By their locks."""
    unlocked_weights: tuple[tuple[str, str], ...] = ()
    """Repository and revision of those without a lock."""
    talos: str | None = None
    """Version of the machines' Talos; None where no site makes machines."""
    extensions: tuple[str, ...] = ()
    """System extensions in the machines' installers."""
    factory_images: tuple[FactoryImage, ...] = ()
    """What image factories build for the machines."""

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """Of Pulumi, which the packages need."""
        return plugins_of(self.packages)

    @property
    def unlocked_images(self) -> list[ImageReference]:
        return [image for image in self.images if not image.digest]


def weights_folder(bundle: Path, repository: str) -> Path:
    """A volume's folder: below it `revisions/COMMIT/` has the files, as the program's weights Job reads them."""
    return bundle / WEIGHTS / repository
