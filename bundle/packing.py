"""A folder with everything that sites take from outside: written piece by piece, complete once bundle.json is there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bundle.asking import Asking
from bundle.boot_media import Kind, bring_boot_media
from bundle.carried_programs import OwnPrograms
from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.fetching import DRAFT, Sources
from bundle.image_folder import ImageFolder
from bundle.inventory import FILE, Inventory, PackedProgram, revision_of
from bundle.locked_weights import differences
from bundle.mirror_paths import require_own_paths
from bundle.schematics import make_known
from bundle.supplies import BOOT, BUILT, CHARTS, IMAGES, PROGRAMS, WHEELS, Supplies, weights_folder
from bundle.wheels import bring_wheels
from floor.counts import counted
from floor.digests import sha256_of
from services.weights.bringing import Bringing
from services.weights.completion import MARKER
from services.weights.failure import WeightsError
from services.weights.hub import Hub
from services.weights.manifest import Manifest
from services.weights.order import Wanted, WeightsOrder
from services.weights.volume import Volume
from stacks.facts.own_images import is_built_here

# Files at once, and a bound that no link reaches.
_PARALLEL, _BYTES_PER_S = 4, 1.0e12


@dataclass(frozen=True, kw_only=True)
class Packer:
    """Writes a bundle's folder. What is there and whole stays, so a call after a failure goes on."""

    folder: Path
    crane: Crane
    image_mirror: str | None
    chart_digests: Mapping[str, str]
    """sha256 in hex of charts that the project locked, by file."""
    hub: str
    """Address of the hub, or of a mirror of it."""
    token: str
    programs: OwnPrograms | None
    """None: the bundle has none."""
    boot_media: Kind
    note: Callable[[str], None]

    def pack(self, supplies: Supplies, sources: list[Sources], project: Path) -> None:
        """Raises BundleError; the inventory is then not there, but for a missing lock and images that share a path."""
        _require_locks(supplies)
        require_own_paths(supplies.images)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / FILE).unlink(missing_ok=True)
        self._remove_leftovers()
        programs = self._programs(supplies)
        charts = self._charts(sources)
        if supplies.packages:
            self.note(f"{WHEELS}: {counted(len(supplies.packages), 'package')}")
            bring_wheels(project, self.folder / WHEELS)
        images = ImageFolder(self.folder / IMAGES)
        if self.image_mirror is None:
            lacking = [image for image in supplies.factory_images if any(images.problems(image.installer))]
            make_known(lacking, self.note)
        for number, image in enumerate(supplies.images, start=1):
            self.note(f"{IMAGES} {number}/{len(supplies.images)}: {image.tagged}")
            if self.image_mirror is None and is_built_here(image.name):
                images.take(image, ImageFolder(project / BUILT))
            else:
                images.bring(image, self.crane, self.image_mirror)
        media = bring_boot_media(supplies.factory_images, self.boot_media, self.folder / BOOT, self.note)
        for manifest in supplies.weights:
            self._weights(manifest)
        inventory = Inventory(
            sites=supplies.sites,
            images=tuple(str(image) for image in supplies.images),
            charts=charts,
            packages={package.name: package.version for package in supplies.packages},
            programs=programs,
            boot_media=media,
            weights=tuple(revision_of(manifest) for manifest in supplies.weights),
        )
        inventory.write(self.folder)

    def _remove_leftovers(self) -> None:
        """What a killed call was bringing."""
        drafts = [*self.folder.glob(f"{DRAFT}*")]
        for folder in (CHARTS, IMAGES, BOOT):
            drafts += (self.folder / folder).rglob(f"{DRAFT}*")
        for draft in drafts:
            shutil.rmtree(draft)

    def _programs(self, supplies: Supplies) -> dict[str, PackedProgram] | None:
        folder = self.folder / PROGRAMS
        if self.programs is not None:
            return self.programs.bring(supplies.plugins, folder, self.note)
        shutil.rmtree(folder, ignore_errors=True)
        return None

    def _charts(self, sources: list[Sources]) -> dict[str, str]:
        """sha256 in hex of each file, which is there now."""
        folder = self.folder / CHARTS
        folder.mkdir(parents=True, exist_ok=True)
        # The same chart of several sites comes once.
        wanted = {packed.file: (source, packed) for source in sources for packed in source.packed()}
        digests = dict[str, str]()
        for file, (source, packed) in sorted(wanted.items()):
            self.note(f"{CHARTS}/{file}")
            source.bring(packed, folder)
            digests[file] = got = sha256_of(folder / file)
            if got != self.chart_digests.get(file, got):
                raise BundleError(
                    f"{file} is not the locked chart",
                    got=f"sha256 {got}",
                    allowed=f"sha256 {self.chart_digests[file]}",
                    fix="name a place that has the locked one: --charts-from ADDRESS",
                )
        self.note(f"{CHARTS}: comparing definitions and pod network with their pins")
        asking = Asking()
        for source in sources:
            # As `bundle --from` reads them behind the wall, where another one is found too late.
            replace(source, mirror=str(folder.resolve()), asking=asking).require_pinned()
        return digests

    def _weights(self, manifest: Manifest) -> None:
        root = weights_folder(self.folder, manifest.repository)
        root.mkdir(parents=True, exist_ok=True)
        self._remove_spoiled(Volume(root).folder(manifest.revision), manifest)
        order = WeightsOrder(
            model=manifest.repository,
            source="mirror",
            endpoint=self.hub,
            bytes_per_s=_BYTES_PER_S,
            parallel=_PARALLEL,
            keep=1,
            token_from="HF_TOKEN",  # noqa: S106 - the variable's name
            wanted=(Wanted(manifest.repository, manifest.revision, manifest.text()),),
        )
        hub = Hub(self.hub, token=self.token, token_from=order.token_from)
        try:
            Bringing(order, Volume(root), hub, self.note).run()
        except WeightsError as error:
            raise BundleError(error.what, fix=error.fix) from None

    def _remove_spoiled(self, revision: Path, manifest: Manifest) -> None:
        """Files that are not as locked any more. A marker states that all were, and they would not be read again."""
        if not (revision / MARKER).exists():
            return
        self.note(f"{manifest.repository} at {manifest.revision}: comparing what is there")
        alone = {path: replace(manifest, files={path: entry}) for path, entry in manifest.files.items()}
        for path in [path for path, file in alone.items() if any(differences(revision, file))]:
            (revision / MARKER).unlink(missing_ok=True)
            (revision / path).unlink(missing_ok=True)


def _require_locks(supplies: Supplies) -> None:
    if supplies.unlocked_images:
        names = ", ".join(str(image) for image in supplies.unlocked_images[:5])
        raise BundleError(
            f"{counted(len(supplies.unlocked_images), 'image')} of the sites have no digest in images.lock: {names}",
            fix="sitectl bundle lock, and commit images.lock",
        )
    if supplies.unlocked_weights:
        names = ", ".join(f"{repository} at {revision}" for repository, revision in supplies.unlocked_weights)
        raise BundleError(f"no lock lists the files of {names}", fix="sitectl weights lock SITE, and commit weights")
