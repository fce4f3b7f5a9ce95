"""What a bundle's folder holds, in a file that is written last, and whether the folder still holds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bundle.errors import BundleError
from bundle.image_folder import ImageFolder
from bundle.locked_weights import differences
from bundle.supplies import CHARTS, IMAGES, WHEELS, Supplies, weights_folder
from bundle.wheels import wheel_problems
from floor.digests import sha256_of
from floor.images import ImageReference, image_reference

FILE = "bundle.json"
_FORM = 1


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """The content of `bundle.json`."""

    sites: tuple[str, ...]
    images: tuple[str, ...]
    """By name, tag and digest."""
    charts: Mapping[str, str]
    """sha256 in hex by file."""
    packages: Mapping[str, str]
    """Version by name."""
    weights: Mapping[str, str]
    """Revision by repository."""

    def write(self, folder: Path) -> None:
        """In one step, so that a folder with the file is whole."""
        draft = folder / f".{FILE}"
        draft.write_text(json.dumps({"form": _FORM, **asdict(self)}, indent=1) + "\n", encoding="utf-8")
        draft.replace(folder / FILE)

    @property
    def references(self) -> list[ImageReference]:
        """The images."""
        return [image_reference(image) for image in self.images]


def read_inventory(folder: Path) -> Inventory:
    """Of a bundle's folder. Raises BundleError for one that is none, or is not whole."""
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        form = content.pop("form")
        inventory = Inventory(**{**content, "sites": tuple(content["sites"]), "images": tuple(content["images"])})
    except FileNotFoundError:
        raise BundleError(
            f"{folder} has no {FILE}, so it is no bundle, or a half of one",
            fix="name a bundle's folder, or write it to its end: sitectl bundle pack",
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BundleError(f"{folder / FILE} cannot be read", got=str(error), fix="bring the folder again") from None
    if form != _FORM:
        raise BundleError(
            f"{folder / FILE} is of another form", got=str(form), allowed=str(_FORM), fix="pack it with this sitectl"
        )
    return inventory


def missing(inventory: Inventory, supplies: Supplies) -> Iterator[str]:
    """What sites take from outside and the bundle does not hold, as the project's locks are now."""
    for image in supplies.images:
        if str(image) not in inventory.images:
            yield f"{image}: needed by {', '.join(supplies.used_by[image.tagged])}, and not in the bundle"
    for packed in supplies.charts:
        if packed.file not in inventory.charts:
            yield f"{CHARTS}/{packed.file}: needed, and not in the bundle"
    for manifest in supplies.weights:
        if inventory.weights.get(manifest.repository) != manifest.revision:
            yield f"{manifest.repository} at {manifest.revision}: needed, and not in the bundle"


def spoiled(folder: Path, inventory: Inventory, supplies: Supplies, note: Callable[[str], None]) -> Iterator[str]:
    """Each file of the bundle that is missing or another one than the inventory and the project's locks list."""
    note(f"{IMAGES}: {len(inventory.images)}")
    images = ImageFolder(folder / IMAGES)
    for image in inventory.references:
        for wrong in images.problems(image):
            yield f"{IMAGES}: {wrong}"
    for file, digest in sorted(inventory.charts.items()):
        there = folder / CHARTS / file
        if not there.is_file():
            yield f"{CHARTS}/{file}: missing"
        elif (got := sha256_of(there)) != digest:
            yield f"{CHARTS}/{file}: sha256 {got}, expected {digest}"
    if inventory.packages:
        packages = [package for package in supplies.packages if package.name in inventory.packages]
        yield from wheel_problems(packages, folder / WHEELS)
    for manifest in supplies.weights:
        if manifest.repository in inventory.weights:
            note(f"weights: {manifest.repository}")
            revision = weights_folder(folder, manifest.repository) / "revisions" / manifest.revision
            for wrong in differences(revision, manifest):
                yield f"weights: {manifest.repository}: {wrong}"
