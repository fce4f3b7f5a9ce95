"""Programs that are not built here: Debian's, and those inside PyPI wheels."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from lab.errors import LabError
from lab.install.parts import DEBIAN_PROGRAMS, WheelPrograms
from lab.install.running import last_lines, run_logged
from lab.install.store import locked
from lab.paths import Lab

# Where Debian keeps network programs; an ordinary user's PATH leaves these out.
_SYSTEM_FOLDERS = "/usr/sbin:/sbin:/usr/bin:/bin"


def debian_programs(lab: Lab, environment: Mapping[str, str] = os.environ) -> dict[str, Path | None]:
    """The name in `lab.bin` and the program found on this machine, None where it is missing."""
    # Our own links must not be found, or a link would come to point at itself.
    ours = lab.bin.resolve()
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if Path(folder).resolve() != ours]
    path = os.pathsep.join([*folders, _SYSTEM_FOLDERS])
    places = {program.name: shutil.which(program.name, path=path) for program in DEBIAN_PROGRAMS}
    return {name: Path(place) if place else None for name, place in places.items()}


def missing_packages(programs: Mapping[str, Path | None]) -> list[str]:
    return sorted({program.package for program in DEBIAN_PROGRAMS if programs[program.name] is None})


def ensure_debian_programs(lab: Lab) -> dict[str, Path]:
    """Every Debian program's place; installs missing packages as root, else raises LabError that names them."""
    programs = debian_programs(lab)
    if packages := missing_packages(programs):
        apt = shutil.which("apt-get")
        if apt is None or os.geteuid() != 0:
            who = "this machine has no apt-get" if apt is None else "installing needs root"
            raise LabError(
                f"part system: programs of these Debian packages are missing: {' '.join(packages)}; {who}",
                fix=f"as root: apt-get install --no-install-recommends {' '.join(packages)}"
                " (or your distribution's packages of the same programs)",
            )
        _apt_install(lab, apt, packages)
        programs = debian_programs(lab)
        if packages := missing_packages(programs):
            raise LabError(
                f"part system: apt-get went through, but programs of {' '.join(packages)} are still missing",
                fix="install them by hand so that they are on PATH",
            )
    return {name: place for name, place in programs.items() if place is not None}


def _apt_install(lab: Lab, apt: str, packages: list[str]) -> None:
    log = lab.cache / "logs" / "apt.log"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    waiting = ("-o", "DPkg::Lock::Timeout=300")
    install = [apt, "install", "--yes", "--no-install-recommends", *waiting, *packages]
    with locked(lab.cache / ".lock-apt", "apt-get"):
        # A fresh machine has no package lists, and fetching them each time would be slow.
        for command in (install, [apt, "update"], install):
            status = run_logged(command, log=log, label="apt-get", environment=environment)
            if command is install and status == 0:
                return
    shown = "".join(f"\n    | {line[:200]}" for line in last_lines(log, 6))
    raise LabError(
        f"part system: apt-get could not install {' '.join(packages)}{shown}",
        fix=f"install them by hand; apt-get's whole output is in {log}",
    )


def wheel_programs(wheel: WheelPrograms) -> dict[str, Path]:
    """Programs of the installed wheel by name; raises LabError when it is not there."""
    try:
        spec = importlib.util.find_spec(wheel.module)
    except ModuleNotFoundError:
        spec = None
    for place in spec.submodule_search_locations or [] if spec else []:
        programs = {name: Path(place) / wheel.folder / name for name in wheel.programs}
        if all(program.is_file() and os.access(program, os.X_OK) for program in programs.values()):
            return programs
    raise LabError(
        f"part {wheel.name}: the Python package {wheel.package} with {', '.join(wheel.programs)} is not installed here",
        fix="install the lab's packages into this Python: pip install -r requirements.lock",
    )


def wheel_version(wheel: WheelPrograms) -> str:
    try:
        return importlib.metadata.version(wheel.package)
    except importlib.metadata.PackageNotFoundError:
        return "-"
