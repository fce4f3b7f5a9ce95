"""Where a container's program comes from: the lab's own tools, or an image out of a mirror, as containerd pulls it."""

from __future__ import annotations

import asyncio
import json
import shutil
import tarfile
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from floor.images import ImageReference, image_reference
from lab.runner.images import HostFiles, Program, host_files
from lab.runner.lifecycle import ImageError, PullError
from lab.runner.process import run

# A big image is a few hundred MB, from a registry on this machine.
_PULL_WITHIN_S = 300.0


@dataclass(frozen=True, kw_only=True)
class PulledImage:
    """What a container starts from, and the id that its status reports."""

    files: HostFiles
    id: str


class ImageSource(Protocol):
    """Gives the image of a container."""

    async def image(self, reference: str, program: Program) -> PulledImage:
        """Raises ImageError when it will never be had, PullError when it is not to be had now."""


@dataclass(frozen=True, kw_only=True)
class InstalledPrograms:
    """The lab's own builds, without any image: nothing is pulled, and an image has no digest."""

    tools: Path

    async def image(self, reference: str, program: Program) -> PulledImage:
        return PulledImage(files=self._files(reference, program), id=f"lab://{reference}")

    def _files(self, reference: str, program: Program) -> HostFiles:
        try:
            return host_files(program, self.tools, image_reference(reference).tag)
        except FileNotFoundError as error:
            raise ImageError(
                f'image "{reference}" maps to the local program {program.tool}, absent from {self.tools}: '
                "install the lab's tools"
            ) from error


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """A registry that has the images of all others under their paths, as one that Talos knows by `*` without fallback.

    Each image is pulled once, by digest, into a folder that its digest names. What runs is the program in it.
    """

    address: str
    crane: Path
    store: Path
    tools: Path
    _pulls: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def image(self, reference: str, program: Program) -> PulledImage:
        asked = image_reference(reference)
        digest = asked.digest or await self._digest_of(reference, asked)
        root = self.store / digest.replace(":", "-")
        async with self._pulls[digest]:
            if not root.exists():
                await self._pull(reference, f"{asked.held_by(self.address).name}@{digest}", root)
        return PulledImage(files=self._files(reference, program, root), id=f"{asked.name}@{digest}")

    async def _digest_of(self, reference: str, asked: ImageReference) -> str:
        """What the tag names: asked for once, as by the pull policy IfNotPresent."""
        known = self.store / f"tag-{quote(asked.tagged, safe='')}"
        if not known.exists():
            digest = await self._crane(reference, "digest", asked.held_by(self.address).tagged)
            self.store.mkdir(parents=True, exist_ok=True)
            known.write_text(digest.strip())
        return known.read_text()

    async def _pull(self, reference: str, source: str, root: Path) -> None:
        self.store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.store, prefix=".pulled-") as folder:
            layout, unpacked = Path(folder) / "layout", Path(folder) / "root"
            # By its digest: crane refuses a manifest or a blob that is not what its digest names.
            await self._crane(reference, "pull", "--format", "oci", source, str(layout))
            await asyncio.to_thread(_unpack, layout, unpacked)
            unpacked.rename(root)

    async def _crane(self, reference: str, *arguments: str) -> str:
        try:
            # A registry of the site's own network speaks plain HTTP.
            done = await run([str(self.crane), *arguments, "--insecure"], timeout_s=_PULL_WITHIN_S)
        except TimeoutError:
            raise PullError(f'failed to pull image "{reference}": no end within {_PULL_WITHIN_S:.0f} s') from None
        if done.code != 0:
            last = done.output.strip().splitlines()[-1:] or [f"crane ended with {done.code}"]
            raise PullError(f'failed to pull image "{reference}": {last[0].removeprefix("Error: ")}')
        return done.output

    def _files(self, reference: str, program: Program, root: Path) -> HostFiles:
        if not program.tool:
            # The image has a note in it alone: the lab's Python runs in its place.
            return host_files(program, self.tools)
        inside = root / program.path.lstrip("/")
        if not inside.is_file():
            raise ImageError(f'image "{reference}" has no {program.path}: the lab did not make it')
        return HostFiles(binds=((inside, program.path),))


def _unpack(layout: Path, root: Path) -> None:
    """The file system of the one image in an OCI layout."""
    root.mkdir()
    (image,) = json.loads((layout / "index.json").read_text())["manifests"]
    for layer in json.loads(_blob(layout, image["digest"]).read_text())["layers"]:
        with tarfile.open(_blob(layout, layer["digest"])) as files:
            files.extractall(root, filter="tar")
    shutil.rmtree(layout)


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")
