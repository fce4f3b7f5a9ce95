"""A program in helm's place: it notes what it is asked for, and prints what the test put beside it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bundle.helm import Helm

_SCRIPT = """\
#!/bin/sh
{ for word; do printf '%s\\n' "$word"; done; echo; } >>"$0.asked"
case $1 in
  template) cat >"$0.values"; [ -f "$0.rendered" ] && exec cat "$0.rendered" ;;
  pull) chart="${2##*/}-$4.tgz"; while [ "$1" != --destination ]; do shift; done
    [ -f "$0.$chart" ] && cp "$0.$chart" "$2/$chart"; exit 0 ;;
  version) echo v4.3.1; exit ;;
  show) cat "$3"; exit ;;
esac
echo "Error: no such chart" >&2
exit 1
"""


def packed(name: str) -> bytes:
    """A packed chart that holds its name."""
    buffer, text = io.BytesIO(), name.encode()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo("chart/Chart.yaml")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text))
    return gzip.compress(buffer.getvalue(), mtime=0)


@dataclass(frozen=True)
class StandInHelm:
    """Renders `rendered`, pulls the packed charts that it was given, and fails without."""

    program: Path

    @classmethod
    def in_folder(cls, folder: Path) -> StandInHelm:
        program = folder / "helm"
        program.write_text(_SCRIPT)
        program.chmod(0o755)
        return cls(program)

    def helm(self) -> Helm:
        return Helm(str(self.program), self.program.parent)

    def renders(self, text: str) -> None:
        self.program.with_name("helm.rendered").write_text(text)

    def has_charts(self, *names: str) -> None:
        for name in names:
            self.program.with_name(f"helm.{name}").write_bytes(packed(name))

    def asked(self) -> list[Sequence[str]]:
        """The arguments of each call."""
        file = self.program.with_name("helm.asked")
        calls = file.read_text().split("\n\n") if file.exists() else []
        return [call.split("\n") for call in calls if call]

    def values(self) -> dict[str, Any]:
        """Of the last rendering."""
        values: dict[str, Any] = json.loads(self.program.with_name("helm.values").read_text())
        return values
