"""What the bundles share: a content-keyed folder made from pinned modules, then copied to where its readers look."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.install.building import GoBuilder, module_folder
from lab.install.parts import ModuleFolder
from lab.install.store import MANIFEST, StoreEntry, ToolStore, content_key, manifest_files
from lab.paths import Lab

# Writes one bundle into a folder, from the module folders by name.
Writer = Callable[[Mapping[str, Path], Path], None]


def bundle_store(lab: Lab) -> ToolStore:
    return ToolStore(lab.cache / "bundles")


def bundle_key(sources: Mapping[str, ModuleFolder], revision: str) -> str:
    """Changes with the modules' content and with `revision`, the version of our own way of writing the bundle."""
    texts = [revision]
    for name, source in sorted(sources.items()):
        texts += [name, source.checksum, source.path]
    return content_key(texts)


def obtain_bundle(
    builder: GoBuilder, name: str, sources: Mapping[str, ModuleFolder], revision: str, write: Writer, *, verify: bool
) -> StoreEntry:
    """The bundle's folder in the cache; modules are downloaded only when it is missing."""

    def fill(folder: Path, _lock: int) -> None:
        write({source: module_folder(builder, wanted, name) for source, wanted in sources.items()}, folder)

    return bundle_store(builder.lab).obtain(name, bundle_key(sources, revision), fill, verify=verify)


def publish(entry: Path, target: Path) -> bool:
    """Make `target` a copy of a cached folder; False when it already is one.

    The copy is written next to the target and renamed, so a reader sees the old files or the new ones.
    """
    if _same(entry, target):
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new-{os.getpid()}")
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    for leftover in target.parent.glob(f".{target.name}.*-*"):
        shutil.rmtree(leftover)
    shutil.copytree(entry, fresh, ignore=shutil.ignore_patterns(MANIFEST))
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    return True


def _same(entry: Path, target: Path) -> bool:
    expected = manifest_files(entry)
    present = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    return present == set(expected) and all(
        (entry / relative).read_bytes() == (target / relative).read_bytes() for relative in expected
    )
