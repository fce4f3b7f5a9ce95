"""Images of the lab's own programs, in the place of those that their projects publish: an OCI layout of one layer.

The same program gives the same image, and so the same digest.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from floor.images import image_reference
from lab.errors import LabError
from lab.install.toolchain import go_platform
from lab.runner.images import Program, find

DESCRIPTION = "org.opencontainers.image.description"
MADE = "made by the lab: its own build of the program, without anything else of the published image"
PYTHON_NOTE = "made by the lab: a note alone; the lab runs its own Python in the place of what is published"
NOTE = "made by the lab: a note alone; the lab runs nothing of what is published"
NOTE_PATH = "/usr/share/lab/README"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# Go's programs shrink to a third at any level; this one is the fastest.
_LEVEL = 1


def push_all(images: Iterable[str], registry: str, *, tools: Path) -> None:
    """Make each image and push it under its own path: docker.io/a/b:v goes to HOST:PORT/a/b:v.

    Raises LabError with what crane answers.
    """
    for image in images:
        with tempfile.TemporaryDirectory(prefix="made-image-") as folder:
            write_layout(Path(folder), find(image), tools)
            _push(Path(folder), image_reference(image).held_by(registry).tagged, tools)


def write_layout(folder: Path, program: Program | None, tools: Path) -> str:
    """An OCI layout with the program's image, or with a note where the lab has no such program; its digest."""
    blobs = Blobs(folder / "blobs" / "sha256")
    run: dict[str, Any] = {}
    if program is not None:
        run = {"User": str(program.user), "Entrypoint": list(program.entrypoint), "Cmd": list(program.arguments)}
    if program is not None and program.tool:
        described = MADE
        with (tools / program.tool).open("rb") as content:
            layer, diff_id = blobs.add_layer(program.path, content)
    else:
        described = PYTHON_NOTE if program else NOTE
        layer, diff_id = blobs.add_layer(NOTE_PATH, io.BytesIO(f"{described}\n".encode()))
    system, architecture = go_platform().split("/")
    config = {
        "architecture": architecture,
        "os": system,
        "config": {**run, "Labels": {DESCRIPTION: described}},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": blobs.add_json(_CONFIG, config),
        "layers": [layer],
    }
    entry = blobs.add_json(_MANIFEST, manifest)
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}
    (folder / "index.json").write_text(json.dumps(index))
    (folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    return str(entry["digest"])


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


@dataclass(frozen=True)
class Blobs:
    """The blobs of a layout, each under its digest."""

    folder: Path

    def add_json(self, media_type: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The descriptor of a JSON document."""
        self.folder.mkdir(parents=True, exist_ok=True)
        data = json.dumps(content, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def add_layer(self, path: str, content: BinaryIO) -> tuple[dict[str, Any], str]:
        """The descriptor of a layer with one program at a path, and the digest of what is in it unpacked."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / "draft"
        with draft.open("wb") as file:
            packed = _Hashing(file)
            # No time of day and no name in it: the same content has the same digest.
            with gzip.GzipFile("", "wb", _LEVEL, packed, mtime=0) as compressed:
                plain = _Hashing(compressed)
                with tarfile.open(fileobj=plain, mode="w|") as archive:  # type: ignore[call-overload]
                    _add(archive, PurePosixPath(path), content)
        draft.rename(self.folder / packed.digest.removeprefix("sha256:"))
        return {"mediaType": _LAYER, "digest": packed.digest, "size": packed.size}, plain.digest


def _add(archive: tarfile.TarFile, path: PurePosixPath, content: BinaryIO) -> None:
    for folder in [*reversed(path.parents)][1:]:
        entry = tarfile.TarInfo(str(folder).lstrip("/"))
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(entry)
    entry = tarfile.TarInfo(str(path).lstrip("/"))
    entry.mode, entry.size = 0o755, content.seek(0, io.SEEK_END)
    content.seek(0)
    archive.addfile(entry, content)


def _push(layout: Path, target: str, tools: Path) -> None:
    command = [str(tools / "crane"), "push", str(layout), target, "--insecure"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"crane cannot push {target}: {done.stderr.strip()}", fix="start the registry, and push again")
