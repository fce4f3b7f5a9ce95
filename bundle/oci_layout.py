"""OCI layouts of one image that are written here: the same content gives the same bytes, and so the same digest."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class LayerFile:
    """A file of a layer: its path from the root, what is in it, and its mode."""

    path: str
    content: BinaryIO
    mode: int = 0o644


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer that a layout has."""

    descriptor: Mapping[str, Any]
    diff_id: str
    """Digest of what is in it unpacked, which the image's configuration names."""


@dataclass(frozen=True)
class OciLayout:
    """A folder with `index.json`, `oci-layout` and `blobs/`, as crane, skopeo and oras read them."""

    folder: Path

    def add_layer(self, files: Iterable[LayerFile], *, gzip_level: int | None = None) -> Layer:
        """A layer with these files in their order, and the folders that they are in; all of root, without times.

        gzip_level: None leaves it as it is, so that no version of zlib decides about its digest.
        """
        draft = self._blobs / "draft"
        with draft.open("wb") as file:
            packed = plain = _Hashing(file)
            if gzip_level is None:
                _write_tar(files, plain)
            else:
                # No time of day and no name in it.
                with gzip.GzipFile("", "wb", gzip_level, packed, mtime=0) as compressed:
                    plain = _Hashing(compressed)
                    _write_tar(files, plain)
        draft.rename(self._blobs / packed.digest.removeprefix("sha256:"))
        media_type = _LAYER if gzip_level is None else f"{_LAYER}+gzip"
        return Layer(
            descriptor={"mediaType": media_type, "digest": packed.digest, "size": packed.size}, diff_id=plain.digest
        )

    def take_layer(self, other: OciLayout, layer: Layer) -> None:
        """Copy a layer that another layout has."""
        digest = layer.descriptor["digest"]
        shutil.copyfile(other.blob(digest), self._blobs / digest.removeprefix("sha256:"))

    def write_image(self, config: Mapping[str, Any], layers: Iterable[Layer]) -> str:
        """Make it the layout of the image with this configuration, but for the layers; its digest."""
        added = [*layers]
        rootfs = {"type": "layers", "diff_ids": [layer.diff_id for layer in added]}
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": self._add_json(_CONFIG, {**config, "rootfs": rootfs}),
            "layers": [layer.descriptor for layer in added],
        }
        entry = self._add_json(_MANIFEST, manifest)
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
        (self.folder / "index.json").write_text(json.dumps(index))
        (self.folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
        return str(entry["digest"])

    def read_image(self) -> tuple[dict[str, Any], list[Layer]]:
        """Configuration and layers of its one image.

        Raises ValueError, KeyError or TypeError for a layout of several platforms, or of something else.
        """
        (entry,) = json.loads((self.folder / "index.json").read_bytes())["manifests"]
        manifest = json.loads(self.blob(entry["digest"]).read_bytes())
        config = json.loads(self.blob(manifest["config"]["digest"]).read_bytes())
        pairs = zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        return config, [Layer(descriptor=descriptor, diff_id=diff_id) for descriptor, diff_id in pairs]

    def blob(self, digest: str) -> Path:
        """The file of this digest."""
        return self.folder / "blobs" / digest.replace(":", "/")

    @property
    def _blobs(self) -> Path:
        folder = self.folder / "blobs" / "sha256"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _add_json(self, media_type: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The descriptor of a JSON document."""
        data = json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self._blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}


class _Hashing:
    """A file for writing that knows the digest and the size of what it was given."""

    def __init__(self, target: BinaryIO | gzip.GzipFile) -> None:
        self._target, self._digest, self.size = target, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self.size += len(data)
        self._target.write(data)
        return len(data)

    def flush(self) -> None:
        self._target.flush()

    @property
    def digest(self) -> str:
        return f"sha256:{self._digest.hexdigest()}"


def _write_tar(files: Iterable[LayerFile], target: _Hashing) -> None:
    there = set[PurePosixPath]()
    with tarfile.open(fileobj=target, mode="w|") as archive:  # type: ignore[call-overload]
        for file in files:
            path = PurePosixPath("/", file.path)
            for folder in [*reversed(path.parents)][1:]:
                if folder not in there:
                    there.add(folder)
                    entry = tarfile.TarInfo(str(folder).lstrip("/"))
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    archive.addfile(entry)
            entry = tarfile.TarInfo(str(path).lstrip("/"))
            entry.mode, entry.size = file.mode, file.content.seek(0, io.SEEK_END)
            file.content.seek(0)
            archive.addfile(entry, file.content)
