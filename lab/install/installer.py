"""Installs the parts one after the other and links their programs into `lab.bin`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lab.install.building import GoBuilder
from lab.install.parts import GO_FAMILIES, required_go
from lab.install.toolchain import choose_toolchain
from lab.paths import Lab
from lab.progress import Progress


def install(lab: Lab, parts: Sequence[str] | None = None, *, keep_go_cache: bool = True) -> None:
    families = [family for family in GO_FAMILIES if parts is None or family.name in parts]
    at_least = max(required_go(family.folder / "go.mod") for family in families)
    builder = GoBuilder(lab, choose_toolchain(lab, at_least))
    progress = Progress("install", len(families))
    for family in families:
        if builder.store.fault(family.name, builder.key(family)) is None:
            progress.skip(family.name, "already built")
        else:
            with progress.step(family.name):
                builder.obtain(family)
        for name in family.names:
            link(lab.bin / name, builder.store.folder(family.name, builder.key(family)) / "bin" / name)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(path)
