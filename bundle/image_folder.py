"""Images of a bundle: an OCI layout each, in a folder of the image's name, as crane, skopeo and oras read them."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.fetching import DRAFT
from floor.digests import sha256_of
from floor.images import ImageReference

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class ImageFolder:
    """`FOLDER/docker.io/vllm/vllm-openai/v0.32.0/` has the layout of that image."""

    folder: Path

    def of(self, image: ImageReference) -> Path:
        """Where the image is, or would be."""
        return self.folder / image.registry / image.path / (image.tag or image.digest.replace(":", "-"))

    def bring(self, image: ImageReference, crane: Crane, mirror: str | None) -> bool:
        """Pull the image by its digest, from its registry or the mirror; False where it is here already.

        It is in its place once it is whole. Raises BundleError.
        """
        if not any(self.problems(image)):
            return False

        def pull(draft: Path) -> str:
            crane.pull(image.held_by(mirror) if mirror else image, draft)
            if wrong := next(_problems(draft, image.digest), None):
                raise BundleError(f"{image} came another than it is", got=wrong, fix="call this again")
            return image.digest

        self.write(image, pull)
        return True

    def take(self, image: ImageReference, other: ImageFolder) -> None:
        """Copy the image out of another folder, where it is not here already. Raises BundleError."""
        if any(self.problems(image)):
            if wrong := next(other.problems(image), None):
                raise BundleError(
                    f"{image} is not in {other.folder} as locked",
                    got=wrong.removeprefix(f"{image}: "),
                    fix="sitectl bundle services, which builds it, and commit images.lock",
                )

            def copy(draft: Path) -> str:
                shutil.copytree(other.of(image), draft)
                return image.digest

            self.write(image, copy)

    def write(self, image: ImageReference, write: Callable[[Path], str]) -> ImageReference:
        """Let `write` make the image's layout in a folder, which is not there yet, and give its digest.

        It is in its place once it is whole. Gives the image back by that digest.
        """
        place = self.of(image)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=DRAFT) as drafts:
            draft = Path(drafts) / "layout"
            digest = write(draft)
            if place.exists():
                shutil.rmtree(place)
            draft.rename(place)
        return replace(image, digest=digest)

    def problems(self, image: ImageReference) -> Iterator[str]:
        """Each file of the image that is missing or spoiled, by its path in the folder."""
        place = self.of(image)
        if not (place / "index.json").is_file():
            yield f"{image}: missing"
            return
        for wrong in _problems(place, image.digest):
            yield f"{image}: {wrong}"


def _problems(layout: Path, digest: str) -> Iterator[str]:
    try:
        entries = json.loads((layout / "index.json").read_bytes())["manifests"]
        held = [str(entry["digest"]) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        yield "index.json cannot be read"
        return
    if held != [digest]:
        yield f"index.json has {', '.join(held) or 'no image'}, expected {digest}"
        return
    yield from _blob_problems(layout, digest, is_manifest=True)


def _blob_problems(layout: Path, digest: str, *, is_manifest: bool) -> Iterator[str]:
    file = layout / "blobs" / digest.replace(":", "/")
    if not file.is_file():
        yield f"{digest} is missing"
        return
    if (got := sha256_of(file)) != digest.partition(":")[2]:
        yield f"{digest} is spoiled; got sha256:{got}"
        return
    if not is_manifest:
        return
    try:
        manifests, blobs = _described(json.loads(file.read_bytes()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield f"{digest} is no manifest of an image"
        return
    for inner in manifests:
        yield from _blob_problems(layout, inner, is_manifest=True)
    for inner in blobs:
        yield from _blob_problems(layout, inner, is_manifest=False)


def _described(manifest: Any) -> tuple[list[str], list[str]]:
    """Digests of the manifests of an index, one per platform; those of config and layers of an image.

    Raises ValueError and others for what is neither, or names a file by anything but a sha256.
    """
    blobs = [manifest.get("config"), *(manifest.get("layers") or ())]
    manifests = [inner["digest"] for inner in manifest.get("manifests") or ()]
    files = [inner["digest"] for inner in blobs if inner]
    if not all(_DIGEST.fullmatch(digest) for digest in (*manifests, *files)):
        raise ValueError
    return manifests, files
