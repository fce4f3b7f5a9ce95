"""The project in another folder, where parts of it may be changed; its stack is the same one."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.paths import CHECKOUT
from tests.program_folders import FOLDERS

_REST = (".venv", ".lab")


def copy_project(folder: Path, *changed: str) -> Path:
    """A folder to run pulumi in, in which the parts that are named are copies, and all else leads here."""
    folder.mkdir()
    for name in ("Pulumi.yaml", "__main__.py"):
        shutil.copy(CHECKOUT / name, folder)
    for name in (*FOLDERS, *_REST):
        if name in changed:
            shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (folder / name).symlink_to(CHECKOUT / name)
    return folder
