"""Brings wanted revisions into the volume, from what is there already and from the source; removes earlier ones."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from services.weights.completion import MARKER as MARKER_FILE
from services.weights.completion import Marker, VerifiedFiles, problem, read_marker, write_marker
from services.weights.failure import Exit, WeightsError
from services.weights.hub import Hub
from services.weights.manifest import Entry, Manifest, chosen, is_inside
from services.weights.order import Wanted, WeightsOrder
from services.weights.pace import Clock, Limit, ProgressLines, duration, size
from services.weights.retrying import ATTEMPTS, RetryableError
from services.weights.transfer import Transfer
from services.weights.volume import Volume, remove, storage_failure, sync_folder


@dataclass(frozen=True)
class Bringing:
    """One run of the program for one volume."""

    order: WeightsOrder
    volume: Volume
    hub: Hub | None
    """None for a volume that is filled by hand."""
    say: Callable[[str], None]
    clock: Clock = field(default_factory=Clock)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, *, remove_earlier: bool = False) -> None:
        """Every wanted revision is whole afterwards. Raises WeightsError.

        remove_earlier: first remove what the order does not keep, though a server may still read an earlier one.
        """
        with self.volume.writing(self.clock, self.say):
            try:
                if remove_earlier:
                    self._remove_earlier()
                for wanted in self.order.wanted:
                    self._bring(wanted)
            except OSError as error:
                raise storage_failure(error, Path(error.filename or self.volume.root)) from None

    def _bring(self, wanted: Wanted) -> None:
        folder, locked = self.volume.folder(wanted.revision), wanted.manifest()
        called = f"{wanted.repository} at {wanted.revision}"
        wrong = problem(folder, wanted.repository, wanted.revision, locked.digest if locked else "")
        if not wrong:
            self.say(f"{called}: whole already, {size(folder_size(folder))}")
            return
        if (folder / MARKER_FILE).exists():
            self.say(f"{called}: verified again, as {wrong}")
            (folder / MARKER_FILE).unlink()
        began, manifest = self.clock.now(), locked or self._stated(wanted)
        against = "lock" if locked else "hub" if self.hub else "found"
        self.say(f"{called}: {len(manifest.files)} files, {size(manifest.size)}, verified against the {against}")
        folder.mkdir(parents=True, exist_ok=True)
        record = VerifiedFiles(self.volume, wanted.revision)
        verified = {path: sha256 for path in manifest.files if (sha256 := record.sha256(path))}
        missing = {
            path: entry
            for path, entry in manifest.files.items()
            if path not in verified or (entry.sha256 and verified[path] != entry.sha256)
        }
        self._adopt(manifest, missing)
        self.volume.require_room(self._to_fetch(manifest, missing), called)
        verified |= self._fetch(manifest, missing, record)
        if against != "found":
            self._drop_others(folder, manifest)
        whole = Manifest(
            manifest.repository,
            manifest.revision,
            {path: Entry(entry.size, verified[path]) for path, entry in manifest.files.items()},
        )
        write_marker(folder, Marker(whole, against))
        remove(self.volume.parts(wanted.revision))
        self.say(f"{called}: whole after {duration(self.clock.now() - began)}; list of files sha256 {whole.digest}")

    def _stated(self, wanted: Wanted) -> Manifest:
        """What the server states of the revision; of a volume without a server, what is in it."""
        if self.hub is None:
            return self._stated_by_itself(wanted)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.hub.manifest(wanted.repository, wanted.revision)
            except RetryableError as error:
                if attempt == ATTEMPTS:
                    raise WeightsError(
                        Exit.UNREACHABLE,
                        f"{self.hub.endpoint} gives no list of files: {error}; {ATTEMPTS} attempts",
                        fix="see whether the node reaches the server; a lock needs no list (sitectl weights lock)",
                    ) from None
                pause = error.pause_s(attempt)
                self.say(f"{error}; attempt {attempt + 1} of {ATTEMPTS} in {pause:.0f} s")
                self.clock.sleep(pause)
        raise AssertionError

    def _stated_by_itself(self, wanted: Wanted) -> Manifest:
        cache = self.volume.cache(wanted.repository, wanted.revision)
        folder = cache if cache.is_dir() else self.volume.folder(wanted.revision)
        files = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
        kept = chosen(path for path in files if is_inside(path))
        if not kept:
            beside = sorted(path.name for path in cache.parent.glob("*")) if cache.parent.is_dir() else []
            raise WeightsError(
                Exit.INCOMPLETE,
                f"{wanted.repository} at {wanted.revision} is not in the volume",
                got=f"a cache with {', '.join(beside)}" if beside else "neither",
                allowed=f"its files in revisions/{wanted.revision}, or the hub's cache as the folder hub",
                fix="copy them there, or name the commit that is there as models.NAME.server.revision; then call "
                "pulumi up again",
            )
        return Manifest(
            wanted.repository,
            wanted.revision,
            {path: Entry((folder / path).stat().st_size, "") for path in kept},
        )

    def _adopt(self, manifest: Manifest, missing: dict[str, Entry]) -> None:
        """Files that are in the volume unverified become parts, to be read and compared instead of downloaded."""
        cache = self.volume.cache(manifest.repository, manifest.revision)
        adopted = 0
        for path, entry in missing.items():
            part = self.part(manifest.revision, path)
            for there in (self.volume.folder(manifest.revision) / path, cache / path):
                if part.exists() or not there.is_file() or there.stat().st_size != entry.size:
                    continue
                part.parent.mkdir(parents=True, exist_ok=True)
                try:
                    # The same file under a second name: it takes no room.
                    os.link(there.resolve(), part)
                except OSError:
                    self.volume.require_room(entry.size, f"a copy of {path}")
                    shutil.copyfile(there, part)
                adopted += 1
        if adopted:
            self.say(f"{adopted} files are in the volume already, and are read to compare them")

    def part(self, revision: str, path: str) -> Path:
        """Where an unfinished file is."""
        return self.volume.parts(revision) / f"{path}.part"

    def _to_fetch(self, manifest: Manifest, missing: dict[str, Entry]) -> int:
        there = 0
        for path, entry in missing.items():
            part = self.part(manifest.revision, path)
            there += min(part.stat().st_size, entry.size) if part.exists() else 0
        return sum(entry.size for entry in missing.values()) - there

    def _fetch(self, manifest: Manifest, missing: dict[str, Entry], record: VerifiedFiles) -> dict[str, str]:
        """sha256 of each missing file, which is in its place then. The largest begin first."""
        progress = ProgressLines(sum(entry.size for entry in missing.values()), self.clock, self.say)
        limit = Limit(self.order.bytes_per_s, self.clock)
        transfer = Transfer(self.hub, manifest, limit, progress, self.clock, self.stop)
        todo: SimpleQueue[str] = SimpleQueue()
        for path in sorted(missing, key=lambda path: (-missing[path].size, path)):
            todo.put(path)
        verified: dict[str, str] = {}
        failures: list[Exception] = []

        def work() -> None:
            while not self.stop.is_set():
                try:
                    path = todo.get_nowait()
                except Empty:
                    return
                try:
                    part, place = self.part(manifest.revision, path), self.volume.folder(manifest.revision) / path
                    verified[path] = transfer.bring(path, part)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    part.replace(place)
                    sync_folder(place.parent)
                    record.add(path, verified[path])
                except (WeightsError, OSError) as error:
                    failures.append(error)
                    self.stop.set()

        # Daemons: a stop need not wait for a server that sends nothing.
        threads = [threading.Thread(target=work, daemon=True) for _ in range(min(self.order.parallel, len(missing)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        if self.stop.is_set():
            raise WeightsError(Exit.STOPPED, "stopped; unfinished files are kept", fix="run it again, and it continues")
        if missing:
            progress.show()
        return verified

    @staticmethod
    def _drop_others(folder: Path, manifest: Manifest) -> None:
        """Files that no list has, of another list or copied by mistake, must not be read by an engine."""
        for path in sorted(folder.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif str(path.relative_to(folder)) not in manifest.files:
                path.unlink()

    def prune(self) -> None:
        """Remove what no server needs: run it once every server of the model runs on the wanted revisions."""
        with self.volume.writing(self.clock, self.say):
            for entry in self.order.wanted:
                if read_marker(self.volume.folder(entry.revision)) is None:
                    self.say(f"{entry.revision} is not whole, so nothing is removed")
                    return
            self._remove_earlier()
            for entry in self.order.wanted:
                cache = self.volume.cache(entry.repository, entry.revision).parents[1]
                if self.hub is not None and cache.is_dir():
                    remove(cache)
                    self.say(f"{cache.name}: removed, the cache of earlier downloads")

    def _remove_earlier(self) -> None:
        """Of those that are not wanted, what was used last stays, up to the number that the order keeps."""
        wanted = [entry.revision for entry in self.order.wanted]
        others = [path for path in self._revisions() if path.name not in wanted]
        kept = self._kept(others)
        for path in others:
            if path in kept:
                self.say(f"{path.name}: kept, to go back to")
                continue
            if not self._is_ours(path):
                self.say(f"{path.name}: left alone, as this program did not make it")
                continue
            freed = folder_size(path)
            remove(path)
            remove(self.volume.parts(path.name))
            self.volume.used(path.name).unlink(missing_ok=True)
            self.say(f"{path.name}: removed, {size(freed)}")

    def _kept(self, others: list[Path]) -> list[Path]:
        """Those of the revisions that stay, of each repository as many: a draft model gives its model no more room."""
        repositories = [entry.repository for entry in self.order.wanted]
        room = max(self.order.keep - len(repositories), 0)
        whole = [(marker.manifest.repository, path) for path in others if (marker := read_marker(path))]
        # What the order names comes first, as its servers go back to it.
        whole.sort(key=lambda entry: entry[0] not in repositories)
        kept: list[Path] = []
        counts: Counter[str] = Counter()
        for repository, path in whole:
            most = room // len(repositories) * max(repositories.count(repository), 1)
            if len(kept) < room and counts[repository] < most:
                counts[repository] += 1
                kept.append(path)
        return kept

    def _is_ours(self, folder: Path) -> bool:
        """Whether this program made the revision, whole or in part; one that is copied in may wait for its turn."""
        return read_marker(folder) is not None or (self.hub is not None and self.volume.parts(folder.name).is_dir())

    def _revisions(self) -> list[Path]:
        """Folders of revisions, the one that a server started on last first, then by when they were verified.

        Not what a removal has left.
        """
        folders = [path for path in self.volume.revisions.glob("[!.]*") if path.is_dir()]
        return sorted(
            folders, key=lambda path: (-_time(self.volume.used(path.name)), -_time(path / MARKER_FILE), path.name)
        )


def _time(file: Path) -> float:
    return file.stat().st_mtime if file.exists() else 0.0


def folder_size(folder: Path) -> int:
    """Bytes of all files below it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
