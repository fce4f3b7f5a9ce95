"""Packed charts that stand for others': what a preview needs of one where its publisher cannot be reached."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import yaml

from stacks.facts import versions


def write_stub_charts(folder: Path, names: Iterable[str]) -> None:
    """One empty chart for each of these names in versions.yaml, in the pinned version, unless the folder has it."""
    for name in names:
        pin = versions.load().charts[name]
        chart = pin.chart.rpartition("/")[2]
        packed = folder / f"{chart}-{pin.version}.tgz"
        if not packed.exists():
            about = {"apiVersion": "v2", "name": chart, "version": pin.version}
            with tarfile.open(packed, "w:gz") as archive:
                _add(archive, f"{chart}/Chart.yaml", yaml.safe_dump(about))
                _add(archive, f"{chart}/templates/none.yaml", "")


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(text.encode())
    archive.addfile(member, io.BytesIO(text.encode()))
