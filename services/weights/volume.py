"""A model's volume: where its revisions and unfinished files are, who may write, how much room is left.

revisions/COMMIT/          files of a revision, entry there once it is verified; servers mount this folder
revisions/COMMIT/.weights.json   the marker: the revision is whole
parts/COMMIT/              unfinished files, and which finished ones were verified
used/COMMIT                on a node's own disk: when a server last started on the revision there
writer.lock                held by the one program that writes
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from services.weights.failure import Exit, WeightsError
from services.weights.pace import Clock, size

# How often a writer asks again for the lock that another one holds.
_ASK_EVERY_S = 5.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LARGER = (
    "raise storage.weights.revisions, by which the volume grows (with place: nodes lower it, or take a larger disk), "
    "or delete what else is in the volume"
)


def free_bytes(folder: Path) -> int:
    """What the file system of a folder lets a user write."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


class Volume:
    """The folder that the volume is mounted at."""

    def __init__(self, root: Path, *, free: Callable[[Path], int] = free_bytes) -> None:
        self.root = root
        self._free = free

    @property
    def revisions(self) -> Path:
        """A folder for entry revision."""
        return self.root / "revisions"

    def folder(self, revision: str) -> Path:
        """Where the files of a revision are."""
        return self.revisions / revision

    def parts(self, revision: str) -> Path:
        """Where its unfinished files are."""
        return self.root / "parts" / revision

    def used(self, revision: str) -> Path:
        """Where it is kept that a server started on the revision."""
        return self.root / "used" / revision

    def cache(self, repository: str, revision: str) -> Path:
        """Where the hub's own client keeps the revision, if the volume has such a cache."""
        return self.root / "hub" / f"models--{repository.replace('/', '--')}" / "snapshots" / revision

    @contextlib.contextmanager
    def writing(self, clock: Clock, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the volume's lock, and wait for it where another writer has it.

        The kernel's own lock: it ends with its process, and on NFS 4.1 with the lease of its node, whose later writes
        to files that it had locked fail.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = (self.root / "writer.lock").open("a+")
        except OSError as error:
            raise storage_failure(error, self.root) from None
        with lock:
            shown_holder = ""
            while not _locked(lock):
                lock.seek(0)
                holder = f"another writer holds the volume ({lock.read(200).strip() or 'it left no name'}); waiting"
                if holder != shown_holder:
                    say(holder)
                    shown_holder = holder
                clock.sleep(_ASK_EVERY_S)
            lock.seek(0)
            lock.truncate()
            lock.write(f"{socket.gethostname()}\n")
            lock.flush()
            yield

    def require_room(self, needed: int, what: str) -> None:
        """Raise WeightsError where so many bytes do not fit."""
        free = self._free(self.root)
        if needed > free:
            raise WeightsError(
                Exit.NO_SPACE,
                f"{what} does not fit into the volume: {size(needed - free)} are missing",
                got=f"{size(free)} free",
                allowed=f"{size(needed)} or more",
                fix=_LARGER,
            )


def storage_failure(error: OSError, path: Path) -> WeightsError:
    """A failed write, in words."""
    if error.errno in _NO_ROOM:
        return WeightsError(Exit.NO_SPACE, f"the volume is full; {path.name} is kept as far as it came", fix=_LARGER)
    return WeightsError(
        Exit.STORAGE,
        f"the volume's storage fails at {path}: {error.strerror or error}",
        fix="look at the storage (kubectl describe pvc); unfinished files are kept, so the next run continues",
    )


def open_part(path: Path) -> IO[bytes]:
    """An unfinished file to go on with, locked; a new one where there is none, or where another writer has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.open("a+b", buffering=0)
    if _locked(part):
        return part
    part.close()
    return new_part(path)


def new_part(path: Path) -> IO[bytes]:
    """An empty file in its place. The old one is not shortened: who still writes to it writes to what has no name."""
    path.unlink(missing_ok=True)
    part = path.open("a+b", buffering=0)
    if not _locked(part):
        part.close()
        raise OSError(errno.EBUSY, "another writer took the file", str(path))
    return part


def sync_folder(folder: Path) -> None:
    """A renamed file is there after a power cut too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Delete a folder: under its name it is whole, or not there."""
    if not folder.exists():
        return
    doomed = folder.with_name(f".removed-{folder.name}")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _locked(file: IO[bytes] | IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise WeightsError(
            Exit.STORAGE,
            f"the volume's storage has no locks: {error.strerror}",
            fix="name a storage class whose ReadWriteMany volumes have them, such as Longhorn's (NFS 4.1), as "
            "storage.storage_class",
        ) from None
    return True
