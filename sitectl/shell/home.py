"""Where sitectl itself is: in a checkout, or where `pip install` put it."""

from __future__ import annotations

import filecmp
import importlib.metadata
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parents[2]
DISTRIBUTION = "inference-platform"
_PROJECT = FOLDER / "pyproject.toml"
# What both a site's plan and its program are made of.
_PACKAGES = ("floor", "stacks", "components", "policy", "talos", "manifests")


def is_checkout() -> bool:
    """Whether these modules are a checkout's own."""
    return _PROJECT.is_file()


def version() -> str:
    """Of the checkout, or of what is installed."""
    if is_checkout():
        return str(tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["version"])
    return importlib.metadata.version(DISTRIBUTION)


def above_docs() -> Path:
    """The folder whose `docs` are the pages of this version: the wheel has them below sitectl."""
    return FOLDER if is_checkout() else Path(__file__).parents[1]


def repair() -> str:
    """What brings missing packages and files of facts back."""
    return "make venv" if is_checkout() else "pip install --force-reinstall . in a checkout of the platform"


def first_difference(project: Path) -> str:
    """A file in which the project's own program is another than the installed one; empty where it is not."""
    if is_checkout():
        return ""
    theirs = (path for package in _PACKAGES for path in sorted((project / package).rglob("*")))
    for path in theirs:
        name = path.relative_to(project)
        if path.is_file() and path.suffix != ".pyc" and not _is_same(path, FOLDER / name):
            return name.as_posix()
    return ""


def _is_same(path: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(path, other, shallow=False)
