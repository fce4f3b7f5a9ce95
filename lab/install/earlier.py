"""Programs and charts of versions before those that are pinned: where the walk from one version to the next begins.

`python -m lab.install.earlier` builds what tools/earlier names; it does nothing where all is there.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab.errors import LabError
from lab.install import charts
from lab.install.bundle import obtain_bundle
from lab.install.installer import Installation, link
from lab.install.parts import CHART_SOURCES, GO_FAMILIES, RELEASE_FILES, TOOLS, ModuleFolder
from lab.paths import EARLIER, Lab
from lab.progress import Progress

_TOOLS = TOOLS / "earlier"
FAMILIES = tuple(replace(family, tools=_TOOLS) for family in GO_FAMILIES if (_TOOLS / family.name).is_dir())
_PUBLISHED: dict[str, ModuleFolder] = {
    name: replace(source, tools=_TOOLS)
    for name, source in (CHART_SOURCES | RELEASE_FILES).items()
    if (_TOOLS / source.family).is_dir()
}


def install(lab: Lab) -> None:
    """Build each program and link it into the lab's bin folder. Raises LabError for what the user can fix."""
    run = Installation(lab, lab.bundle)
    progress = Progress("earlier versions", len(FAMILIES) + 1)
    for family in FAMILIES:
        with progress.step(f"{family.name} {family.release}"):
            built = run.builder.obtain(family).folder / "bin"
            for program in family.programs:
                link(lab.bin / EARLIER / f"{program.name}-v{family.release}", built / program.name)
    with progress.step("charts"):
        mirror(lab)


def mirror(lab: Lab) -> Path:
    """The folder with the charts and the releases' files of these versions. Raises LabError."""
    builder = Installation(lab, lab.bundle).builder
    write = partial(charts.write_mirror, pinned=_PUBLISHED)
    return obtain_bundle(builder, "earlier-charts", _PUBLISHED, charts.REVISION, write, verify=False).folder


def main() -> int:
    """Exit status 1 with what to do, where one cannot be built."""
    try:
        install(Lab.from_environment())
    except LabError as error:
        print(f"error: {error.what}\nfix: {error.fix}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
