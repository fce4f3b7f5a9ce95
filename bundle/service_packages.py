"""Packages of the platform's services for their images' Python, as requirements.lock pins them.

The lock is of every system and has more than they need: which ones do follows from the packages' own metadata, for that
Python and not for the one that runs here.
"""

from __future__ import annotations

import io
import re
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from bundle.errors import BundleError
from bundle.oci_layout import LayerFile
from bundle.wheels import LOCK, Package, download, locked_packages

PYTHON = "3.11"
_EXTRA = "services"
# Wheels name the oldest C library that they run on; the base image's is of Debian 13, 2.41.
_PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{minor}" for minor in range(5, 42)))
_OPTIONS = (
    "--only-binary=:all:",
    "--implementation=cp",
    f"--python-version={PYTHON}",
    *(f"--platform={name}_x86_64" for name in _PLATFORMS),
)
_ENVIRONMENT = {
    "implementation_name": "cpython",
    "implementation_version": f"{PYTHON}.0",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_release": "",
    "platform_system": "Linux",
    "platform_version": "",
    "python_full_version": f"{PYTHON}.0",
    "python_version": PYTHON,
    "sys_platform": "linux",
}
# Of `NAME-VERSION.data`, what Python imports; scripts begin with a path of the machine that installs them.
_IMPORTED = re.compile(r"[^/]+\.data/(?:purelib|platlib)/(?P<path>.+)")


def service_wheels(project: Path, folder: Path) -> list[Path]:
    """Wheels of the extra `services` and of all that they need, downloaded into the folder, sorted.

    Raises BundleError for one that the lock lacks, or that pip cannot have as locked.
    """
    locked = {canonicalize_name(package.name): package for package in locked_packages(project)}
    extras = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    new = {pair for text in extras[_EXTRA] for pair in _names(Requirement(text), "")}
    needed = set[tuple[NormalizedName, str]]()
    while new:
        needed |= new
        before = {*folder.glob("*.whl")}
        names = {name for name, _ in new}
        if unlocked := sorted(names - {*locked}):
            raise BundleError(f"{LOCK} lacks what the services need: {', '.join(unlocked)}", fix="make lock")
        have = {_name(file) for file in before}
        _download(project, folder, [locked[name] for name in sorted(names - have)])
        wheels = {_name(file): file for file in folder.glob("*.whl")}
        new = {pair for name, extra in new for pair in _required(wheels[name], extra)} - needed
    return sorted(folder.glob("*.whl"))


def layer_files(wheels: Iterable[Path], root: str) -> Iterator[LayerFile]:
    """What the wheels have for imports, below `root` of a layer: no scripts, and nothing that is compiled for a run."""
    files = dict[str, bytes]()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                path = entry.filename
                if match := _IMPORTED.fullmatch(path):
                    path = match["path"]
                elif ".data/" in path:
                    continue
                if not entry.is_dir() and not path.endswith(".pyc"):
                    files[path] = archive.read(entry)
    for path in sorted(files):
        yield LayerFile(f"{root}/{path}", io.BytesIO(files[path]))


def _download(project: Path, folder: Path, packages: list[Package]) -> None:
    if not packages:
        return
    lines = [
        " ".join([f"{package.name}=={package.version}", *(f"--hash=sha256:{digest}" for digest in package.digests)])
        for package in packages
    ]
    requirements = folder / "requirements.txt"
    requirements.write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
    download(project, requirements.resolve(), folder, *_OPTIONS)


def _required(wheel: Path, extra: str) -> Iterator[tuple[NormalizedName, str]]:
    """Names and extras that a wheel needs, with one of its extras or with none, under the images' Python."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        for text in message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", ()):
            yield from _names(Requirement(text), extra)


def _names(requirement: Requirement, extra: str) -> Iterator[tuple[NormalizedName, str]]:
    if requirement.marker is None or requirement.marker.evaluate({**_ENVIRONMENT, "extra": extra}):
        for wanted in ("", *requirement.extras):
            yield canonicalize_name(requirement.name), wanted


def _name(wheel: Path) -> NormalizedName:
    return canonicalize_name(wheel.name.partition("-")[0])
