"""Images of a bundle: an OCI layout each, in a folder of the image's name, as crane, skopeo and oras read them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle.crane import Crane
from bundle.errors import BundleError
from bundle.fetching import DRAFT
from floor.digests import sha256_of
from floor.images import ImageReference


@dataclass(frozen=True)
class ImageFolder:
    """`FOLDER/docker.io/vllm/vllm-openai/v0.32.0/` has the layout of that image."""

    folder: Path

    def of(self, image: ImageReference) -> Path:
        """Where the image is, or would be."""
        return self.folder / image.registry / image.path / (image.tag or image.digest.replace(":", "-"))

    def bring(self, image: ImageReference, crane: Crane, mirror: str | None) -> bool:
        """Pull the image by its digest, from its registry or the mirror; False where it is here already.

        Entry there once it is whole. Raises BundleError.
        """
        place = self.of(image)
        if not any(self.problems(image)):
            return False
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=DRAFT) as drafts:
            draft = Path(drafts) / "layout"
            crane.pull(image.held_by(mirror) if mirror else image, draft)
            if wrong := next(_problems(draft, image.digest), None):
                raise BundleError(f"{image} came another than it is", got=wrong, fix="call this again")
            if place.exists():
                shutil.rmtree(place)
            draft.rename(place)
        return True

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
        held = [entry["digest"] for entry in entries]
    except (OSError, ValueError, KeyError, TypeError):
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
    manifest: dict[str, Any] = json.loads(file.read_bytes())
    # An index has manifests, one for each platform; an image its config and layers.
    for inner in manifest.get("manifests") or ():
        yield from _blob_problems(layout, inner["digest"], is_manifest=True)
    for inner in (manifest.get("config"), *(manifest.get("layers") or ())):
        if inner:
            yield from _blob_problems(layout, inner["digest"], is_manifest=False)
