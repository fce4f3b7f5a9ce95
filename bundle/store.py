"""Packed charts by their content: a folder with one file per sha256, whose name is checked whenever it is read."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from floor.digests import sha256_of


@dataclass(frozen=True)
class ContentStore:
    """Files by sha256 in hex. A file that is there is never written again, so several runs may share a store."""

    folder: Path

    def add(self, file: Path) -> str:
        """Take a copy of the file; its digest."""
        digest = sha256_of(file)
        if self.holds(digest) is None:
            copy_whole(file, self.folder / digest)
        return digest

    def holds(self, digest: str) -> Path | None:
        """The file of this digest; None where it is missing or spoiled."""
        file = self.folder / digest
        return file if file.is_file() and sha256_of(file) == digest else None


def copy_whole(source: Path, target: Path) -> None:
    """By a rename, so that a reader finds the old file or the new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copied-") as drafts:
        Path(shutil.copyfile(source, Path(drafts) / target.name)).replace(target)
