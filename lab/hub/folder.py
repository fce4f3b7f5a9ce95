"""Models out of a folder: OWNER/NAME/revisions/COMMIT has the files of a revision, and nothing else exists.

A bundle has its weights so, as volumes have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


def files_of(folder: Path) -> Callable[[str, str], Mapping[str, bytes]]:
    """What a hub with this folder has of a repository at a commit: no hidden files; empty for what is not there."""

    def files(repository: str, revision: str) -> Mapping[str, bytes]:
        place = (folder / repository / "revisions" / revision).resolve()
        if not place.is_relative_to(folder.resolve()):
            return {}
        paths = sorted(path for path in place.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {path.relative_to(place).as_posix(): path.read_bytes() for path in paths}

    return files
