"""A model whose files are in a folder: what the hub has under every name while the folder is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lab.hub import made_up


def content_of(folder: Path) -> Callable[[str, str], Mapping[str, bytes]]:
    """The files of a repository at a commit: those of the folder, else made-up ones."""

    def files(repository: str, revision: str) -> Mapping[str, bytes]:
        if not folder.is_dir():
            return made_up.files(repository, revision)
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    return files
