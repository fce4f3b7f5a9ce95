"""What a bundle's folder holds, in a file that is written last, and whether the folder still holds it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from bundle.boot_media import folder_of, with_sums
from bundle.errors import BundleError
from bundle.image_folder import ImageFolder
from bundle.locked_weights import differences
from bundle.supplies import BOOT, CHARTS, COMMANDS, IMAGES, PROGRAMS, WHEELS, Supplies, weights_folder
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
FilePath = Annotated[str, StringConstraints(pattern=f"^{_NAME}(/{_NAME})*$")]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.!()+_-]+$")]
Sha256 = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
LockedImage = Annotated[str, StringConstraints(pattern=f"^{LOCKED_IMAGE}$")]
Revision = Annotated[str, StringConstraints(pattern=f"^{_NAME}/{_NAME}@[0-9a-f]{{40}}$")]


class PackedProgram(BaseModel):
    """A program that was copied, or a plugin of one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Version
    """As it states it."""
    files: Annotated[dict[FilePath, Sha256], Field(min_length=1)]
    """sha256 in hex by path below `programs`."""


class Inventory(BaseModel):
    """The content of `bundle.json`. Every name in it is that of a file or folder inside of the bundle's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    form: Literal[3] = 3
    sites: Annotated[tuple[Name, ...], Field(min_length=1)]
    images: tuple[LockedImage, ...]
    """By name, tag and digest."""
    charts: dict[Name, Sha256]
    """sha256 in hex by file."""
    packages: dict[Name, Version]
    """Version by name."""
    programs: dict[Name, PackedProgram] | None
    """By name; plugins of Pulumi as `resource-NAME`. None where they were left out."""
    boot_media: dict[FilePath, Sha256]
    """sha256 in hex by path below `boot`; empty where they were not asked for."""
    weights: tuple[Revision, ...]
    """As `OWNER/NAME@COMMIT`."""

    def write(self, folder: Path) -> None:
        """In one step, so that a folder with the file is whole."""
        draft = folder / f".{FILE}"
        draft.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        draft.replace(folder / FILE)

    @property
    def program_files(self) -> dict[str, str]:
        """sha256 in hex of all files of programs, by path."""
        programs = (self.programs or {}).values()
        return {path: digest for program in programs for path, digest in program.files.items()}

    @property
    def options(self) -> list[str]:
        """Of the call of `pack` that keeps what this bundle has of programs and boot media."""
        without = ["--without-programs"] if self.programs is None else []
        kind = "iso" if any(path.endswith(".iso") for path in self.boot_media) else "pxe"
        return [*without, *(("--boot-media", kind) if self.boot_media else ())]

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
    if inventory.programs is not None:
        yield from _missing_programs(inventory.programs, supplies)
    if inventory.boot_media:
        yield from _missing_media(inventory.boot_media, supplies)
    for manifest in supplies.weights:
        if revision_of(manifest) not in inventory.weights:
            yield f"{manifest.repository} at {manifest.revision}: needed, and not in the bundle"
    for repository, revision in supplies.unlocked_weights:
        yield f"{repository} at {revision}: needed, and no lock lists its files"


def _missing_programs(programs: Mapping[str, PackedProgram], supplies: Supplies) -> Iterator[str]:
    for command in COMMANDS:
        if command not in programs:
            yield f"{PROGRAMS}: {command}: needed, and not in the bundle"
    for plugin in supplies.plugins:
        there = programs[plugin.key].version if plugin.key in programs else "none"
        if there != f"v{plugin.version}":
            yield f"{PROGRAMS}: {plugin.key} v{plugin.version}: needed, and the bundle has {there}"


def _missing_media(paths: Collection[str], supplies: Supplies) -> Iterator[str]:
    for folder in map(folder_of, supplies.factory_images):
        if not any(path.startswith(f"{folder}/") for path in paths):
            yield f"{BOOT}/{folder}: needed, and not in the bundle"


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
    charts = {file: chart_digests.get(file, digest) for file, digest in inventory.charts.items()}
    yield from _differing(folder, CHARTS, charts)
    programs = inventory.program_files
    note(f"{PROGRAMS}: {len(programs)}")
    yield from _differing(folder, PROGRAMS, programs)
    # All of them get installed.
    yield from _unlisted(folder, PROGRAMS, programs)
    note(f"{BOOT}: {len(inventory.boot_media)}")
    yield from _differing(folder, BOOT, inventory.boot_media)
    # A person or a web server takes them from there.
    yield from _unlisted(folder, BOOT, with_sums(inventory.boot_media))
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


def _differing(bundle: Path, folder: str, digests: Mapping[str, str]) -> Iterator[str]:
    """Each file of a folder of the bundle that is missing, or has not this sha256."""
    for path, expected in sorted(digests.items()):
        there = bundle / folder / path
        if not there.is_file():
            yield f"{folder}/{path}: missing"
        elif (got := sha256_of(there)) != expected:
            yield f"{folder}/{path}: sha256 {got}, expected {expected}"


def _unlisted(bundle: Path, folder: str, listed: Collection[str]) -> Iterator[str]:
    # A link to a folder is one more file: what is behind it is not looked at.
    files = (file for file in (bundle / folder).rglob("*") if file.is_symlink() or not file.is_dir())
    for path in sorted(str(file.relative_to(bundle / folder)) for file in files):
        if path not in listed:
            yield f"{folder}/{path}: no file that {FILE} lists"
