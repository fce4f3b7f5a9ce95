"""Packed charts in the project's folder: as the project locked them, fetched once, and kept by their content."""

from __future__ import annotations

import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bundle.errors import BundleError
from bundle.fetching import Sources
from bundle.helm import named
from bundle.store import ContentStore, copy_whole
from components.addons.chart_lock import FILE, lock_text, locked_name, read_lock
from components.addons.charts import Chart
from floor.digests import sha256_of

_ANOTHER = (
    "fetch it from its publisher or a mirror that has the locked one: --from ADDRESS; if this one is right, remove its "
    f"line from {FILE} and call this again"
)

_AGAIN = "call this again, or fetch it from another place: --from ADDRESS"


@dataclass(frozen=True, kw_only=True)
class ChartFolder:
    """The charts of `folder`, which the lock of `project` names, and copies of them in `store`."""

    project: Path
    folder: Path
    store: ContentStore

    def write(self, sources: Sources, note: Callable[[str], None]) -> list[Path]:
        """Bring the folder to the lock; the files that were written, the lock among them.

        A chart without a line in the lock gets one. Raises BundleError for a chart that is not the locked one, and
        SiteError for a lock that cannot be read; what was fetched until then is written and locked.
        """
        digests = read_lock(self.project)
        locked_before = dict(digests)
        written: list[Path] = []
        try:
            for file, chart in sources.charts():
                name = locked_name(self.folder / file, self.project)
                digest, is_new = self._placed(self.folder / file, digests.get(name), chart, sources, note)
                digests[name] = digest
                written += [self.folder / file] if is_new else []
        finally:
            if digests != locked_before:
                written.append(self._write_lock(digests))
        return written

    def _placed(
        self, target: Path, locked: str | None, chart: Chart, sources: Sources, note: Callable[[str], None]
    ) -> tuple[str, bool]:
        """Digest of the chart that is now at `target`, and whether it was written."""
        if is_whole(target) and locked in (None, sha256_of(target)):
            return self.store.add(target), False
        if locked and (kept := self.store.holds(locked)):
            note(f"{target}: as locked, kept from before")
            copy_whole(kept, target)
            return locked, True
        note(f"{target}: from {named(chart)}")
        with tempfile.TemporaryDirectory() as pulled:
            # Under our own name: a repository may leave the `v` of the version out of its file's.
            packed = sources.pulled(chart, Path(pulled).resolve())
            if not is_whole(packed):
                raise BundleError(f"{named(chart)} {chart.version} is cut short", fix=_AGAIN)
            digest = sha256_of(packed)
            if locked not in (None, digest):
                raise BundleError(
                    f"{named(chart)} {chart.version} is not the chart that {FILE} locks",
                    got=f"sha256 {digest}",
                    allowed=f"sha256 {locked}",
                    fix=_ANOTHER,
                )
            self.store.add(packed)
            copy_whole(packed, target)
        return digest, True

    def _write_lock(self, digests: dict[str, str]) -> Path:
        file = self.project / FILE
        with tempfile.TemporaryDirectory(dir=self.project, prefix=".locked-") as drafts:
            draft = Path(drafts) / FILE
            draft.write_text(lock_text(digests), encoding="utf-8")
            draft.replace(file)
        return file


def is_whole(chart: Path) -> bool:
    """Whether the packed chart is there and can be read to its end."""
    try:
        with tarfile.open(chart) as packed:
            return bool(packed.getmembers())
    except (OSError, EOFError, tarfile.TarError, zlib.error):
        return False
