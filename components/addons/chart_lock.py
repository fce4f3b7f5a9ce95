"""Digests of packed charts as the project first fetched them, in a file that belongs into version control."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from floor.digests import sha256_of
from floor.problems import Problem, file_error, shown

FILE = "charts.sha256"
"""In the project's folder; `sha256sum --check charts.sha256` reads it too."""
_LINE = re.compile(r"(?P<digest>[0-9a-f]{64})  (?P<file>\S(.*\S)?)")
_BACK = "take the file back from version control, or remove it to lock the charts that are fetched next"


def read_lock(project: Path) -> dict[str, str]:
    """Packed chart, relative to the project -> sha256 in hex; empty without a lock. Raises SiteError for a bad line."""
    try:
        text = (project / FILE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    digests, problems = dict[str, str](), list[Problem]()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _LINE.fullmatch(line):
            digests[match["file"]] = match["digest"]
        else:
            form = "sha256 in hex, two spaces, file"
            problems.append(
                Problem(path=(), what="not a locked chart", got=shown(line), allowed=form, fix=_BACK, line=number)
            )
    if problems:
        raise file_error(FILE, problems)
    return digests


def lock_text(digests: Mapping[str, str]) -> str:
    """The file's content, sorted by chart."""
    return "".join(f"{digest}  {file}\n" for file, digest in sorted(digests.items()))


def locked_name(file: str | Path, project: Path) -> str:
    """A packed chart as the lock names it; one outside of the project by its whole path."""
    path = os.path.normpath(project / file)
    return os.path.relpath(path, project) if Path(path).is_relative_to(project) else path


def check_lock(charts: Iterable[str], project: Path, fix: str) -> None:
    """Packed charts of the project are those that it locked. Raises SiteError with each that is another.

    charts: as Helm takes them. One that is no file of the project, is missing or is not locked passes: Helm reports a
    missing one, and the others have nothing to be compared with. project: its absolute path.
    """
    digests, problems = read_lock(project), list[Problem]()
    for chart in charts:
        name = locked_name(chart, project)
        if name not in digests or not (project / name).is_file():
            continue
        digest = sha256_of(project / name)
        if digest != digests[name]:
            problems.append(
                Problem(
                    path=(),
                    what=f"{name} is not the locked chart",
                    got=f"sha256:{digest}",
                    allowed=f"sha256:{digests[name]}",
                    fix=fix,
                )
            )
    if problems:
        raise file_error(FILE, problems)
