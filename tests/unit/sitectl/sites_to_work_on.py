"""A checkout of the platform for tests of commands: the program's files, with sites of its own."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sitectl import checkout
from sitectl.cli import main
from sitectl.progress import Progress

ROOT = Path(__file__).parents[3]
PROGRAM = ("__main__.py", "Pulumi.yaml", "stacks", "components", "talos", "manifests", "docs")


def make_checkout(folder: Path, *, sites: Sequence[str] = ("lab", "prod")) -> Path:
    """The program and these sites of it in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    for site in sites:
        shutil.copy(ROOT / f"Pulumi.{site}.yaml", folder)
    return folder


def git(folder: Path, *arguments: str) -> None:
    """git with an identity of its own."""
    own = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


really_declare = checkout.declare
_remembered: dict[tuple[str, str, str], checkout.Declared] = {}


def remembering(
    project: Path, files: Mapping[str, Path], progress: Progress | None = None
) -> dict[str, checkout.Declared]:
    """`checkout.declare`, once for each program and text of a site: a run costs seconds, and gives the same each time.

    That it does is `test_the_same_site_gives_the_same_bytes`, which asks `really_declare`.
    """
    program = _digest(project)
    keys = {name: (program, name, path.read_text()) for name, path in files.items()}
    missing = {name: files[name] for name, key in keys.items() if key not in _remembered}
    if missing:
        for name, one in really_declare(project, missing, progress).items():
            _remembered[keys[name]] = one
    return {name: _remembered[key] for name, key in keys.items()}


def _digest(project: Path) -> str:
    found = hashlib.sha256()
    paths = [project / name for name in PROGRAM if name != "docs"]
    for path in sorted(below for top in paths for below in (top.rglob("*") if top.is_dir() else [top])):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(str(path.relative_to(project)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


@dataclass(frozen=True)
class Said:
    """What a command printed and its status."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def run(folder: Path, *words: str) -> Said:
    """`python -m sitectl WORDS` on the checkout in `folder`, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stderr(err):
        status = main([words[0], "--project", str(folder), *words[1:]], out=out)
    return Said(status, out.getvalue(), err.getvalue())
