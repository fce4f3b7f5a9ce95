"""What a bundle's folder holds, in a file that is written last, and whether the folder still holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bundle.errors import BundleError
from bundle.image_folder import ImageFolder
from bundle.locked_weights import differences
from bundle.supplies import CHARTS, IMAGES, WHEELS, Supplies, weights_folder
from bundle.wheels import wheel_problems
from floor.digests import sha256_of
from floor.images import ImageReference, image_reference
from floor.problems import shown
from services.weights.manifest import Manifest
from stacks.facts.image_lock import LOCKED_IMAGE

FILE = "bundle.json"
_SHOWN = 5
# A name that is one, and no way out of the folder: it begins with no dot, and has no slash.
_NAME = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"
Name = Annotated[str, StringConstraints(pattern=f"^{_NAME}$")]
Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
LockedImage = Annotated[str, StringConstraints(pattern=f"^{LOCKED_IMAGE}$")]
Revision = Annotated[str, StringConstraints(pattern=f"^{_NAME}/{_NAME}@[0-9a-f]{{40}}$")]


class Inventory(BaseModel):
    """The content of `bundle.json`. Every name in it is that of a file or folder inside of the bundle's."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    form: Literal[2] = 2
    sites: Annotated[tuple[Name, ...], Field(min_length=1)]
    images: tuple[LockedImage, ...]
    """By name, tag and digest."""
    charts: dict[Name, Sha256]
    """sha256 in hex by file."""
    packages: dict[Name, Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.!+_-]+$")]]
    """Version by name."""
    weights: tuple[Revision, ...]
    """As `OWNER/NAME@COMMIT`."""

    def write(self, folder: Path) -> None:
        """In one step, so that a folder with the file is whole."""
        draft = folder / f".{FILE}"
        draft.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        draft.replace(folder / FILE)

    @property
    def references(self) -> list[ImageReference]:
        """The images."""
        return [image_reference(image) for image in self.images]


def revision_of(manifest: Manifest) -> str:
    """The weights as an inventory names them."""
    return f"{manifest.repository}@{manifest.revision}"


def read_inventory(folder: Path) -> Inventory:
    """Of a bundle's folder. Raises BundleError for one that is none, or is not whole."""
    again = "bring the folder again, or pack it with this sitectl"
    try:
        return Inventory.model_validate_json((folder / FILE).read_bytes())
    except FileNotFoundError:
        raise BundleError(
            f"{folder} has no {FILE}, so it is no bundle, or a half of one",
            fix="name a bundle's folder, or write it to its end: sitectl bundle pack",
        ) from None
    except OSError as error:
        raise BundleError(f"{folder / FILE} cannot be read", got=str(error.strerror), fix=again) from None
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}, got {shown(detail['input'])}".removeprefix(": ")
            for detail in error.errors()[:_SHOWN]
        ]
        raise BundleError(f"{folder / FILE} is no inventory of a bundle", got="; ".join(wrong), fix=again) from None


def missing(inventory: Inventory, supplies: Supplies) -> Iterator[str]:
    """What sites take from outside and the bundle does not hold, as the project's locks are now."""
    for image in supplies.images:
        if str(image) not in inventory.images:
            where = "in the bundle" if image.digest else "in images.lock"
            yield f"{image}: needed by {', '.join(supplies.used_by[image.tagged])}, and not {where}"
    for packed in supplies.charts:
        if packed.file not in inventory.charts:
            yield f"{CHARTS}/{packed.file}: needed, and not in the bundle"
    for package in supplies.packages:
        there = inventory.packages.get(package.name, "none")
        if there != package.version:
            yield f"{WHEELS}: {package.name} {package.version}: needed, and the bundle has {there}"
    for manifest in supplies.weights:
        if revision_of(manifest) not in inventory.weights:
            yield f"{manifest.repository} at {manifest.revision}: needed, and not in the bundle"
    for repository, revision in supplies.unlocked_weights:
        yield f"{repository} at {revision}: needed, and no lock lists its files"


def spoiled(
    folder: Path,
    inventory: Inventory,
    supplies: Supplies,
    chart_digests: Mapping[str, str],
    note: Callable[[str], None],
) -> Iterator[str]:
    """Each file of the bundle that is missing or another one than the inventory and the project's locks list.

    chart_digests: sha256 in hex of charts that the project locked, by file.
    """
    note(f"{IMAGES}: {len(inventory.images)}")
    images = ImageFolder(folder / IMAGES)
    for image in inventory.references:
        for wrong in images.problems(image):
            yield f"{IMAGES}: {wrong}"
    for file, digest in sorted(inventory.charts.items()):
        there, expected = folder / CHARTS / file, chart_digests.get(file, digest)
        if not there.is_file():
            yield f"{CHARTS}/{file}: missing"
        elif (got := sha256_of(there)) != expected:
            yield f"{CHARTS}/{file}: sha256 {got}, expected {expected}"
    # Also those of a lock that is another now, or is gone.
    known = [package for package in supplies.packages if inventory.packages.get(package.name) == package.version]
    yield from wheel_problems(known, folder / WHEELS)
    manifests = {revision_of(manifest): manifest for manifest in supplies.weights}
    for revision in inventory.weights:
        manifest = manifests.get(revision)
        if manifest is None:
            yield f"weights: {revision}: no lock that the sites have lists its files, so they were not compared"
            continue
        note(f"weights: {revision}")
        files = weights_folder(folder, manifest.repository) / "revisions" / manifest.revision
        for wrong in differences(files, manifest):
            yield f"weights: {manifest.repository}: {wrong}"
