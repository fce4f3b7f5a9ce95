"""A chart under KEDA's name for the lab, which reaches no repository: KEDA's own definitions and real programs.

Names, labels, ports and arguments are those of KEDA's chart; its accounts may do anything, which KEDA's may not.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from lab.install.parts import RELEASE_FILES
from lab.paths import CHECKOUT
from stacks.facts import versions

_TEMPLATES = Path(__file__).with_name("charts") / "keda" / "templates"


@contextmanager
def keda_chart() -> Iterator[None]:
    """The chart is among the lab's own."""
    folder, pin = CHECKOUT / ".lab" / "bundle" / "charts", versions.load().charts["keda"]
    target = folder / f"keda-{pin.version}.tgz"
    assert not target.exists(), f"{target.name}: a stub would take the place of a chart"
    about = {"apiVersion": "v2", "name": "keda", "version": pin.version, "appVersion": pin.version}
    files = {
        "Chart.yaml": yaml.safe_dump(about),
        "definitions.yaml": (folder / f"keda-{RELEASE_FILES['keda'].version}.yaml").read_text(),
        **{f"templates/{template.name}": template.read_text() for template in _TEMPLATES.iterdir()},
    }
    with tarfile.open(target, "w:gz") as archive:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(f"keda/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    try:
        yield
    finally:
        target.unlink()
