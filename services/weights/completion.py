"""When a revision is whole: the marker, and the record of what was verified before it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.weights.failure import Exit, WeightsError
from services.weights.manifest import Entry, Manifest
from services.weights.volume import Volume, sync_folder

MARKER = ".weights.json"


@dataclass(frozen=True)
class Marker:
    """What a whole revision was verified against."""

    manifest: Manifest
    against: str
    """`lock`, `hub` (what the server states at the commit), or `found` (nothing: as the files were found)."""


def write_marker(folder: Path, marker: Marker) -> None:
    """Last of all, in one step."""
    manifest = marker.manifest
    content = {
        "repository": manifest.repository,
        "revision": manifest.revision,
        "manifest": manifest.digest,
        "against": marker.against,
        "files": {path: [entry.size, entry.sha256] for path, entry in sorted(manifest.files.items())},
    }
    draft = folder / f"{MARKER}.draft"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / MARKER)
    sync_folder(folder)


def read_marker(folder: Path) -> Marker | None:
    """The marker of a folder; None without one, or with one that cannot be read."""
    try:
        content: dict[str, Any] = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        files = {str(path): Entry(int(size), str(sha256)) for path, (size, sha256) in content["files"].items()}
        manifest = Manifest(str(content["repository"]), str(content["revision"]), files)
        whole = manifest.digest == content["manifest"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Marker(manifest, str(content.get("against", ""))) if whole else None


def problem(folder: Path, repository: str, revision: str, digest: str = "") -> str:
    """Why the folder is not the whole, verified revision; empty if it is.

    digest: of the lock, where the site has one. Sizes are looked at, content is not: that takes minutes.
    """
    marker = read_marker(folder)
    if marker is None:
        return "it has no marker: its files were not all verified"
    manifest = marker.manifest
    if (manifest.repository, manifest.revision) != (repository, revision):
        return f"its marker is of {manifest.repository} at {manifest.revision}"
    if digest and manifest.digest != digest:
        return (
            f"it was verified against another list of files (sha256 {manifest.digest[:12]}, the lock's {digest[:12]})"
        )
    for path, entry in manifest.files.items():
        try:
            there = (folder / path).stat().st_size
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if there != entry.size:
            return f"{path} has {there} bytes, and {entry.size} were verified"
    return ""


def check(folder: Path, repository: str, revision: str, digest: str, fix: str) -> None:
    """Raise WeightsError where a server may not start on this folder. fix: what to do about it."""
    if wrong := problem(folder, repository, revision, digest):
        raise WeightsError(Exit.INCOMPLETE, f"{repository} at {revision} is not ready in the volume: {wrong}", fix=fix)


class VerifiedFiles:
    """Which files of an unfinished revision were verified: nothing that was is read again after a restart."""

    def __init__(self, volume: Volume, revision: str) -> None:
        self._file = volume.parts(revision) / ".verified"
        self._folder = volume.folder(revision)
        self._known: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                    self._known[entry["path"]] = entry
                except (ValueError, KeyError, TypeError):
                    continue  # a line that a killed writer left unfinished

    def sha256(self, path: str) -> str:
        """What the file in its place was verified to be; empty where it is another one since, or none."""
        known = self._known.get(path)
        return str(known["sha256"]) if known and known["stat"] == self._stat(path) else ""

    def add(self, path: str, sha256: str) -> None:
        """The file is in its place, with this content."""
        line = json.dumps({"path": path, "sha256": sha256, "stat": self._stat(path)}) + "\n"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._known[path] = json.loads(line)

    def _stat(self, path: str) -> list[int]:
        try:
            state = (self._folder / path).stat()
        except OSError:
            return []
        return [state.st_size, state.st_mtime_ns, state.st_ino]
