"""Builds a pinned module with the project's own changes on it: `*.patch` files next to the go.mod."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab.errors import LabError


def patched_go_mod(go_mod: Path, module: str, source: Path, patches: Sequence[Path], work: Path) -> Path:
    """A go.mod in `work` that is `go_mod` with `module` taken from a copy of `source` with the patches on it.

    A copy, because go refuses an overlay over the files of its module cache. Raises LabError for a patch that does not
    fit the pinned version.
    """
    copy = work / "module"
    shutil.copytree(source, copy)
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    for path in copy.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    for patch in patches:
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", str(patch)],
            cwd=copy,
            # A checkout around the work folder would make git skip files that it does not know.
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(work)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise LabError(
                f"{patch.parent.name}/{patch.name} does not fit {module}: {done.stderr.strip()}",
                fix="write it again for the version that go.mod pins, or drop it where that version does the same",
            )
    changed = work / "go.mod"
    changed.write_text(f"{go_mod.read_text()}\nreplace {module} => {copy}\n")
    shutil.copyfile(go_mod.with_name("go.sum"), work / "go.sum")
    return changed
