"""A content-keyed store of built folders: filled in a temporary folder, then renamed, checked by size at each use.

A folder `<name>-<key>` is either absent or complete, because it is filled under another name and renamed. A lock per
name makes two installers take turns. What a killed installer left is dropped by the next one that holds the lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

MANIFEST = "manifest.json"
HEARTBEAT_S = 30.0
_POLL_S = 0.5
_KEY_LENGTH = 12


def content_key(texts: Sequence[str | bytes]) -> str:
    """The first 12 hex digits of a SHA-256 over the texts; their boundaries count."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode() if isinstance(text, str) else text
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:_KEY_LENGTH]


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def say(text: str) -> None:
    """A line between the progress lines; on stderr, as they are."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def locked(path: Path, what: str, *, shared: bool = False) -> Iterator[int]:
    """Hold the lock file `path`; reports that it waits, and how long. Gives the descriptor for children to inherit."""
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        started = time.monotonic()
        spoken = float("-inf")
        while True:
            try:
                fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - started
                if waited - spoken >= HEARTBEAT_S:
                    say(f"    {what}: another installer is at it, waiting ({waited:.0f} s)")
                    spoken = waited
                time.sleep(_POLL_S)
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class StoreEntry:
    """A complete folder of the store; `fresh` when this call filled it."""

    folder: Path
    fresh: bool


@dataclass(frozen=True)
class ToolStore:
    """Folders below `root`, one per name and key."""

    root: Path

    def folder(self, name: str, key: str) -> Path:
        return self.root / f"{name}-{key}"

    def fault(self, name: str, key: str, *, verify: bool = False) -> str | None:
        """Why the folder cannot be used, or None; sizes and modes are compared, with `verify` the digests too."""
        folder = self.folder(name, key)
        if not folder.is_dir():
            return "missing"
        try:
            files = _read_manifest(folder)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "its manifest cannot be read"
        for relative, expected in files.items():
            path = folder / relative
            if not path.is_file():
                return f"{relative} is missing"
            stats = path.stat()
            if stats.st_size != expected.size:
                return f"{relative} has {stats.st_size} bytes instead of {expected.size}"
            if stat.S_IMODE(stats.st_mode) != expected.mode:
                return f"{relative} has mode {stat.S_IMODE(stats.st_mode):o} instead of {expected.mode:o}"
            if verify and file_sha256(path) != expected.sha256:
                return f"{relative} differs from its SHA-256"
        return None

    def size(self, name: str, key: str) -> int:
        """Bytes of a complete folder's files."""
        return sum(file.size for file in _read_manifest(self.folder(name, key)).values())

    def obtain(self, name: str, key: str, fill: Callable[[Path, int], None], *, verify: bool = False) -> StoreEntry:
        """The folder for this key; `fill(folder, lock)` makes it when it is missing or damaged.

        `lock` is a descriptor that long-running children should inherit: should this process be killed, the lock
        then outlives it until they have ended.
        """
        folder = self.folder(name, key)
        if self.fault(name, key, verify=verify) is None:
            return StoreEntry(folder, fresh=False)
        with locked(self.root / f".lock-{name}", name) as lock:
            fault = self.fault(name, key, verify=verify)
            if fault is None:
                say(f"    {name}: the other installer has finished it")
                return StoreEntry(folder, fresh=False)
            self._sweep(name)
            if folder.exists():
                say(f"    {name}: {folder} is damaged ({fault}), making it again")
            partial = Path(tempfile.mkdtemp(prefix=f".partial-{name}@", dir=self.root))
            partial.chmod(0o755)
            fill(partial, lock)
            _write_manifest(partial, key)
            if folder.exists():
                folder.rename(self.root / f".discarded-{name}@{key}")
            partial.rename(folder)
            self._sweep(name)
        return StoreEntry(folder, fresh=True)

    def _sweep(self, name: str) -> None:
        """Delete what killed installers left of this name; the caller holds its lock, so no other installer uses it."""
        for pattern in (f".partial-{name}@*", f".discarded-{name}@*"):
            for leftover in self.root.glob(pattern):
                shutil.rmtree(leftover)


@dataclass(frozen=True)
class _File:
    size: int
    mode: int
    sha256: str


def _write_manifest(folder: Path, key: str) -> None:
    files = {
        str(path.relative_to(folder)): asdict(
            _File(path.stat().st_size, stat.S_IMODE(path.stat().st_mode), file_sha256(path))
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST).write_text(json.dumps({"key": key, "files": files}, indent=2) + "\n")


def _read_manifest(folder: Path) -> dict[str, _File]:
    files = json.loads((folder / MANIFEST).read_text())["files"]
    return {relative: _File(**entry) for relative, entry in files.items()}


def manifest_files(folder: Path) -> list[str]:
    """The relative paths of a complete folder's files."""
    return list(_read_manifest(folder))
