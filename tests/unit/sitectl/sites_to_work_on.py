"""A checkout of the platform for tests of commands: the program's files, with sites of its own."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sitectl.cli import main

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
