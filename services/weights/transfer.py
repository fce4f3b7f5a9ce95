"""One file into its part: resumed, limited, verified as it streams, and fetched once more if it is another one."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import IO

from services.weights.failure import Exit, WeightsError
from services.weights.hub import CHUNK, Hub, OtherFileError, RangeError
from services.weights.manifest import Entry, Manifest
from services.weights.pace import Clock, Limit, ProgressLines, size
from services.weights.retrying import ATTEMPTS, RetryableError
from services.weights.volume import new_part, open_part, storage_failure

# Bytes after which attempts are counted from 1 again.
_ADVANCE = 16 << 20


class Digests:
    """Of a file that grows. git's own digest of a small file begins with its size."""

    def __init__(self, expected: Entry) -> None:
        self._sha256 = hashlib.sha256()
        self._sha1 = hashlib.sha1(b"blob %d\0" % expected.size, usedforsecurity=False) if expected.git_sha1 else None

    def update(self, data: bytes) -> None:
        self._sha256.update(data)
        if self._sha1:
            self._sha1.update(data)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def differ(self, expected: Entry) -> str:
        """What was got and what was expected, in words; empty where they are the same."""
        if expected.sha256 and self.sha256 != expected.sha256:
            return f"got sha256 {self.sha256}, expected {expected.sha256}"
        if self._sha1 and self._sha1.hexdigest() != expected.git_sha1:
            return f"got git's sha1 {self._sha1.hexdigest()}, expected {expected.git_sha1}"
        return ""


class Transfer:
    """Fetches files of one manifest; several threads may use it."""

    def __init__(
        self,
        hub: Hub | None,
        manifest: Manifest,
        limit: Limit,
        progress: ProgressLines,
        clock: Clock,
        stop: threading.Event,
    ) -> None:
        """hub: None where the volume must have all files already."""
        self._hub = hub
        self._manifest = manifest
        self._limit = limit
        self._progress = progress
        self._clock = clock
        self._stop = stop

    def bring(self, path: str, part: Path) -> str:
        """Make `part` the whole, verified file; its sha256. Raises WeightsError."""
        wrong: list[str] = []
        while len(wrong) < 2:
            try:
                differs, digest = self._once(path, part)
            except OSError as error:
                raise storage_failure(error, part) from None
            if not differs:
                return digest
            if part.exists():
                self._progress.add(-part.stat().st_size, fetched=False)
            # Under no name any more; who has it open, as a cache or another writer, keeps it.
            part.unlink(missing_ok=True)
            wrong.append(differs)
            if self._hub is None:
                break
        again = "the same both times" if len(set(wrong)) == 1 else f"the first time {wrong[0]}"
        if self._hub is None:
            raise WeightsError(
                Exit.CORRUPT,
                f"{path} in the volume is not the file of {self._manifest.repository}: {wrong[-1]}",
                fix="copy this file into the volume again, then call pulumi up again",
            )
        raise WeightsError(
            Exit.CORRUPT,
            f"{path} of {self._manifest.repository} from {self._hub.endpoint} is not the expected file: {wrong[-1]} "
            f"({again})",
            fix="the source has another file under this commit, or what is between changes bytes: compare the file at "
            "the source (sha256sum); where the lock is wrong, take it back from version control",
        )

    def _once(self, path: str, place: Path) -> tuple[str, str]:
        """How the file differs from what is expected (nothing if it does not), and its sha256."""
        expected = self._manifest.files[path]
        part = open_part(place)
        try:
            digests, have = self._read_back(part, expected), _length(part)
            if have > expected.size:
                return f"got {have} bytes, expected {expected.size}", ""
            fewest, since = 0, have
            while have < expected.size:
                if self._hub is None:
                    return f"got {have} bytes, expected {expected.size}", ""
                try:
                    for at, data in self._hub.read(self._manifest, path, have):
                        if at < have:
                            # It knows no ranges. Nothing of what is there can be used.
                            part, digests, have, since = self._again(part, place, expected, have)
                        have += len(data)
                        if have > expected.size:
                            return f"got more than {expected.size} bytes", ""
                        self._take(part, digests, data)
                except RangeError:
                    part, digests, have, since = self._again(part, place, expected, have)
                except OtherFileError as other:
                    return f"got {other}, expected {expected.size} bytes", ""
                except RetryableError as error:
                    fewest = 1 if have - since >= _ADVANCE else fewest + 1
                    since = have
                    self._pause(error, path, have, fewest)
            os.fsync(part.fileno())
        finally:
            part.close()
        return digests.differ(expected), digests.sha256

    def _read_back(self, part: IO[bytes], expected: Entry) -> Digests:
        digests = Digests(expected)
        part.seek(0)
        while data := part.read(CHUNK):
            self._heed_stop()
            digests.update(data)
            self._progress.add(len(data), fetched=False)
        return digests

    def _again(self, part: IO[bytes], place: Path, expected: Entry, have: int) -> tuple[IO[bytes], Digests, int, int]:
        part.close()
        self._progress.add(-have, fetched=False)
        return new_part(place), Digests(expected), 0, 0

    def _take(self, part: IO[bytes], digests: Digests, data: bytes) -> None:
        self._heed_stop()
        self._limit.take(len(data))
        written = 0
        while written < len(data):
            written += part.write(data[written:])
        digests.update(data)
        self._progress.add(len(data))

    def _heed_stop(self) -> None:
        if self._stop.is_set():
            raise WeightsError(Exit.STOPPED, "stopped; unfinished files are kept", fix="run it again, and it continues")

    def _pause(self, error: RetryableError, path: str, have: int, attempts: int) -> None:
        expected = self._manifest.files[path].size
        where = f"{path} at {size(have)} of {size(expected)}"
        if attempts >= ATTEMPTS:
            raise WeightsError(
                Exit.UNREACHABLE,
                f"{where} does not go on: {error}; {attempts} attempts in a row brought next to nothing",
                fix="see whether the node reaches the server, and what the server reports; unfinished files are "
                "kept, so the next run continues",
            )
        pause = error.pause_s(attempts)
        self._progress.note(f"{where}: {error}; attempt {attempts + 1} of {ATTEMPTS} in {pause:.0f} s")
        self._clock.sleep(pause)
        self._heed_stop()


def _length(part: IO[bytes]) -> int:
    return os.fstat(part.fileno()).st_size
