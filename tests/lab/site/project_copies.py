"""The project in another folder, where parts of it may be changed or of another revision; its stack is the same one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.paths import CHECKOUT
from sitectl.shell import revisions
from sitectl.shell.errors import SitectlError
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


class NoRevisionError(Exception):
    """A revision that a test needs is not in the checkout's history; one line, with what to do."""


def commit_of(tree: str, checkout: Path = CHECKOUT) -> str:
    """A commit with just these files: a history that was rebased has other commits. Raises NoRevisionError."""
    listed = _git(checkout, "log", "--format=%T %H").stdout.split()
    commits = dict(zip(listed[::2], listed[1::2], strict=True))
    if tree not in commits:
        raise _missing(tree, checkout)
    return commits[tree]


@contextmanager
def project_at(revision: str, checkout: Path = CHECKOUT) -> Iterator[Path]:
    """The program of a revision, to run pulumi in, with this checkout's packages and tools. Raises NoRevisionError."""
    known = _git(checkout, "cat-file", "-e", f"{revision}^{{commit}}").returncode == 0
    if not known and _git(checkout, "rev-parse", "--is-shallow-repository").returncode == 0:
        raise _missing(revision, checkout)
    try:
        with revisions.tree(checkout, revision) as folder:
            for name in _REST:
                (folder / name).symlink_to(checkout / name)
            yield folder
    except SitectlError as error:
        raise NoRevisionError(" ".join(str(error).split())) from None


def _missing(revision: str, checkout: Path) -> NoRevisionError:
    shallow = _git(checkout, "rev-parse", "--is-shallow-repository").stdout.strip() == "true"
    fix = "git fetch --unshallow" if shallow else "name a commit that git log shows"
    return NoRevisionError(f"{revision} is not in the history of {checkout}; fix: {fix}")


def _git(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, check=False)
