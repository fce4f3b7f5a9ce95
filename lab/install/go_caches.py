"""Go's module and build caches: what a build of all parts keeps of them, and how they go."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab.errors import LabError
from lab.install.building import GoBuilder, go_cache_lock
from lab.install.running import last_lines, run_logged
from lab.install.store import locked
from lab.install.toolchain import go_environment
from lab.paths import Lab

KEPT_BYTES = 2 * 10**9
"""Of the build cache between two parts: they share much of what they compile, as Kubernetes' libraries."""


def trim(lab: Lab, kept: int = KEPT_BYTES) -> None:
    """Keep what the next parts are likely to share: the newest of what was compiled, and modules as they were fetched.

    Unpacked modules are the larger part, and are unpacked again in seconds. Nothing while another installer builds.
    """
    with _alone(lab) as alone:
        if not alone:
            return
        for folder in _unpacked(lab):
            _remove(folder)
        entries = [(status.st_mtime, status.st_size, path) for path, status in _files(lab.cache / "go" / "build")]
        size = sum(size for _, size, _ in entries)
        for _, bytes_, path in sorted(entries):
            if size <= kept:
                break
            path.unlink(missing_ok=True)
            size -= bytes_


def drop(builder: GoBuilder) -> int:
    """Remove both caches and the wheel's toolchain; what was built stays. Bytes that it freed."""
    lab = builder.lab
    before = size_of(lab)
    with locked(go_cache_lock(lab), "the Go caches"):
        if (lab.cache / "go" / "mod").is_dir():
            builder.toolchain.prepare(lab)
            # Module folders are read-only; go knows how to remove them.
            command = [str(builder.toolchain.program), "clean", "-modcache"]
            log = lab.cache / "logs" / "go-clean.log"
            if run_logged(command, log=log, label="go clean", environment=go_environment(lab), cwd=Path("/")) != 0:
                raise LabError(
                    f"go could not remove its module cache {lab.cache / 'go'}: {' '.join(last_lines(log, 3))}",
                    fix="remove the folder manually: chmod -R u+w FOLDER && rm -r FOLDER",
                )
        shutil.rmtree(lab.cache / "go", ignore_errors=True)
        shutil.rmtree(lab.cache / "toolchain", ignore_errors=True)
    return before


def size_of(lab: Lab) -> int:
    """Bytes of both caches; files that a running build removes meanwhile do not count."""
    return sum(status.st_size for _, status in _files(lab.cache / "go"))


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for place, _, names in os.walk(folder):
        for path in (Path(place) / name for name in names):
            with suppress(FileNotFoundError):
                yield path, path.lstat()


def _unpacked(lab: Lab) -> list[Path]:
    modules = lab.cache / "go" / "mod"
    # `cache` has them as they were fetched, with their checksums.
    return [path for path in modules.iterdir() if path.name != "cache"] if modules.is_dir() else []


def _remove(folder: Path) -> None:
    """A folder of unpacked modules, which are read-only."""
    for place, _, _ in os.walk(folder):
        with suppress(OSError):
            Path(place).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone(lab: Lab) -> Iterator[bool]:
    path = go_cache_lock(lab)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
